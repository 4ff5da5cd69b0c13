"""The model of `[[agreement]]` tables: prices that are yours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, tzinfo
from fractions import Fraction
from typing import Annotated

from costguard.budgets.agreement import Agreement
from costguard.errors import InputError, collect_errors, raise_errors
from costguard.settings.budgets import MatchTable, make_filter, read_date
from costguard.settings.model import (
    Name,
    OptionalTexts,
    ReadAs,
    SettingsModel,
    Text,
    describe_key,
    read_models,
    require_table,
)
from costguard.values.calendar import make_day
from costguard.values.checks import describe_value, require
from costguard.values.money import Money, Rate

DISCOUNT_PATTERN = re.compile(r"([-+]?\d{1,6}(?:\.\d{1,6})?)\s*%")
MONEY_PATTERN, MONEY_HINT = re.compile(r"([-+]?[\d._]+)\s+([A-Z]{3})"), 'write what a month costs at least, such as "500 USD"'
RATE_PATTERN = re.compile(r"(\d[\d._]*)\s+([A-Z]{3})\s*/\s*h")
DISCOUNT_HINT, RATE_HINT = 'write what is taken off the list price, such as "42%"', 'write "19.60 USD/h", of a whole machine'


def _read_discount(value: object, field: str) -> Fraction:
    match = DISCOUNT_PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InputError(f"must be a percentage, not {describe_value(value)}", field=field, hint=DISCOUNT_HINT)
    return Fraction(match[1]) / 100


def _read_rate(value: object, field: str) -> Rate:
    match = RATE_PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        is_number = re.fullmatch(r"[\d._]+(\s*/\s*h)?", str(value).strip())
        lacks = "must say its currency and the hour" if is_number else "must be a rate"
        raise InputError(f"{lacks}, not {describe_value(value)}", field=field, hint=RATE_HINT)
    return Rate.parse(match[1], match[2], field=field)


def _read_commitment(value: object, field: str) -> Money:
    match = MONEY_PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InputError(
            f"must be an amount of money with its currency, not {describe_value(value)}", field=field, hint=MONEY_HINT
        )
    money = Money.parse(match[1], match[2], field=field)
    require(
        money.nano > 0, field, f"must be more than zero, not {describe_value(value)}", "remove the line to commit to nothing"
    )
    return money


class AgreementMatchTable(MatchTable):
    """What a budget matches, and types of instances."""

    types: OptionalTexts = None


class AgreementTable(SettingsModel):
    """An `[[agreement]]` table."""

    name: Name = describe_key(..., "Unique.", "EDP 2026")
    source: Text = describe_key(..., "Where the price is written; reports show it.", "contract 4711")
    match: Annotated[AgreementMatchTable | None, require_table('{ providers = ["aws"] }')] = describe_key(
        None,
        "Its machines (default: all), as in a budget, and by instance types. No machine may have two at once.",
        {"providers": ["aws"], "types": ["p4d.24xlarge"]},
    )
    discount: Annotated[Fraction | None, ReadAs(_read_discount)] = describe_key(
        None,
        'What it takes off the price that the provider lists. Instead of it: rate, such as "19.60 USD/h" of a whole machine.',
        "42%",
    )
    rate: Annotated[Rate | None, ReadAs(_read_rate)] = describe_key(
        None, "The price of a whole machine, instead of the listed one.", "19.60 USD/h"
    )
    commitment: Annotated[Money | None, ReadAs(_read_commitment)] = describe_key(
        None,
        "What its machines cost in a calendar month at least: the rest is a charge of its own when the month is over.",
        "500 USD",
    )
    start: Annotated[date | None, ReadAs(read_date)] = describe_key(
        None, "The first day on which it counts (default: always; what is recorded stays).", "2026-01-01", key="from"
    )
    until: Annotated[date | None, ReadAs(read_date)] = describe_key(
        None, "The first day on which it no longer counts.", "2027-01-01"
    )


def read_agreements(value: object, where: str, zone: tzinfo) -> tuple[Agreement, ...]:
    """Return the agreements of the file `where` in their order; raise InputErrors, also for those that overlap.

    `zone`: in which their days begin.
    """
    agreements = read_models("agreement", AgreementTable, value, where, lambda table: _make_agreement(table, zone))
    _require_apart(agreements, where)
    return agreements


def _make_agreement(table: AgreementTable, zone: tzinfo) -> Agreement:
    for key, day in (("from", table.start), ("until", table.until)) if table.commitment else ():
        require(day is None or day.day == 1, key, "is within a month, of which the commitment is", "write the first of a month")
    return Agreement(
        name=table.name,
        source=table.source,
        match=make_filter(table.match),
        types=table.match.types if table.match else None,
        discount=table.discount,
        rate=table.rate,
        commitment=table.commitment,
        start=make_day(table.start, zone).start if table.start else None,
        end=make_day(table.until, zone).start if table.until else None,
    )


def _require_apart(agreements: Sequence[Agreement], where: str) -> None:
    errors: list[InputError] = []
    for number, one in enumerate(agreements, 1):
        first = next((n for n, other in enumerate(agreements[: number - 1], 1) if one.overlaps(other)), 0)
        with collect_errors(errors, ("agreement", number)):
            problem = f"overlaps agreement {first} ({agreements[first - 1].name}): a machine may have both at one time"
            hint = "narrow match, from or until of one of them"
            require(not first, f"{where}: agreement {number} ({one.name}).match", problem, hint)
    raise_errors(errors)
