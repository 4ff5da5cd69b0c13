"""What only some conditions ask for, looked up for the whole fleet at once: money spent, balances, since when it is stopped.

Example: `spent_day >= usd(50.00)`: where any policy asks that, each machine's day is summed in one question; where none does,
nobody is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo

from costguard.budgets.runway import runway_of
from costguard.guard.facts import Known
from costguard.metering.meter import COMPUTE
from costguard.metering.spending import LiveResource
from costguard.values.balance import PrepaidBalance
from costguard.values.calendar import find_day, find_month
from costguard.values.money import Money
from costguard.values.resource import ResourceKey

RUN, DAY, MONTH = "spent_run", "spent_day", "spent_month"
SPENT = (RUN, DAY, MONTH)
STOPPED_FOR, RUNWAY, PRICE_AGE = "stopped_for", "runway", "price_age"
ASKED = frozenset((*SPENT, STOPPED_FOR, RUNWAY, PRICE_AGE))
"""Facts that somebody must be asked for."""
LISTED = "listing"
"""The source of a price that stands in the listing itself: each listing states it anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The answers. `paid`: by the names of SPENT. `runways`: by (provider, account). What is missing is not known."""

    paid: Mapping[ResourceKey, Mapping[str, Money]]
    stopped_since: Mapping[ResourceKey, datetime]
    runways: Mapping[tuple[str, str], timedelta]


NOTHING_ASKED = Asked(paid={}, stopped_since={}, runways={})


def starts_of(names: Iterable[str], zone: tzinfo, now: datetime) -> dict[str, datetime | None]:
    """From when on each of `names` that is one of SPENT counts; None: from the start of its run."""
    starts = {RUN: None, DAY: find_day(now, zone).start, MONTH: find_month(now, zone).start}
    return {name: starts[name] for name in SPENT if name in set(names)}


def runways_of(
    balances: Iterable[PrepaidBalance], live: Iterable[LiveResource], now: datetime
) -> dict[tuple[str, str], timedelta]:
    """How long each account's prepaid balance lasts, where that is known: not where part of it burns at an unknown price."""
    live, found = tuple(live), dict[tuple[str, str], timedelta]()
    for balance in balances:
        runway, account = runway_of(balance, live, now), (balance.provider, balance.account)
        if runway.left is not None and (not runway.why or not runway.left):
            found[account] = min(found.get(account, runway.left), runway.left)
    return found


def price_age(live: LiveResource, now: datetime) -> timedelta | None:
    """How old the price is that its computing bills at: since its provider dates it, else since the listing that stated it.

    None: it bills nothing, nobody stated a price, or the price comes from a list without a date.
    """
    billed = [span for span in live.open if span.meter.charge == COMPUTE]
    prices = live.observation.prices
    if not billed or not prices or not all(span.meter.price.known for span in billed):
        return None
    since = prices[-1].since or (live.seen_at if prices[-1].source == LISTED else None)
    return None if since is None or since > now else now - since


def learned(known: Known, live: LiveResource, asked: Asked, now: datetime) -> Known:
    """`known` with what was asked about `live`."""
    key = live.observation.key
    paid = asked.paid.get(key, {})
    return replace(
        known,
        spent_run=paid.get(RUN),
        spent_day=paid.get(DAY),
        spent_month=paid.get(MONTH),
        stopped_since=asked.stopped_since.get(key),
        price_age=price_age(live, now),
        runway=asked.runways.get(key[:2]),
    )
