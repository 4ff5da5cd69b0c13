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

LEAST_STEPS, LEAST_MARKS = 20, 8
"""Below them a speed is a guess: an assumption, 2026-11."""
WARM = 8
"""One in so many of the marks is left out at the beginning: compilation, caches, the first batch."""
APART = 1.25
"""Factor by which the two halves of a steady run may differ."""
MOST_MARKS = 2048
"""Marks that are kept; when there are more, every other one is dropped."""
MOST_STEP = 2**53


class Mark(NamedTuple):
    """The job told `step`, `at_s` seconds after it began."""

    step: int
    at_s: float


class Pace(NamedTuple):
    """Steps a second once it was warm, over `steps` of them in `seconds`."""

    steps_per_s: float
    steps: int
    seconds: float


class Unfit(NamedTuple):
    """Why no speed can be learnt."""

    why: str


@dataclass(slots=True)
class Marks:
    """What a job told so far. A step below the last one begins anew: of a job that counts epochs from 0 the last is seen."""

    kept: list[Mark] = field(default_factory=list)
    first_step: int | None = None

    def add(self, step: int, at_s: float) -> None:
        """The job told `step` at `at_s`; the same step again says nothing."""
        if not 0 <= step <= MOST_STEP:
            return
        if self.first_step is None:
            self.first_step = step
        if self.kept and step < self.kept[-1].step:
            self.kept.clear()
        if self.kept and (step == self.kept[-1].step or at_s <= self.kept[-1].at_s):
            return
        self.kept.append(Mark(step, at_s))
        if len(self.kept) > MOST_MARKS:
            del self.kept[1:-1:2]

    @property
    def last_step(self) -> int | None:
        """The newest."""
        return self.kept[-1].step if self.kept else None


def pace_of(marks: Sequence[Mark]) -> Pace | Unfit:
    """How fast it goes, where that is steady enough to be believed."""
    if not marks:
        return Unfit("it told no steps: call costguard.progress(step) in its loop")
    warm = marks[max(1, len(marks) // WARM) :]
    steps = warm[-1].step - warm[0].step if warm else 0
    if len(warm) < LEAST_MARKS or steps < LEAST_STEPS:
        return Unfit(
            f"it told {steps} steps at {len(warm)} moments once it was warm, of {LEAST_STEPS} and {LEAST_MARKS} needed"
        )
    middle = len(warm) // 2
    halves = [_speed(warm[0], warm[middle]), _speed(warm[middle], warm[-1])]
    if max(halves) > APART * min(halves):
        told = " and ".join(f"{half:.3g}" for half in halves)
        return Unfit(f"its speed was not steady: {told} steps a second in its two halves")
    return Pace(_speed(warm[0], warm[-1]), steps, warm[-1].at_s - warm[0].at_s)


def learnt(marks: Sequence[Mark], *, status: int | None, tokens_per_step: int | None) -> float | Unfit:
    """Tokens a second of a run that is worth learning from, or why it is not."""
    if status != 0:
        return Unfit("its end was not seen" if status is None else f"it ended with status {status}")
    if tokens_per_step is None:
        return Unfit("how many tokens a step takes is not known")
    pace = pace_of(marks)
    return pace if isinstance(pace, Unfit) else pace.steps_per_s * tokens_per_step


def steps_in(tokens: int | None, tokens_per_step: int | None) -> int | None:
    """Steps of the whole job; None where nobody stated its tokens."""
    return None if not tokens or not tokens_per_step else math.ceil(tokens / tokens_per_step)


def left_s(marks: Sequence[Mark], steps: int | None, now_s: float) -> float | None:
    """Seconds until step `steps`, at `now_s` and the present pace; None where either is not known, or the job is silent."""
    pace = pace_of(marks)
    if steps is None or isinstance(pace, Unfit):
        return None
    left = (steps - marks[-1].step) / pace.steps_per_s - (now_s - marks[-1].at_s)
    return max(0.0, left)


def astray(hours: float, quoted: Interval | None) -> bool:
    """Whether a projected length of the whole job leaves what was quoted."""
    return quoted is not None and not quoted.low <= hours <= quoted.high


def _speed(first: Mark, last: Mark) -> float:
    return (last.step - first.step) / (last.at_s - first.at_s)
