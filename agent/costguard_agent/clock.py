"""Comparison of three clocks, which detects a suspended machine, a clock that was set, and an agent that did not run.

Example: between two readings the boot clock advanced by 3,600 s and the clock of waking time by 1 s: the machine was suspended.

Also a throttle for measurements that take processor time, so that the agent's load is limited on machines of any size.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

APART_S = 2.0
"""How far two clocks may drift apart between two looks before one of them was set, or the machine slept."""


class Moment(NamedTuple):
    """One moment by three clocks.

    `wall_ms`: Unix milliseconds; `boot_s` includes suspended time, `awake_s` does not; both never decrease.
    """

    wall_ms: int
    boot_s: float
    awake_s: float


def read_clock() -> Moment:
    """Return the current moment."""
    awake = time.monotonic()
    boot = time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else awake
    return Moment(time.time_ns() // 1_000_000, boot, awake)


def explain_gap(earlier: Moment, later: Moment, *, most_s: float) -> str:
    """Return why the time between two readings, normally at most `most_s` apart, cannot be judged; "" if it can."""
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
    """The clock that dates records: the machine's, or the watchdog's once the machine's was found to be wrong."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        """How far the machine's clock is ahead of the one that counts."""

    def to_unix_ms(self, moment: Moment | None = None) -> int:
        """Return Unix milliseconds by this clock.

        `moment`: None for now.
        """
        return (moment or read_clock()).wall_ms - self.ahead_ms

    def correct(self, ahead_ms: int) -> None:
        """Correct this clock, which is `ahead_ms` ahead of the watchdog's."""
        self.ahead_ms += ahead_ms

    def detect_jump(self, earlier: Moment, later: Moment) -> int:
        """Return by how many milliseconds existing records must be shifted, because the machine's clock was set meanwhile.

        A clock that was corrected before continues unchanged: 0. Otherwise either the new or the old clock may be the right
        one: all records are shifted with it, so that they keep their distances, and are corrected together once the watchdog
        sends its time.
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
    """Limits a measurement to one every `every_s` seconds and to `share` of a core on average."""

    def __init__(self, every_s: float, share: float) -> None:
        self.every_s, self._share = every_s, share
        self._next_s = 0.0
        self.wait_s = every_s

    def is_due(self, now_s: float) -> bool:
        """Return whether the next measurement is due, by a monotonic clock."""
        return now_s >= self._next_s

    def run_measured(self, now_s: float, measure: Callable[[], ResultT]) -> ResultT:
        """Run `measure` and return its result; its processor time determines when the next one is due."""
        start_s = time.thread_time()
        try:
            return measure()
        finally:
            self.wait_s = max(self.every_s, (time.thread_time() - start_s) / self._share)
            self._next_s = now_s + self.wait_s
