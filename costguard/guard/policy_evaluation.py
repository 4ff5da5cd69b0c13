"""Evaluate a policy for one resource: does its target match, does its condition hold, and for long enough.

Example: `state == "idle"` for 45 min on a machine that is idle since 18:05 holds from 18:50 on, in whichever run. A condition
without activity facts holds since the first run that saw it hold; its escalation state remembers that time.

`build_facts` makes the facts that conditions use. A fact that is not known is left out, never zero.

Example: an 8xA100 at $32.77 an hour, idle since 18:05: at 19:07 its `time_in_state` is 62 min and its `waste` $33.86.

Facts that need a query (`CostFacts`: spending, balances, stop times) are looked up once for the fleet, and only if a policy
uses them, as in `spent_day >= usd(50.00)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from fractions import Fraction
from functools import lru_cache

from costguard.budgets.budget import matches_filter
from costguard.budgets.budget_status import BudgetStatus
from costguard.budgets.runway import compute_runway
from costguard.guard.facts import ACTIVITY_FACTS, select_measured, select_utilization
from costguard.guard.overrides import UNPROTECTED, Override, Protection
from costguard.guard.policy import (
    CANNOT_SAY,
    DESTRUCTIVE,
    DOES_NOT,
    GRACE_MIN,
    HOLDS,
    IDLE_RULE,
    NOT_YET,
    PASSED,
    ConditionResult,
    EscalationState,
    Policy,
    PolicyTarget,
    Verdict,
)
from costguard.guard.signals import ACTIVE, AGENT, CPU, DUTY, HUNG, IDLE, IO, UNKNOWN, Activity
from costguard.metering.burn import compute_hourly_price
from costguard.metering.meter import COMPUTE, GB
from costguard.metering.observation import Observation
from costguard.metering.spending import LiveResource
from costguard.values.calendar import find_day, find_month
from costguard.values.instant import HOUR_US, MICROSECOND
from costguard.values.money import Money, PrepaidBalance, Rate, divide_half_even
from costguard.values.resource import RUNNING, STOPPED, Attribution, Incarnation, ResourceKey, is_same_life


def matches_target(target: PolicyTarget, observation: Observation, owner: str) -> bool:
    """Return whether `target` covers the resource of `owner`: every stated field must match."""
    return _is_targeted(target, observation, replace(observation.attribution, owner=owner), _fold_labels(observation))


def select_policies(policies: Iterable[Policy], observation: Observation, owner: str) -> tuple[Policy, ...]:
    """Return the policies for which `matches_target` holds, in their order."""
    attribution, labels = replace(observation.attribution, owner=owner), _fold_labels(observation)
    return tuple([policy for policy in policies if _is_targeted(policy.target, observation, attribution, labels)])


def _fold_labels(observation: Observation) -> Mapping[str, str]:
    """Return its labels, whose keys ignore case, as in budgets."""
    return {key.casefold(): value for key, value in observation.labels}


def _is_targeted(target: PolicyTarget, observation: Observation, attribution: Attribution, labels: Mapping[str, str]) -> bool:
    if target.ids is not None and observation.key.id not in target.ids:
        return False
    if target.names is not None and not any(matches_pattern(pattern, observation.name) for pattern in target.names):
        return False
    if target.gpu is not None and target.gpu != bool(observation.gpu or observation.gpu_count):
        return False
    label_filter = target.match.labels
    if label_filter is None:
        return matches_filter(target.match, attribution)
    matches = bool(label_filter) and all(labels.get(key.casefold()) in values for key, values in label_filter)
    return matches and matches_filter(replace(target.match, labels=None), attribution)


def matches_pattern(pattern: str, name: str) -> bool:
    """Return whether all of `name` matches `pattern`: `*` is any text, `?` one character; case counts."""
    return _compile_pattern(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1000)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    parts = ("[\\s\\S]*" if c == "*" else "[\\s\\S]" if c == "?" else re.escape(c) for c in re.sub(r"\*+", "*", pattern))
    return re.compile("".join(parts))


def evaluate_policy(
    policy: Policy,
    life: Incarnation,
    facts: Mapping[str, object],
    work: Activity,
    now: datetime,
    *,
    climb: EscalationState | None = None,
    not_before: datetime | None = None,
    off_since: datetime | None = None,
) -> Verdict:
    """Evaluate `policy` at `now`.

    `climb`: stored escalation state of this policy and resource, of any incarnation; None: none. `not_before`: end of the last
    lease or gap; the condition holds from then at the earliest. None: no bound. `off_since`: for a schedule or an until label,
    when it turned or will turn off; before that time people are only notified. None: it is on.
    """
    if policy.is_planned and off_since is not None and off_since <= now + compute_notice_length(policy):
        facts = {**facts, **({"until_label": PASSED} if policy.until else {"scheduled_on": False})}
    truth = _evaluate_condition(policy, facts, work)
    short = truth.value is False and _lacks_only_confidence(policy, facts, work)
    if short:
        truth = ConditionResult(value=True)
    elif truth.value and policy.rule == IDLE_RULE and work.state == IDLE and select_measured(policy.when.names):
        short = {DUTY, AGENT}.isdisjoint(work.families) and bool(work.families) and not allows_weak_evidence(policy)
    if truth.value and policy.rule == IDLE_RULE and work.state != ACTIVE and select_utilization(policy.when.names):
        short = short or work.confidence < find_needed_confidence(policy)
    finding, since = DOES_NOT if truth.value is False else CANNOT_SAY, None
    if truth.value:
        scheduled = policy.is_planned and off_since is not None
        since = off_since if scheduled else _find_hold_start(policy, life, work, now, climb)
        if since is not None and not_before is not None and since < not_before <= now:
            since = not_before
        until = now if scheduled or not select_measured(policy.when.names) else work.get_known_until(now)
        finding = HOLDS if since is not None and (max(until, since) - since >= policy.hold or since > now) else NOT_YET
    return Verdict(
        policy=policy,
        life=life,
        at=now,
        finding=finding,
        truth=truth,
        work=work,
        since=since,
        reasons=_list_reasons(policy, work, truth, facts),
        short=short,
    )


def _lacks_only_confidence(policy: Policy, facts: Mapping[str, object], work: Activity) -> bool:
    """Return whether an idle rule is false only for its confidence, and this is enough for a notification.

    The least confidence for a notification is NOTICE_CONFIDENCE.
    """
    if policy.rule != IDLE_RULE or "confidence" not in policy.when.names or work.confidence < NOTICE_CONFIDENCE:
        return False
    return work.state in (IDLE, HUNG) and policy.when.evaluate({**facts, "confidence": 1.0}).value is True


WEAK_EVIDENCE_HOLD_MIN = timedelta(hours=2)
"""How long processors, network and disk must be quiet, at least, before a policy that names them stops a machine by them."""


def allows_weak_evidence(policy: Policy) -> bool:
    """Return whether `policy` names processors, network and disk as its evidence, and a confidence, over a long time."""
    has_named = {CPU, IO} <= set(policy.needs) and "confidence" in policy.when.names
    return has_named and policy.hold >= WEAK_EVIDENCE_HOLD_MIN


def find_needed_confidence(policy: Policy) -> float:
    """Return the least reachable confidence of idleness, or of a hang, that the condition does not reject.

    A condition on the utilisation that states no confidence needs UTILIZATION_CONFIDENCE: little use is not idleness.
    """
    names = policy.when.names
    least = UTILIZATION_CONFIDENCE if "confidence" not in names and select_utilization(names) else 0
    for level in REACHABLE_CONFIDENCES:
        truths = [policy.when.evaluate({"state": state, "confidence": level}).value for state in (IDLE, HUNG)]
        if level >= least and truths != [False, False]:
            return level
    return 1.0


def compute_notice_length(policy: Policy) -> timedelta:
    """Return how long before its schedule or until label ends it people are notified: the shortest grace of its acts."""
    acts = [max(step.after, GRACE_MIN) for step in policy.then if step.do in DESTRUCTIVE]
    return min(acts, default=timedelta())


def _evaluate_condition(policy: Policy, facts: Mapping[str, object], work: Activity) -> ConditionResult:
    """Evaluate the condition. If activity is unknown, a condition that is false only because of that is unknown too."""
    truth = policy.when.evaluate(facts)
    if truth.value is None or (truth.value is False and work.state != UNKNOWN):
        return truth
    asks = bool(select_measured(policy.when.names))
    lacking = tuple(sorted(set(policy.needs) - set(work.families))) if policy.needs else ()
    if truth.value and asks and lacking and work.state != UNKNOWN:
        return ConditionResult(value=None, missing=("state",), why=f"not enough data: {', '.join(lacking)}")
    if truth.value is False and asks and policy.when.evaluate(drop_activity_facts(facts)).value is None:
        return ConditionResult(value=None, missing=("state",), why=work.reasons[0] if work.reasons else "")
    return truth


def _find_hold_start(
    policy: Policy, life: Incarnation, work: Activity, now: datetime, climb: EscalationState | None
) -> datetime:
    """Return since when the condition holds: start of the activity state if it rests on that alone, else as stored."""
    if work.since is not None and policy.when.names & ACTIVITY_FACTS and not select_utilization(policy.when.names):
        return min(work.since, now)
    if climb is not None and climb.policy == policy.name and is_same_life(climb.life, life):
        return min(climb.since, now)
    return now


def _list_reasons(policy: Policy, work: Activity, truth: ConditionResult, facts: Mapping[str, object]) -> tuple[str, ...]:
    names = [name for name in truth.missing if name != "state"]  # why the state is missing, its own reasons say
    missing = (f"no data for {', '.join(names)}",) if names else ()
    truth_reasons = (truth.why,) if truth.why else ()
    shares = [f"{name} is {facts[name]:.2f}" for name in select_utilization(policy.when.names) if name in facts]
    of_work = work.reasons if select_measured(policy.when.names) else ()
    if not missing and not truth_reasons and not shares:
        return of_work
    return tuple(dict.fromkeys((*missing, *truth_reasons, *shares, *of_work)))


SHARE_DENOMINATOR_MAX = 100_000
"""Largest denominator of a GPU share that was a float, so that money is computed in exact fractions."""
NOTICE_CONFIDENCE = 0.5
"""Confidence of idleness from which on people are told and asked, whatever a policy demands for an act."""
UTILIZATION_CONFIDENCE = 0.9
"""What `init` writes for a stop: GPU duty, CPU, and network or disk are quiet (GUARD 2)."""
REACHABLE_CONFIDENCES = (0.5, 0.55, 0.6, 0.8, 0.9, 0.97, 0.99)
"""Every cap of confidence there is, the lowest first (`guard.activity`)."""
WAITING_LENGTH = timedelta(minutes=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactInputs:
    """Inputs of facts other than the listing and the activity. None: not known, so the fact is left out.

    `spent_*`: low end of the cost. `stopped_since`: when the ledger first saw it stopped, for providers that report no time.
    `lease_ended_at`: when the last lease of this incarnation ended. `group_state`: activity of its group; "": no member of a
    group is running, so its own activity is used. `shares`: its utilisation, by name.
    """

    owner: str = ""
    protection: Protection = UNPROTECTED
    lease: Override | None = None
    lease_ended_at: datetime | None = None
    budget: BudgetStatus | None = None
    scheduled_on: bool | None = None
    until_label: str | None = None
    spent_run: Money | None = None
    spent_day: Money | None = None
    spent_month: Money | None = None
    stopped_since: datetime | None = None
    price_age: timedelta | None = None
    runway: timedelta | None = None
    group: str = ""
    group_state: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)


def build_facts(
    live: LiveResource, work: Activity, inputs: FactInputs, now: datetime, names: Iterable[str] | None = None
) -> dict[str, object]:
    """Build the facts in `names` (None: all)."""
    facts = dict[str, object]()
    for name in FACT_MAKERS if names is None else names:
        value = FACT_MAKERS[name](live, work, inputs, now) if name in FACT_MAKERS else inputs.shares.get(name)
        if value is not None:
            facts[name] = value
    return facts


def _compute_stopped_for(live: LiveResource, inputs: FactInputs, now: datetime) -> timedelta | None:
    observation = live.observation
    return _compute_elapsed(observation.stopped_at or inputs.stopped_since, now) if observation.state == STOPPED else None


def _get_time_to_cap(budget: BudgetStatus | None) -> timedelta | None:
    hours = budget.time_to_cap_hours if budget else None
    return None if hours is None else timedelta(hours=float(hours))


def _compute_elapsed(at: datetime | None, now: datetime) -> timedelta | None:
    return now - at if at is not None and at <= now else None


_FactMaker = Callable[[LiveResource, Activity, FactInputs, datetime], object | None]

FACT_MAKERS: Mapping[str, _FactMaker] = {
    "state": lambda _live, work, _inputs, _now: work.state,
    "confidence": lambda _live, work, _inputs, _now: work.confidence if work.state != UNKNOWN else None,
    "time_in_state": lambda _live, work, _inputs, now: _compute_elapsed(work.since, work.get_known_until(now)),
    "wasted_share": lambda _live, work, _inputs, _now: float(work.wasted_share) if work.state != UNKNOWN else None,
    "group": lambda _live, _work, inputs, _now: inputs.group,
    "group_state": lambda _live, work, inputs, _now: inputs.group_state or work.state,
    "power": lambda live, _work, _inputs, _now: live.observation.state,
    "stopped_for": lambda live, _work, inputs, now: _compute_stopped_for(live, inputs, now),
    "age": lambda live, _work, _inputs, now: _compute_elapsed(live.observation.created_at, now),
    "uptime": lambda live, _work, _inputs, now: (
        _compute_elapsed(live.observation.started_at, now) if live.observation.state == RUNNING else None
    ),
    "lease_left": lambda _live, _work, inputs, now: inputs.lease.until - now if inputs.lease and inputs.lease.until else None,
    "leased": lambda _live, _work, inputs, _now: inputs.lease is not None,
    "lease_over": lambda _live, _work, inputs, now: (
        now - inputs.lease_ended_at if inputs.lease is None and inputs.lease_ended_at is not None else None
    ),
    "rate": lambda live, _work, _inputs, now: compute_burn_rate(live, now),
    "spent_run": lambda _live, _work, inputs, _now: inputs.spent_run,
    "spent_day": lambda _live, _work, inputs, _now: inputs.spent_day,
    "spent_month": lambda _live, _work, inputs, _now: inputs.spent_month,
    "waste": lambda live, work, _inputs, now: compute_waste(live, work, now),
    "budget_fraction": lambda _live, _work, inputs, _now: float(inputs.budget.fraction) if inputs.budget else None,
    "projected_end": lambda _live, _work, inputs, _now: (
        inputs.budget.forecast.low.nano / inputs.budget.budget.cap.nano if inputs.budget else None
    ),
    "time_to_cap": lambda _live, _work, inputs, _now: _get_time_to_cap(inputs.budget),
    "scheduled_on": lambda _live, _work, inputs, _now: inputs.scheduled_on,
    "until_label": lambda _live, _work, inputs, _now: inputs.until_label,
    "provider": lambda live, _work, _inputs, _now: live.observation.key.provider,
    "account": lambda live, _work, _inputs, _now: live.observation.key.account,
    "region": lambda live, _work, _inputs, _now: live.observation.key.region,
    "id": lambda live, _work, _inputs, _now: live.observation.key.id,
    "name": lambda live, _work, _inputs, _now: live.observation.name,
    "kind": lambda live, _work, _inputs, _now: live.observation.kind,
    "instance_type": lambda live, _work, _inputs, _now: live.observation.instance_type,
    "gpu": lambda live, _work, _inputs, _now: live.observation.gpu,
    "gpu_count": lambda live, _work, _inputs, _now: float(live.observation.gpu_count),
    "tier": lambda live, _work, _inputs, _now: live.observation.tier,
    "owner": lambda _live, _work, inputs, _now: inputs.owner,
    "labels": lambda live, _work, _inputs, _now: dict(live.observation.labels),
    "controller": lambda live, _work, _inputs, _now: live.observation.handling.controller,
    "protected": lambda _live, _work, inputs, _now: inputs.protection.protected,
    "disk_gb": lambda live, _work, _inputs, _now: _sum_disk_gb(live),
    "loses": lambda live, _work, _inputs, _now: "; ".join(live.observation.handling.stop_loses),
    "price_age": lambda _live, _work, inputs, _now: inputs.price_age,
    "runway": lambda _live, _work, inputs, _now: inputs.runway,
}
"""Maker of each fact; it returns None if unknown. Only facts that a condition uses are made: some are expensive."""


def _sum_disk_gb(live: LiveResource) -> float | None:
    disks = [disk for disk in live.observation.disks if disk.measure == GB]
    sizes = [disk.gb for disk in disks if disk.gb is not None]
    return float(sum(sizes)) if sizes and len(sizes) == len(disks) else None


def compute_burn_rate(live: LiveResource, now: datetime) -> Rate | None:
    """Return the hourly rate with disks. None: it bills nothing, a price is unknown, or currencies are mixed."""
    prices = [span.meter.price for span in live.open]
    if live.absent_at is not None or not prices or len({price.currency for price in prices}) > 1:
        return None
    if any(not s.meter.price.known and compute_hourly_price(s.meter, s.meter.price.high, now) > 0 for s in live.open):
        return None
    nano = sum(compute_hourly_price(s.meter, s.meter.price.expected, now) for s in live.open if s.meter.price.known)
    return Rate(nano_per_hour=nano, currency=prices[0].currency) if nano > 0 else None


def compute_savings_rate(live: LiveResource, now: datetime) -> Rate | None:
    """Return what a stop saves per hour: compute without disks. None as in `compute_burn_rate`."""
    prices = [span.meter.price for span in live.open if span.meter.charge == COMPUTE]
    if live.absent_at is not None or not prices or len({p.currency for p in prices}) > 1 or not all(p.known for p in prices):
        return None
    nano = sum(compute_hourly_price(s.meter, s.meter.price.expected, now) for s in live.open if s.meter.charge == COMPUTE)
    return Rate(nano_per_hour=nano, currency=prices[0].currency) if nano > 0 else None


def compute_waste(live: LiveResource, work: Activity, now: datetime) -> Money | None:
    """Return compute cost wasted since its activity state began: all if idle or hung, `wasted_share` if active. Else None."""
    if work.since is None or work.since > now or work.state not in {IDLE, HUNG, ACTIVE}:
        return None
    if work.state == ACTIVE and not work.wasted_share:
        return None
    share = Fraction(1) if work.state in {IDLE, HUNG} else Fraction(work.wasted_share).limit_denominator(SHARE_DENOMINATOR_MAX)
    rate = compute_savings_rate(live, now) if share else None
    if rate is None:
        return None
    us = max(work.get_known_until(now) - work.since, timedelta()) // MICROSECOND
    nano = divide_half_even(rate.nano_per_hour * us * share.numerator, HOUR_US * share.denominator)
    return Money(nano=nano, currency=rate.currency)


def compute_waiting_cost(live: LiveResource, now: datetime) -> Money | None:
    """Return the compute cost of 30 min; None if its price is unknown."""
    rate = compute_savings_rate(live, now)
    return rate.multiply_seconds(round(WAITING_LENGTH.total_seconds())) if rate else None


def find_tightest_budget(standings: Iterable[BudgetStatus], attribution: Attribution) -> BudgetStatus | None:
    """Return the budget matching `attribution` with the largest share spent; None if none matches.

    Rate caps are none of them: the facts that depend on it are of money in a period.
    """
    counting = (s for s in standings if not s.budget.is_rate and matches_filter(s.budget.match, attribution))
    return max(counting, key=lambda s: (s.fraction, s.budget.name), default=None)


def drop_activity_facts(facts: Mapping[str, object]) -> dict[str, object]:
    """Return `facts` without `ACTIVITY_FACTS`."""
    return {name: value for name, value in facts.items() if name not in ACTIVITY_FACTS}


BUDGET_FACTS = frozenset(("budget_fraction", "projected_end", "time_to_cap"))
"""Facts that depend on the tightest budget."""


SPENT_RUN, SPENT_DAY, SPENT_MONTH = "spent_run", "spent_day", "spent_month"
SPENT_FACTS = (SPENT_RUN, SPENT_DAY, SPENT_MONTH)
STOPPED_FOR, RUNWAY, PRICE_AGE = "stopped_for", "runway", "price_age"
LOOKED_UP_FACTS = frozenset((*SPENT_FACTS, STOPPED_FOR, RUNWAY, PRICE_AGE))
"""Facts that need a query to the ledger or a provider."""
LISTING_SOURCE = "listing"
"""Source of a price that the listing itself contains, so each listing confirms it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFacts:
    """Looked-up facts. `paid`: by `SPENT_FACTS`. `runways`: by (provider, account). A missing key means unknown."""

    paid: Mapping[ResourceKey, Mapping[str, Money]]
    stopped_since: Mapping[ResourceKey, datetime]
    runways: Mapping[tuple[str, str], timedelta]


NO_COST_FACTS = CostFacts(paid={}, stopped_since={}, runways={})


def find_spending_starts(names: Iterable[str], zone: tzinfo, now: datetime) -> dict[str, datetime | None]:
    """Return the start of the period of each of `SPENT_FACTS` in `names`; None: the start of the run."""
    starts = {SPENT_RUN: None, SPENT_DAY: find_day(now, zone).start, SPENT_MONTH: find_month(now, zone).start}
    return {name: starts[name] for name in SPENT_FACTS if name in set(names)}


def compute_runways(
    balances: Iterable[PrepaidBalance], live: Iterable[LiveResource], now: datetime
) -> dict[tuple[str, str], timedelta]:
    """Return how long each prepaid balance lasts, by account; left out with an unknown price, unless it is used up."""
    live, runways = tuple(live), dict[tuple[str, str], timedelta]()
    for balance in balances:
        runway, account = compute_runway(balance, live, now), (balance.provider, balance.account)
        if runway.left is not None and (not runway.why or not runway.left):
            runways[account] = min(runways.get(account, runway.left), runway.left)
    return runways


def compute_price_age(live: LiveResource, now: datetime) -> timedelta | None:
    """Return the age of its compute price, from the provider's date or else from the listing that contained it.

    None: it bills no compute, a price is unknown, or the price list has no date.
    """
    billed = [span for span in live.open if span.meter.charge == COMPUTE]
    prices = live.observation.prices
    if not billed or not prices or not all(span.meter.price.known for span in billed):
        return None
    since = prices[-1].since or (live.seen_at if prices[-1].source == LISTING_SOURCE else None)
    return None if since is None or since > now else now - since


def add_cost_facts(inputs: FactInputs, live: LiveResource, costs: CostFacts, now: datetime) -> FactInputs:
    """Return `inputs` with the looked-up facts of `live`."""
    key = live.observation.key
    paid = costs.paid.get(key, {})
    return replace(
        inputs,
        spent_run=paid.get(SPENT_RUN),
        spent_day=paid.get(SPENT_DAY),
        spent_month=paid.get(SPENT_MONTH),
        stopped_since=costs.stopped_since.get(key),
        price_age=compute_price_age(live, now),
        runway=costs.runways.get(key[:2]),
    )
