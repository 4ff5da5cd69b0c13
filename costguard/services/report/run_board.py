"""A text from the ledger, such as the status: built at most once a run of the guard for all readers, and only if one asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from costguard.agents.messages import NOT_READY, MessageRefusedError


@dataclass(slots=True)
class RunBoard:
    """`mark`: returns what the newest run is known by; None before the first. `render`: builds the text."""

    mark: Callable[[], object]
    render: Callable[[], bytes]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _made: tuple[object, bytes, str] | None = None

    def read_text(self) -> bytes:
        """Return the text alone."""
        return self.read()[0]

    def read_newest(self) -> tuple[bytes, str]:
        """Return the text of the newest run, and its hash. Raises MessageRefusedError while it is being built."""
        text, name = self.read()
        cache_entry = self._made
        if cache_entry is None or cache_entry[2] != name or cache_entry[0] != self.mark():
            raise MessageRefusedError(NOT_READY, "the newest run is being read", wait_s=5)
        return text, name

    def read(self) -> tuple[bytes, str]:
        """Return the text, and its hash.

        While it is built anew by one reader, the others get the previous one. Raises MessageRefusedError before the first run.
        """
        mark, cache_entry = self.mark(), self._made
        if mark is None:
            raise MessageRefusedError(NOT_READY, wait_s=5)
        if cache_entry is not None and cache_entry[0] == mark:
            return cache_entry[1], cache_entry[2]
        if not self._lock.acquire(blocking=cache_entry is None):
            assert cache_entry is not None  # noqa: S101 - else it would have waited
            return cache_entry[1], cache_entry[2]
        try:
            cache_entry = self._made
            if cache_entry is None or cache_entry[0] != mark:
                text = self.render()
                cache_entry = self._made = mark, text, sha256(text).hexdigest()[:32]
            return cache_entry[1], cache_entry[2]
        finally:
            self._lock.release()
