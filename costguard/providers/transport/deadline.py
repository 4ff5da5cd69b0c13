"""A deadline for all that one request or one poll does, which no slow sender can stretch.

A timeout for each read is no bound: a server that sends a byte a second keeps every read short. So the network stream itself
looks at the deadline of the thread that reads, before every read and write.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore2

from costguard.system.clock import read_monotonic as usual
from costguard.system.resolver import resolve_addresses
from costguard.system.timely import is_too_late_to_send

Monotonic = Callable[[], float]


class Deadline:
    """An instant by which something must be over. `left()` is in seconds, and never negative."""

    __slots__ = ("_monotonic", "until")

    def __init__(self, seconds: float, monotonic: Monotonic = usual) -> None:
        self._monotonic = monotonic
        self.until = monotonic() + seconds

    def compute_left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self.until - self._monotonic())

    def limit_to(self, seconds: float) -> Deadline:
        """The earlier of this one and `seconds` from now."""
        return Deadline(min(seconds, self.compute_left()), self._monotonic)


_thread_deadline = threading.local()


@contextmanager
def bound_network(deadline: Deadline) -> Iterator[None]:
    """In this block no network operation of this thread outlasts `deadline`."""
    before: Deadline | None = getattr(_thread_deadline, "deadline", None)
    _thread_deadline.deadline = deadline
    try:
        yield
    finally:
        _thread_deadline.deadline = before


def _bound_timeout(timeout: float | None, late: type[Exception]) -> float | None:
    deadline: Deadline | None = getattr(_thread_deadline, "deadline", None)
    if deadline is None:
        return timeout
    left = deadline.compute_left()
    if left <= 0:
        raise late("the deadline has passed")
    return left if timeout is None else min(timeout, left)


class TimedBackend(httpcore2.NetworkBackend):
    """A synchronous network, each of whose operations looks at the deadline. `inner`: None for this machine's sockets."""

    def __init__(self, inner: httpcore2.NetworkBackend | None = None) -> None:
        self._inner = inner or httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        """A connection to `host`."""
        until = Deadline(timeout if timeout is not None else LONGEST_CONNECT_S)
        broken: Exception = httpcore2.ConnectError("the name has no address")
        for address in _resolve_addresses(host, port, _bound_timeout(until.compute_left(), httpcore2.ConnectTimeout)):
            bounded = _bound_timeout(until.compute_left(), httpcore2.ConnectTimeout)
            try:
                return _TimedStream(self._inner.connect_tcp(address, port, bounded, local_address, socket_options))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as why:
                broken = why
        raise broken

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self._inner.sleep(seconds)


LONGEST_CONNECT_S = 30.0


def _resolve_addresses(host: str, port: int, seconds: float | None) -> list[str]:
    """The IP addresses of `host`, in httpcore's errors."""
    try:
        return resolve_addresses(host, port, seconds)
    except TimeoutError as late:
        raise httpcore2.ConnectTimeout(str(late)) from None
    except OSError:
        raise httpcore2.ConnectError("the name cannot be resolved") from None


class _TimedStream(httpcore2.NetworkStream):
    def __init__(self, inner: httpcore2.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _bound_timeout(timeout, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        bounded = _bound_timeout(timeout, httpcore2.WriteTimeout)
        if buffer and is_too_late_to_send():
            raise httpcore2.WriteTimeout("it is too late to send it")
        self._inner.write(buffer, bounded)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        made = self._inner.start_tls(ssl_context, server_hostname, _bound_timeout(timeout, httpcore2.ConnectTimeout))
        line = made.get_extra_info("socket")
        if isinstance(line, ssl.SSLSocket):
            # an end that TLS did not announce is a cut, not the end of an answer
            line.suppress_ragged_eofs = False  # type: ignore[attr-defined]  # the stubs lack it
        return _TimedStream(made)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - the shape is httpcore's
        return self._inner.get_extra_info(info)
