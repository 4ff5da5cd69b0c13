"""Until when a request may go out, known to whatever sends it in this thread: one that is late is not sent at all.

Example: a stop may be sent until 12:00:30. At 12:00:06 its adapter takes a look of its own, and the process is suspended in it.
At 12:07 it goes on, the answer is there, and the request that would follow ends before its first byte.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_send_limit = threading.local()


@contextmanager
def limit_sending(at_s: float, seconds: Callable[[], float]) -> Iterator[None]:
    """In this block nothing is sent by this thread at `at_s` or later, by `seconds`, a clock that only goes on."""
    before = getattr(_send_limit, "late", None)
    _send_limit.late = lambda: seconds() >= at_s
    try:
        yield
    finally:
        _send_limit.late = before


def is_too_late_to_send() -> bool:
    """Whether nothing more may be sent now."""
    late: Callable[[], bool] | None = getattr(_send_limit, "late", None)
    return late is not None and late()
