"""When a replay must look again: at each record that could change what a run finds, and between two of them by halving.

Example: nothing is recorded from 18:05 to 21:00 but quiet samples. A run at 18:05 finds work, one at 18:52 an idle machine: ten
looks find the minute between them. From there on both ends find the same, so all between does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from operator import sub

from costguard.guard.action_plan import EVIDENCE_COVERAGE_MIN
from costguard.guard.evaluation import GuardEvaluation
from costguard.guard.owning import MANUAL_START_LEASE
from costguard.guard.replay.backdrop import ReplayedResource
from costguard.guard.replay.history import find_instance_runs
from costguard.guard.replay.turning import find_change_points
from costguard.guard.seat import ACTIVITY_WINDOW
from costguard.values.instant import MICROSECOND

EvaluateAt = Callable[[datetime], GuardEvaluation | None]
Signature = Callable[[GuardEvaluation, datetime], object]

GROWING_FACTS = frozenset((
    "time_in_state", "stopped_for", "age", "uptime", "lease_left", "waste", "price_age", "runway", "spent_run", "spent_day",
    "spent_month", "scheduled_on",
))  # fmt: skip
"""Facts that time alone changes, and more than once perhaps. A condition over them is looked at every LOOKS."""
INTERVALS_BETWEEN_LOOKS = 15
"""Intervals. A condition over growing facts that turns twice within them, with no record between, may be missed."""


def find_next_difference(
    found: GuardEvaluation, limit: datetime, step: timedelta, look: EvaluateAt, sign: Signature
) -> datetime:
    """The first run after `found` that finds otherwise by `sign`, or `limit` where none before it does."""
    at = found.at
    steps = (limit - at) // step - 1
    if steps < 1:
        return limit
    here = sign(found, at)
    near = (ACTIVITY_WINDOW + 2 * step) // step
    if near < steps and _sign_at(at + near * step, look, sign) != here:
        steps = near
    elif _sign_at(at + steps * step, look, sign) == here:
        return limit
    low = 0
    while steps - low > 1:
        middle = (low + steps) // 2
        if _sign_at(at + middle * step, look, sign) == here:
            low = middle
        else:
            steps = middle
    return at + steps * step


def summarize_findings(found: GuardEvaluation, at: datetime) -> object:
    """What a run comes to, without what merely moves on with time."""
    cases = tuple(
        (
            case.verdict.policy.name,
            case.verdict.finding,
            case.verdict.since,
            case.verdict.truth.value,
            case.verdict.work.state,
            case.verdict.work.attended,
            case.verdict.work.coverage is None or case.verdict.work.coverage >= EVIDENCE_COVERAGE_MIN,
            case.protection.protected,
            case.lease is None,
        )
        for case in found.cases
    )
    steps = tuple(
        (
            one.verdict.policy.name,
            one.number,
            one.step.do,
            one.due_at if one.due_at > at else None,
            _list_reason_names(one.held_by),
        )
        for one in found.proposals
    )
    return cases, steps


def summarize_states(found: GuardEvaluation, at: datetime) -> object:  # noqa: ARG001 - a Sign
    """The state of work as each policy asks for it."""
    return tuple((case.verdict.policy.name, case.verdict.work.state) for case in found.cases)


def list_checkpoints(scene: ReplayedResource) -> Iterator[datetime]:
    """Every time at which something was recorded that may change what a run finds of the resource."""
    past, back = scene.past, scene.backdrop
    for one in past.said:
        yield one.at
    for span in past.spans:
        yield span.start
        if span.end is not None:
            yield span.end
    for wish in scene.wishes:
        yield from (at for at in (wish.at, wish.until, wish.lifted_at) if at is not None and at.year > 1)
    late = back.rules.rails.gap_polls * back.rules.interval
    for stretch in scene.lookout.stretches:
        yield from (stretch.start, stretch.end, stretch.end + late + timedelta(microseconds=1))
    yield from back.gaps
    for start, _ in find_instance_runs(past.said):
        yield start + MANUAL_START_LEASE
    gpus = max((one.seen.gpu_count for one in past.said if one.seen), default=0)
    yield from find_change_points(past.samples, _find_sample_interval(scene), _find_longest_window(scene), gpus)


def _find_sample_interval(scene: ReplayedResource) -> timedelta:
    """The least distance of two samples of one signal, at least the interval."""
    least = [min(filter(None, map(sub, ats[1:], ats)), default=0) for ats, _ in scene.past.samples.values()]
    return max(min(filter(None, least), default=0) * MICROSECOND, scene.backdrop.rules.interval)


def _find_longest_window(scene: ReplayedResource) -> timedelta:
    return max([ACTIVITY_WINDOW, *(max(p.hold, p.warmup_max) for p in scene.backdrop.rules.policies)])


def _sign_at(at: datetime, look: EvaluateAt, sign: Signature) -> object:
    found = look(at)
    return None if found is None else sign(found, at)


def _list_reason_names(held: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(name for name, _ in held)
