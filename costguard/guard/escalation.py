"""Hooks (commands or URLs that a policy runs before its next step, such as a checkpoint), and escalation.

    begun, committed -> run, at most `timeout` long -> succeeded | failed | timed_out | lost

Example: begun at 19:00 with a timeout of 5 min, it ends at 19:02 with status 0: the stop runs when it is due. If it fails or
times out, people are notified and the stop waits 5 min from then; a hook never holds a stop for ever. A run whose process died
is `lost` once its time is over: whether it ran is unknown. It runs again only after the escalation starts anew.

Escalation: when each step of a policy is due for one incarnation of a resource, and when an escalation begins and ends.

Example: notify, and stop 15 min after it. Idle since 18:05 for 45 min: the notification is due at 18:50; it is sent then, so
the stop is due at 19:05. If it were sent at 18:58, the stop would be due at 19:13. If a user is connected: at 19:20.

A pending escalation has no step done: `since` is when the condition began to hold, and `started_at` has no meaning yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costguard.guard.alerts.alert import NoticeDelivery
from costguard.guard.facts import ACTIVITY_FACTS
from costguard.guard.policy import (
    ASK,
    CAP_GRACE_MIN,
    CAP_RULE,
    DESTRUCTIVE,
    GRACE_MIN,
    HOLDS,
    HOOK,
    NEVER,
    NOT_YET,
    NOTIFY,
    STOP,
    EscalationState,
    Policy,
    PolicyStep,
    Verdict,
)
from costguard.guard.policy_evaluation import compute_notice_length
from costguard.values.checks import require, require_one_of
from costguard.values.resource import Incarnation, is_same_life

BEGUN, SUCCEEDED, FAILED, TIMED_OUT, LOST = "begun", "succeeded", "failed", "timed_out", "lost"
HOOK_STATES = {
    BEGUN: "started; its end is not known",
    SUCCEEDED: "ended successfully",
    FAILED: "failed or did not start",
    TIMED_OUT: "timed out and was killed",
    LOST: "the process that started it ended: the result is unknown",
}
END_MARGIN = timedelta(seconds=15)
"""Time beyond the timeout to end a run and record its result."""
OUTPUT_CHARS_MAX = 4096
"""Characters of a hook's output that are kept: half from its start, half from its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A `command` with arguments, run without a shell, or a `url` called by POST; exactly one of the two.

    `url` may be `env:NAME` or `file:PATH` to keep a secret address out of the config; it is read at each call. `env`: names of
    variables passed to the command besides the few that every program needs.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        either = bool(self.command) != bool(self.url)
        require(either, f"hook {self.name}", "needs a command or a url, and not both", 'write command = ["/usr/bin/save"]')


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRun:
    """One run of a hook, recorded before it begins. `number`: index of its step in the policy. `rule`: rule of the policy.

    `until`: its timeout plus END_MARGIN. `ended_at`: None while BEGUN. `status`: exit status (negative: signal) or HTTP status;
    None: unknown. `why`: how it ended, in words. `output`: untrusted text, clipped in the middle.
    """

    id: str
    life: Incarnation
    policy: str
    rule: str
    number: int
    hook: str
    began_at: datetime
    until: datetime
    epoch: int = 0
    state: str = BEGUN
    ended_at: datetime | None = None
    status: int | None = None
    why: str = ""
    output: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.state, tuple(HOOK_STATES), "hook.state")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEnd:
    """Result of a run: any of HOOK_STATES except BEGUN; the other fields as in HookRun."""

    state: str
    status: int | None = None
    why: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class HookProgress:
    """Effect of hook runs on an escalation. `running`: steps whose hook has not ended.

    `not_before`: earliest time of acts after a failed hook; None: no bound. `trouble`: the last failure in words, "" if none.
    """

    running: frozenset[int] = frozenset()
    not_before: datetime | None = None
    trouble: str = ""


NO_HOOKS = HookProgress()


def select_hook_runs(climb: EscalationState, runs: Iterable[HookRun]) -> Iterator[HookRun]:
    """Yield the runs of this escalation, and open runs of earlier ones so that no hook runs twice at once."""
    for run in runs:
        is_match = run.policy == climb.policy and is_same_life(run.life, climb.life)
        if is_match and (run.state == BEGUN or run.began_at >= climb.started_at):
            yield run


def summarize_hook_runs(climb: EscalationState | None, runs: Iterable[HookRun]) -> HookProgress:
    """Summarize the hook `runs` of `climb`: open steps, and the delay after the last failure."""
    hook_runs = list(select_hook_runs(climb, runs)) if climb is not None else []
    if not hook_runs:
        return NO_HOOKS
    running = frozenset(run.number for run in hook_runs if run.state == BEGUN)
    bad = [run for run in hook_runs if run.state not in (BEGUN, SUCCEEDED) and run.ended_at is not None]
    if not bad:
        return HookProgress(running)
    last = max(bad, key=lambda run: (run.ended_at or run.until, run.id))
    return HookProgress(running, (last.ended_at or last.until) + GRACE_MIN, f"its hook {last.hook} {describe_hook_run(last)}")


def find_ended_steps(climb: EscalationState, policy: Policy, runs: Iterable[HookRun]) -> dict[int, datetime]:
    """Return the ended hook steps of this escalation, each with the time it began."""
    return {
        run.number: run.began_at
        for run in select_hook_runs(climb, runs)
        if run.state != BEGUN and run.number < len(policy.then) and policy.then[run.number].do == HOOK
    }


def describe_hook_run(run: HookRun) -> str:
    """Describe the result, to follow the hook's name: `failed: it ended with status 3`."""
    words = {
        BEGUN: f"runs since {run.began_at:%H:%M:%S} UTC, until {run.until:%H:%M:%S} UTC at most",
        SUCCEEDED: "succeeded",
        FAILED: "failed",
        TIMED_OUT: "took too long",
        LOST: "was started; its result is unknown",
    }
    return words[run.state] + (f": {run.why}" if run.why and run.state not in (BEGUN, SUCCEEDED) else "")


def clip_output(text: str, most: int = OUTPUT_CHARS_MAX) -> str:
    """Cut the middle out of `text` if it exceeds `most` characters; errors are mostly at the end."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def settle_hook_runs(
    runs: Iterable[HookRun], ends: Mapping[str, HookEnd], going: Iterable[str], now: datetime
) -> list[tuple[HookRun, HookEnd]]:
    """Pair open `runs` with their result: from `ends` by id, or LOST if not in `going` and past `until`."""
    going_ids, pairs = frozenset(going), list[tuple[HookRun, HookEnd]]()
    for run in runs:
        end = ends.get(run.id)
        if end is None and run.id not in going_ids and now >= run.until:
            end = HookEnd(state=LOST, why="the watchdog that started it has ended")
        if end is not None:
            pairs.append((run, end))
    return pairs


ENDS_AFTER_RUNS = 2
"""Guard runs in a row without the condition after which an escalation ends."""
ACTIVITY_LOOKBACK = timedelta(hours=47)
"""Samples reach back 48 h, so an activity state older than this may have begun earlier than it seems."""
NOTIFYING_STEPS = (NOTIFY, ASK)


@dataclass(frozen=True, slots=True)
class DueStep:
    """Step `number` (from 0) is due `at`. `unsent`: a notification before it must still be sent.

    `untold`: one was sent, and no channel has confirmed its delivery; `at` is then the earliest possible time. `hook`: the hook
    that it waits for, in words; "" for none. `asks_at`: when it is due as a question, which needs no delivery; None: `at`.
    """

    number: int
    step: PolicyStep
    at: datetime
    unsent: bool = False
    untold: bool = False
    hook: str = ""
    asks_at: datetime | None = None


def advance_escalation(
    climb: EscalationState | None, verdict: Verdict, *, stopped: bool, fresh_since: datetime | None = None
) -> EscalationState | None:
    """Return the escalation after this run: begun, continued, or ended (None).

    `stopped`: the resource is stopped or stopping. `fresh_since`: end of its last lease, which restarts all escalations except
    those of hard caps; None: no lease. After a stop it continues while that incarnation stays stopped: later steps handle its
    disks. If its policy was edited, it begins again and keeps its promised times.
    """
    if climb is not None and (not is_same_life(climb.life, verdict.life) or _is_outdated(climb, verdict, fresh_since)):
        climb = None
    promised = climb.promised if climb is not None else ()
    if climb is not None and climb.meaning != verdict.policy.digest:
        climb = None if climb.meaning and climb.done else replace(climb, meaning=verdict.policy.digest)
    if climb is not None and continues_after_stop(climb, verdict.policy, stopped=stopped):
        return replace(climb, left_polls=0)
    pending = climb is None or not climb.done
    if verdict.since is not None and (verdict.finding == HOLDS or (verdict.finding == NOT_YET and pending)):
        if climb is None or pending:
            return EscalationState(
                policy=verdict.policy.name,
                life=verdict.life,
                since=verdict.since,
                started_at=verdict.since,
                meaning=verdict.policy.digest,
                promised=promised,
            )
        return replace(climb, left_polls=0)
    if climb is None or climb.left_polls + 1 >= ENDS_AFTER_RUNS:
        return None
    return replace(climb, left_polls=climb.left_polls + 1)


def mark_step_done(climb: EscalationState, policy: Policy, number: int, now: datetime) -> EscalationState:
    """Mark step `number` done at `now`. The first notification shifts later steps, so that the full grace follows it."""
    if number in climb.done:
        return climb
    started = climb.started_at if climb.done else now
    step = policy.then[number]
    is_announced = any(policy.then[n].do in NOTIFYING_STEPS for n in climb.done)
    if step.do in NOTIFYING_STEPS and not is_announced:
        started = max(started, now - step.after)
    return replace(climb, started_at=started, done=tuple(sorted((*climb.done, number))))


def list_due_steps(
    verdict: Verdict, climb: EscalationState | None, *, stopped: bool, hooks: HookProgress = NO_HOOKS
) -> tuple[DueStep, ...]:
    """List the open steps with their due times, assuming that each earlier step is done when due.

    Empty if the condition does not hold. `climb`: as `advance_escalation` returned it. `hooks`: see `summarize_hook_runs`.
    """
    policy = verdict.policy
    after_stop = continues_after_stop(climb, policy, stopped=stopped)
    if (verdict.finding not in {HOLDS, NOT_YET} or verdict.since is None) and not after_stop:
        return ()
    done_numbers = (*climb.done, *climb.in_doubt) if climb is not None else ()
    base = climb.started_at if climb is not None and climb.done else max(_find_first_due(verdict), verdict.at)
    return tuple(_build_due_step(verdict, n, base, climb, hooks) for n in range(len(policy.then)) if n not in done_numbers)


def continues_after_stop(climb: EscalationState | None, policy: Policy, *, stopped: bool) -> bool:
    """Return whether this escalation stopped it, or may have, and it is stopped: later steps are due whatever its activity."""
    done_numbers = (*climb.done, *climb.in_doubt) if climb is not None and stopped else ()
    return any(n < len(policy.then) and policy.then[n].do == STOP for n in done_numbers)


def compute_grace(policy: Policy, step: PolicyStep, *, attended: bool) -> timedelta:
    """Return the minimum time from first notification to `step`; doubled if a user is connected, except for hard caps."""
    told_after = _find_first_notice_delay(policy)
    if policy.rule == CAP_RULE:
        return max(step.after - told_after, CAP_GRACE_MIN)
    return (2 if attended else 1) * max(step.after - told_after, GRACE_MIN)


def mark_delivered(climb: EscalationState, deliveries: Iterable[NoticeDelivery], owner: str | None = None) -> EscalationState:
    """Set when the first notification that announces the act was delivered to the present `owner`; None: to anybody.

    `deliveries`: of its policy and resource, on channels that count. A notification from before the escalation began, or from
    before its announcement was withdrawn, does not count, nor does one to another owner.
    """
    if not climb.done:
        return climb
    since = max(climb.started_at, climb.announced_from or climb.started_at)
    times = (one.delivered_at for one in deliveries if one.notice_at >= since and (owner is None or one.owner in (None, owner)))
    return replace(climb, delivered_at=min(times, default=climb.delivered_at))  # a replay delivers at once, and has no records


def update_announcement(climb: EscalationState, *, withdrawn: bool, now: datetime) -> EscalationState:
    """Return the escalation with its announcement withdrawn, or announced anew once nothing holds the act for good any more.

    Example: a stop was announced for Friday 19:15, and all acts were frozen until Monday 09:00: it is announced again on Monday
    at 09:00, and the whole grace runs from the delivery of that.
    """
    if withdrawn:
        return climb if climb.announced_from == NEVER else replace(climb, announced_from=NEVER, promised=())
    return replace(climb, announced_from=now) if climb.announced_from == NEVER else climb


EXPECTED = "expected"
"""In `promised`: when the first act was expected, if the limits delay it. No earlier time holds without a new announcement."""
EARLIER_MIN = timedelta(minutes=10)


def announce_earlier(climb: EscalationState, expected_at: datetime, now: datetime) -> EscalationState:
    """Return the escalation announced anew if its act goes much earlier than people were told, since a limit was lifted.

    Example: a stop was announced for tomorrow 08:16, by the limit of a day. Its cap is accepted at 08:20 today: it is announced
    again, and goes after a whole grace.
    """
    promised = dict(climb.promised)
    told_at = promised.get(EXPECTED)
    if told_at is not None and told_at - max(expected_at, now) > EARLIER_MIN:
        del promised[EXPECTED]
        return replace(climb, announced_from=now, promised=tuple(sorted(promised.items())))
    if climb.delivered_at is None or (told_at is not None and told_at >= expected_at) or expected_at <= now:
        return climb
    return replace(climb, promised=tuple(sorted((promised | {EXPECTED: expected_at}).items())))


def keep_promise(climb: EscalationState, act: str, due_at: datetime) -> EscalationState:
    """Record that `act` was announced for `due_at`; an earlier promise of a later time stays."""
    promised = dict(climb.promised)
    if climb.delivered_at is None or promised.get(act, due_at) > due_at or promised.get(act) == due_at:
        return climb
    return replace(climb, promised=tuple(sorted((promised | {act: due_at}).items())))


def _build_due_step(
    verdict: Verdict, number: int, base: datetime, climb: EscalationState | None, hooks: HookProgress
) -> DueStep:
    policy, done_numbers = verdict.policy, climb.done if climb is not None else ()
    step = policy.then[number]
    if step.do in DESTRUCTIVE:
        grace = compute_grace(policy, step, attended=verdict.work.attended)
        at = base + _find_first_notice_delay(policy) + grace
        at = max(at, verdict.since or at)  # a schedule or an until label that is announced ends it in the future
        ahead = [n for n, s in enumerate(policy.then[:number]) if s.do in (*NOTIFYING_STEPS, HOOK) and n not in done_numbers]
        sent = any(n in done_numbers for n, s in enumerate(policy.then[:number]) if s.do in NOTIFYING_STEPS)
        unsent = not sent or any(policy.then[n].do in NOTIFYING_STEPS for n in ahead)
        delivered_at = climb.delivered_at if climb is not None else None
        asks_at = at
        if sent:
            at = max(at, (delivered_at or verdict.at) + grace, dict(climb.promised if climb else ()).get(step.do, at))
        return DueStep(
            number,
            step,
            max(at, hooks.not_before or at),
            unsent=unsent,
            untold=sent and delivered_at is None and not (climb is not None and climb.announced_from == NEVER),
            hook=_explain_hook_wait(policy, ahead, verdict.at, hooks),
            asks_at=asks_at,
        )
    at = base + step.after
    if step.do == HOOK and verdict.work.attended and policy.rule != CAP_RULE:
        at += step.after  # it stands before an act that waits as long
    return DueStep(number, step, at, hook=f"its hook {step.run} runs" if number in hooks.running else "")


def _explain_hook_wait(policy: Policy, ahead: list[int], now: datetime, hooks: HookProgress) -> str:
    """Explain which hook an act waits for: one that has not ended, or the grace after a failed one; "" for none."""
    open_ = next((policy.then[n].run for n in ahead if policy.then[n].do == HOOK), "")
    if open_:
        return f"its hook {open_} has not ended"
    return hooks.trouble if hooks.not_before is not None and hooks.not_before > now else ""


def _find_first_due(verdict: Verdict) -> datetime:
    """Return when the first step is due: after the hold time, or at once for an end announced ahead."""
    since = verdict.since or verdict.at
    return min(since, verdict.at) if since > verdict.at else since + verdict.policy.hold


def _find_first_notice_delay(policy: Policy) -> timedelta:
    return min((step.after for step in policy.then if step.do in NOTIFYING_STEPS), default=timedelta())


def _is_outdated(climb: EscalationState, verdict: Verdict, fresh_since: datetime | None) -> bool:
    """Return whether the escalation must restart: since its first step a lease ended, or the machine worked."""
    if not climb.done or verdict.policy.rule == CAP_RULE:
        return False
    if fresh_since is not None and climb.started_at < fresh_since:
        return True
    since = verdict.since
    if since is None:
        return False
    if verdict.policy.is_planned:
        return climb.started_at < since - compute_notice_length(verdict.policy)
    worked = climb.started_at < since <= verdict.at and verdict.at - since < ACTIVITY_LOOKBACK
    return worked and bool(verdict.policy.when.names & ACTIVITY_FACTS)
