"""Forecast of hard caps: when a cap must act so that it is kept, and on which machines.

Example: a cap of $500.00, $482.10 spent, one machine at $98.32 an hour. From a poll to a confirmed stop takes 600 s, in which
it burns $16.39: so the cap acts at $483.61. The worst case now is $498.49, no overshoot. Acts depend on money that was
certainly spent; people are shown the high end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costguard.budgets.budget import ROLLING, Budget, matches_filter
from costguard.budgets.budget_status import BudgetStatus
from costguard.guard.limits import DAY, TEN_MINUTES, explain_short_headroom, get_limit_10m, get_limit_day
from costguard.guard.policy import (
    CAP_GRACE_MIN,
    CAP_RULE,
    HOLDS,
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
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.values.checks import require
from costguard.values.instant import HOUR_US, MICROSECOND
from costguard.values.money import Money, Rate, divide_half_even
from costguard.values.resource import RUNNING, ResourceKey

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
    """How long until a machine surely bills no more, part by part. `assumed`: the parts that were not measured."""

    parts: tuple[tuple[str, timedelta], ...]
    assumed: tuple[str, ...] = ()

    @property
    def total(self) -> timedelta:
        """All parts, one after the other."""
        return sum((length for _, length in self.parts), timedelta())


@dataclass(frozen=True, slots=True, kw_only=True)
class CapCandidate:
    """A machine that a cap may stop. `priority`: the higher, the later. `protected`: never, people are told instead.

    `cannot`: why a stop of it cannot come, so that people are asked, "" where it can; `loses`: what its stop would lose.
    """

    live: LiveResource
    work: Activity
    leased: bool = False
    protected: bool = False
    cannot: str = ""
    loses: tuple[str, ...] = ()
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapForecast:
    """How a hard budget must act now. `acts_at`: the money, surely spent, from which on it acts, and `acts` whether it does.

    `victims`: whom, in this order. `asked`: about whom people are asked where that is not enough, as no stop of them can come
    or it would lose data. `untouched`: protected ones that burn on. `overshoot`: the most by which the cap could be exceeded if
    it acts now: with what the rails let wait, and with all that cannot be stopped running on to the period's end. `enough`:
    whether stopping them keeps the cap. `rails`: why the rails do not let it be kept, and what to set, "" where they do.
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
    rails: str = ""


@dataclass(frozen=True, slots=True)
class _SpentCondition:
    """The condition of a hard budget: somebody worked it out already."""

    text: str
    names: frozenset[str] = frozenset()

    def evaluate(self, facts: Mapping[str, object]) -> ConditionResult:  # noqa: ARG002 - the signature of a condition
        """Always."""
        return ConditionResult(value=True)


def compute_p95(measures: Sequence[timedelta]) -> timedelta:
    """The measure that 95 % of them do not exceed; at least one must be there."""
    require(bool(measures), "measures", "are none", "use an assumption")
    return sorted(measures)[-(-95 * len(measures) // 100) - 1]


def estimate_reaction(poll: timedelta, measured: Mapping[str, Sequence[timedelta]]) -> ReactionTime:
    """The reaction at a listing every `poll`, from `measured` times of each part where there are enough of them.

    The grace is what it is, and never shorter than its floor, nor than a poll: that it is over is seen by the next run.
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
    safety: Money | None = None,
    going: frozenset[ResourceKey] = frozenset(),
) -> CapForecast:
    """When and on whom the budget of `standing` acts.

    `safety`: money to stay away from the cap, None: none.
    `going`: machines that a tighter budget stops anyway, so they are taken first.

    It acts where what surely is spent and what burns until the last stop is proven reach the cap. The rails let only so many go
    in ten minutes, and those that wait burn on; that they may wait for days shows in the overshoot and hastens nothing.
    """
    budget, rails = standing.budget, rails or Rails()
    goal = budget.cap - safety if safety is not None else budget.cap
    mine = [
        c for c in candidates if matches_filter(budget.match, c.live.observation.attribution) and _saves_money(c, now, budget)
    ]
    untouched = tuple(c for c in mine if c.protected)
    stuck = sorted((c for c in mine if not c.protected and _is_stuck(c, budget)), key=lambda c: _rank_candidate(c, now))
    free = (c for c in mine if not c.protected and not _is_stuck(c, budget))
    ordered = sorted(free, key=lambda c: (c.live.observation.key not in going, _rank_candidate(c, now)))
    burn, nothing = standing.burn.expected.nano, Money(nano=0, currency=budget.cap.currency)
    chosen: list[CapCandidate] = []
    left = _get_time_left(standing, now)
    while True:
        waits = [_estimate_wait(i, fleet, poll, rails, by_day=False) for i in range(len(chosen))]
        extra = sum(
            _compute_cost_nano(_get_hourly_nano(c, now), min(wait, left)) for c, wait in zip(chosen, waits, strict=True)
        )
        rest = burn - sum(_get_hourly_nano(c, now) for c in chosen)
        comes_to = (
            standing.spent.low.nano
            + _compute_cost_nano(burn, min(reaction, left))
            + extra
            + _compute_cost_nano(rest, max(left - reaction, timedelta()))
        )
        enough = comes_to <= goal.nano
        if enough or len(chosen) == len(ordered):
            break
        chosen.append(ordered[len(chosen)])
    needed = _compute_cost_nano(burn, min(reaction, left)) + extra
    acts_at = goal - replace(nothing, nano=needed)
    high = standing.spent.high.nano + _compute_cost_nano(standing.burn.high.nano, min(reaction, left))
    slow = (_estimate_wait(i, fleet, poll, rails, by_day=True) for i in range(len(chosen)))
    high += sum(_compute_cost_nano(_get_hourly_nano(c, now), min(wait, left)) for c, wait in zip(chosen, slow, strict=True))
    high += _compute_cost_nano(sum(_get_hourly_nano(c, now) for c in (*untouched, *stuck)), max(left - reaction, timedelta()))
    overshoot = replace(nothing, nano=max(0, high - budget.cap.nano))
    return CapForecast(
        standing=standing,
        reaction=reaction,
        acts_at=acts_at,
        acts=bool(budget.hard and burn and not standing.spent.low < acts_at),
        victims=tuple(chosen),
        untouched=untouched,
        overshoot=overshoot,
        enough=enough,
        asked=() if enough else tuple(stuck),
        rails=explain_short_headroom(len(ordered), fleet, rails, overshoot) if chosen else "",
    )


def forecast_caps(
    standings: Iterable[BudgetStatus],
    candidates: Sequence[CapCandidate],
    reaction: timedelta,
    now: datetime,
    *,
    fleet: int,
    poll: timedelta,
    rails: Rails | None = None,
) -> tuple[CapForecast, ...]:
    """Every hard budget, the tightest first. What a tighter one stops saves the money of the wider ones as well."""
    going: frozenset[ResourceKey] = frozenset()
    found = []
    alone = (
        forecast_cap(s, candidates, reaction, now, fleet=fleet, poll=poll, rails=rails) for s in standings if s.budget.hard
    )
    for one in sorted(alone, key=_rank_tightness):
        again = forecast_cap(one.standing, candidates, reaction, now, fleet=fleet, poll=poll, rails=rails, going=going)
        going |= {c.live.observation.key for c in again.victims} if again.acts else frozenset()
        found.append(again)
    return tuple(found)


def explain_burn_excess(limit: Rate, burning: Money, new: Rate) -> str:
    """Why a run at `new` may not begin beside what burns, "" where it may: together they are over `limit` an hour."""
    together = burning + Money(nano=new.nano_per_hour, currency=new.currency)
    over = Money(nano=limit.nano_per_hour, currency=limit.currency) < together
    return f"{together.format()} an hour would be over the limit of {limit.format(2)} {limit.currency}" if over else ""


def build_cap_policy(budget: Budget, arm: str = STOP) -> Policy:
    """The policy that a hard budget is: a page, and a stop 60 s after it. Its name is "budget:NAME"."""
    return Policy(
        name=f"budget:{budget.name}",
        when=_SpentCondition(f"spent reaches {budget.cap.format()} {budget.cap.currency}"),
        then=(PolicyStep(do=NOTIFY, severity="page"), PolicyStep(do=STOP, after=CAP_GRACE_MIN)),
        arm=arm,
        allow_irreversible=budget.allow_irreversible,
        rule=CAP_RULE,
    )


def list_cap_verdicts(
    foresights: Iterable[CapForecast], now: datetime, climbs: Mapping[tuple[str, ResourceKey], EscalationState] | None = None
) -> tuple[tuple[CapCandidate, Verdict], ...]:
    """A verdict for each machine that a hard cap must stop, or ask about, the tightest budget's first; each machine once.

    `climbs`: by policy and resource. A machine that one budget stops keeps its money from the others as well.
    """
    acting = sorted((f for f in foresights if f.acts), key=_rank_tightness)
    found: dict[ResourceKey, tuple[CapCandidate, Verdict]] = {}
    for foresight in acting:
        policy, spent = build_cap_policy(foresight.standing.budget), foresight.standing.spent.low
        cap = foresight.standing.budget.cap
        why = (
            (f"{spent.format()} of {cap.format()} {cap.currency} is spent, and the cap acts from {foresight.acts_at.format()}"),
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
                reasons=why,
            )
            found.setdefault(life.key, (victim, verdict))
    return tuple(found.values())


def _measure_p95(measured: Mapping[str, Sequence[timedelta]], name: str) -> timedelta | None:
    found = measured.get(name, ())
    return compute_p95(found) if len(found) >= MEASURES_MIN else None


def _rank_candidate(candidate: CapCandidate, now: datetime) -> tuple[bool, bool, bool, int, int, ResourceKey]:
    """Idle ones first, without a lease, spot, of low priority, and what burns most."""
    seen = candidate.live.observation
    spot = seen.tier == "spot"
    idle = candidate.work.state == IDLE
    return not idle, candidate.leased, not spot, candidate.priority, -_get_hourly_nano(candidate, now), seen.key


def _is_stuck(candidate: CapCandidate, budget: Budget) -> bool:
    """Whether no stop of it can come by itself: there is none, or it would lose what nobody allowed."""
    return bool(candidate.cannot) or (bool(candidate.loses) and not budget.allow_irreversible)


def _saves_money(candidate: CapCandidate, now: datetime, budget: Budget) -> bool:
    """Whether stopping it saves money that this budget counts. What is paid for anyway does not."""
    seen, rate = candidate.live.observation, compute_savings_rate(candidate.live, now)
    saves = rate is not None and rate.currency == budget.cap.currency
    return seen.state == RUNNING and not seen.handling.committed and saves


def _get_hourly_nano(candidate: CapCandidate, now: datetime) -> int:
    rate = compute_savings_rate(candidate.live, now)
    return rate.nano_per_hour if rate else 0


def _estimate_wait(position: int, fleet: int, poll: timedelta, rails: Rails, *, by_day: bool) -> timedelta:
    """How long the act at `position` (from 0) waits for the rails behind those before it."""
    ten, day = get_limit_10m(fleet, rails), get_limit_day(fleet, rails)
    days, within = divmod(position, day) if by_day else (0, position)
    return days * DAY + within // ten * TEN_MINUTES + within % ten // rails.acts_per_run * poll


def _get_time_left(standing: BudgetStatus, now: datetime) -> timedelta:
    """For how long the burn counts: to the end of the period; of a rolling window, its length."""
    period = standing.period
    return period.length if standing.budget.period == ROLLING else max(period.end - now, timedelta())


def _compute_cost_nano(nano: int, length: timedelta) -> int:
    return divide_half_even(nano * (length // MICROSECOND), HOUR_US)


def _rank_tightness(foresight: CapForecast) -> tuple[int, str]:
    """How much may still be spent before it acts."""
    return (foresight.acts_at - foresight.standing.spent.low).nano, foresight.standing.budget.name
