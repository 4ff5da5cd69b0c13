"""The facts that conditions may use, of one resource at one instant. What is not known is left out, and never zero.

Example: an 8xA100 at $32.77 an hour, idle since 18:05: at 19:07 its `time_in_state` is 62 min and its `waste` $33.86.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from costguard.budgets.budget import matches_filter
from costguard.budgets.budget_status import BudgetStatus
from costguard.guard.overrides import Override
from costguard.guard.owning import UNPROTECTED, Protection
from costguard.guard.work import ACTIVE, HUNG, IDLE, UNKNOWN, Activity
from costguard.metering.burn import compute_hourly_price
from costguard.metering.meter import COMPUTE
from costguard.metering.spending import LiveResource
from costguard.values.instant import HOUR_US, MICROSECOND
from costguard.values.money import Money, Rate, divide_half_even
from costguard.values.resource import RUNNING, STOPPED, Attribution

SHARE_DENOMINATOR_MAX = 100_000
"""A share of GPUs is a fraction with a smaller denominator than this."""
WAITING_LENGTH = timedelta(minutes=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactInputs:
    """What is known of a resource beside its listing and its work. None: not known, and no fact then.

    `spent_*`: what it surely cost, the low end. `stopped_since`: as the ledger saw it, for a provider that states no time.
    `group_state`: of its group, "" for none that runs: then it is one of its own.
    """

    owner: str = ""
    protection: Protection = UNPROTECTED
    lease: Override | None = None
    budget: BudgetStatus | None = None
    scheduled_on: bool | None = None
    spent_run: Money | None = None
    spent_day: Money | None = None
    spent_month: Money | None = None
    stopped_since: datetime | None = None
    price_age: timedelta | None = None
    runway: timedelta | None = None
    group: str = ""
    group_state: str = ""


def build_facts(
    live: LiveResource,
    work: Activity,
    known: FactInputs,
    now: datetime,
    names: Iterable[str] | None = None,
    *,
    kept: dict[str, object | None] | None = None,
) -> dict[str, object]:
    """Facts by the names of `condition.FACTS`: those of `names`, None: all. `kept`: of the same resource at the same `now`."""
    facts = dict[str, object]()
    for name in FACT_MAKERS if names is None else names:
        if kept is not None and name in CACHED_FACTS:
            if name not in kept:
                kept[name] = FACT_MAKERS[name](live, work, known, now)
            value = kept[name]
        else:
            value = FACT_MAKERS[name](live, work, known, now) if name in FACT_MAKERS else None
        if value is not None:
            facts[name] = value
    return facts


def _compute_stopped_for(live: LiveResource, known: FactInputs, now: datetime) -> timedelta | None:
    seen = live.observation
    return _compute_elapsed(seen.stopped_at or known.stopped_since, now) if seen.state == STOPPED else None


def _get_time_to_cap(budget: BudgetStatus | None) -> timedelta | None:
    hours = budget.time_to_cap_hours if budget else None
    return None if hours is None else timedelta(hours=float(hours))


def _compute_elapsed(at: datetime | None, now: datetime) -> timedelta | None:
    return now - at if at is not None and at <= now else None


_FactMaker = Callable[[LiveResource, Activity, FactInputs, datetime], object | None]

FACT_MAKERS: Mapping[str, _FactMaker] = {
    "state": lambda _live, work, _known, _now: work.state,
    "confidence": lambda _live, work, _known, _now: work.confidence if work.state != UNKNOWN else None,
    "time_in_state": lambda _live, work, _known, now: _compute_elapsed(work.since, now),
    "wasted_share": lambda _live, work, _known, _now: float(work.wasted_share) if work.state != UNKNOWN else None,
    "group": lambda _live, _work, known, _now: known.group,
    "group_state": lambda _live, work, known, _now: known.group_state or work.state,
    "power": lambda live, _work, _known, _now: live.observation.state,
    "stopped_for": lambda live, _work, known, now: _compute_stopped_for(live, known, now),
    "age": lambda live, _work, _known, now: _compute_elapsed(live.observation.created_at, now),
    "uptime": lambda live, _work, _known, now: (
        _compute_elapsed(live.observation.started_at, now) if live.observation.state == RUNNING else None
    ),
    "lease_left": lambda _live, _work, known, now: known.lease.until - now if known.lease and known.lease.until else None,
    "leased": lambda _live, _work, known, _now: known.lease is not None,
    "rate": lambda live, _work, _known, now: compute_burn_rate(live, now),
    "spent_run": lambda _live, _work, known, _now: known.spent_run,
    "spent_day": lambda _live, _work, known, _now: known.spent_day,
    "spent_month": lambda _live, _work, known, _now: known.spent_month,
    "waste": lambda live, work, _known, now: compute_waste(live, work, now),
    "budget_fraction": lambda _live, _work, known, _now: float(known.budget.fraction) if known.budget else None,
    "projected_end": lambda _live, _work, known, _now: (
        known.budget.forecast.high.nano / known.budget.budget.cap.nano if known.budget else None
    ),
    "time_to_cap": lambda _live, _work, known, _now: _get_time_to_cap(known.budget),
    "scheduled_on": lambda _live, _work, known, _now: known.scheduled_on,
    "provider": lambda live, _work, _known, _now: live.observation.key.provider,
    "account": lambda live, _work, _known, _now: live.observation.key.account,
    "region": lambda live, _work, _known, _now: live.observation.key.region,
    "id": lambda live, _work, _known, _now: live.observation.key.id,
    "name": lambda live, _work, _known, _now: live.observation.name,
    "kind": lambda live, _work, _known, _now: live.observation.kind,
    "instance_type": lambda live, _work, _known, _now: live.observation.instance_type,
    "gpu": lambda live, _work, _known, _now: live.observation.gpu,
    "gpu_count": lambda live, _work, _known, _now: float(live.observation.gpu_count),
    "tier": lambda live, _work, _known, _now: live.observation.tier,
    "owner": lambda _live, _work, known, _now: known.owner,
    "labels": lambda live, _work, _known, _now: dict(live.observation.labels),
    "controller": lambda live, _work, _known, _now: live.observation.handling.controller,
    "protected": lambda _live, _work, known, _now: known.protection.protected,
    "disk_gb": lambda live, _work, _known, _now: _sum_disk_gb(live),
    "loses": lambda live, _work, _known, _now: "; ".join(live.observation.handling.stop_loses),
    "price_age": lambda _live, _work, known, _now: known.price_age,
    "runway": lambda _live, _work, known, _now: known.runway,
}
"""How each fact is made; None: not known. Only those are that a condition asks for: some cost more than judging it."""


def _sum_disk_gb(live: LiveResource) -> float | None:
    sizes = [disk.gb for disk in live.observation.disks if disk.gb is not None]
    return float(sum(sizes)) if sizes and len(sizes) == len(live.observation.disks) else None


def compute_burn_rate(live: LiveResource, now: datetime) -> Rate | None:
    """What it burns an hour, with its disks. None: nothing, at a price that nobody stated, or in several currencies."""
    prices = [span.meter.price for span in live.open]
    if live.absent_at is not None or not prices or len({price.currency for price in prices}) > 1:
        return None
    if any(not s.meter.price.known and compute_hourly_price(s.meter, s.meter.price.high, now) > 0 for s in live.open):
        return None
    nano = sum(compute_hourly_price(s.meter, s.meter.price.expected, now) for s in live.open if s.meter.price.known)
    return Rate(nano_per_hour=nano, currency=prices[0].currency) if nano > 0 else None


def compute_savings_rate(live: LiveResource, now: datetime) -> Rate | None:
    """What a stop would save an hour: its computing without its disks. None as in `rate_of`, and of what is absent."""
    prices = [span.meter.price for span in live.open if span.meter.charge == COMPUTE]
    if live.absent_at is not None or not prices or len({p.currency for p in prices}) > 1 or not all(p.known for p in prices):
        return None
    nano = sum(compute_hourly_price(s.meter, s.meter.price.expected, now) for s in live.open if s.meter.charge == COMPUTE)
    return Rate(nano_per_hour=nano, currency=prices[0].currency) if nano > 0 else None


def compute_waste(live: LiveResource, work: Activity, now: datetime) -> Money | None:
    """What its computing cost for nothing since its state of work began: all of it where it idles or hangs, else a share."""
    if work.since is None or work.since > now or work.state not in {IDLE, HUNG, ACTIVE}:
        return None
    if work.state == ACTIVE and not work.wasted_share:
        return None
    share = Fraction(1) if work.state in {IDLE, HUNG} else Fraction(work.wasted_share).limit_denominator(SHARE_DENOMINATOR_MAX)
    rate = compute_savings_rate(live, now) if share else None
    if rate is None:
        return None
    us = (now - work.since) // MICROSECOND
    nano = divide_half_even(rate.nano_per_hour * us * share.numerator, HOUR_US * share.denominator)
    return Money(nano=nano, currency=rate.currency)


def compute_waiting_cost(live: LiveResource, now: datetime) -> Money | None:
    """What half an hour without an answer costs: its computing. None where its price is not known."""
    rate = compute_savings_rate(live, now)
    return rate.multiply_seconds(round(WAITING_LENGTH.total_seconds())) if rate else None


def find_tightest_budget(standings: Iterable[BudgetStatus], attribution: Attribution) -> BudgetStatus | None:
    """Of the budgets that this spending counts in, the one with the largest share spent."""
    counting = (s for s in standings if matches_filter(s.budget.match, attribution))
    return max(counting, key=lambda s: (s.fraction, s.budget.name), default=None)


def drop_activity_facts(facts: Mapping[str, object]) -> dict[str, object]:
    """`facts` without those that rest on the state of work."""
    return {name: value for name, value in facts.items() if name not in ACTIVITY_FACTS}


CACHED_FACTS = frozenset(("rate", "labels"))
"""Facts that rest on the listing alone and cost something: made once for all policies."""
ACTIVITY_FACTS = frozenset(("state", "confidence", "time_in_state", "wasted_share", "waste", "group_state"))
"""Facts that rest on the state of work."""
BUDGET_FACTS = frozenset(("budget_fraction", "projected_end", "time_to_cap"))
"""Facts that rest on the tightest budget."""
