"""Ladders: which step of a policy is due when, for one life of a resource, and when a climb begins and ends.

Example: notice, and a stop 15 min after it. Idle since 18:05 for 45 min: the notice is due at 18:50; it goes out then, so the
stop is due at 19:05. Had it gone out at 18:58, the stop would be due at 19:13. With somebody connected: at 19:20.

A pending climb has no step done: it remembers since when the condition holds, and its `started_at` says nothing yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costguard.guard.facts import ACTIVITY_FACTS
from costguard.guard.hook import NO_HOOKS, HookProgress
from costguard.guard.policy import (
    ASK,
    CAP_GRACE_MIN,
    CAP_RULE,
    DESTRUCTIVE,
    GRACE_MIN,
    HOOK,
    NOTIFY,
    SCHEDULE_RULE,
    STOP,
    Policy,
    PolicyStep,
)
from costguard.guard.policy_evaluation import compute_notice_length
from costguard.guard.verdict import HOLDS, NOT_YET, EscalationState, Verdict
from costguard.values.incarnation import is_same_life

ENDS_AFTER_RUNS = 2
"""Guard runs in a row in which the condition does not hold, after which a climb has ended."""
ACTIVITY_LOOKBACK = timedelta(hours=47)
"""A state of work that began longer ago may only seem to begin there: samples are looked at for 48 h."""
NOTIFYING_STEPS = (NOTIFY, ASK)


@dataclass(frozen=True, slots=True)
class DueStep:
    """Step `number` (from 0) is due `at`; `untold`: a step that tells people must be done before it, and is not.

    `hook`: what of a hook it waits for, in words, "" for nothing.
    """

    number: int
    step: PolicyStep
    at: datetime
    untold: bool = False
    hook: str = ""


def advance_escalation(
    climb: EscalationState | None, found: Verdict, *, stopped: bool, fresh_since: datetime | None = None
) -> EscalationState | None:
    """The climb after this run: begun, gone on, or ended (None). `stopped`: its resource is stopped, or is stopping.

    `fresh_since`: the end of its last lease, after which a ladder starts anew; a hard cap's does not. A climb that led to a
    stop goes on for as long as that life stays stopped, since its later steps are about what is left.
    """
    if climb is not None and (not is_same_life(climb.life, found.life) or _is_outdated(climb, found, fresh_since)):
        climb = None
    if climb is not None and continues_after_stop(climb, found.policy, stopped=stopped):
        return replace(climb, left_polls=0)
    pending = climb is None or not climb.done
    if found.since is not None and (found.finding == HOLDS or (found.finding == NOT_YET and pending)):
        if climb is None or pending:
            return EscalationState(policy=found.policy.name, life=found.life, since=found.since, started_at=found.since)
        return replace(climb, left_polls=0)
    if climb is None or climb.left_polls + 1 >= ENDS_AFTER_RUNS:
        return None
    return replace(climb, left_polls=climb.left_polls + 1)


def mark_step_done(climb: EscalationState, policy: Policy, number: int, now: datetime) -> EscalationState:
    """`climb` with step `number` done at `now`. The first notice moves the ladder, so that its whole grace lies after it."""
    if number in climb.done:
        return climb
    started = climb.started_at if climb.done else now
    step = policy.then[number]
    told = any(policy.then[n].do in NOTIFYING_STEPS for n in climb.done)
    if step.do in NOTIFYING_STEPS and not told:
        started = max(started, now - step.after)
    return replace(climb, started_at=started, done=tuple(sorted((*climb.done, number))))


def list_due_steps(
    found: Verdict, climb: EscalationState | None, *, stopped: bool, hooks: HookProgress = NO_HOOKS
) -> tuple[DueStep, ...]:
    """The steps that are not done, with when each is due, were all before it done when they are due.

    None where the condition does not hold. `climb` is that of this run (see `climbed`), `hooks` what its hooks came to.
    """
    policy = found.policy
    after_stop = continues_after_stop(climb, policy, stopped=stopped)
    if (found.finding not in {HOLDS, NOT_YET} or found.since is None) and not after_stop:
        return ()
    done = climb.done if climb is not None else ()
    base = climb.started_at if climb is not None and climb.done else max(_find_first_due(found), found.at)
    return tuple(_build_due_step(found, n, base, done, hooks) for n in range(len(policy.then)) if n not in done)


def continues_after_stop(climb: EscalationState | None, policy: Policy, *, stopped: bool) -> bool:
    """Whether its stop was done and it rests, so that the steps after it are due whatever its work is."""
    done = climb.done if climb is not None and stopped else ()
    return any(n < len(policy.then) and policy.then[n].do == STOP for n in done)


def compute_grace(policy: Policy, step: PolicyStep, *, attended: bool) -> timedelta:
    """The least between the first notice and `step`: its own, at least the floor, twice that where somebody is connected."""
    told_after = _find_first_notice_delay(policy)
    if policy.rule == CAP_RULE:
        return max(step.after - told_after, CAP_GRACE_MIN)
    return (2 if attended else 1) * max(step.after - told_after, GRACE_MIN)


def _build_due_step(found: Verdict, number: int, base: datetime, done: tuple[int, ...], hooks: HookProgress) -> DueStep:
    policy = found.policy
    step = policy.then[number]
    if step.do in DESTRUCTIVE:
        at = base + _find_first_notice_delay(policy) + compute_grace(policy, step, attended=found.work.attended)
        at = max(at, found.since or at)  # a schedule that is announced turns off in the future
        ahead = [n for n, s in enumerate(policy.then[:number]) if s.do in (*NOTIFYING_STEPS, HOOK) and n not in done]
        told = any(n in done for n, s in enumerate(policy.then[:number]) if s.do in NOTIFYING_STEPS)
        waits = not told or any(policy.then[n].do in NOTIFYING_STEPS for n in ahead)
        return DueStep(
            number, step, max(at, hooks.not_before or at), untold=waits, hook=_explain_hook_wait(policy, ahead, found.at, hooks)
        )
    at = base + step.after
    if step.do == HOOK and found.work.attended and policy.rule != CAP_RULE:
        at += step.after  # it stands before an act that waits as long
    return DueStep(number, step, at, hook=f"its hook {step.run} runs" if number in hooks.running else "")


def _explain_hook_wait(policy: Policy, ahead: list[int], now: datetime, hooks: HookProgress) -> str:
    """What of its hooks an act waits for: one that has not ended, or the grace after one went wrong."""
    open_ = next((policy.then[n].run for n in ahead if policy.then[n].do == HOOK), "")
    if open_:
        return f"its hook {open_} has not ended"
    return hooks.trouble if hooks.not_before is not None and hooks.not_before > now else ""


def _find_first_due(found: Verdict) -> datetime:
    """When the first step is due: once the condition has held for long enough; at once where it holds ahead of time."""
    since = found.since or found.at
    return min(since, found.at) if since > found.at else since + found.policy.hold


def _find_first_notice_delay(policy: Policy) -> timedelta:
    return min((step.after for step in policy.then if step.do in NOTIFYING_STEPS), default=timedelta())


def _is_outdated(climb: EscalationState, found: Verdict, fresh_since: datetime | None) -> bool:
    """Whether something that starts a ladder anew has happened since its first step: a lease ended, or there was work."""
    if not climb.done or found.policy.rule == CAP_RULE:
        return False
    if fresh_since is not None and climb.started_at < fresh_since:
        return True
    since = found.since
    if since is None:
        return False
    if found.policy.rule == SCHEDULE_RULE:
        return climb.started_at < since - compute_notice_length(found.policy)
    worked = climb.started_at < since <= found.at and found.at - since < ACTIVITY_LOOKBACK
    return worked and bool(found.policy.when.names & ACTIVITY_FACTS)
