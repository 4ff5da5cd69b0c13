"""How often somebody may ask: a bucket of permissions each, which fills with time. Nobody waits: who has none is told when."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable


class RateLimiter:
    """Buckets by name: `per_s` permissions a second, at most `burst` at once. The `most` names used last are remembered."""

    def __init__(self, per_s: float, burst: float, *, most: int = 20_000, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._most, self._clock = per_s, burst, most, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> float:
        """Seconds to wait; 0 where it may go now, which takes a permission."""
        left = self.left(name)
        if left < 1:
            return (1 - left) / self._per_s
        self._put(name, left - 1)
        return 0.0

    def spend(self, name: str) -> None:
        """Take a permission, also where there is none: for what turned out to cost one."""
        self._put(name, max(0.0, self.left(name) - 1))

    def left(self, name: str) -> float:
        """Permissions that `name` has now."""
        tokens, at = self._buckets.get(name, (self._burst, self._clock()))
        return min(self._burst, tokens + (self._clock() - at) * self._per_s)

    def _put(self, name: str, left: float) -> None:
        self._buckets[name] = (left, self._clock())
        self._buckets.move_to_end(name)
        while len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
