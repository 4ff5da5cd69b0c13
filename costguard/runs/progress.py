"""How fast a job goes, from the steps that it tells: what it still takes, whether that keeps to the quote, what it teaches.

Example: 1,000 steps of 8,192 tokens; after 100 s it is at step 200 and has gone at 2.1 steps a second since it was warm: 800
steps are left, 381 s, so it ends after 481 s. The speed of 17,203 tokens a second is one more observed run, if it ends well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from costguard.values.interval import Interval

STEPS_MIN, MARKS_MIN = 20, 8
"""Below them a speed is a guess: an assumption, 2026-11."""
WARMUP_DIVISOR = 8
"""One in so many of the marks is left out at the beginning: compilation, caches, the first batch."""
STEADY_FACTOR_MAX = 1.25
"""Factor by which the two halves of a steady run may differ."""
MARKS_MAX = 2048
"""Marks that are kept; when there are more, every other one is dropped."""
STEP_MAX = 2**53


class ProgressMark(NamedTuple):
    """The job told `step`, `at_s` seconds after it began."""

    step: int
    at_s: float


class JobPace(NamedTuple):
    """Steps a second once it was warm, over `steps` of them in `seconds`."""

    steps_per_s: float
    steps: int
    seconds: float


class PaceUnknown(NamedTuple):
    """Why no speed can be learnt."""

    why: str


@dataclass(slots=True)
class ProgressLog:
    """What a job told so far. A step below the last one begins anew: of a job that counts epochs from 0 the last is seen."""

    kept: list[ProgressMark] = field(default_factory=list)
    first_step: int | None = None

    def add(self, step: int, at_s: float) -> None:
        """The job told `step` at `at_s`; the same step again says nothing."""
        if not 0 <= step <= STEP_MAX:
            return
        if self.first_step is None:
            self.first_step = step
        if self.kept and step < self.kept[-1].step:
            self.kept.clear()
        if self.kept and (step == self.kept[-1].step or at_s <= self.kept[-1].at_s):
            return
        self.kept.append(ProgressMark(step, at_s))
        if len(self.kept) > MARKS_MAX:
            del self.kept[1:-1:2]

    @property
    def last_step(self) -> int | None:
        """The newest."""
        return self.kept[-1].step if self.kept else None


def measure_pace(marks: Sequence[ProgressMark]) -> JobPace | PaceUnknown:
    """How fast it goes, where that is steady enough to be believed."""
    if not marks:
        return PaceUnknown("it told no steps: call costguard.progress(step) in its loop")
    warm = marks[max(1, len(marks) // WARMUP_DIVISOR) :]
    steps = warm[-1].step - warm[0].step if warm else 0
    if len(warm) < MARKS_MIN or steps < STEPS_MIN:
        return PaceUnknown(
            f"it told {steps} steps at {len(warm)} moments once it was warm, of {STEPS_MIN} and {MARKS_MIN} needed"
        )
    middle = len(warm) // 2
    halves = [_compute_speed(warm[0], warm[middle]), _compute_speed(warm[middle], warm[-1])]
    if max(halves) > STEADY_FACTOR_MAX * min(halves):
        told = " and ".join(f"{half:.3g}" for half in halves)
        return PaceUnknown(f"its speed was not steady: {told} steps a second in its two halves")
    return JobPace(_compute_speed(warm[0], warm[-1]), steps, warm[-1].at_s - warm[0].at_s)


def measure_token_speed(
    marks: Sequence[ProgressMark], *, status: int | None, tokens_per_step: int | None
) -> float | PaceUnknown:
    """Tokens a second of a run that is worth learning from, or why it is not."""
    if status != 0:
        return PaceUnknown("its end was not seen" if status is None else f"it ended with status {status}")
    if tokens_per_step is None:
        return PaceUnknown("how many tokens a step takes is not known")
    pace = measure_pace(marks)
    return pace if isinstance(pace, PaceUnknown) else pace.steps_per_s * tokens_per_step


def count_steps(tokens: int | None, tokens_per_step: int | None) -> int | None:
    """Steps of the whole job; None where nobody stated its tokens."""
    return None if not tokens or not tokens_per_step else math.ceil(tokens / tokens_per_step)


def estimate_seconds_left(marks: Sequence[ProgressMark], steps: int | None, now_s: float) -> float | None:
    """Seconds until step `steps`, at `now_s` and the present pace; None where either is not known, or the job is silent."""
    pace = measure_pace(marks)
    if steps is None or isinstance(pace, PaceUnknown):
        return None
    left = (steps - marks[-1].step) / pace.steps_per_s - (now_s - marks[-1].at_s)
    return max(0.0, left)


def is_outside_quote(hours: float, quoted: Interval | None) -> bool:
    """Whether a projected length of the whole job leaves what was quoted."""
    return quoted is not None and not quoted.low <= hours <= quoted.high


def _compute_speed(first: ProgressMark, last: ProgressMark) -> float:
    return (last.step - first.step) / (last.at_s - first.at_s)
