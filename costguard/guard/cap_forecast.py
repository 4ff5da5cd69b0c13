"""Forecast of hard caps: when a cap must act to be kept, and on which machines.

Example: a cap of $500.00, $482.10 spent, one machine at $98.32 an hour. From a poll to a confirmed stop takes 600 s, in which
the machine costs $16.39, so the cap acts at $483.61. The worst case now is $498.49: no overshoot. Acts depend on the low end of
the spend, which is certain; people are shown the high end.

Whoever can label a machine can protect it, and can move it into another team's budget. So a machine that costguard must not
touch draws no act onto others: machines are stopped for what they cost themselves, and for the rest of a cap people are asked.
Example: $495.00 of $500.00 is spent, $300.00 of it by a protected machine: the others have spent $195.00, and none is stopped.

A rate cap is the same rule over an hour that begins with nothing spent, and without a reaction: it is exceeded or it is not, so
nothing is gained by acting before. Example: $14.00 an hour run under a cap of $12.00 an hour: one machine of $3.00 is stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costguard.budgets.budget import Budget, matches_filter
from costguard.budgets.budget_status import BudgetStatus
from costguard.guard.action_intents import Intent
from costguard.guard.cap_acceptance import name_cap_policy
from costguard.guard.limits import ACCEPTED_CAPS, NEW_CAPS, SendSchedule, select_counted
from costguard.guard.policy import (
    CAP_GRACE_MIN,
    CAP_RULE,
    HOLDS,
    NEVER,
    NOTIFY,
    STOP,
    ConditionResult,
    EscalationState,
    Policy,
    PolicyStep,
    Rails,
    Verdict,
)
from costguard.guard.policy_evaluation import compute_savings_rate
from costguard.guard.signals import IDLE, Activity
from costguard.guard.slow_starts import count_slow_starts, explain_slow_start, is_slow_start
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.values.checks import require
from costguard.values.instant import HOUR_US, MICROSECOND
from costguard.values.money import Money, divide_half_even
from costguard.values.resource import RUNNING, ResourceKey
from costguard.values.text_format import format_length, get_currency_sign

USUAL_REACTION = {
    "judge": timedelta(seconds=60),
    "grace": CAP_GRACE_MIN,
    "stop": timedelta(seconds=120),
    "confirm": timedelta(seconds=120),
}
"""How long each part of a reaction takes until it was measured often enough: assumptions, 2026-11."""
MEASURES_MIN = 20
"""So many measures give a 95th percentile that is not the largest of a few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactionTime:
    """The time until a machine certainly bills no more, by part. `assumed`: the parts that were not measured."""

    parts: tuple[tuple[str, timedelta], ...]
    assumed: tuple[str, ...] = ()

    @property
    def total(self) -> timedelta:
        """Return the sum of all parts."""
        return sum((length for _, length in self.parts), timedelta())


@dataclass(frozen=True, slots=True, kw_only=True)
class CapCandidate:
    """A machine that a cap may stop. `priority`: higher ones are stopped later. `protected`: it is never stopped.

    `unclaimed`: nothing tells whose it is in an account that people share, so it is never stopped either. `cannot`: why it
    cannot be stopped, so that people are asked; "" if it can. `loses`: what its stop would lose; `allowed`: a person allowed
    that stop.
    """

    live: LiveResource
    work: Activity
    leased: bool = False
    protected: bool = False
    unclaimed: bool = False
    cannot: str = ""
    loses: tuple[str, ...] = ()
    allowed: bool = False
    priority: int = 0

    @property
    def untouchable(self) -> bool:
        """Return whether costguard must never stop it, whatever it costs."""
        return self.protected or self.unclaimed


@dataclass(frozen=True, slots=True, kw_only=True)
class CapForecast:
    """How a hard budget must act now.

    `acts_at`: the certain spend from which on it acts; `acts`: whether it acts now. `victims`: the machines to stop, in this
    order. `asked`: machines that people are asked about if that is not enough, because they cannot be stopped or a stop would
    lose data. Both are empty if it acts and untouchable machines alone are the reason. `untouched`: untouchable machines that
    keep billing, so that people are asked whether they or the cap should change. `overshoot`: the most by which the cap could
    be exceeded if it acts now, including the machines that the limits delay, and with all that is not stopped running to the
    end of the period. `enough`: whether stopping the victims keeps the cap. `accepted`: it has limits of its own. `short`: how
    the limits delay its stops, and by how much it can be exceeded for that; "" if they do not.
    """

    standing: BudgetStatus
    reaction: timedelta
    acts_at: Money
    acts: bool
    victims: tuple[CapCandidate, ...]
    untouched: tuple[CapCandidate, ...]
    overshoot: Money
    enough: bool
    asked: tuple[CapCandidate, ...] = ()
    accepted: bool = False
    short: str = ""


@dataclass(frozen=True, slots=True)
class DecidedCondition:
    """The condition of a policy of the guard itself: always true, because what made its verdict already decided it."""

    text: str
    names: frozenset[str] = frozenset()

    def evaluate(self, facts: Mapping[str, object]) -> ConditionResult:  # noqa: ARG002 - the signature of a condition
        """Return true."""
        return ConditionResult(value=True)


def compute_p95(measures: Sequence[timedelta]) -> timedelta:
    """Return the measure that 95 % of `measures` do not exceed. At least one measure is required."""
    require(bool(measures), "measures", "are none", "use an assumption")
    return sorted(measures)[-(-95 * len(measures) // 100) - 1]


def estimate_reaction(poll: timedelta, measured: Mapping[str, Sequence[timedelta]]) -> ReactionTime:
    """Return the reaction time with a listing every `poll`, from the `measured` times of each part if there are enough.

    The grace period is never shorter than its minimum or than a poll, because only the next run sees that it is over.
    """
    parts, assumed = [("poll", max(poll, _measure_p95(measured, "poll") or poll))], []
    for name, usual in USUAL_REACTION.items():
        length = _measure_p95(measured, name)
        assumed += [] if length is not None else [name]
        parts.append(
            (name, max(length or usual, CAP_GRACE_MIN, poll) if name == "grace" else (usual if length is None else length))
        )
    return ReactionTime(parts=tuple(parts), assumed=tuple(assumed))


def forecast_cap(
    standing: BudgetStatus,
    candidates: Iterable[CapCandidate],
    reaction: timedelta,
    now: datetime,
    *,
    fleet: int,
    poll: timedelta,
    rails: Rails | None = None,
    sent: Iterable[Intent] = (),
    accepted: bool = False,
    safety: Money | None = None,
    going: Collection[ResourceKey] = (),
) -> CapForecast:
    """Return when the budget of `standing` acts, and on which machines.

    `sent`: acts of the last day; `accepted`: see CapForecast. `safety`: money to keep below the cap, None: none. `going`:
    machines that a tighter budget stops anyway, or whose stop for this one was announced; they are taken first.

    It acts when the certain spend plus the certain cost until the last stop is proven reaches the cap: of an estimated price
    the low end counts, as in the spend. Machines are stopped for it when the same holds without what untouchable machines
    have cost in the period and will cost. The limits allow only so many stops in ten minutes, and so many that lose data in an
    hour, and waiting machines keep billing: the cap acts earlier by what they cost. A wait of days, by the daily limit, shows
    in the overshoot but does not make the cap act earlier. A rate cap acts when what certainly bills is more than it allows.
    """
    budget = standing.budget
    rails, counted = select_counted(ACCEPTED_CAPS if accepted else NEW_CAPS, sent, rails or Rails())
    goal = budget.cap - safety if safety is not None else budget.cap
    matches = [
        c for c in candidates if matches_filter(budget.match, c.live.observation.attribution) and _saves_money(c, now, budget)
    ]
    untouched = tuple(c for c in matches if c.untouchable)
    stuck = sorted((c for c in matches if not c.untouchable and _is_stuck(c, budget)), key=lambda c: _rank_candidate(c, now))
    free = (c for c in matches if not c.untouchable and not _is_stuck(c, budget))
    ordered = sorted(free, key=lambda c: (c.live.observation.key not in going, _rank_candidate(c, now)))
    nothing, left = Money(nano=0, currency=budget.cap.currency), _get_time_left(standing, now)
    at_once, burn, spent = budget.is_rate, standing.burn.low.nano, 0 if budget.is_rate else standing.spent.low.nano
    delay, wait_most = (timedelta(), timedelta()) if at_once else (min(reaction, left), left)
    own_burn = max(0, burn - sum(_get_hourly_nano(c, now) for c in untouched))
    own_spent = max(0, spent - sum(_bound_past_nano(c, standing, now) for c in untouched))
    chosen: list[CapCandidate] = []
    queue = SendSchedule(counted, fleet, rails, now=now, interval=poll, days=False)
    extra = saved = 0
    while True:
        ahead, own_ahead = (
            _compute_cost_nano(rate, delay) + extra + _compute_cost_nano(max(0, rate - saved), left - delay)
            for rate in (burn, own_burn)
        )
        if own_spent + own_ahead <= goal.nano or len(chosen) == len(ordered):
            break
        victim = ordered[len(chosen)]
        extra += _compute_wait_nano(victim, queue, now, wait_most)
        saved += _get_hourly_nano(victim, now)
        chosen.append(victim)
    enough = spent + ahead <= goal.nano
    more = int(at_once)  # a rate may be all of its cap, and acts from a nano-unit more
    needed, own_needed = (_compute_cost_nano(rate, delay) + extra - more for rate in (burn, own_burn))
    acts_at = goal - replace(nothing, nano=needed)
    acts = bool(budget.hard and burn and not standing.spent.low < acts_at)
    drawn = acts and (own_burn if at_once else own_spent) < goal.nano - own_needed
    if drawn:
        chosen, enough = [], False
    runs_on = (*untouched, *stuck, *(ordered[len(chosen) :] if untouched and not enough else ()))
    high = standing.spent.high.nano + _compute_cost_nano(standing.burn.high.nano, delay)
    by_day = SendSchedule(counted, fleet, rails, now=now, interval=poll)
    slow = sum(_compute_wait_nano(victim, by_day, now, wait_most) for victim in chosen)
    high += slow
    if not at_once:
        high += _compute_cost_nano(sum(_get_hourly_nano(c, now) for c in runs_on), left - delay)
    overshoot = replace(nothing, nano=max(0, high - budget.cap.nano))
    return CapForecast(
        standing=standing,
        reaction=reaction,
        acts_at=acts_at,
        acts=acts,
        victims=tuple(chosen),
        untouched=untouched,
        overshoot=overshoot,
        enough=enough,
        asked=() if enough or drawn else tuple(stuck),
        accepted=accepted,
        short=_explain_short_limits(
            ordered if chosen else (),
            SendSchedule(counted, fleet, rails, now=now, interval=poll),
            max(overshoot, replace(nothing, nano=max(0, slow - extra))),
            now=now,
            poll=poll,
        ),
    )


def _explain_short_limits(
    ordered: Sequence[CapCandidate], queue: SendSchedule, overshoot: Money, *, now: datetime, poll: timedelta
) -> str:
    """Explain how the limits delay the stops of all machines that a cap may stop; "" if they go in the next two runs."""
    times = [queue.add(now, irreversible=bool(one.loses)) for one in ordered]
    last, why = max(times, default=(now, ""), key=lambda one: one[0])
    if last - now <= 2 * poll:
        return ""
    allowed = sum(at - now <= 2 * poll for at, _ in times)
    wait = "some are never sent" if last == NEVER else f"the last one waits {format_length(last - now)}"
    over = f": this cap can be exceeded by up to {get_currency_sign(overshoot.currency)}{overshoot.format()}"
    return f"[rails] allows {allowed} of its {len(times)} stops at once, {wait} ({why})" + (over if overshoot.nano else "")


def _compute_wait_nano(victim: CapCandidate, queue: SendSchedule, now: datetime, left: timedelta) -> int:
    """Return what the machine costs while the limits delay its stop, behind those that were added before it."""
    at, _ = queue.add(now, irreversible=bool(victim.loses))
    return _compute_cost_nano(_get_hourly_nano(victim, now), min(at - now, left))


def forecast_caps(
    standings: Iterable[BudgetStatus],
    candidates: Sequence[CapCandidate],
    reaction: timedelta,
    now: datetime,
    *,
    fleet: int,
    poll: timedelta,
    rails: Rails | None = None,
    sent: Sequence[Intent] = (),
    accepted: Collection[str] = (),
    announced: Collection[tuple[str, ResourceKey]] = (),
) -> tuple[CapForecast, ...]:
    """Forecast every hard budget, the tightest first. A stop for a tighter budget also saves the money of wider ones.

    A slow start counts at its stated price.

    `sent`: acts of the last day. `accepted`: the policies of caps with limits of their own. `announced`: (policy, machine) of
    stops that people were told of; they are kept, so that a cap does not turn to other machines from run to run.
    """

    def forecast(standing: BudgetStatus, going: frozenset[ResourceKey]) -> CapForecast:
        name = name_cap_policy(standing.budget)
        going |= {key for policy, key in announced if policy == name}
        is_agreed = name in accepted
        return forecast_cap(
            standing, candidates, reaction, now, fleet=fleet, poll=poll, rails=rails, sent=sent, accepted=is_agreed, going=going
        )

    free: frozenset[ResourceKey] = frozenset()
    limited_keys: frozenset[ResourceKey] = frozenset()  # by caps that nobody accepted, whose limits may delay them
    forecasts = []
    counted = (count_slow_starts(one, (c.live for c in candidates), now) for one in standings if one.budget.hard)
    alone = [forecast(one, free) for one in counted]
    for one in sorted(alone, key=_rank_tightness):
        again = forecast(one.standing, free if one.accepted else free | limited_keys)
        victims = frozenset(c.live.observation.key for c in again.victims) if again.acts else frozenset()
        free, limited_keys = (free | victims, limited_keys) if one.accepted else (free, limited_keys | victims)
        forecasts.append(again)
    return tuple(forecasts)


def build_cap_policies(budgets: Iterable[Budget]) -> tuple[Policy, ...]:
    """Build the policy of each hard budget."""
    return tuple(build_cap_policy(budget) for budget in budgets if budget.hard)


def build_cap_policy(budget: Budget, arm: str = STOP) -> Policy:
    """Build the policy of a hard budget: a page, and a stop 60 s later. Its name is "budget:NAME"."""
    return Policy(
        name=name_cap_policy(budget),
        when=DecidedCondition(
            f"what runs costs more than {budget.format_cap()}"
            if budget.is_rate
            else f"spent reaches {budget.cap.format()} {budget.cap.currency}"
        ),
        then=(PolicyStep(do=NOTIFY, severity="page"), PolicyStep(do=STOP, after=CAP_GRACE_MIN)),
        arm=arm,
        allow_irreversible=budget.allow_irreversible,
        rule=CAP_RULE,
    )


def list_cap_verdicts(
    foresights: Iterable[CapForecast], now: datetime, climbs: Mapping[tuple[str, ResourceKey], EscalationState] | None = None
) -> tuple[tuple[CapCandidate, Verdict], ...]:
    """Return a verdict for each machine that a hard cap must stop or ask about, accepted ones first, then the tightest.

    Each machine occurs once, since a stop for one budget saves the money of the others as well. `climbs`: escalation states by
    policy and resource.
    """
    acting = sorted((f for f in foresights if f.acts), key=lambda f: (not f.accepted, *_rank_tightness(f)))
    verdicts: dict[ResourceKey, tuple[CapCandidate, Verdict]] = {}
    for foresight in acting:
        budget, spent, acts_at = foresight.standing.budget, foresight.standing.spent.low, foresight.acts_at
        policy, cap = build_cap_policy(budget), budget.cap
        why = (
            f"{spent.format()} {cap.currency} an hour runs, more than {budget.format_cap()}"
            if budget.is_rate
            else f"{spent.format()} of {cap.format()} {cap.currency} is spent, and the cap acts from {acts_at.format()}",
            f"until its stop is confirmed {foresight.reaction.total_seconds():.0f} s pass",
        )
        for victim in (*foresight.victims, *foresight.asked):
            life = identify_incarnation(victim.live.observation)
            climb = (climbs or {}).get((policy.name, life.key))
            since = climb.since if climb is not None and climb.life == life else now
            verdict = Verdict(
                policy=policy,
                life=life,
                at=now,
                finding=HOLDS,
                truth=ConditionResult(value=True),
                work=victim.work,
                since=since,
                reasons=(*why, *explain_slow_start(victim.live)),
            )
            verdicts.setdefault(life.key, (victim, verdict))
    return tuple(verdicts.values())


def _measure_p95(measured: Mapping[str, Sequence[timedelta]], name: str) -> timedelta | None:
    durations = measured.get(name, ())
    return compute_p95(durations) if len(durations) >= MEASURES_MIN else None


def _rank_candidate(candidate: CapCandidate, now: datetime) -> tuple[bool, bool, bool, int, int, ResourceKey]:
    """Return the sort key: idle machines first, then without a lease, spot, low priority, and the highest rate."""
    observation = candidate.live.observation
    spot = observation.tier == "spot"
    idle = candidate.work.state == IDLE
    return not idle, candidate.leased, not spot, candidate.priority, -_get_hourly_nano(candidate, now), observation.key


def _is_stuck(candidate: CapCandidate, budget: Budget) -> bool:
    """Return whether it cannot be stopped automatically: no stop exists, or it would lose data without permission."""
    return bool(candidate.cannot) or (bool(candidate.loses) and not (candidate.allowed or budget.allow_irreversible))


def _saves_money(candidate: CapCandidate, now: datetime, budget: Budget) -> bool:
    """Return whether stopping it saves money that this budget counts. A committed resource is paid for anyway."""
    observation, rate = candidate.live.observation, compute_savings_rate(candidate.live, now)
    saves = rate is not None and rate.currency == budget.cap.currency
    can_run = observation.state == RUNNING or is_slow_start(candidate.live)
    return can_run and not observation.handling.committed and saves


def _bound_past_nano(candidate: CapCandidate, standing: BudgetStatus, now: datetime) -> int:
    """Return the most that the machine cost this budget in its period.

    That is its present rate since its start or the period's, and at most all that it ever cost.
    """
    live = candidate.live
    began = max(live.observation.started_at or live.first_seen_at, standing.period.start)
    most = _compute_cost_nano(_get_hourly_nano(candidate, now), max(now - began, timedelta()))
    return min(most, live.spent.high.nano) if live.spent.high.currency == standing.budget.cap.currency else most


def _get_hourly_nano(candidate: CapCandidate, now: datetime) -> int:
    rate = compute_savings_rate(candidate.live, now)
    return rate.nano_per_hour if rate else 0


def _get_time_left(standing: BudgetStatus, now: datetime) -> timedelta:
    """Return for how long the burn counts: to the end of the period, or the length of a rolling window."""
    period = standing.period
    days = standing.budget.days  # of a rolling window
    return timedelta(days=days) if days else max(period.end - now, timedelta())


def _compute_cost_nano(nano: int, length: timedelta) -> int:
    return divide_half_even(nano * (length // MICROSECOND), HOUR_US)


def _rank_tightness(foresight: CapForecast) -> tuple[int, str]:
    """Return the sort key: how much may still be spent before the cap acts."""
    return (foresight.acts_at - foresight.standing.spent.low).nano, foresight.standing.budget.name
