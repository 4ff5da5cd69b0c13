"""Replay one resource: evaluate it at every checkpoint, on what was recorded until then.

Example: idle since 18:05 for 45 min. The run at 18:50 notifies, and the run at 19:05 wants to stop it. From then on it counts
as stopped, until its real incarnation ended or its real samples show work. No limit applies here, and other resources have no
effect: `simulation` applies the limits. `every_step` evaluates at every interval instead, and must give the same result.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction

from costguard.guard.action_plan import PolicyCase
from costguard.guard.activity import find_probe_start, probe_activity
from costguard.guard.escalation import mark_step_done
from costguard.guard.evaluation import GuardEvaluation, evaluate_snapshot
from costguard.guard.overrides import MANUAL_START_LEASE, PROTECTION_LASTS, find_snooze
from costguard.guard.policy import (
    ASK,
    CANNOT_SAY,
    DENY,
    DESTRUCTIVE,
    HOOK,
    IDLE_RULE,
    NOTIFY,
    RECORD,
    TERMINATE,
    Policy,
    Proposal,
    evaluate_schedule,
)
from costguard.guard.replay.checkpoints import (
    GROWING_FACTS,
    INTERVALS_BETWEEN_LOOKS,
    find_next_difference,
    list_checkpoints,
    summarize_findings,
    summarize_states,
)
from costguard.guard.replay.history import ReplayedResource
from costguard.guard.signals import ACTIVE, HUNG, IDLE, UNKNOWN, estimate_sample_interval
from costguard.values.resource import ENDED, RUNNING, is_same_life

WORKED, STOPPED_ITSELF, ENDED_ITSELF, PERIOD_END, STARTED = "worked", "stopped", "ended", "period_end", "started"
REST_ENDINGS = {
    WORKED: "active again",
    STOPPED_ITSELF: "really stopped or restarted",
    ENDED_ITSELF: "really ended",
    PERIOD_END: "end of the replay",
    STARTED: "started by its schedule",
}
"""Why a machine counts as stopped by the replay no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedAct:
    """An act that a policy wants at `at`. `until`, `because`: until when it would have rested, and why (REST_ENDINGS).

    `told_at`: when the first notification of the policy was sent. `worked_at`: when it worked again; None: it did not, as far
    as is known; `known`: the samples show whether it worked within the hour. `ended_at`: when a later step terminated it.
    """

    at: datetime
    case: PolicyCase
    proposal: Proposal
    until: datetime
    because: str
    told_at: datetime | None = None
    worked_at: datetime | None = None
    known: bool = True
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAct:
    """An act due from `since` to `until` that was held for other `reasons` than its grace period: (reason, sentence)."""

    case: PolicyCase
    proposal: Proposal
    since: datetime
    until: datetime
    reasons: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityTurn:
    """A change to idle or unknown at `since`, seen by the guard from `seen` to `until`."""

    since: datetime
    seen: datetime
    until: datetime


@dataclass(slots=True, kw_only=True)
class ReplayResult:
    """The result for one resource, which grows during the replay. `notices`, `questions`: counts by policy.

    `blind`: (policy, reason) -> for how long it could not be judged for that reason. `runs`: the number of evaluations.
    """

    wanted: list[WantedAct] = field(default_factory=list)
    held: list[HeldAct] = field(default_factory=list)
    turned: list[ActivityTurn] = field(default_factory=list)
    notices: dict[str, int] = field(default_factory=dict)
    questions: dict[str, int] = field(default_factory=dict)
    blind: dict[tuple[str, str], timedelta] = field(default_factory=dict)
    runs: int = 0


NON_ACTING_STEPS = (NOTIFY, ASK, RECORD, DENY)
PASSING_REASONS = frozenset(("grace", "hook"))
"""What holds a step back only until its time has come."""
HOUR = timedelta(hours=1)
_FIGURES = re.compile(r"\d[\d:.-]*(?: \d\d:\d\d)?")


@dataclass(slots=True, kw_only=True)
class ResourceReplay:
    """The replay of one resource; `found` accumulates the result."""

    scene: ReplayedResource
    found: ReplayResult = field(default_factory=ReplayResult)
    _events: list[datetime] = field(default_factory=list)
    _told: dict[str, datetime] = field(default_factory=dict)
    _held: dict[tuple[str, int], HeldAct] = field(default_factory=dict)
    _turned: tuple[datetime, datetime] | None = None
    _state: str = ""
    _stepped: bool = False
    _alone: Policy | None = None

    def run(self) -> ReplayResult:
        """Replay the period, up to the last complete listing of its scope."""
        scene, back = self.scene, self.scene.backdrop
        end = min(back.period.end, (scene.lookout.ends or back.period.start) + back.rules.interval)
        at = back.align_to_run(max(back.period.start, scene.past.first_seen_at))
        self._events = sorted({back.align_to_run(one) for one in list_checkpoints(scene)})
        self._advance(at, end)
        self.found.held += [replace(held_act, until=end) for held_act in self._held.values()]
        self._close_turn(end)
        return self.found

    def _advance(self, at: datetime, end: datetime) -> None:
        while at < end:
            evaluation = self._evaluate(at)
            if evaluation is None:
                self._close_turn(at)
                at = min(self._find_next_event(at), end)
                continue
            act = self._apply_run(evaluation, at)
            if act is not None and self.scene.rests_since is None:
                at = self._rest_until_work(act, at, end)
                continue
            if act is not None:  # what the replay stopped is ended for good
                self.found.wanted[-1] = replace(self.found.wanted[-1], ended_at=at)
                self.scene.gone = True
            then = self._find_next_run(evaluation, at, end)
            self._record_states(evaluation, at, then)
            at = then

    def _evaluate(self, at: datetime) -> GuardEvaluation | None:
        return self._evaluate_at(at, real=False)

    def _evaluate_real(self, at: datetime) -> GuardEvaluation | None:
        return self._evaluate_at(at, real=True)

    def _evaluate_at(self, at: datetime, *, real: bool) -> GuardEvaluation | None:
        live, rules = self.scene.get_resource(at, real=real), self.scene.backdrop.armed
        if real and self._alone is not None:
            rules = replace(rules, policies=(self._alone,))
        self.found.runs += live is not None
        return None if live is None else evaluate_snapshot(rules, self.scene.build_snapshot(live, at, rules.policies))

    # What a run does

    def _apply_run(self, evaluation: GuardEvaluation, at: datetime) -> Proposal | None:
        """Perform the notifying steps, record the held ones, and return the act to do; None: no act."""
        self.scene.climbs = {climb.policy: climb for climb in evaluation.climbs}
        self.scene.sighted = evaluation.sighted[0] if evaluation.sighted else self.scene.sighted
        self._stepped, act = False, None
        cases = {case.verdict.policy.name: case for case in evaluation.cases}
        for proposal in evaluation.proposals:
            case = cases[proposal.verdict.policy.name]
            if not proposal.is_ready(at):
                continue
            if proposal.step.do in (*NON_ACTING_STEPS, HOOK):
                self._notify(case, proposal, at)
            elif act is None and not self._is_busy_now(case, at):
                act = proposal
        self._record_holds(evaluation, cases, at)
        if act is not None:
            self._record_act(act, cases[act.verdict.policy.name], at)
        return act

    def _notify(self, case: PolicyCase, proposal: Proposal, at: datetime) -> None:
        name = proposal.verdict.policy.name
        climb = self.scene.climbs.get(name)
        if climb is None or proposal.number in climb.done:
            return
        self.scene.climbs[name] = mark_step_done(climb, proposal.verdict.policy, proposal.number, at)
        self._stepped = True
        if proposal.step.do not in (NOTIFY, ASK):
            return
        if not climb.done:
            self._told[name] = at
        self.scene.climbs[name] = replace(self.scene.climbs[name], delivered_at=climb.delivered_at or at)
        if find_snooze(case.verdict.life, name, self.scene.wishes, at) is None:
            self.found.notices[name] = self.found.notices.get(name, 0) + 1
        if proposal.step.do == ASK:
            self.found.questions[name] = self.found.questions.get(name, 0) + 1

    def _is_busy_now(self, case: PolicyCase, at: datetime) -> bool:
        """Return whether the samples right before the act show work; this is the last check of an idle rule."""
        if case.verdict.policy.rule != IDLE_RULE or self.scene.rests_since is not None:
            return False
        past, backdrop, hung = self.scene.past, self.scene.backdrop, case.verdict.work.state == HUNG
        lag = backdrop.lags.get(past.key.provider, timedelta())
        reach = at - find_probe_start(at, lag)
        samples, rhythm = (
            past.list_samples(at, reach),
            estimate_sample_interval(past.select_samples(at, reach), backdrop.rules.interval),
        )
        return not samples or bool(probe_activity(samples, at, rhythm, case.live.observation, lag=lag, hung=hung))

    def _record_act(self, act: Proposal, case: PolicyCase, at: datetime) -> None:
        name = act.verdict.policy.name
        climb = self.scene.climbs.get(name)
        if climb is not None:
            self.scene.climbs[name] = mark_step_done(climb, act.verdict.policy, act.number, at)
        if self.scene.rests_since is None:
            told_at = self._told.get(name)
            self.found.wanted.append(
                WantedAct(at=at, case=case, proposal=act, until=at, because=PERIOD_END, told_at=told_at)
            )  # fmt: skip

    def _record_holds(self, evaluation: GuardEvaluation, cases: dict[str, PolicyCase], at: datetime) -> None:
        """Record what holds the acts that are due."""
        due = dict[tuple[str, int], HeldAct]()
        for one in evaluation.proposals:
            reasons = tuple(r for r in one.held_by if r[0] not in PASSING_REASONS)
            if one.step.do in DESTRUCTIVE and one.due_at <= at and reasons and one.verdict.finding != CANNOT_SAY:
                key = one.verdict.policy.name, one.number
                due[key] = HeldAct(case=cases[key[0]], proposal=one, since=at, until=at, reasons=reasons)
        for key, act in list(self._held.items()):
            same = due.get(key)
            if same is None or not is_same_life(same.case.verdict.life, act.case.verdict.life):
                self.found.held.append(replace(act, until=at))
                del self._held[key]
            else:
                names = {name for name, _ in act.reasons}
                self._held[key] = replace(act, reasons=(*act.reasons, *(r for r in same.reasons if r[0] not in names)))
        for key, act in due.items():
            self._held.setdefault(key, act)

    def _record_states(self, evaluation: GuardEvaluation, at: datetime, then: datetime) -> None:
        """Record the states from `at` to `then`: unknown results, turns to idle or unknown, and protection by labels."""
        step, key = self.scene.backdrop.rules.interval, self.scene.past.key
        if evaluation.sighted:
            self.scene.sighted = replace(evaluation.sighted[0], at=max(at, then - step))
        for case in evaluation.cases:
            if case.verdict.finding == CANNOT_SAY and case.live.observation.state == RUNNING:
                blind = case.verdict.policy.name, _FIGURES.sub("…", _explain_blind(case))
                self.found.blind[blind] = self.found.blind.get(blind, timedelta()) + (then - at)
        work = evaluation.works[key]
        if work.state == self._state:
            return
        self._state = work.state
        if work.state not in (IDLE, UNKNOWN):
            self._close_turn(at)
        elif self._turned is None and self._has_turned(at):
            self._turned = (work.since or at) if work.state == IDLE else at, at

    def _has_turned(self, at: datetime) -> bool:
        """Return whether the breaker would count this change, if a single change were enough to open it."""
        scene, rules = self.scene, self.scene.backdrop.armed
        live = scene.get_resource(at)
        touchy = replace(rules, rails=replace(rules.rails, breaker_least=1, breaker_share=Fraction(0)))
        return (
            live is not None and evaluate_snapshot(touchy, scene.build_snapshot(live, at, rules.policies)).breaker is not None
        )

    def _close_turn(self, at: datetime) -> None:
        if self._turned is not None:
            since, seen_at = self._turned
            self.found.turned.append(ActivityTurn(since=since, seen=seen_at, until=at))
        self._turned, self._state = None, ""

    # After a stop

    def _rest_until_work(self, act: Proposal, at: datetime, end: datetime) -> datetime:
        """Continue after a stop at `at` until the machine really ended, stopped or worked; return when the next run is."""
        scene, step = self.scene, self.scene.backdrop.rules.interval
        self._alone = act.verdict.policy
        real_end, because = self._find_real_end(at, end)
        worked = self._find_next_work(act, at, real_end)
        until = max(at, worked[0]) if worked else real_end
        resumes = max(worked[1] if worked else scene.backdrop.align_to_run(real_end), at + step)
        starts_at = _find_scheduled_start(act.verdict.policy, at)
        if starts_at is not None and starts_at < until:
            worked, until, because = None, starts_at, STARTED
            resumes = max(scene.backdrop.align_to_run(starts_at), at + step)
        self._close_turn(at)
        number = len(self.found.wanted) - 1
        self.found.wanted[number] = replace(
            self.found.wanted[number],
            until=until,
            because=WORKED if worked else because,
            worked_at=until if worked else None,
            known=(worked is not None and until - at < HOUR) or self._is_measured(act, at, real_end),
        )
        scene.rests_since, scene.gone = at, act.step.do == TERMINATE
        self._advance(at + step, min(resumes, end))
        scene.rests_since, scene.gone = None, False
        if worked or because == STARTED:
            scene.start_again(until)
        return resumes

    def _find_real_end(self, at: datetime, end: datetime) -> tuple[datetime, str]:
        """Return when the incarnation that runs at `at` really ended, and how."""
        changes = [one for one in self.scene.past.said if at < one.at < end]
        for number, one in enumerate(changes):
            if one.seen is None:
                if any(more.seen is not None and more.seen.state == RUNNING for more in changes[number + 1 :][:1]):
                    continue
                return one.at, ENDED_ITSELF
            if one.seen.state != RUNNING:
                stopped_at = one.seen.stopped_at or one.at
                return max(at, min(stopped_at, one.at)), ENDED_ITSELF if one.seen.state == ENDED else STOPPED_ITSELF
            if one.seen.started_at is not None and one.seen.started_at > at:
                return min(one.seen.started_at, one.at), STOPPED_ITSELF
        return max(at, min(end, self.scene.lookout.ends or end)), PERIOD_END

    def _find_next_work(self, act: Proposal, at: datetime, end: datetime) -> tuple[datetime, datetime] | None:
        """Return when it really worked again and which run sees that; None: it did not work until `end`."""
        name, step = act.verdict.policy.name, self.scene.backdrop.rules.interval
        run_at = at + step
        while run_at < end:
            evaluation = self._evaluate_real(run_at)
            if evaluation is None:
                return None
            work = next((case.verdict.work for case in evaluation.cases if case.verdict.policy.name == name), None)
            if work is not None and work.state == ACTIVE:
                return max(at, work.since or run_at), run_at
            limit = min(self._find_next_event(run_at), end)
            run_at = (
                run_at + step
                if self.scene.backdrop.every_step
                else find_next_difference(evaluation, limit, step, self._evaluate_real, summarize_states)
            )
        return None

    def _is_measured(self, act: Proposal, at: datetime, end: datetime) -> bool:
        """Return whether its samples can prove that it did not work within the hour after `at`."""
        if end < at + HOUR or not self.scene.past.has_samples(at, at + HOUR):
            return False
        evaluation = self._evaluate_real(self.scene.backdrop.align_to_run(at + HOUR) - self.scene.backdrop.rules.interval)
        name = act.verdict.policy.name
        return evaluation is not None and any(
            c.verdict.work.state != UNKNOWN for c in evaluation.cases if c.verdict.policy.name == name
        )

    # When to look again

    def _find_next_run(self, evaluation: GuardEvaluation, at: datetime, end: datetime) -> datetime:
        """Return the next run that may have a different result."""
        step, back = self.scene.backdrop.rules.interval, self.scene.backdrop
        waits = any(p.due_at <= at and {reason for reason, _ in p.held_by} <= PASSING_REASONS for p in evaluation.proposals)
        if self._stepped or waits or back.every_step or any(climb.left_polls for climb in evaluation.climbs):
            return min(at + step, end)
        due = [back.align_to_run(p.due_at) for p in evaluation.proposals if p.due_at > at]
        limit = min([self._find_next_event(at), end, *due])
        if any(case.verdict.policy.when.names & GROWING_FACTS or case.verdict.policy.schedule for case in evaluation.cases):
            limit = min(limit, at + INTERVALS_BETWEEN_LOOKS * step)
        return find_next_difference(evaluation, limit, step, self._evaluate, summarize_findings)

    def _find_next_event(self, at: datetime) -> datetime:
        scene, back = self.scene, self.scene.backdrop
        moving = [scene.sighted.at + PROTECTION_LASTS] if scene.sighted else []
        moving += [scene.started_at + MANUAL_START_LEASE] if scene.started_at else []
        number = bisect_right(self._events, at)
        ahead = [back.align_to_run(one) for one in moving if back.align_to_run(one) > at]
        return min([*self._events[number : number + 1], *ahead], default=datetime.max.replace(tzinfo=at.tzinfo))


def _find_scheduled_start(policy: Policy, at: datetime) -> datetime | None:
    """Return when `policy` starts what it stops at `at`; None: it does not, or the end of the off period is not known."""
    if policy.start is None or policy.schedule is None:
        return None
    return evaluate_schedule(policy.schedule, at).until


def _explain_blind(case: PolicyCase) -> str:
    """Return the most important reason why the condition is unknown."""
    return case.verdict.truth.why or next(iter(case.verdict.reasons), "reason unknown")
