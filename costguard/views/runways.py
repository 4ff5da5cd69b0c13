"""How long prepaid balances last: their sentences, and their data in `costguard.status/1`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from costguard.budgets.runway import Runway
from costguard.errors import shorten
from costguard.values.text_format import (
    RATE_PLACES,
    format_amount,
    format_exact,
    format_instant,
    format_length,
    format_local_time,
    get_currency_sign,
)

NAME_CHARS_MAX = 60
"""Longer names of accounts are cut in sentences."""


def build_runway_data(runway: Runway, at: datetime) -> Mapping[str, object]:
    """Return the data of a prepaid account at `at`.

    `balance`: None if unknown, see `why`. `hours_left`: None if the account has no costs, or if it is unknown.
    """
    balance = runway.balance
    return {
        "provider": balance.provider,
        "account": balance.account,
        "at": format_instant(balance.at),
        "currency": balance.amount.currency if balance.amount else None,
        "balance": format_exact(balance.amount) if balance.amount else None,
        "burn_per_hour": format_exact(runway.hourly, RATE_PLACES) if runway.hourly else None,
        "hours_left": None if runway.left is None else round(runway.left.total_seconds() / 3600, 4),
        "empty_at": None if runway.left is None else format_instant(at + runway.left),
        "why": runway.why,
        "loses": [{"region": key.region, "id": key.id, "name": name, "what": list(lost)} for key, name, lost in runway.loses],
    }


def list_runway_lines(runways: Iterable[Runway], at: datetime) -> Iterator[str]:
    """Yield a sentence about how long each prepaid balance lasts from `at` on."""
    for runway in runways:
        balance = runway.balance
        who = f"{balance.provider}/{shorten(balance.account, NAME_CHARS_MAX)}"
        if balance.amount is None:
            yield f"{who} is prepaid, but its balance is unknown: {runway.why}."
            continue
        code = get_currency_sign(balance.amount.currency)
        left = f"{who}: {code}{format_amount(balance.amount)} left"
        if runway.left is None:
            yield f"{left}; {runway.why}."
        else:
            doubt = f"; {runway.why}" if runway.why else ""
            yield (f"{left}, {format_length(runway.left)} at this burn, until {format_local_time(at + runway.left)}{doubt}.")
