"""A loopback HTTP server for fake clouds: real sockets, and every way in which an answer can go wrong.

A `FakeCloud` says what a healthy provider would answer; a `Fault` spoils the answers to the requests that it matches. Every
request is kept in `asked`, so that a test can count calls and look for secrets.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
"""The hour at which a fake's clock begins unless it is told otherwise."""


@dataclass(slots=True)
class Hands:
    """A clock that somebody sets; a `Clock` for costguard and for the fakes alike."""

    at: datetime = START

    def now(self) -> datetime:
        """The time it was set to."""
        return self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as it came in. `line` is what faults match: `GET /v2/pods?limit=100`."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    line: str

    def one(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        return self.query.get(name, [default])[0]

    def json(self) -> Any:  # noqa: ANN401 - whatever the body holds
        """The body, read as JSON."""
        return json.loads(self.body or b"null")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes back."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @classmethod
    def of(cls, value: object, status: int = 200, **headers: str) -> Answer:
        """JSON; underscores in the names of `headers` stand for dashes."""
        named = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        return cls(status=status, headers=named, body=json.dumps(value).encode())


@dataclass(slots=True, kw_only=True)
class Fault:
    """What goes wrong with the requests whose line `match` is found in: `times` of them (None: all) after the first `skip`.

    kinds: status (with `status`, `headers`, `body`), html, truncated, drip, bomb, deep, redirect, reset (no answer at all),
    did (the cloud does it, and then no answer), delay (`seconds`, then the right answer), body (`body` in place of the right
    one), short (a Content-Length longer than the body), edit (`edit` is applied to the right answer).
    """

    match: str
    kind: str
    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 0.0
    times: int | None = None
    skip: int = 0
    edit: Any = None
    seen: int = 0

    def strikes(self, line: str) -> bool:
        """Whether it befalls the request of this line; counts those it matches."""
        if not re.search(self.match, line):
            return False
        self.seen += 1
        return self.seen > self.skip and (self.times is None or self.seen - self.skip <= self.times)


class FakeCloud(ABC):
    """What a healthy provider answers. `clock` is its time; with `deaf` it takes acts, says yes, and does nothing."""

    def __init__(self, clock: Hands | None = None) -> None:
        self.clock = clock or Hands()
        self.deaf = False
        self.faults: list[Fault] = []
        self.asked: list[Asked] = []
        self.cut_short = 0
        """Requests whose head or body ended before its end: refused, and never seen by `answer` (RELIABILITY H30)."""
        self.lock = threading.RLock()
        self.closing = threading.Event()

    @abstractmethod
    def answer(self, asked: Asked) -> Answer:
        """The right answer to one request. Called under `lock`."""

    def line(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> str:  # noqa: ARG002 - for those who need them
        """What faults and counts match: `GET /v2/pods?limit=100`. A cloud whose calls share one path says more of them."""
        return f"{method} {path}"

    def fault(self, match: str, kind: str, **more: Any) -> Fault:  # noqa: ANN401 - the fields of Fault
        """Add a fault and hand it out."""
        made = Fault(match=match, kind=kind, **more)
        self.faults.append(made)
        return made

    def calls(self, match: str) -> int:
        """How many requests came whose line `match` is found in."""
        return sum(bool(re.search(match, one.line)) for one in self.asked)

    def take(self, asked: Asked) -> tuple[Fault | None, Answer | None]:
        """What befalls the request, and the right answer unless a fault keeps the cloud from ever seeing it."""
        with self.lock:
            self.asked.append(asked)
            fault = next((one for one in self.faults if one.strikes(asked.line)), None)
            unseen = fault is not None and fault.kind not in ("did", "delay", "edit", "truncated", "short", "drip")
            return fault, None if unseen else self.answer(asked)


@cache
def bomb() -> bytes:
    """1 GiB of blanks, packed into 1 MB: one packed MiB after which the packer forgets all, again and again."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    first, rest = (packer.compress(b" " * 2**20) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + rest * 1023


class _Heard:
    """A stream that remembers the last line that was read of it."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - what a socket's makefile gives
        self._stream, self.last = stream, b""

    def readline(self, size: int = -1) -> bytes:
        self.last = self._stream.readline(size)
        return self.last

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all else is the stream's
        return getattr(self._stream, name)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """Headers and body are two writes; without this the second waits 40 ms for the first to be acknowledged."""
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.rfile = _Heard(self.rfile)  # type: ignore[assignment]  # all that is used of it

    def parse_request(self) -> bool:
        """A head that ends before its empty line is no request, whatever http.server makes of it."""
        heard: Any = self.rfile
        if heard.last.endswith(b"\n") and super().parse_request() and heard.last in (b"\r\n", b"\n"):
            return True
        self.server.cloud.cut_short += 1
        self.close_connection = True
        return False

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        if len(body) < length:
            self.server.cloud.cut_short += 1
            self.close_connection = True
            return
        parts = urlsplit(self.path)
        headers = {k.lower(): v for k, v in self.headers.items()}
        asked = Asked(
            method=self.command,
            path=parts.path,
            query=parse_qs(parts.query, keep_blank_values=True),
            headers=headers,
            body=body,
            line=self.server.cloud.line(self.command, self.path, headers, body),
        )
        fault, answer = self.server.cloud.take(asked)
        self._spoiled(fault, answer) if fault else self._send(answer or Answer(status=500))

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _serve  # noqa: N815 - the names are http.server's

    def _spoiled(self, fault: Fault, answer: Answer | None) -> None:  # noqa: C901, PLR0912 - one branch for each kind
        right = answer or Answer()
        match fault.kind:
            case "status":
                self._send(Answer(status=fault.status, headers=fault.headers, body=fault.body))
            case "html":
                page = b"<!DOCTYPE html><html><title>Attention Required!</title></html>"
                self._send(Answer(status=fault.status, headers={"Content-Type": "text/html"}, body=page))
            case "body":
                self._send(Answer(status=200, headers={"Content-Type": "application/json"}, body=fault.body))
            case "edit":
                self._send(fault.edit(right))
            case "truncated":
                self._send(replace(right, body=right.body[: max(1, len(right.body) // 2)]))
            case "short":
                self._head(replace(right, headers={**right.headers, "Content-Length": str(len(right.body) + 1000)}))
                self.wfile.write(right.body)
                self._hang_up()
            case "drip":
                self._head(replace(right, headers={**right.headers, "Content-Length": str(len(right.body) + 10**6)}))
                self._drip(fault.seconds or 60)
            case "bomb":
                self._send(Answer(headers={"Content-Encoding": "gzip", "Content-Type": "application/json"}, body=bomb()))
            case "deep":
                self._send(Answer(headers={"Content-Type": "application/json"}, body=b"[" * 10**5 + b"]" * 10**5))
            case "redirect":
                self._send(Answer(status=302, headers={"Location": "https://example.invalid/elsewhere"}))
            case "delay":
                self.server.cloud.closing.wait(fault.seconds)
                self._send(right)
            case "reset" | "did":
                self._hang_up()
            case _:
                raise AssertionError(fault.kind)

    def _send(self, answer: Answer) -> None:
        try:
            self._head(answer)
            self.wfile.write(answer.body)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.close_connection = True

    def _head(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        named = {name.lower() for name in answer.headers}
        if "date" not in named:
            self.send_header("Date", format_datetime(self.server.cloud.clock.now(), usegmt=True))
        if "content-length" not in named and answer.status != 204:
            self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _drip(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                self.wfile.write(b" ")
                self.wfile.flush()
            except OSError:
                break
            if self.server.cloud.closing.wait(0.05):
                break
        self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature is http.server's
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, cloud: FakeCloud) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cloud = cloud

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


@contextmanager
def serving(cloud: FakeCloud, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """The base address at which `cloud` answers while the block runs; https with `context`."""
    cloud.closing.clear()
    server = _Server(cloud)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"{'https' if context else 'http'}://127.0.0.1:{server.server_address[1]}"
    finally:
        cloud.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
