"""A scope that keeps failing is left alone for a while, so that it is neither hammered nor waited for.

After `FAILURES` failures in a row nothing is asked for `OPEN_S`; then one question is let through, and its answer decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from costguard.system.clock import read_monotonic as usual

CIRCUIT_FAILURES, CIRCUIT_OPEN_S = 5, 60.0


class CircuitBreakers:
    """The circuits of one channel, one a scope."""

    def __init__(self, monotonic: Callable[[], float] = usual) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._open_until: dict[str, float] = {}

    def reserve_probe(self, scope: str) -> float:
        """Seconds for which `scope` is not to be asked; 0: ask. Whoever asks after the pause keeps the others waiting."""
        with self._lock:
            until, now = self._open_until.get(scope), self._monotonic()
            if until is None:
                return 0.0
            if now < until:
                return until - now
            self._open_until[scope] = now + CIRCUIT_OPEN_S
            return 0.0

    def record_answer(self, scope: str, *, good: bool) -> None:
        """What came of a question."""
        with self._lock:
            if good:
                self._failures.pop(scope, None)
                self._open_until.pop(scope, None)
                return
            failed = self._failures[scope] = self._failures.get(scope, 0) + 1
            if failed >= CIRCUIT_FAILURES:
                self._open_until[scope] = self._monotonic() + CIRCUIT_OPEN_S

    def cancel_probe(self, scope: str) -> None:
        """The question that `closed_for` let through was not put after all: whoever comes next may put it."""
        with self._lock:
            if scope in self._open_until:
                self._open_until[scope] = self._monotonic()
