"""Starts by a schedule: which machines that a policy stopped at night it starts in the morning, and what holds each start.

    stopped by this policy, and confirmed -> nobody touched it since -> the off period is over -> may it? -> price asked again

Example: `nights` is off 20:00-08:00 and stopped `box` at 20:06, at $2.99 an hour. At 08:00 it is started if its last act is
that stop, its run is the one that was stopped, it was not seen running in between, the policy is armed as it was then, no
budget would be exceeded by 20:00, and its provider asks at most $3.29 an hour now. What it does not start, it says.

A start is never repeated within a morning unless it certainly had no effect, then after 5, 15 and 45 min: one that its
provider took or may have taken is the last of that morning. A machine that somebody stops again stays stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costguard.budgets.budget import matches_filter
from costguard.budgets.budget_status import BudgetStatus
from costguard.guard.action_intents import CANCELLED, DONE, FAILED, OPEN_STATES, STARTABLE_STATES, Intent, is_without_effect
from costguard.guard.action_plan import HoldReason, PolicyCase, RunConstraints, list_standing_holds
from costguard.guard.context import GuardSnapshot
from costguard.guard.policy import (
    HOLDS,
    START,
    STOP,
    Policy,
    PolicyStep,
    Proposal,
    Rails,
    ScheduledStartRule,
    evaluate_schedule,
)
from costguard.guard.policy_evaluation import matches_target
from costguard.guard.run_facts import StartHistory, StopFacts
from costguard.metering.observation import Observation, identify_incarnation
from costguard.values.instant import HOUR_US, MICROSECOND
from costguard.values.money import Money, Rate, divide_half_even
from costguard.values.resource import Attribution, is_same_life
from costguard.values.text_format import RATE_PLACES, get_currency_sign

RETRY_AFTER = (timedelta(minutes=5), timedelta(minutes=15), timedelta(minutes=45))
"""After a start that certainly had no effect: how long until the next try of that morning. An assumption, 2026-11."""
TOLD_LATE_FOR = timedelta(hours=12)
"""How long a start whose time has passed is shown and told as missed."""
ON_AT_LEAST = timedelta(minutes=30)
"""How long a machine must be wanted on after its start: for less, its start and its next stop cost more than it works."""
STOP_CLOCK_TOLERANCE = timedelta(minutes=1)
"""How far the clock by which a provider states a stop may be off, beyond the time from our request to its proof."""
WINDOW_UNKNOWN = timedelta(days=1)
"""The time that a budget must last where the schedule says no next off period."""
START_STEP = PolicyStep(do=START)
PASSING_START_HOLDS = frozenset(
    ("grace", "rate", "gap", "clock", "not_acting", "stale", "in_doubt", "first_seen", "retry", "ledger")
)
"""Reasons that hold a start and end without a person; other ones are told when it is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledStart:
    """A start that is due at `proposal.due_at`, or will be. `own_stop`: the stop of its policy that it undoes.

    `price`: what its computing cost an hour when it was stopped; None: not known. `until`: until when it may be started, and
    `window_end`: until when a budget must last. `tries`: the starts of this morning so far, the oldest first. `others`: the
    other policies with a schedule that match it.
    """

    proposal: Proposal
    case: PolicyCase
    own_stop: Intent
    price: Rate | None
    until: datetime
    window_end: datetime
    tries: tuple[Intent, ...] = ()
    others: tuple[Policy, ...] = ()

    @property
    def policy(self) -> Policy:
        """Return the policy that starts it."""
        return self.proposal.verdict.policy

    def is_ready(self, now: datetime) -> bool:
        """Return whether it may be started at `now`."""
        return self.proposal.is_ready(now)

    def list_lasting_holds(self) -> list[HoldReason]:
        """Return what holds it until a person acts."""
        return [hold for hold in self.proposal.held_by if hold[0] not in PASSING_START_HOLDS]


def list_scheduled_starts(
    cases: Iterable[PolicyCase], snapshot: GuardSnapshot, around: RunConstraints, policies: Sequence[Policy]
) -> tuple[ScheduledStart, ...]:
    """Return every start that is due or ahead, the earliest first, each with all reasons that hold it. `policies`: all."""
    starts = [
        start
        for case in cases
        if (history := snapshot.start_histories.get(case.live.observation.key)) is not None
        and (start := plan_start(case, history, snapshot.standings, around, policies)) is not None
    ]
    starts.sort(key=lambda one: (one.proposal.due_at, -one.policy.priority, tuple(one.case.live.observation.key)))
    return tuple(_apply_start_limits(starts, snapshot.started, around))


def plan_start(
    case: PolicyCase,
    history: StartHistory,
    standings: Sequence[BudgetStatus],
    around: RunConstraints,
    policies: Sequence[Policy] = (),
) -> ScheduledStart | None:
    """Return the start of the machine of `case`; None if its policy did not stop this run of it, or its time is long past.

    `policies`: all of the settings, of which those with a schedule that match the machine may want it off.
    """
    policy, observation, now = case.verdict.policy, case.live.observation, around.now
    rule, schedule = policy.start, policy.schedule
    stop = find_own_stop(policy, observation, history.intents)
    if (
        rule is None
        or schedule is None
        or stop is None
        or observation.state not in STARTABLE_STATES
        or case.live.absent_at is not None
    ):
        return None
    due_at = evaluate_schedule(schedule, stop.sent_at or stop.moved_at).until
    if due_at is None or now >= due_at + rule.within + TOLD_LATE_FOR:
        return None
    facts = history.facts.get(stop.id)
    others = tuple(
        one
        for one in policies
        if one.schedule and one.name != policy.name and matches_target(one.target, observation, case.owner)
    )
    begin = max(now, due_at)
    start = ScheduledStart(
        proposal=Proposal(verdict=case.verdict, number=len(policy.then), step=START_STEP, due_at=due_at),
        case=case,
        own_stop=stop,
        price=facts.price if facts else None,
        until=due_at + rule.within,
        window_end=_find_next_off((policy, *others), begin) or begin + WINDOW_UNKNOWN,
        tries=list_tries(policy, stop, history.intents),
        others=others,
    )
    holds = tuple(_list_start_holds(start, history, standings, around))
    return replace(start, proposal=replace(start.proposal, held_by=holds))


def _find_next_off(policies: Iterable[Policy], begin: datetime) -> datetime | None:
    """Return when the next off period of `policies` begins after `begin`; None: none is known."""
    states = [evaluate_schedule(one.schedule, begin) for one in policies if one.schedule is not None]
    return min((one.until for one in states if not one.off and one.until is not None), default=None)


def explain_wanted_off(start: ScheduledStart, now: datetime) -> str:
    """Explain which other schedule wants the machine off at `now`; "" if none does."""
    for one in start.others:
        if one.schedule is not None and (state := evaluate_schedule(one.schedule, now)).off:
            until = f" until {state.until:%Y-%m-%d %H:%M} UTC" if state.until else ""
            return f"{one.name} requires it to be off{until}"
    return ""


def explain_short_window(start: ScheduledStart, now: datetime) -> str:
    """Explain that the machine would hardly run before it is to be off again; "" if it would."""
    left = start.window_end - max(now, start.proposal.due_at)
    if left >= ON_AT_LEAST:
        return ""
    least = ON_AT_LEAST // timedelta(minutes=1)
    return f"its next off period begins at {start.window_end:%Y-%m-%d %H:%M} UTC, in less than {least} min"


def explain_doubtful_stop(stop: Intent, facts: StopFacts | None, observation: Observation) -> str:
    """Explain why something else than `stop` may have stopped the machine; "" if it was this stop."""
    if facts is None or facts.unproven:
        return f"something else may have stopped it: {facts.unproven if facts else 'its stop is not recorded'}"
    first = min(at for at in (facts.asked_at, stop.sent_at, stop.moved_at) if at is not None)
    at = observation.stopped_at
    if at is None or first - STOP_CLOCK_TOLERANCE <= at <= stop.moved_at + STOP_CLOCK_TOLERANCE:
        return ""
    return f"its provider reports a stop at {at:%Y-%m-%d %H:%M} UTC, and its stop was verified at {stop.moved_at:%H:%M}"


def find_own_stop(policy: Policy, observation: Observation, intents: Sequence[Intent]) -> Intent | None:
    """Return the confirmed stop by `policy` of the run that `observation` shows as stopped; None: there is none."""
    life = identify_incarnation(observation)
    stops = [
        one
        for one in intents
        if one.act == STOP and one.policy == policy.name and one.rule == policy.rule and is_same_life(one.life, life)
    ]
    last = max(stops, key=lambda one: (one.created_at, one.id), default=None)
    return last if last is not None and last.state == DONE and last.sends else None


def list_tries(policy: Policy, stop: Intent, intents: Iterable[Intent]) -> tuple[Intent, ...]:
    """Return the starts by `policy` after its `stop`, the oldest first."""
    return tuple(one for one in intents if one.act == START and one.policy == policy.name and one.created_at > stop.created_at)


def explain_touched(policy: Policy, stop: Intent, history: StartHistory, *, own: str = "") -> str:
    """Explain what happened to the machine since the `stop` of `policy` confirmed; "" if nothing did. `own`: an intent's id.

    Whoever touched it has taken it over: a schedule starts only what it alone stopped.
    """
    tries = [one for one in list_tries(policy, stop, history.intents) if one.id != own]
    for one in history.intents:
        other = one.created_at > stop.created_at and one.id != own and one not in tries
        if other and (one.sends or one.state in OPEN_STATES):
            return f"a {one.act} by {one.policy} came after its stop"
    for one in tries:
        if one.state == DONE:
            return f"it was started at {one.sent_at or one.moved_at:%H:%M} UTC, and is stopped again"
    if history.awake_at is not None and history.awake_at > stop.moved_at:
        return f"it was running or starting at {history.awake_at:%Y-%m-%d %H:%M} UTC, after its stop: somebody else started it"
    return ""


def list_try_holds(tries: Sequence[Intent], now: datetime) -> Iterator[HoldReason]:
    """Yield what the starts of this morning so far say against another one: it was taken, it waits, or there were too many."""
    for one in tries:
        if one.state not in OPEN_STATES and one.state != DONE and not is_without_effect(one):
            yield "tries", f"its start was sent at {one.sent_at or one.moved_at:%H:%M} UTC and is not repeated: {one.outcome}"
            return
    if not tries or tries[-1].state in (*OPEN_STATES, DONE):
        return
    last = tries[-1]
    if len(tries) > len(RETRY_AFTER):
        yield "tries", f"{len(tries)} tries failed, the last one because {last.outcome or 'it was refused'}"
    elif now < (again := last.moved_at + RETRY_AFTER[len(tries) - 1]):
        yield "retry", f"{last.outcome or 'the last try failed'}; the next try is at {again:%H:%M} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPromise:
    """What a start will cost that was sent and that no burn shows yet. `rate`: an hour; None: not known.

    `attribution`: of its machine; None: not known, so that every budget counts it.
    """

    name: str
    attribution: Attribution | None
    rate: Rate | None


def explain_start_budget(
    observation: Observation,
    owner: str,
    rate: Rate,
    standings: Iterable[BudgetStatus],
    *,
    start: datetime,
    end: datetime,
    promised: Sequence[StartPromise] = (),
) -> str:
    """Explain which budget of the machine is spent, or would be by `end` if it ran from `start`; "" if all last.

    `promised`: other starts, which are counted as if they ran as long.
    """
    attribution = replace(observation.attribution, owner=owner)
    for one in standings:
        if not matches_filter(one.budget.match, attribution):
            continue
        cap, sign = one.budget.cap, get_currency_sign(one.budget.cap.currency)
        if cap.currency != rate.currency:
            return f"budget {one.budget.name} is in {cap.currency}, and its price is in {rate.currency}"
        if one.exposure >= cap and not one.budget.is_rate:
            return f"budget {one.budget.name} is spent: {sign}{one.exposure.format()} of {sign}{cap.format()}"
        other_starts = [
            other for other in promised if other.attribution is None or matches_filter(one.budget.match, other.attribution)
        ]
        unknown = next((other.name for other in other_starts if other.rate is None or other.rate.currency != cap.currency), "")
        if unknown:
            return f"the cost of {unknown}, which was just started, is not known in the currency of budget {one.budget.name}"
        others = sum(other.rate.nano_per_hour for other in other_starts if other.rate is not None)
        more = rate.nano_per_hour + others
        if one.budget.is_rate:
            total = one.exposure + Money(nano=more, currency=cap.currency)
            if total > cap:
                return f"budget {one.budget.name} would be exceeded: {sign}{total.format()} of {sign}{cap.format()} an hour"
            continue
        last = end if not one.budget.has_end else min(end, max(one.period.end, start))
        us = max(last - start, timedelta()) // MICROSECOND
        more = divide_half_even((one.burn.high.nano + more) * us, HOUR_US)
        total = one.exposure + Money(nano=more, currency=cap.currency)
        if total > cap:
            return (
                f"budget {one.budget.name} would be exceeded by {last:%Y-%m-%d %H:%M} UTC: "
                f"{sign}{total.format()} of {sign}{cap.format()}"
            )
    return ""


def explain_start_price(previous_rate: Rate | None, current_rate: Rate | None, rule: ScheduledStartRule, why: str = "") -> str:
    """Explain why the price does not allow a start; "" if it does. `why`: `current_rate` is unknown."""
    if previous_rate is None:
        return "its price before the stop is not known, so an increase cannot be detected"
    if current_rate is None:
        return why or "its current price is not known"
    if current_rate.currency != previous_rate.currency:
        return f"its price was in {previous_rate.currency} and is in {current_rate.currency} now"
    if current_rate.nano_per_hour > previous_rate.nano_per_hour * (1 + rule.price_rise):
        most = f"more than {float(100 * rule.price_rise):g} % above {format_rate(previous_rate)} before its stop"
        return f"its price is {format_rate(current_rate)} an hour now, {most}"
    return ""


def format_rate(rate: Rate) -> str:
    """Return a rate with its currency's sign."""
    return f"{get_currency_sign(rate.currency)}{rate.format(RATE_PLACES)}"


def _list_start_holds(
    start: ScheduledStart, history: StartHistory, standings: Sequence[BudgetStatus], around: RunConstraints
) -> Iterator[HoldReason]:
    now, due_at = around.now, start.proposal.due_at
    yield from _list_time_holds(start, now)
    yield from _list_stop_holds(start, history)
    # the condition of the policy speaks of its stop; what else holds an act holds a start too
    case = replace(start.case, verdict=replace(start.case.verdict, finding=HOLDS))
    yield from list_standing_holds(START_STEP, case, around)
    yield from list_try_holds(start.tries, now)
    if start.price is None:
        yield "price", "its price before the stop is not known, so an increase cannot be detected"
    else:
        observation, begin = start.case.live.observation, max(now, due_at)
        spent = explain_start_budget(observation, start.case.owner, start.price, standings, start=begin, end=start.window_end)
        if spent:
            yield "budget", spent


def _list_time_holds(start: ScheduledStart, now: datetime) -> Iterator[HoldReason]:
    policy, due_at = start.policy, start.proposal.due_at
    if due_at > now:
        yield "grace", f"its off period ends at {due_at:%Y-%m-%d %H:%M} UTC"
    elif now >= start.until:
        yield "missed", f"its time passed at {start.until:%Y-%m-%d %H:%M} UTC"
    elif policy.schedule is not None and evaluate_schedule(policy.schedule, now).off:
        yield "missed", "its schedule requires it to be off again"
    elif short := explain_short_window(start, now):
        yield "missed", short
    if off := explain_wanted_off(start, max(now, due_at)):
        yield "off", off


def _list_stop_holds(start: ScheduledStart, history: StartHistory) -> Iterator[HoldReason]:
    """Yield why the stop that it would undo was not this policy's, or not the last that happened to the machine."""
    policy = start.policy
    if why := explain_touched(policy, start.own_stop, history):
        yield "touched", why
    facts = history.facts.get(start.own_stop.id)
    if doubt := explain_doubtful_stop(start.own_stop, facts, start.case.live.observation):
        yield "not_own", doubt
    if facts is None or facts.meaning != policy.digest:
        yield "edited", f"{policy.name} was edited since it stopped it"
    elif facts.instance_type != start.case.live.observation.instance_type:
        yield "touched", f"it was a {facts.instance_type} when it was stopped"


def _apply_start_limits(
    starts: Iterable[ScheduledStart], started: Iterable[Intent], around: RunConstraints
) -> Iterator[ScheduledStart]:
    """Yield the starts; those beyond the limits are held by `rate`."""
    left, why = compute_start_headroom(started, around.rails, around.now)
    for one in starts:
        if not one.is_ready(around.now):
            yield one
        elif left <= 0:
            holds = (*one.proposal.held_by, ("rate", why))
            yield replace(one, proposal=replace(one.proposal, held_by=holds))
        else:
            left -= 1
            yield one


def compute_start_headroom(started: Iterable[Intent], rails: Rails, now: datetime) -> tuple[int, str]:
    """Return how many machines may be started in this run, and the limit in words. `started`: starts of the last day."""
    in_hour = sum(one.sent_at is not None and one.sent_at > now - timedelta(hours=1) for one in started)
    left = rails.starts_per_h - in_hour
    if left < rails.starts_per_run:
        return max(left, 0), f"{in_hour} of {rails.starts_per_h} starts in an hour are done"
    return rails.starts_per_run, f"at most {rails.starts_per_run} starts in a run"


def is_failed_try(intent: Intent) -> bool:
    """Return whether a start was given up without effect."""
    return intent.act == START and intent.state in (CANCELLED, FAILED)
