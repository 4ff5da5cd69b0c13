"""Hanging: a machine that looks busy by its GPU duty, and sleeps by power and progress.

Example: duty 100 % and 80 of 400 W since 02:10, and no step since: hung since 02:10, from 02:20 on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costguard.guard.evidence import SignalSeries
from costguard.guard.signal_summary import ActivityWindow, Classification, SignalSummary, format_clock
from costguard.guard.signals import LOW_SHARE
from costguard.guard.work import HUNG, IO, PROGRESS
from costguard.metering.observation import Observation
from costguard.values.instant import SECOND_US
from costguard.values.sample import GPU_POWER, GPU_POWER_BUSIEST, GPU_POWER_LIMIT, GPU_UTIL

HANG_MIN_US = 600 * SECOND_US
"""How long a machine must look busy and do nothing to be called hung, or the window if that is shorter."""
HANG_DUTY_MIN = 95


def detect_hang(
    seen: Observation,
    lines: Mapping[str, SignalSeries],
    tracks: Sequence[SignalSummary],
    view: ActivityWindow,
    limit: float | None,
) -> Classification | None:
    """Busy by duty, asleep by power and progress. Both must be measured: inference draws little, evaluation takes no step."""
    duty, power = lines.get(GPU_UTIL), lines.get(GPU_POWER_BUSIEST) or lines.get(GPU_POWER)
    if duty is None or power is None or duty.values[-1] < HANG_DUTY_MIN:
        return None
    progress = [one for one in tracks if one.kind.family == PROGRESS]
    limit = lines[GPU_POWER_LIMIT].values[-1] if GPU_POWER_LIMIT in lines else limit
    if not progress or not limit:
        return None
    whole = LOW_SHARE * limit * (max(1.0, seen.gpu_count) if power.signal == GPU_POWER else 1)
    others = [one for one in tracks if one.kind.family in (PROGRESS, IO)]
    stale = any(view.newest - line.ats[-1] > 2 * view.poll for line in (duty, power, *(one.line for one in others)))
    if stale or any(one.busy for one in others if one.kind.family == IO):
        return None
    turns = [
        _find_run_start(duty, HANG_DUTY_MIN, below=True, poll=view.poll),
        _find_run_start(power, whole, below=False, poll=view.poll),
    ]
    turns += [one.until for one in others if one.until is not None]
    turns += [one.line.ats[0] for one in progress if one.until is None]
    turn = max(turns)
    if view.now - turn < min(HANG_MIN_US, view.length):
        return None
    why = (
        f"GPU duty at least {HANG_DUTY_MIN} %, and power at most {LOW_SHARE:.0%} of its limit since {format_clock(turn)}",
        f"{progress[0].kind.told}: no progress since {format_clock(turn)}",
    )
    return Classification(HUNG, 0.97 if len(others) > len(progress) else 0.9, why, turn)


def _find_run_start(line: SignalSeries, bar: float, *, below: bool, poll: int) -> int:
    """Since when `line` has been on its side of `bar` without a break and without a hole of more than two intervals."""
    at = line.ats[-1]
    for k in range(len(line.ats) - 1, -1, -1):
        if (line.values[k] < bar if below else line.values[k] >= bar) or at - line.ats[k] > 2 * poll:
            return at
        at = line.ats[k]
    return at
