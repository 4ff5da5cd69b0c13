"""A socket that is read until one moment for all of it: an answer that drips ends there, too."""

from __future__ import annotations

import io
import socket
import time
from typing import Any


class TimedSocketReader(io.RawIOBase):
    """What `wire` sends until the moment `until` of the monotonic clock, in seconds; TimeoutError after it."""

    def __init__(self, wire: socket.socket, until: float) -> None:
        self._wire, self._until = wire, until

    def makefile(self, _: str) -> io.BufferedReader:
        """As http.client asks for it."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, into: Any) -> int:  # noqa: ANN401 - a buffer; its type is named in Python 3.12
        """What came, at least one byte, zero at the end."""
        self._wire.settimeout(compute_time_left(self._until))
        return self._wire.recv_into(into)


def compute_time_left(until: float) -> float:
    """Seconds until the moment `until` of the monotonic clock; TimeoutError where there are none."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
