"""Loopback without sockets: costguard's own HTTP client speaks to fakes in this process, and simulated time passes as it waits.

What is spoilt is spoilt on the wire, as bytes: an answer that stops in the middle, comes late or byte by byte, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpcore2

from costguard.system.clock import pass_simulated_time
from tests.fakes.server import Answer, Asked

FOR_EVER = 10.0**6
"""Seconds: longer than anybody waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What goes back. `after`: seconds until it begins. `whole` False: the connection breaks after `cut` bytes of the body.

    `every`: seconds between two bytes of its body, 0: all at once. `never`: nothing comes, and the connection stays.
    """

    answer: Answer = field(default_factory=Answer)
    after: float = 0.0
    whole: bool = True
    cut: int = 0
    every: float = 0.0
    never: bool = False
    reset: bool = False


Serve = Callable[[Asked], Sent]


class InProcess(httpcore2.NetworkBackend):
    """Connects to whoever serves at a port of 127.0.0.1."""

    def __init__(self, serving: Mapping[int, Serve]) -> None:
        self._serving = serving

    def connect_tcp(
        self,
        host: str,  # noqa: ARG002 - as it is called
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - nothing is waited for
        local_address: str | None = None,  # noqa: ARG002 - as it is called
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002 - as it is called
    ) -> httpcore2.NetworkStream:
        """A connection to the cloud at `port`."""
        return _Stream(self._serving[port])

    def sleep(self, seconds: float) -> None:
        """Wait."""
        pass_simulated_time(seconds)


class _Stream(httpcore2.NetworkStream):
    """One connection, seen from the client."""

    def __init__(self, serve: Serve) -> None:
        self._serve, self._asked = serve, b""
        self._coming: list[tuple[float, bytes]] = []
        self._over = False

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002 - it is taken at once
        if self._over:
            raise httpcore2.WriteError("the connection is closed")
        self._asked += buffer
        head, found, body = self._asked.partition(b"\r\n\r\n")
        if not found:
            return
        line, *rest = head.decode("latin-1").split("\r\n")
        headers = {k.strip().lower(): v.strip() for k, _, v in (one.partition(":") for one in rest)}
        if len(body) < int(headers.get("content-length", "0")):
            return
        self._asked = b""
        self._answered(self._serve(_asked(line, headers, body)))

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if not self._coming:
            if self._over:
                return b""
            pass_simulated_time(FOR_EVER if timeout is None else timeout)
            raise httpcore2.ReadTimeout("nothing came")
        after, data = self._coming[0]
        if timeout is not None and after > timeout:
            self._coming[0] = (after - timeout, data)
            pass_simulated_time(timeout)
            raise httpcore2.ReadTimeout("nothing came in time")
        if after:
            pass_simulated_time(after)
        self._coming[0] = (0.0, data[max_bytes:])
        if not data[max_bytes:]:
            del self._coming[0]
        return data[:max_bytes]

    def close(self) -> None:
        self._over = True
        self._coming.clear()

    def start_tls(self, *_: Any, **__: Any) -> httpcore2.NetworkStream:  # noqa: ANN401 - as it is called
        raise httpcore2.ConnectError("this network has no TLS")

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - as it is called
        return self._over if info == "is_readable" else None

    def _answered(self, sent: Sent) -> None:
        if sent.never:
            return
        if sent.reset:
            self._over = True
            return
        head, body = _head(sent.answer), sent.answer.body
        if not sent.whole:
            self._coming, self._over = [(sent.after, head + body[: sent.cut])], True
        elif sent.every:
            self._coming = [(sent.after, head), *((sent.every, body[n : n + 1]) for n in range(len(body)))]
        else:
            self._coming = [(sent.after, head + body)]


def _head(answer: Answer) -> bytes:
    named = {name.lower() for name in answer.headers}
    try:
        word = HTTPStatus(answer.status).phrase
    except ValueError:
        word = "Odd"
    lines = [f"HTTP/1.1 {answer.status} {word}", *(f"{name}: {value}" for name, value in answer.headers.items())]
    if "content-length" not in named and answer.status != HTTPStatus.NO_CONTENT:
        lines.append(f"Content-Length: {len(answer.body)}")
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def _asked(line: str, headers: Mapping[str, str], body: bytes) -> Asked:
    method, target, _ = line.split(" ", 2)
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    return Asked(method=method, path=parts.path, query=query, headers=headers, body=body, line=f"{method} {target}")
