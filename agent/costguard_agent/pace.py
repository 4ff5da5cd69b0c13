"""Pace: how often something may be measured that costs time of a core, so that no machine is too large for the agent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

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
