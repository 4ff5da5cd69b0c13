"""The action plan: every step that is due or will be due, on every resource, with all reasons that hold it.

Example: the stop of an idle machine that is protected and frozen is held by both reasons, and both are listed, so that the
other one is still visible after one is lifted. Where a provider has no stop, the step becomes a question that states the cost
of waiting; it never becomes a terminate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from costguard.guard.action_intents import READY, REFUSED_FOR, Intent
from costguard.guard.escalation import NO_HOOKS, DueStep, HookProgress, continues_after_stop, list_due_steps
from costguard.guard.limits import Breaker, Headroom, SendSchedule, find_pool, select_counted
from costguard.guard.overrides import UNPROTECTED, Override, Protection
from costguard.guard.policy import (
    ASK,
    CANNOT_SAY,
    CAP_RULE,
    DESTRUCTIVE,
    DOES_NOT,
    HOOK,
    IDLE_RULE,
    OBSERVE,
    RECORD,
    SCALE,
    START,
    STEP_LEVELS,
    STOP,
    TERMINATE,
    TIMED_RULE,
    EscalationState,
    PolicyStep,
    Proposal,
    Rails,
    Verdict,
    reaches_level,
)
from costguard.guard.policy_evaluation import compute_waiting_cost
from costguard.guard.signals import ACTIVE
from costguard.metering.observation import Observation
from costguard.metering.spending import LiveResource
from costguard.values.resource import ENDED, STOPPED, ScopeKey

RESTING_STATES = (STOPPED, "stopping", "suspended", ENDED)
"""A stop of such a one changes nothing."""
LIMIT_DELAY_MIN = timedelta(minutes=10)
"""A wait for the limits that is shorter is not announced."""
RUN_HOLDS = frozenset(("not_acting", "gap", "clock", "ledger", "older_ledger"))
"""Reasons that hold every act of one run."""
DELAYING_HOLDS = frozenset(("rate", "not_accepted", "stale", "refused"))
"""Reasons that delay an announced act: it goes as soon as they end. People are told so once it is late (`alerts.held`)."""
ANNOUNCED_HOLDS = frozenset(("grace", "untold", "hook", "workers_first", "in_doubt")) | RUN_HOLDS | DELAYING_HOLDS
"""Reasons under which an announced act stays announced. Any other withdraws the announcement: it begins anew after it ends."""
FORECAST_HOLDS = frozenset(("grace", "untold", "rate", "hook"))
"""An act that only these hold goes once it is due and the limits have room."""
EVIDENCE_COVERAGE_MIN = 0.8
"""Share of expected samples below which evidence is not whole."""

HoldReason = tuple[str, str]
"""A name of REASONS and a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCase:
    """A verdict on a machine (`live`) with the context that decides its steps.

    `polls`: complete listings that contained it. `in_doubt`: an earlier act on it that is not confirmed yet, in words; "" for
    none. `refused`: acts on it that its provider refused within REFUSED_FOR. `workers`: how many other machines of the group
    that it leads run; 0 if it leads none. `climb`: the escalation state of this run. `level`: how far its policy is armed now.
    `limited`: what keeps `level` below the `arm` of its file, and how to fix it; "" for nothing. `approved`: acts that somebody
    approved. `claimed`: its scope is claimed. `asks`: why a stop needs an approval although its provider could do it; "" for
    nothing. `hooks`: the results of the hooks of its policy.
    """

    verdict: Verdict
    live: LiveResource
    owner: str = ""
    protection: Protection = UNPROTECTED
    lease: Override | None = None
    phase: Override | None = None
    frozen: Override | None = None
    polls: int = 0
    in_doubt: str = ""
    refused: tuple[Intent, ...] = ()
    workers: int = 0
    climb: EscalationState | None = None
    level: str = OBSERVE
    limited: str = ""
    claimed: bool = False
    approved: frozenset[str] = frozenset()
    asks: str = ""
    hooks: HookProgress = NO_HOOKS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConstraints:
    """Constraints on all acts of a run.

    `held`: (reason, sentence) for whatever holds every act: clock, gap, ledger, not_acting, ... `breaker`: see
    Breaker; None: it never opened. `fleet`, `sent`: the number of machines, and the intents that were sent in the last day, for
    the forecast of the limits. `accepted_caps`: policies of hard caps with limits of their own. `rooms`: by pool (`find_pool`),
    where it is not `room`. `quarantine`: scopes with a sentence. `interval`: between listings.
    """

    now: datetime
    interval: timedelta
    room: Headroom
    rails: Rails = field(default_factory=Rails)
    held: tuple[HoldReason, ...] = ()
    breaker: Breaker | None = None
    fleet: int = 0
    sent: tuple[Intent, ...] = ()
    accepted_caps: frozenset[str] = frozenset()
    rooms: Mapping[str, Headroom] = field(default_factory=dict)
    quarantine: Mapping[ScopeKey, str] = field(default_factory=dict)


def build_action_plan(cases: Iterable[PolicyCase], around: RunConstraints) -> tuple[Proposal, ...]:
    """Return every pending step with the reasons that hold it, the earliest due first. Nothing is executed here.

    The capacity of the limits goes to the most urgent steps: hard caps first, then the highest priority, then the longest due.
    """
    case_proposals = [(case, p) for case in cases if _may_have_steps(case) for p in _propose_steps(case, around)]
    case_proposals.sort(key=lambda one: _rank_urgency(one[1]))
    proposals = _forecast_limits(list(_apply_headroom(case_proposals, around)), around)
    return tuple(sorted(proposals, key=lambda p: (p.due_at, *_rank_urgency(p))))


def _forecast_limits(case_proposals: Sequence[tuple[PolicyCase, Proposal]], around: RunConstraints) -> Iterator[Proposal]:
    """Yield each proposal with the time at which the limits will let it run.

    Acts with a lasting hold use no capacity of the limits.
    """
    queue = [
        (case, one)
        for case, one in case_proposals
        if one.step.do in DESTRUCTIVE and all(reason in FORECAST_HOLDS for reason, _ in one.held_by)
    ]
    queue.sort(key=lambda one: (one[1].verdict.policy.rule != CAP_RULE, one[1].due_at, *_rank_urgency(one[1])))
    queued_keys, late = set[tuple[str, ...]](), dict[int, tuple[datetime, str]]()
    schedules = dict[str, SendSchedule]()
    for case, one in queue:
        key, pool = tuple(one.verdict.life.key), find_pool(one.verdict.policy, around.accepted_caps)
        if key in queued_keys:
            continue
        queued_keys.add(key)
        if pool not in schedules:
            rails, sent = select_counted(pool, (act for act in around.sent if act.state != READY), around.rails)
            schedules[pool] = SendSchedule(sent, around.fleet, rails, now=around.now, interval=around.interval)
        at, why = schedules[pool].add(one.due_at, irreversible=is_irreversible(one, case))
        if at - max(one.due_at, around.now) > LIMIT_DELAY_MIN:
            late[id(one)] = (at, why)
    for _, one in case_proposals:
        expected_at, limit = late.get(id(one), (None, ""))
        yield replace(one, expected_at=expected_at, limit=limit) if limit else one


def resolve_step(step: PolicyStep, case: PolicyCase) -> PolicyStep:
    """Return the step that `step` becomes for this resource.

    A stop that the provider lacks, or that would lose data without permission, becomes a question. An approved question becomes
    its act.
    """
    asks = _find_question_act(step, case)
    if asks:
        step = replace(step, do=ASK, act=asks)
    if step.do == ASK and step.act in case.approved:
        return replace(step, do=step.act, act="")
    return step


def list_standing_holds(step: PolicyStep, case: PolicyCase, around: RunConstraints) -> tuple[HoldReason, ...]:
    """Return what holds `step` whenever it is due: the holds of `plan` except the grace period, limits and hooks.

    It is computed again right before a request is sent, from a case of a new observation.
    """
    due = DueStep(0, step, around.now)
    return tuple(_list_holds(due, case, around, is_unanswered=False))


def get_first_act(proposals: Iterable[Proposal]) -> Proposal | None:
    """Return the act that is due first; None: there is none."""
    return min(proposals, key=lambda one: one.due_at, default=None)


def explain_withdrawal(proposal: Proposal | None) -> str:
    """Explain what withdraws the announcement of an act; "" if it stands: the act goes once nothing delays it any more."""
    return next((says for reason, says in (proposal.held_by if proposal else ()) if reason not in ANNOUNCED_HOLDS), "")


def explain_unstoppable(observation: Observation) -> str:
    """Explain why no approval can make a stop of it possible, so that at most a question is sent; "" if a stop can work."""
    if observation.handling.controller:
        return f"{observation.handling.controller} would start it again"
    return "" if observation.handling.stops else "its provider has no stop for it, or does not say so"


def _may_have_steps(case: PolicyCase) -> bool:
    """Return whether any step can be due: not where the condition does not hold, and no escalation goes on."""
    return case.climb is not None or case.verdict.finding != DOES_NOT


def _propose_steps(case: PolicyCase, around: RunConstraints) -> Iterator[Proposal]:
    verdict, observation = case.verdict, case.live.observation
    if case.live.absent_at is not None:
        return
    done_numbers = case.climb.done if case.climb else ()
    ahead: Sequence[DueStep] = list_due_steps(
        verdict, case.climb, stopped=observation.state in RESTING_STATES, hooks=case.hooks
    )
    if _is_unknown(case):
        acts = [(n, s) for n, s in enumerate(verdict.policy.then) if s.do in DESTRUCTIVE and n not in done_numbers]
        ahead = [DueStep(n, s, around.now) for n, s in acts]
    steps = [(n, verdict.policy.then[n]) for n in done_numbers if n < len(verdict.policy.then)]
    waiting = [DueStep(n, step, around.now) for n, step in steps if is_question(step, case)]
    for due in (*waiting, *ahead):
        step = resolve_step(due.step, case)
        if step.do == ASK and due.asks_at is not None:
            due = replace(due, at=due.asks_at, unsent=False, untold=False)  # noqa: PLW2901 - the same step
        if (
            step.do in case.approved and case.climb is not None and case.climb.done
        ):  # who says yes was told, and waits for nothing
            due = replace(due, at=min(due.at, around.now), unsent=False, untold=False)  # noqa: PLW2901 - the same step
        if STOP in {step.do, step.act} and observation.state in RESTING_STATES:
            continue
        holds = tuple(_list_holds(replace(due, step=step), case, around, is_unanswered=due in waiting))
        yield Proposal(verdict=verdict, number=due.number, step=step, due_at=due.at, held_by=holds)


def _is_unknown(case: PolicyCase) -> bool:
    """Return whether the condition is unknown. Of a machine that was stopped, the activity no longer matters."""
    resting = case.live.observation.state in RESTING_STATES
    return case.verdict.finding == CANNOT_SAY and not continues_after_stop(case.climb, case.verdict.policy, stopped=resting)


def _find_question_act(step: PolicyStep, case: PolicyCase) -> str:
    """Return the act that a question asks for in place of a stop; "" for none.

    It is terminate if the provider has no stop, and nothing if it has neither. It is stop if the stop would lose data, if
    `asks` demands an approval, or if the evidence of the verdict is too thin (`short`). It is nothing if it is protected.
    """
    observation, policy = case.live.observation, case.verdict.policy
    if step.do != STOP or observation.state in RESTING_STATES or observation.handling.protected:
        return ""
    if observation.handling.stops is False:
        return "" if observation.handling.terminates is False else TERMINATE
    loses = bool(observation.handling.stop_loses) and not policy.allow_irreversible
    return STOP if loses or case.asks or case.verdict.short else ""


def is_question(step: PolicyStep, case: PolicyCase) -> bool:
    """Return whether `step` is a question, or became one, and its act was not done yet."""
    converted = bool(_find_question_act(step, case))
    ended = case.live.observation.state == ENDED
    return not ended and (step.do == ASK or converted)


def _list_holds(due: DueStep, case: PolicyCase, around: RunConstraints, *, is_unanswered: bool) -> Iterator[HoldReason]:
    """Yield every reason that holds `due`."""
    step, verdict, now = due.step, case.verdict, around.now
    rule, yes = verdict.policy.rule, step.do in case.approved
    if is_unanswered and step.do == ASK:
        price = compute_waiting_cost(case.live, now)
        cost = f"waiting costs {price.format()} {price.currency} per 30 min" if price else "the cost of waiting is unknown"
        yield "asked", f"no answer yet: {step.act} it? ({cost})"
    if step.do == RECORD:
        return
    if _is_unknown(case):
        yield "unknown", "; ".join(verdict.reasons[:2]) or "its condition is unknown"
    if not yes and not reaches_level(case.level, STEP_LEVELS[step.do]):
        limited = f": {case.limited}" if case.limited else ""
        yield "not_armed", f"{verdict.policy.name} is armed for {case.level}, and this needs {STEP_LEVELS[step.do]}{limited}"
    if case.lease is not None and rule != CAP_RULE:
        until = f" until {case.lease.until:%Y-%m-%d %H:%M} UTC" if case.lease.until else ""
        yield "leased", f"{case.lease.who} keeps it{until}"
    yield from _list_protection_holds(step, case)
    if step.do in (*DESTRUCTIVE, HOOK, START):
        yield from _list_act_holds(due, case, around)
    if step.do in DESTRUCTIVE:
        yield from _list_destruction_holds(due, case)
    if step.do == START:
        yield from _list_start_holds(case)


def _list_protection_holds(step: PolicyStep, case: PolicyCase) -> Iterator[HoldReason]:
    locked = case.live.observation.handling.protected
    if locked and step.do in (*DESTRUCTIVE, ASK):
        yield "provider_protection", f"its provider refuses to {' and to '.join(locked)} it"
    elif step.do in (*DESTRUCTIVE, HOOK, ASK, START) and case.protection.protected:
        yield "protected", case.protection.why


def _list_act_holds(due: DueStep, case: PolicyCase, around: RunConstraints) -> Iterator[HoldReason]:
    """Yield the reasons that hold hooks as well as destructive acts."""
    rule, yes = case.verdict.policy.rule, due.step.do in case.approved
    if case.frozen is not None:
        yield "frozen", f"{case.frozen.who} froze all acts" + (f": {case.frozen.why}" if case.frozen.why else "")
    yield from _list_passing_holds(due, case, around)
    if not case.owner and not case.claimed and not yes:
        yield "not_ours", "it has no owner, and [watch] claims does not name its account"
    if around.breaker is not None and around.breaker.holds(case.live.observation.key) and rule == IDLE_RULE and not yes:
        yield "breaker", around.breaker.describe(around.rails)
    if case.live.scope in around.quarantine:
        yield "quarantine", around.quarantine[case.live.scope]
    if case.in_doubt:
        yield "in_doubt", case.in_doubt
    if case.phase is not None and rule != CAP_RULE:
        yield "phase", f"{case.phase.who} declared {case.phase.subject or 'work'} until {case.phase.until:%Y-%m-%d %H:%M} UTC"
    yield from ((reason, says) for reason, says in around.held if (reason, rule) != ("not_accepted", CAP_RULE))


def _list_passing_holds(due: DueStep, case: PolicyCase, around: RunConstraints) -> Iterator[HoldReason]:
    """Yield the reasons that end with time alone."""
    now, rails = around.now, around.rails
    if due.hook:
        yield "hook", due.hook
    if due.untold:
        yield "untold", "notice not delivered: no channel has confirmed it yet; the grace period starts with its delivery"
    if due.at > around.now or due.unsent:
        yield "grace", "no notification was sent yet" if due.unsent else f"its grace ends at {due.at:%Y-%m-%d %H:%M:%S} UTC"
    if now - case.live.first_seen_at < rails.first_seen or case.polls < rails.first_polls:
        age, needed = (_format_minutes(length) for length in (now - case.live.first_seen_at, rails.first_seen))
        yield "first_seen", f"it was seen for {age} in {case.polls} listings; it needs {needed} and {rails.first_polls}"
    if now - case.live.seen_at > rails.gap_polls * around.interval or case.live.seen_at > now + around.interval:
        yield "stale", f"it was last seen at {case.live.seen_at:%Y-%m-%d %H:%M} UTC"


def _format_minutes(length: timedelta) -> str:
    return f"{max(length, timedelta()) // timedelta(minutes=1)} min"


def _list_destruction_holds(due: DueStep, case: PolicyCase) -> Iterator[HoldReason]:
    step, verdict, observation = due.step, case.verdict, case.live.observation
    handling = observation.handling
    for one in case.refused:
        if one.act == step.do and one.policy == verdict.policy.name:
            again = f"it is asked again at {one.moved_at + REFUSED_FOR:%Y-%m-%d %H:%M} UTC"
            yield "refused", f"its provider refused the {one.act} at {one.moved_at:%H:%M} UTC ({one.outcome}); {again}"
    if verdict.policy.rule == IDLE_RULE and verdict.work.state == ACTIVE:
        yield "working", f"it is active: {'; '.join(verdict.work.reasons[:1]) or 'see its signals'}"
    if case.workers > 0 and verdict.policy.rule not in (CAP_RULE, TIMED_RULE):
        yield "workers_first", f"it leads a group of which {case.workers} more run: they are stopped first"
    if few := explain_thin_evidence(verdict):
        yield "not_confident", few
    if verdict.short and step.do not in case.approved:
        yield "not_confident", f"its confidence {verdict.work.confidence:g} is too low for: {verdict.policy.when.text}"
    if handling.controller and step.do != SCALE:
        yield "controller", f"{handling.controller} would start it again"
    yield from _list_missing_act_holds(step, case)
    loses = handling.terminate_loses if step.do == TERMINATE else handling.stop_loses
    if (step.do == TERMINATE or loses) and not (verdict.policy.allow_irreversible or step.do in case.approved):
        yield "irreversible", f"it would permanently lose {', '.join(loses) or 'itself'}"
    shown = verdict.policy.rule == TIMED_RULE or step.do in case.approved  # a person was shown that it saves nothing
    if (paid := explain_no_saving(observation)) and not shown:
        yield "saves_nothing", f"an act on it would save nothing: {paid}"


def _list_start_holds(case: PolicyCase) -> Iterator[HoldReason]:
    handling = case.live.observation.handling
    if handling.controller:
        yield "controller", f"{handling.controller} starts and stops it"
    if not handling.starts:
        phrase = "does not let it be started now" if handling.starts is False else "does not say whether it can be started"
        yield "no_act", f"its provider {phrase}"


def explain_no_saving(observation: Observation) -> str:
    """Explain why the machine is paid for whether it runs or not: a capacity block, a reservation. "" if a stop saves money."""
    price = observation.prices[-1] if observation.prices else None
    return observation.handling.committed or (price.source or "paid in advance" if price and price.prepaid else "")


def explain_thin_evidence(verdict: Verdict) -> str:
    """Explain what the evidence of an idle rule lacks; "" if it is sufficient."""
    if verdict.policy.rule == IDLE_RULE and verdict.work.coverage is not None and verdict.work.coverage < EVIDENCE_COVERAGE_MIN:
        return f"{verdict.work.coverage:.0%} of the expected samples arrived"
    return ""


def _list_missing_act_holds(step: PolicyStep, case: PolicyCase) -> Iterator[HoldReason]:
    handling = case.live.observation.handling
    if step.do == SCALE:
        yield "no_act", "costguard has no way to scale its controller"
        return
    has = handling.stops if step.do == STOP else handling.terminates
    if not has:
        phrase = "has no" if has is False else "does not say whether it has a"
        yield "no_act", f"its provider {phrase} {step.do} for it"


def _apply_headroom(
    case_proposals: Iterable[tuple[PolicyCase, Proposal]], around: RunConstraints
) -> Iterator[tuple[PolicyCase, Proposal]]:
    """Yield the proposals; those beyond the limits are held by `rate`. Only one act on a resource runs at a time."""
    rooms, acting_keys = dict[str, _Room](), set[tuple[str, ...]]()
    resent = {(one.life, one.act) for one in around.sent if one.state == READY}  # the limits count it already
    of_run = {reason for reason, _ in around.held}  # hides no limit: a plan before the first run shows both
    for case, proposal in case_proposals:
        key, pool = tuple(proposal.verdict.life.key), find_pool(proposal.verdict.policy, around.accepted_caps)
        headroom = around.rooms.get(pool, around.room)
        room = rooms.setdefault(pool if pool in around.rooms else "", _Room.of(headroom))
        irreversible, own = is_irreversible(proposal, case), (proposal.verdict.life, proposal.step.do) in resent
        goes = proposal.due_at <= around.now and all(reason in of_run for reason, _ in proposal.held_by)
        if proposal.step.do not in DESTRUCTIVE or not goes:
            yield case, proposal
        elif key in acting_keys:
            yield case, _add_hold(proposal, "in_doubt", "another act on it comes first")
        elif room.in_run <= 0 or (room.acts + own <= 0 and proposal.step.do not in case.approved):
            yield case, _add_hold(proposal, "rate", headroom.why)
        elif irreversible and room.irreversible + own <= 0:
            yield case, _add_hold(proposal, "rate", f"at most {around.rails.irreversible_per_h} irreversible acts an hour")
        else:
            room.acts, room.in_run, room.irreversible = room.acts - 1, room.in_run - 1, room.irreversible - irreversible
            acting_keys.add(key)
            yield case, proposal


@dataclass(slots=True)
class _Room:
    """What is left of a Headroom in this run."""

    acts: int
    in_run: int
    irreversible: int

    @classmethod
    def of(cls, headroom: Headroom) -> _Room:
        in_run = headroom.acts if headroom.in_run is None else headroom.in_run
        return cls(headroom.acts, in_run, headroom.irreversible)


def is_irreversible(proposal: Proposal, case: PolicyCase) -> bool:
    """Return whether the act would lose something permanently."""
    return proposal.step.do == TERMINATE or bool(case.live.observation.handling.stop_loses)


def _add_hold(proposal: Proposal, reason: str, says: str) -> Proposal:
    return replace(proposal, held_by=(*proposal.held_by, (reason, says)))


def _rank_urgency(proposal: Proposal) -> tuple[bool, int, datetime, tuple[str, ...], str, int]:
    policy = proposal.verdict.policy
    key = tuple(proposal.verdict.life.key)
    return policy.rule != CAP_RULE, -policy.priority, proposal.due_at, key, policy.name, proposal.number
