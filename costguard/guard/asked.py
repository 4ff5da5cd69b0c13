"""What only some conditions ask for, looked up for the whole fleet at once: money spent, balances, since when it is stopped.

Example: `spent_day >= usd(50.00)`: where any policy asks that, each machine's day is summed in one question; where none does,
nobody is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo

from costguard.budgets.runway import compute_runway
from costguard.guard.facts import FactInputs
from costguard.metering.meter import COMPUTE
from costguard.metering.spending import LiveResource
from costguard.values.balance import PrepaidBalance
from costguard.values.calendar import find_day, find_month
from costguard.values.money import Money
from costguard.values.resource import ResourceKey

SPENT_RUN, SPENT_DAY, SPENT_MONTH = "spent_run", "spent_day", "spent_month"
SPENT_FACTS = (SPENT_RUN, SPENT_DAY, SPENT_MONTH)
STOPPED_FOR, RUNWAY, PRICE_AGE = "stopped_for", "runway", "price_age"
LOOKED_UP_FACTS = frozenset((*SPENT_FACTS, STOPPED_FOR, RUNWAY, PRICE_AGE))
"""Facts that somebody must be asked for."""
LISTING_SOURCE = "listing"
"""The source of a price that stands in the listing itself: each listing states it anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFacts:
    """The answers. `paid`: by the names of SPENT. `runways`: by (provider, account). What is missing is not known."""

    paid: Mapping[ResourceKey, Mapping[str, Money]]
    stopped_since: Mapping[ResourceKey, datetime]
    runways: Mapping[tuple[str, str], timedelta]


NO_COST_FACTS = CostFacts(paid={}, stopped_since={}, runways={})


def find_spending_starts(names: Iterable[str], zone: tzinfo, now: datetime) -> dict[str, datetime | None]:
    """From when on each of `names` that is one of SPENT counts; None: from the start of its run."""
    starts = {SPENT_RUN: None, SPENT_DAY: find_day(now, zone).start, SPENT_MONTH: find_month(now, zone).start}
    return {name: starts[name] for name in SPENT_FACTS if name in set(names)}


def compute_runways(
    balances: Iterable[PrepaidBalance], live: Iterable[LiveResource], now: datetime
) -> dict[tuple[str, str], timedelta]:
    """How long each account's prepaid balance lasts, where that is known: not where part of it burns at an unknown price."""
    live, found = tuple(live), dict[tuple[str, str], timedelta]()
    for balance in balances:
        runway, account = compute_runway(balance, live, now), (balance.provider, balance.account)
        if runway.left is not None and (not runway.why or not runway.left):
            found[account] = min(found.get(account, runway.left), runway.left)
    return found


def compute_price_age(live: LiveResource, now: datetime) -> timedelta | None:
    """How old the price is that its computing bills at: since its provider dates it, else since the listing that stated it.

    None: it bills nothing, nobody stated a price, or the price comes from a list without a date.
    """
    billed = [span for span in live.open if span.meter.charge == COMPUTE]
    prices = live.observation.prices
    if not billed or not prices or not all(span.meter.price.known for span in billed):
        return None
    since = prices[-1].since or (live.seen_at if prices[-1].source == LISTING_SOURCE else None)
    return None if since is None or since > now else now - since


def add_cost_facts(known: FactInputs, live: LiveResource, asked: CostFacts, now: datetime) -> FactInputs:
    """`known` with what was asked about `live`."""
    key = live.observation.key
    paid = asked.paid.get(key, {})
    return replace(
        known,
        spent_run=paid.get(SPENT_RUN),
        spent_day=paid.get(SPENT_DAY),
        spent_month=paid.get(SPENT_MONTH),
        stopped_since=asked.stopped_since.get(key),
        price_age=compute_price_age(live, now),
        runway=asked.runways.get(key[:2]),
    )
