"""Slow starts: machines that their provider has called pending or starting for 20 minutes.

No provider says whether such a machine is billed, so its certain cost is 0 until it runs. A hard cap, which acts on certain
cost, would never act on a pod that never boots. It therefore counts a slow start at the price that its provider states.
Example: a pod at $21.52 an hour is starting since 11:00; at 14:00 a cap of $50.00 counts $64.56 for it, and stops it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from costguard.budgets.budget import matches_filter
from costguard.budgets.budget_status import BudgetStatus
from costguard.guard.policy_evaluation import compute_savings_rate
from costguard.metering.meter import COMPUTE
from costguard.metering.spending import LiveResource
from costguard.values.money import MoneyInterval
from costguard.values.resource import ARRIVING_STATES, INSTANCE
from costguard.values.text_format import format_length

STARTING_FOR = timedelta(minutes=20)
"""How long a machine may be pending or starting at its provider, for the pull of a large image; an assumption, 2026-11."""


def is_slow_start(live: LiveResource) -> bool:
    """Return whether `live` was pending or starting for `STARTING_FOR` when it was last seen; what came later is not known."""
    observation = live.observation
    arrives = observation.kind == INSTANCE and observation.state in ARRIVING_STATES and live.absent_at is None
    return arrives and live.seen_at - find_arriving_since(live) >= STARTING_FOR


def find_arriving_since(live: LiveResource) -> datetime:
    """Return the start of the run of a machine that is pending or starting: the latest that is stated, or its first sight."""
    observation = live.observation
    runs = (span.anchor for span in live.open if span.meter.charge == COMPUTE)
    return max(at for at in (observation.created_at or live.first_seen_at, observation.started_at, *runs) if at is not None)


def count_slow_starts(standing: BudgetStatus, machines: Iterable[LiveResource], now: datetime) -> BudgetStatus:
    """Return `standing` with the slow starts among `machines` that match its budget as certain until they were last seen.

    They count at the price that is stated at `now`.
    """
    spent, burn = standing.spent, standing.burn
    for live in machines:
        if not is_slow_start(live) or not matches_filter(standing.budget.match, live.observation.attribution):
            continue
        rate = compute_savings_rate(live, now)
        is_certain = any(span.meter.price.low for span in live.open if span.meter.charge == COMPUTE)
        if is_certain or rate is None or rate.currency != standing.budget.cap.currency:
            continue
        since = max(find_arriving_since(live), standing.period.start)
        cost = rate.multiply_seconds(max(round((live.seen_at - since).total_seconds()), 0))
        spent, burn = _raise_low(spent, cost.nano), _raise_low(burn, rate.nano_per_hour)
    return replace(standing, spent=burn if standing.budget.is_rate else spent, burn=burn)


def explain_slow_start(live: LiveResource) -> tuple[str, ...]:
    """Return why a hard cap counts `live` although it does not run; () if it is no slow start."""
    if not is_slow_start(live):
        return ()
    state, length = live.observation.state, format_length(live.seen_at - find_arriving_since(live))
    return (f"it is {state} for {length}: whether that is billed is not known, and the cap counts its stated price",)


def _raise_low(amount: MoneyInterval, nano: int) -> MoneyInterval:
    """Return `amount` with its low end raised by `nano`, at most to what is expected."""
    return replace(amount, low=replace(amount.low, nano=min(amount.low.nano + nano, amount.expected.nano)))
