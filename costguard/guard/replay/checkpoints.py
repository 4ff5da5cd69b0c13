"""When a replay must evaluate: at each record that could change the result, and between two of them by bisection.

Example: from 18:05 to 21:00 only quiet samples are recorded. A run at 18:05 finds an active machine, one at 18:52 an idle one:
ten evaluations find the minute between them. After that both ends of the rest agree, so no run in between differs.

Samples change the evidence only at some instants. Example: GPU duty 97, 96, 0, 0, ..., 0, 31 %: the third and the last sample
do, and the quiet ones between need no evaluation. A missing sample changes it when it was due, and so does the next one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain, pairwise
from operator import sub

from costguard.guard.action_plan import EVIDENCE_COVERAGE_MIN
from costguard.guard.activity import LARGE_GPU_COUNT
from costguard.guard.context import ACTIVITY_WINDOW
from costguard.guard.evaluation import GuardEvaluation
from costguard.guard.overrides import MANUAL_START_LEASE
from costguard.guard.replay.history import ReplayedResource, find_instance_runs
from costguard.guard.sample_times import BUSY_SHARE_MIN, SampleTimes
from costguard.guard.signal_summary import FLAT_SHARE, FROZEN_SAMPLES_MIN, VARYING_SIGNALS
from costguard.guard.signals import (
    AGE,
    ALIVE,
    COUNTER,
    CPU_UTIL_LARGE,
    FLOOR_SHARE,
    LOW_SHARE,
    MEMORY_HELD_MIN,
    POWER,
    PRESENCE,
    PROGRESS,
    RISE_SHARE,
    SIGNAL_KINDS,
    VOLUMES,
    WORK_BYTES_MIN,
    SampleColumns,
    SignalSeries,
)
from costguard.guard.weak_signals import WEAK_SIGNAL_NAMES, WORK_MIN, combine_weak_signals
from costguard.values.instant import MICROSECOND, from_micros
from costguard.values.sample import (
    CPU_UTIL,
    GPU_BUSY_COUNT,
    GPU_MEMORY_USED,
    GPU_POWER,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_UTIL,
)

EvaluateAt = Callable[[datetime], GuardEvaluation | None]
Signature = Callable[[GuardEvaluation, datetime], object]

GROWING_FACTS = frozenset((
    "time_in_state", "stopped_for", "age", "uptime", "lease_left", "lease_over", "waste", "price_age", "runway", "spent_run",
    "spent_day", "spent_month", "scheduled_on",
))  # fmt: skip
"""Facts that time alone changes, and more than once perhaps. A condition over them is looked at every LOOKS."""
INTERVALS_BETWEEN_LOOKS = 15
"""Intervals. A condition over growing facts that turns twice within them, with no record between, may be missed."""


def find_next_difference(
    evaluation: GuardEvaluation, limit: datetime, step: timedelta, look: EvaluateAt, sign: Signature
) -> datetime:
    """Return the first run after `evaluation` whose result differs by `sign`, or `limit` if none before it does."""
    at = evaluation.at
    steps = (limit - at) // step - 1
    if steps < 1:
        return limit
    signature = sign(evaluation, at)
    near = (ACTIVITY_WINDOW + 2 * step) // step
    if near < steps and _sign_at(at + near * step, look, sign) != signature:
        steps = near
    elif _sign_at(at + steps * step, look, sign) == signature:
        return limit
    low = 0
    while steps - low > 1:
        middle = (low + steps) // 2
        if _sign_at(at + middle * step, look, sign) == signature:
            low = middle
        else:
            steps = middle
    return at + steps * step


def summarize_findings(evaluation: GuardEvaluation, at: datetime) -> object:
    """Return the result of a run without values that only advance with time."""
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
        for case in evaluation.cases
    )
    steps = tuple(
        (
            one.verdict.policy.name,
            one.number,
            one.step.do,
            one.due_at if one.due_at > at else None,
            _list_reason_names(one.held_by),
        )
        for one in evaluation.proposals
    )
    return cases, steps


def summarize_states(evaluation: GuardEvaluation, at: datetime) -> object:  # noqa: ARG001 - a Sign
    """Return the activity state for each policy."""
    return tuple((case.verdict.policy.name, case.verdict.work.state) for case in evaluation.cases)


def list_checkpoints(scene: ReplayedResource) -> Iterator[datetime]:
    """Yield every time of a record that may change what a run finds for the resource."""
    past, back = scene.past, scene.backdrop
    for one in past.said:
        yield one.at
    for span in past.spans:
        yield span.start
        if span.end is not None:
            yield span.end
    for override in scene.wishes:
        yield from (at for at in (override.at, override.until, override.lifted_at) if at is not None and at.year > 1)
    late = back.rules.rails.gap_polls * back.rules.interval
    for stretch in scene.lookout.stretches:
        yield from (stretch.start, stretch.end, stretch.end + late + timedelta(microseconds=1))
    yield from back.gaps
    for start, _ in find_instance_runs(past.said):
        yield start + MANUAL_START_LEASE
    gpus = max((one.seen.gpu_count for one in past.said if one.seen), default=0)
    lag = back.lags.get(past.key.provider, timedelta())
    yield from find_change_points(past.samples, _find_sample_interval(scene), _find_longest_window(scene), gpus, lag=lag)


def _find_sample_interval(scene: ReplayedResource) -> timedelta:
    """Return the least distance of two samples of one signal, at least the guard's interval."""
    least = [min(filter(None, map(sub, ats[1:], ats)), default=0) for ats, _ in scene.past.samples.values()]
    return max(min(filter(None, least), default=0) * MICROSECOND, scene.backdrop.rules.interval)


def _find_longest_window(scene: ReplayedResource) -> timedelta:
    return max([ACTIVITY_WINDOW, *(max(p.hold, p.warmup_max) for p in scene.backdrop.rules.policies)])


def _sign_at(at: datetime, look: EvaluateAt, sign: Signature) -> object:
    evaluation = look(at)
    return None if evaluation is None else sign(evaluation, at)


def _list_reason_names(holds: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(name for name, _ in holds)


HANG_DUTY_PERCENT = 95.0
"""Percent of duty from which on a machine may look hung; the other edge of duty is its kind's."""
LATE_INTERVALS = 1.5
"""Intervals after which a sample was due and did not come."""
SLACK = 1e-9

SampleColumn = tuple[Sequence[int], Sequence[float]]
"""When samples were taken, in microseconds since 1970 and in order, and their values."""


def find_change_points(
    samples: SampleColumns, poll: timedelta, window: timedelta, gpus: float, *, lag: timedelta = timedelta()
) -> list[datetime]:
    """Return, in order, every time at which the result of the samples may change.

    `poll`: how often a sample is due. `window`: the longest window of any policy. `gpus`: the GPUs of the machine.
    """
    late = round(LATE_INTERVALS * (poll // MICROSECOND))
    stale = (2 * poll + lag) // MICROSECOND + 1
    limit = min(samples[GPU_POWER_LIMIT][1], default=0.0) if GPU_POWER_LIMIT in samples else 0.0
    hangs = _may_hang(samples, limit, gpus) or any(
        SIGNAL_KINDS[one].family == PROGRESS for one in samples if one in SIGNAL_KINDS
    )
    hidden = [] if hangs else _find_busy_stretches(samples, late, (BUSY_SHARE_MIN * window + 2 * poll) // MICROSECOND)
    starts, points = [start for start, _ in hidden], set[int]()
    for signal, line in samples.items():
        if signal not in SIGNAL_KINDS or not line[0]:
            continue
        points.update((line[0][0], line[0][-1], line[0][-1] + stale))
        total_limit = limit * (max(1.0, gpus) if signal == GPU_POWER else 1)
        of = (*_find_holes(line, late, stale), *_find_signal_changes(signal, line, total_limit, window, hangs=hangs))
        if signal == GPU_UTIL:
            points.update(of)
            continue
        for at in of:
            number = bisect_right(starts, at) - 1
            if number < 0 or at >= hidden[number][1]:
                points.add(at)
    points.update(_find_weak_changes(samples, gpus))
    points.update(_find_repetitions(samples))
    return [from_micros(at) for at in sorted(points)]


def _may_hang(samples: SampleColumns, limit: float, gpus: float) -> bool:
    """Return whether GPU duty is high in some sample, and power low in some. `limit`: watts of one GPU, 0: unknown."""
    if limit <= 0 or GPU_UTIL not in samples:
        return False
    lows = [min(samples[GPU_POWER_BUSIEST][1])] if GPU_POWER_BUSIEST in samples else []
    lows += [min(samples[GPU_POWER][1]) / max(1.0, gpus)] if GPU_POWER in samples else []
    return min(lows, default=limit) <= LOW_SHARE * limit and max(samples[GPU_UTIL][1]) >= HANG_DUTY_PERCENT


def _find_weak_changes(samples: SampleColumns, gpus: float) -> Iterator[int]:
    """Yield when signals that are weak by themselves begin or end to be work together."""
    weak = {name: columns for name, columns in samples.items() if name in WEAK_SIGNAL_NAMES and columns[0]}
    lines = {
        name: SignalSeries(name, SIGNAL_KINDS[name], SampleTimes.of(ats), values, min(values), max(values))
        for name, (ats, values) in weak.items()
    }
    above = {name: SIGNAL_KINDS[name].above for name in lines}
    if CPU_UTIL in above and gpus >= LARGE_GPU_COUNT:
        above[CPU_UTIL] = CPU_UTIL_LARGE
    series = combine_weak_signals(lines, above)
    return _find_crossings((series.ats, series.values), WORK_MIN, WORK_MIN) if series is not None else iter(())


def _find_repetitions(samples: SampleColumns) -> Iterator[int]:
    """Yield when signals that never stand still begin or cease to be repeated to the last digit."""
    lines = [samples[name] for name in VARYING_SIGNALS if name in samples and samples[name][0]]
    changes = {at for ats, values in lines for at, (one, other) in zip(ats[1:], pairwise(values), strict=True) if one != other}
    ends = sorted({*changes, *(ats[0] for ats, _ in lines), *(ats[-1] for ats, _ in lines)})
    for start, end in pairwise(ends):
        for ats, _ in lines:
            first, last = bisect_right(ats, start), bisect_right(ats, end)
            if last - first >= FROZEN_SAMPLES_MIN - 1:
                yield from (*ats[first : first + FROZEN_SAMPLES_MIN], end)


def _find_holes(line: SampleColumn, late: int, stale: int) -> Iterator[int]:
    for previous_at, next_at in pairwise(line[0]):
        if next_at - previous_at > late:
            yield previous_at
            yield previous_at + stale
            yield next_at


def _find_signal_changes(signal: str, line: SampleColumn, limit: float, window: timedelta, *, hangs: bool) -> Iterator[int]:
    kind = SIGNAL_KINDS[signal]
    if kind.family == POWER and signal != GPU_POWER_LIMIT:
        return chain(_find_power_changes(line, limit), _find_uneven_samples(line, limit) if hangs else ())
    if signal == GPU_MEMORY_USED:
        return _find_crossings(line, MEMORY_HELD_MIN - SLACK, MEMORY_HELD_MIN - SLACK)
    if kind.reading in (COUNTER, PRESENCE, ALIVE) or signal in (GPU_POWER_LIMIT, GPU_BUSY_COUNT):
        return (at for at, (old_value, new_value) in zip(line[0][1:], pairwise(line[1]), strict=True) if old_value != new_value)
    if kind.reading == AGE:
        return (at for at, (old_value, new_value) in zip(line[0][1:], pairwise(line[1]), strict=True) if new_value < old_value)
    edges = (kind.above, HANG_DUTY_PERCENT - SLACK if hangs else kind.above)
    if signal == CPU_UTIL:
        edges = (kind.above, CPU_UTIL_LARGE)
    if kind.reading == VOLUMES:
        edges = (kind.above, WORK_BYTES_MIN / window.total_seconds() / 2 - SLACK)
    return _find_crossings(line, *edges)


def _find_crossings(line: SampleColumn, one: float, other: float) -> Iterator[int]:
    classes = [(value > one) + (value > other) for value in line[1]]
    return (at for at, (old_class, new_class) in zip(line[0][1:], pairwise(classes), strict=True) if old_class != new_class)


def _find_power_changes(line: SampleColumn, limit: float) -> Iterator[int]:
    """Yield where power leaves the band in which it cannot count as work above its own floor.

    Above the band every sample counts.
    """
    if limit <= 0:
        return
    lowest = highest = line[1][0]
    for at, value in zip(*line, strict=True):
        lowest, highest = min(lowest, value), max(highest, value)
        if highest - lowest > RISE_SHARE * limit or highest > (FLOOR_SHARE + RISE_SHARE) * limit:
            yield at
            lowest = highest = value


def _find_uneven_samples(line: SampleColumn, limit: float) -> Iterator[int]:
    """Yield where low power leaves the band of kernels that spin."""
    lowest = highest = line[1][0]
    for at, value in zip(*line, strict=True):
        lowest, highest = min(lowest, value), max(highest, value)
        if limit > 0 and highest - lowest > FLAT_SHARE * limit and lowest <= LOW_SHARE * limit:
            yield at
            lowest = highest = value


def _find_busy_stretches(samples: SampleColumns, late: int, sure: int) -> list[tuple[int, int]]:
    """Return stretches in which every sample of GPU duty is work and none is missing, so that the machine is active.

    Not used for a machine on which a hang could be detected, since that depends on more than duty. `sure`: the microseconds
    after which there are enough samples.
    """
    if GPU_UTIL not in samples:
        return []
    above, stretches = SIGNAL_KINDS[GPU_UTIL].above, list[tuple[int, int]]()
    begin = last = None
    for at, value in zip(*samples[GPU_UTIL], strict=True):
        goes_on = begin is not None and last is not None and value > above and at - last <= late
        if begin is not None and last is not None and not goes_on:
            stretches.append((begin + sure, last))
        if not goes_on:
            begin = at if value > above else None
        last = at
    if begin is not None and last is not None:
        stretches.append((begin + sure, last))
    return [(start, end) for start, end in stretches if start < end]
