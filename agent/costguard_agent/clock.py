"""Three clocks, and what their disagreement says: a suspended machine, a clock that was set, an agent that did not run.

Example: between two looks the boot clock went on by 3,600 s and the clock of waking time by 1 s: the machine slept.

Pace: how often something may be measured that costs time of a core, so that no machine is too large for the agent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

APART_S = 2.0
"""How far two clocks may drift apart between two looks before one of them was set, or the machine slept."""


class Moment(NamedTuple):
    """One moment: `wall_ms` Unix milliseconds; `boot_s` runs on in sleep, `awake_s` does not; both only rise."""

    wall_ms: int
    boot_s: float
    awake_s: float


def read_clock() -> Moment:
    """This moment."""
    awake = time.monotonic()
    boot = time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else awake
    return Moment(time.time_ns() // 1_000_000, boot, awake)


def explain_gap(earlier: Moment, later: Moment, *, most_s: float) -> str:
    """Why nothing may be said of the time between two looks that should be at most `most_s` apart; "" where it may."""
    boot, awake = later.boot_s - earlier.boot_s, later.awake_s - earlier.awake_s
    wall = (later.wall_ms - earlier.wall_ms) / 1000
    if boot - awake > APART_S:
        return f"the machine slept for {boot - awake:.0f} s"
    if awake > most_s:
        return f"the agent did not run for {awake:.0f} s"
    if abs(wall - boot) > APART_S:
        return f"the clock was set by {wall - boot:+.0f} s"
    return ""


class RecordClock:
    """The clock that records are dated by: the machine's own, or the watchdog's once the machine's was found to be wrong."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        """How far the machine's clock is ahead of the one that counts."""

    def to_unix_ms(self, moment: Moment | None = None) -> int:
        """Unix milliseconds, by the clock that counts."""
        return (moment or read_clock()).wall_ms - self.ahead_ms

    def correct(self, ahead_ms: int) -> None:
        """The clock that counted until now is so far ahead of the watchdog's."""
        self.ahead_ms += ahead_ms

    def detect_jump(self, earlier: Moment, later: Moment) -> int:
        """The machine's clock may have been set in between; by how much records must be dated anew, in milliseconds.

        One that was corrected goes on as it was. Else the new clock may be the right one, or the old: all records follow it, so
        that they keep their distances, and move together once the watchdog says what time it is.
        """
        jump_ms = later.wall_ms - earlier.wall_ms - round((later.boot_s - earlier.boot_s) * 1000)
        if abs(jump_ms) <= APART_S * 1000:
            return 0
        if self.ahead_ms:
            self.ahead_ms += jump_ms
            return 0
        return jump_ms


ResultT = TypeVar("ResultT")


class CpuThrottle:
    """At most every `every_s` seconds, and never more than `share` of a core on the average of what it costs."""

    def __init__(self, every_s: float, share: float) -> None:
        self.every_s, self._share = every_s, share
        self._next_s = 0.0
        self.wait_s = every_s

    def is_due(self, now_s: float) -> bool:
        """Whether it is time, by a clock that only rises."""
        return now_s >= self._next_s

    def run_measured(self, now_s: float, measure: Callable[[], ResultT]) -> ResultT:
        """What `measure` returns; its processor time decides when the next is due."""
        before = time.thread_time()
        try:
            return measure()
        finally:
            self.wait_s = max(self.every_s, (time.thread_time() - before) / self._share)
            self._next_s = now_s + self.wait_s
