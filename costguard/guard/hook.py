"""Hooks: what a policy's ladder may run before it goes on, such as a checkpoint. Stated once, named by its steps.

    begun, committed -> run, at most `timeout` long -> succeeded | failed | timed_out | lost

19:00 begun, with a timeout of 5 min; 19:02 it ends with status 0: the stop goes on when it is due. Where it fails, or its time
runs out, people are told, and the stop comes no sooner than the grace of 5 min after that; then it comes: a hook holds nothing
back for ever. A run that was begun by a process that is no more is `lost` once its time is over: it may have run, or not.
So a hook runs at least once on a ladder, and a second time only on a ladder that began anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.guard.policy import GRACE_MIN, HOOK, Policy
from costguard.guard.verdict import EscalationState
from costguard.values.checks import require, require_one_of
from costguard.values.incarnation import Incarnation, is_same_life

BEGUN, SUCCEEDED, FAILED, TIMED_OUT, LOST = "begun", "succeeded", "failed", "timed_out", "lost"
HOOK_STATES = {
    BEGUN: "it was begun, and its end is not known",
    SUCCEEDED: "it ended, and said that all is well",
    FAILED: "it ended, or never began, and said that something is wrong",
    TIMED_OUT: "its time ran out, and it was ended",
    LOST: "the process that began it is no more: it may have run, or not",
}
END_MARGIN = timedelta(seconds=15)
"""Beyond its timeout: how long a run may take to be ended, and to be told of."""
OUTPUT_CHARS_MAX = 4096
"""Characters of what a hook said that are kept: its first and its last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A `command` with its arguments, run without a shell, or a `url` that is asked by POST; one of the two.

    `url` may be `env:NAME` or `file:PATH`: then the address is read from there when it is needed, as it holds a secret. `env`:
    names of variables that a command gets beside the few that every program needs; no other one of ours reaches it.
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
    """One run of a hook, as recorded before it began. `number`: of its step in the policy's ladder. `rule`: of that policy.

    `until`: when its time is over, the ending of it included. `ended_at`: None while it is BEGUN. `status`: how its program
    ended (negative: by that signal) or what a web server answered; None: unknown. `why`: in words how it ended. `output`: what
    it said, of which the middle may be left out: hostile text.
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
    """How a run ended: one of HOOK_STATES but BEGUN, with the fields of a HookRun of these names."""

    state: str
    status: int | None = None
    why: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class HookProgress:
    """What runs of hooks say to a ladder. `running`: steps that were begun and have not ended.

    `not_before`: of acts after one that went wrong. `trouble`: how the last one went wrong, "" where none did.
    """

    running: frozenset[int] = frozenset()
    not_before: datetime | None = None
    trouble: str = ""


NO_HOOKS = HookProgress()


def select_hook_runs(climb: EscalationState, runs: Iterable[HookRun]) -> Iterator[HookRun]:
    """Those of this climb; what was begun on an earlier one counts while it has not ended, so that none runs beside itself."""
    for run in runs:
        mine = run.policy == climb.policy and is_same_life(run.life, climb.life)
        if mine and (run.state == BEGUN or run.began_at >= climb.started_at):
            yield run


def summarize_hook_runs(climb: EscalationState | None, runs: Iterable[HookRun]) -> HookProgress:
    """What `runs` say to `climb`, in the words of a ladder."""
    mine = list(select_hook_runs(climb, runs)) if climb is not None else []
    if not mine:
        return NO_HOOKS
    running = frozenset(run.number for run in mine if run.state == BEGUN)
    bad = [run for run in mine if run.state not in (BEGUN, SUCCEEDED) and run.ended_at is not None]
    if not bad:
        return HookProgress(running)
    last = max(bad, key=lambda run: (run.ended_at or run.until, run.id))
    return HookProgress(running, (last.ended_at or last.until) + GRACE_MIN, f"its hook {last.hook} {describe_hook_run(last)}")


def find_ended_steps(climb: EscalationState, policy: Policy, runs: Iterable[HookRun]) -> dict[int, datetime]:
    """The hook steps of this climb that are done, each with when it was begun."""
    return {
        run.number: run.began_at
        for run in select_hook_runs(climb, runs)
        if run.state != BEGUN and run.number < len(policy.then) and policy.then[run.number].do == HOOK
    }


def describe_hook_run(run: HookRun) -> str:
    """How it went, after its name: `failed: it ended with status 3`."""
    words = {
        BEGUN: f"runs since {run.began_at:%H:%M:%S} UTC, until {run.until:%H:%M:%S} UTC at most",
        SUCCEEDED: "succeeded",
        FAILED: "failed",
        TIMED_OUT: "took too long",
        LOST: "was begun, and whether it ran is not known",
    }
    return words[run.state] + (f": {run.why}" if run.why and run.state not in (BEGUN, SUCCEEDED) else "")


def clip_output(text: str, most: int = OUTPUT_CHARS_MAX) -> str:
    """`text` without its middle where it is longer than `most`: what went wrong stands at its end mostly."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def settle_hook_runs(
    runs: Iterable[HookRun], ends: Mapping[str, HookEnd], going: Iterable[str], now: datetime
) -> list[tuple[HookRun, HookEnd]]:
    """What is to be recorded of open `runs`: their `ends` by id, or that they are lost: not `going` here, and over in time."""
    here, found = frozenset(going), list[tuple[HookRun, HookEnd]]()
    for run in runs:
        end = ends.get(run.id)
        if end is None and run.id not in here and now >= run.until:
            end = HookEnd(state=LOST, why="the watchdog that began it is no more")
        if end is not None:
            found.append((run, end))
    return found
