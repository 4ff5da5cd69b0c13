"""Summary of one signal in a window (busy, quiet or unknown), and hang detection. Times are whole microseconds.

Example: 45 samples of GPU duty are due in 45 min. Five above 5 % are work, four are noise. Four above 5 % of 44 that arrived
are unknown, since the missing one could have been the fifth. A missing sample never counts as quiet.

A hang is a machine that is busy by GPU duty but idle by power and progress. Example: duty 100 % and 80 of 400 W since 02:10,
and no step since: hung since 02:10, from 02:20 on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from costguard.guard.sample_times import ActivityWindow, has_enough_before
from costguard.guard.signals import (
    AGE,
    COUNTER,
    COVERAGE_MIN,
    CPU,
    FLOOR_SHARE,
    HUNG,
    INPUT_COUNTS_FOR,
    IO,
    LEVEL,
    LOW_SHARE,
    PEOPLE,
    PROGRESS,
    QUEUE,
    RISE_SHARE,
    VOLUMES,
    WORK_BYTES_MIN,
    SignalKind,
    SignalSeries,
)
from costguard.metering.observation import Observation
from costguard.values.instant import MICROSECOND, SECOND_US, from_micros
from costguard.values.sample import (
    CPU_CORES,
    CPU_UTIL,
    DISK,
    GPU_POWER,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_UTIL,
    NETWORK,
    PCIE,
)

INPUT_COUNTS_FOR_US = INPUT_COUNTS_FOR // MICROSECOND


class SignalSummary(NamedTuple):
    """The summary of a signal. `busy`: it shows work now.

    `doubtful`: missing samples could be work. `worked`: it showed work at any time. `until`: when its last work, or possible
    work, ended; None: none since `ActivityWindow.start`. `began`: since when it is busy without a pause as long as a window.
    `peak`: its highest value in the window.
    """

    line: SignalSeries
    kind: SignalKind
    busy: bool
    doubtful: bool
    worked: bool
    coverage: float
    fresh: bool
    until: int | None
    began: int | None
    peak: float

    @property
    def proven(self) -> bool:
        """Return whether it is certainly quiet."""
        return self.fresh and not self.doubtful and not self.busy and self.coverage >= COVERAGE_MIN


class Classification(NamedTuple):
    """A state of work as in Activity, except that `since` is in microseconds."""

    state: str
    confidence: float
    reasons: tuple[str, ...]
    since: int | None
    wasted_share: float = 0


def summarize_signal(line: SignalSeries, window: ActivityWindow, above: float) -> SignalSummary:
    """Summarize `line`; a value above `above` is busy."""
    kind, ats, opens, fit = line.kind, line.ats, window.opens, line.times.fit(window)
    reading, first, holes, tail, bound = kind.reading, fit.first, fit.holes, fit.tail, fit.bound
    head = fit.counter_head if reading == COUNTER else fit.head
    peak = line.top if not first or line.top == line.low else max(line.values[first:], default=0.0)
    if first == len(ats):
        peak = 0.0
    busy = _find_busy_samples(line, window, above)
    if not (holes or head or tail or busy):
        return SignalSummary(line, kind, False, False, False, 1.0, fit.fresh, bound, None, peak)  # noqa: FBT003 - hundreds of thousands
    one = reading in (VOLUMES, COUNTER, AGE)
    worked, now_busy = _find_last_busy(busy, window, one=one), _has_enough_now(busy, window, one=one)
    if reading == AGE:
        now_busy = bool(busy) and window.now - busy[-1] < INPUT_COUNTS_FOR_US
    missing = head + tail + fit.holes_inside
    doubtful, possible = False, worked
    if reading in (LEVEL, VOLUMES, COUNTER):
        inside = () if reading == COUNTER else holes
        unseen = head + {LEVEL: tail, VOLUMES: max(0, tail - 1), COUNTER: 0}[reading]
        if inside or unseen:
            marks = sorted([*busy, *inside]) if inside else busy
            possible = _find_last_busy(marks, window, one=one)
            least = 1 if one else window.get_busy_min(window.now - window.start)
            doubtful = len(marks) - bisect_right(marks, opens) + unseen >= least
    busy_end = _find_busy_end(line, possible, window)
    return SignalSummary(
        line,
        kind,
        now_busy,
        doubtful,
        worked is not None,
        max(0.0, 1 - missing / window.due),
        fit.fresh,
        busy_end if bound is None or (busy_end is not None and busy_end > bound) else bound,
        line.times.find_busy_start(busy, window.length) if now_busy else None,
        peak,
    )


def compute_power_threshold(line: SignalSeries, window: ActivityWindow, limit: float, gpus: float) -> float:
    """Return the watts above which `line` shows work: its own floor in the window plus 15 % of the limit.

    If a sample of the window is missing, it could have been the lowest, so the floor is taken to be 0.
    """
    total_limit = limit * (max(1.0, gpus) if line.signal == GPU_POWER else 1)
    holes = line.times.find_holes(window.poll)
    missed = bool(holes and holes[-1] > window.opens) or line.ats[0] - window.opens >= window.poll
    first = bisect_right(line.ats, window.opens)
    floor_w = 0.0 if missed or window.newest - line.ats[-1] >= window.poll else min(line.values[first:], default=0.0)
    return max(0.0, min(floor_w, FLOOR_SHARE * total_limit)) + RISE_SHARE * total_limit


def _find_busy_samples(line: SignalSeries, window: ActivityWindow, above: float) -> Sequence[int]:
    """Return the times of the samples that show work."""
    often, reading = line.find_above(above), line.kind.reading
    if reading == AGE:
        return often if often[-1] >= window.start else ()
    if reading != VOLUMES:
        return often
    steady = line.times.drop_noise(often, window)
    each = window.poll / SECOND_US
    if len(steady) == len(line.ats) or sum(line.values) * each <= WORK_BYTES_MIN:
        return steady
    heavy = _find_heavy_samples(line, window, each, steady)
    return sorted([*steady, *heavy]) if heavy else steady


def _find_heavy_samples(line: SignalSeries, window: ActivityWindow, each: float, steady: Sequence[int]) -> Sequence[int]:
    """Return samples not in `steady` that carry their share of a window with more than WORK_BYTES_MIN in it.

    If all later samples are in it, only the first `early` ones are examined.
    """
    ats, share, early = line.ats, WORK_BYTES_MIN / (window.length / SECOND_US) / 2, len(line.ats) - len(steady)
    steady_ats = frozenset[int]()
    if not steady or steady[0] != ats[early]:
        early, steady_ats = len(ats), frozenset(steady)
    values = line.values[:early]
    totals = [0.0, *accumulate(values)]
    return [
        at
        for k, (at, value) in enumerate(zip(ats[:early], values, strict=True))
        if value >= share
        and at not in steady_ats
        and (totals[k + 1] - totals[bisect_right(ats, at - window.length)]) * each > WORK_BYTES_MIN
    ]


def _find_last_busy(marks: Sequence[int], window: ActivityWindow, *, one: bool) -> int | None:
    """Return the latest of `marks` with enough of them in the window that ends at it. `one`: one is enough."""
    if not marks:
        return None
    if one or has_enough_before(marks, len(marks) - 1, window):
        return marks[-1]
    return next((marks[k] for k in range(len(marks) - 2, -1, -1) if has_enough_before(marks, k, window)), None)


def _has_enough_now(marks: Sequence[int], window: ActivityWindow, *, one: bool) -> bool:
    if not marks or marks[-1] <= window.opens:
        return False
    return one or len(marks) - bisect_right(marks, window.opens) >= window.get_busy_min(window.now - window.start)


def _find_busy_end(line: SignalSeries, at: int | None, window: ActivityWindow) -> int | None:
    """Return when the work seen at `at` ended: a counter or an age at `at`, a level at the next sample."""
    if at is None or line.kind.reading in (COUNTER, AGE):
        return at
    nexts = bisect_right(line.ats, at)
    return line.ats[nexts] if nexts < len(line.ats) else min(window.now, at + window.poll)


def format_clock(at: int) -> str:
    """Format `at` for people."""
    return f"{from_micros(at):%Y-%m-%d %H:%M} UTC"


def format_minutes(span: int) -> str:
    """Format a length in microseconds as whole minutes."""
    return f"{span / SECOND_US / 60:.0f} min"


FROZEN_SAMPLES_MIN, FROZEN_SIGNALS_MIN, VARIED_BEFORE, VARIED_SHARE_MIN = 3, 2, 12, 0.75
"""A source repeats its last values if so many samples of all signals below, two of which are not 0, are the same to the last
digit, although of the 12 samples before three in four had changed. Rounded values and values at rest repeat before, too.
Of a machine that shows nothing else since its start, three such values must be fractions."""
VARYING_SIGNALS = (GPU_POWER, GPU_POWER_BUSIEST, CPU_UTIL, CPU_CORES, NETWORK, DISK, PCIE)
"""What never stands still on a machine that runs: watts, shares of processors, bytes."""


def find_frozen_start(lines: Mapping[str, SignalSeries]) -> int | None:
    """Return since when all values are repeated to the last digit, in microseconds; None: they are not."""
    starts, varied, fractions = list[int](), 0, 0
    for line in (lines[name] for name in VARYING_SIGNALS if name in lines):
        first = len(line.values) - 1
        while first > 0 and line.values[first - 1] == line.values[-1]:
            first -= 1
        if len(line.values) - first < FROZEN_SAMPLES_MIN:
            return None
        if line.values[-1]:
            starts.append(line.ats[first])
            earlier = line.values[max(0, first - VARIED_BEFORE) : first + 1]
            changes = sum(one != other for one, other in pairwise(earlier))
            varied += len(earlier) > FROZEN_SAMPLES_MIN and changes >= VARIED_SHARE_MIN * (len(earlier) - 1)
            fractions += not first and line.values[-1] % 1 != 0
    return max(starts) if varied >= FROZEN_SIGNALS_MIN or fractions > FROZEN_SIGNALS_MIN else None


def find_impossible_power(lines: Mapping[str, SignalSeries], view: ActivityWindow) -> str:
    """Explain that power in the window is less than any GPU that is on draws; "" if it is not."""
    power = lines.get(GPU_POWER_BUSIEST) or lines.get(GPU_POWER)
    values = power.values[bisect_right(power.ats, view.opens) :] if power is not None else ()
    if not values or min(values) >= IDLE_POWER_W_MIN:
        return ""
    return f"GPU power {min(values):.3g} W: no GPU that is on draws so little, so its source may fail"


def find_zeroed_family(tracks: Sequence[SignalSummary]) -> str:
    """Return CPU or IO if all that was measured of it lately is exactly 0, as on no machine that runs; "" if neither is."""
    for family in (CPU, IO):
        lines = [one.line for one in tracks if one.kind.family == family]
        if lines and not any(value for line in lines for value in line.values[-FROZEN_SAMPLES_MIN:]):
            return family
    return ""


IDLE_POWER_W_MIN = 1.0
"""No GPU that is on draws less (T4 idle: 9 W, RTX 4090: 8 W): it is an error, or kilowatts."""
HANG_MIN_US = 600 * SECOND_US
"""How long a machine must look busy and do nothing to be called hung, or the window if that is shorter."""
HANG_BLIND_US, HANG_BLIND_CONFIDENCE = 3 * 3600 * SECOND_US, 0.6
"""Where no progress is measured: how long it must look so, and how sure that is."""
HANG_DUTY_MIN = 95
IDLE_POWER_SHARE_MIN = 0.01
"""Of its power limit: no GPU that is on draws less (RTX 4090 idle: 0.02, H100: 0.1), so less is an error of measurement."""
SPIN_SHARE, SPIN_FLAT_SHARE, FLAT_SHARE, FLAT_SAMPLES_MIN = 0.2, 0.05, 0.015, 5
"""Where no progress is measured, a hang is told early if power is as even as that of kernels that spin.

Several GPUs that wait for each other draw up to 0.2 of their limit, within 0.05 of it. Where power is higher, or one GPU is
alone, work looks much alike (decoding at batch 1 draws 0.25 of the limit and more, light kernels 0.2), so it must stay within
0.015; one GPU may not draw more than 0.2."""


def detect_hang(
    observation: Observation,
    lines: Mapping[str, SignalSeries],
    tracks: Sequence[SignalSummary],
    view: ActivityWindow,
    limit: float | None,
) -> Classification | None:
    """Detect a machine that is busy by duty but idle by power and progress; None: no hang.

    Power must be measured, and progress too for an early word: inference draws little power, and an evaluation takes no step.
    Where no progress is measured the confidence is low, and it is a hang after HANG_BLIND_US, or HANG_MIN_US of flat power.
    """
    duty, power = lines.get(GPU_UTIL), lines.get(GPU_POWER_BUSIEST) or lines.get(GPU_POWER)
    if duty is None or power is None or duty.values[-1] < HANG_DUTY_MIN:
        return None
    progress = [one for one in tracks if one.kind.family == PROGRESS]
    limit = lines[GPU_POWER_LIMIT].values[-1] if GPU_POWER_LIMIT in lines else limit
    if not limit:
        return None
    total_limit = _find_total_limit(power, limit, observation.gpu_count)
    others = [one for one in tracks if one.kind.family in (PROGRESS, IO)]
    has_demand = any(one.busy for one in tracks if one.kind.family in (QUEUE, PEOPLE))
    stale = any(view.newest - line.ats[-1] > 2 * view.poll for line in (duty, power, *(one.line for one in others)))
    if stale or any(one.busy for one in others if one.kind.family == IO):
        return None
    turns = [
        _find_run_start(duty, HANG_DUTY_MIN, below=True, poll=view.poll),
        _find_run_start(power, LOW_SHARE * total_limit, below=False, poll=view.poll),
        _find_run_start(power, IDLE_POWER_SHARE_MIN * total_limit, below=True, poll=view.poll),
    ]
    turns += [one.until for one in others if one.until is not None]
    turns += [one.line.ats[0] for one in progress if one.until is None]
    turn = max(turns)
    flat = not (progress or has_demand) and _is_flat(power, turn, total_limit, observation.gpu_count)
    if view.now - turn < (min(HANG_MIN_US, view.length) if progress or flat else HANG_BLIND_US):
        return None
    busy = f"GPU duty at least {HANG_DUTY_MIN} %, and power at most {LOW_SHARE:.0%} of its limit since {format_clock(turn)}"
    if not progress:
        return Classification(HUNG, HANG_BLIND_CONFIDENCE, (busy, "a job's progress is not measured"), turn)
    why = (busy, f"{progress[0].kind.told}: no progress since {format_clock(turn)}")
    return Classification(HUNG, 0.97 if len(others) > len(progress) else 0.9, why, turn)


def _is_flat(power: SignalSeries, turn: int, limit: float, gpus: float) -> bool:
    """Return whether `power` has been as even since `turn` as that of kernels that spin. `limit`: watts of the same GPUs."""
    values = power.values[bisect_left(power.ats, turn) :]
    if len(values) < FLAT_SAMPLES_MIN:
        return False
    spins = max(values) <= SPIN_SHARE * limit
    even = SPIN_FLAT_SHARE if spins and gpus > 1 else FLAT_SHARE
    return (spins or gpus > 1) and max(values) - min(values) <= even * limit


def looks_hung(lines: Mapping[str, SignalSeries], recent: int, limit: float | None, gpus: float) -> bool:
    """Return whether every sample since `recent` is that of a hang; False if duty, power or `limit` is not measured.

    `limit`: watts of one GPU; None: unknown.
    """
    duty, power = lines.get(GPU_UTIL), lines.get(GPU_POWER_BUSIEST) or lines.get(GPU_POWER)
    if duty is None or power is None or limit is None or min(duty.ats[-1], power.ats[-1]) < recent:
        return False
    total_limit = _find_total_limit(power, limit, gpus)
    duties, watts = (line.values[bisect_left(line.ats, recent) :] for line in (duty, power))
    least, most = IDLE_POWER_SHARE_MIN * total_limit, LOW_SHARE * total_limit
    return min(duties) >= HANG_DUTY_MIN and least <= min(watts) and max(watts) < most


def _find_total_limit(power: SignalSeries, limit: float, gpus: float) -> float:
    """Return the watts that all GPUs in `power` may draw; `limit`: of one GPU."""
    return limit * (max(1.0, gpus) if power.signal == GPU_POWER else 1)


def _find_run_start(line: SignalSeries, bar: float, *, below: bool, poll: int) -> int:
    """Return since when `line` has been on its side of `bar`, without a break or a hole of more than two intervals."""
    at = line.ats[-1]
    for k in range(len(line.ats) - 1, -1, -1):
        if (line.values[k] < bar if below else line.values[k] >= bar) or at - line.ats[k] > 2 * poll:
            return at
        at = line.ats[k]
    return at
