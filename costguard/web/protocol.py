"""uvicorn's HTTP/1.1 protocol with limits in bytes, reads and seconds for each connection, and in bytes for all of them.

    head: 16 KiB, 100 headers, 10 s -> body: 64 KiB with a stated length (`middleware`: in 10 s) -> answered and read: 70 s

A body in chunks is refused (400): each chunk cost 5 us, so that 390 kB of chunks of one byte took 0.36 s (2026-11), and 500 of
them stopped the server for minutes. A proxy that buffers requests states their length. What counts the addresses of clients is
the proxy in front (config/nginx.conf); without one, a flood gets neither memory nor files here, and others wait until its end.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
from costguard_agent.protocol import BODY_MOST
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from costguard.agents.messages import MALFORMED, MessageRefusedError
from costguard.web.middleware import STREAM_FLAG, WHOLE_S, build_refusal

HEAD_MOST, HEADERS_MOST = 16 * 1024, 100
HEAD_S, REQUEST_S = 10.0, WHOLE_S + 10
"""Seconds for a head to arrive, and from then on until its answer was read; the application's own limit ends earlier."""
REQUEST_MOST = HEAD_MOST + BODY_MOST + 1024
"""Bytes of one request, and of those that a client sends before it was answered."""
READS_MOST = 400
"""Reads for one request: 64 KiB in segments of 536 bytes, the smallest of TCP, are 123. A read costs 50 us."""
SMALL, HELD_MOST = 4096, 32 << 20
"""Bytes of unanswered requests that all connections may hold together; one of less than SMALL is taken beside them."""
WRITE_MOST = 16 * 1024
"""Bytes that wait for a reader, before the application waits for it too."""
SPARE_CONNECTIONS = 100
"""Connections beyond uvicorn's limit which get its 503; more are closed at once, so that files for the ledger are left."""


class HeldState(ServerState):
    """uvicorn's state of a server. `held_bytes`: of requests that are not answered."""

    held_bytes = 0


class BoundedConnection(h11.Connection):
    """h11's connection without bodies in chunks."""

    refusal = "this is not an HTTP/1.1 request"

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        """Return the next event. Raises RemoteProtocolError."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            if len(event.headers) > HEADERS_MOST:
                self.refusal = f"it has more than {HEADERS_MOST} headers"
                raise h11.RemoteProtocolError(self.refusal)
            if any(name == b"transfer-encoding" for name, _ in event.headers):
                self.refusal = "a body needs a Content-Length, and must not come in chunks"
                raise h11.RemoteProtocolError(self.refusal)
        return event


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol within the limits of this module. Of a Unix socket, which only this user opens, none is refused."""

    conn: BoundedConnection
    server_state: HeldState
    _deadline: asyncio.TimerHandle | None = None
    _bytes = _reads = 0
    _is_over = False

    def __init__(
        self, config: Config, server_state: HeldState, app_state: dict[str, Any], _loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = BoundedConnection(h11.SERVER, HEAD_MOST)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as asyncio calls it
        """Start the deadline of the first head, or close a connection too many."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_MOST)
        is_local = transport.get_extra_info("socket").family == getattr(socket, "AF_UNIX", None)
        if not is_local and len(self.connections) > (self.limit_concurrency or 0) + SPARE_CONNECTIONS:
            transport.abort()
            return
        self._start_deadline(HEAD_S)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a head or a body as far as the limits allow."""
        if self._deadline is None:
            self._start_deadline(HEAD_S)
        self._reads += 1
        piece = data[: REQUEST_MOST - self._bytes]
        self._is_over = self._is_over or len(piece) < len(data)
        if self._reads > READS_MOST or (self._bytes + len(piece) > SMALL and self.server_state.held_bytes > HELD_MOST):
            self.transport.abort()
            return
        self._bytes += len(piece)
        self.server_state.held_bytes += len(piece)
        if piece:
            super().data_received(piece)
        if self._is_over:
            self.transport.pause_reading()

    def handle_events(self) -> None:
        """Handle what was received, and start the deadline of a request whose head is complete: it may be a pipelined one."""
        cycle = self.cycle
        super().handle_events()
        if self.cycle is not cycle:
            self._start_deadline(REQUEST_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back what the connection held."""
        self._stop_deadline()
        self._release()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Give back what the request held. The deadline stays until the answer was read; the next head gets its own."""
        self._release(len(self.conn.trailing_data[0]))
        if not self.transport.get_write_buffer_size():
            self._stop_deadline()
        if self._is_over:  # what the client sent further was not kept
            self.transport.close()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own words are for its log
        """Refuse what is not HTTP, in the same form as any other refusal."""
        status, headers, body = build_refusal(MessageRefusedError(MALFORMED, self.conn.refusal))
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.transport.write(f"HTTP/1.1 {status} Bad Request\r\n{fields}connection: close\r\n\r\n".encode() + body)
        self.transport.close()
        self._start_deadline(HEAD_S)

    def _release(self, left: int = 0) -> None:
        """Count no more than the bytes that are `left`: of requests that follow."""
        self.server_state.held_bytes -= self._bytes - left
        self._bytes, self._reads = left, 0

    def _start_deadline(self, seconds: float) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(seconds, self._expire)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        """Close the connection, unless it is idle, or streams events to a reader who reads."""
        self._deadline = None
        is_answered = self.cycle is not None and self.cycle.response_complete
        is_stream = self.cycle is not None and not is_answered and STREAM_FLAG in self.scope["state"]
        if is_stream and not self.transport.get_write_buffer_size():
            self._start_deadline(REQUEST_S)
        elif not is_answered or self._bytes or self.transport.get_write_buffer_size():
            self.transport.abort()
