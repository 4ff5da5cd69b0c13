"""The HTTP server: uvicorn in a process of its own, which the watchdog starts and outlives (decision 0091).

Its limits are uvicorn's (connections, bytes of a head, idle connections, backlog), and those of `middleware` (bodies, time). A
head must arrive within seconds: uvicorn has no limit for the first one.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from costguard.agents.messages import MALFORMED, MessageRefusedError
from costguard.errors import InputError
from costguard.services.serving.web_backend import WebServices
from costguard.settings import WebSettings, expand_path
from costguard.settings.web import ListenAddress, list_allowed_hosts, parse_listen_address
from costguard.system.logs import get_log
from costguard.web.app import build_application
from costguard.web.listener import ANY_PORT, BACKLOG, bind_listener, check_web_files
from costguard.web.middleware import PeerFilter, RequestMiddleware, build_refusal
from costguard.web.signing import open_seal
from costguard.web.watchdog_client import WatchdogClient, handle_loop_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp

IDLE_S = 75
"""Seconds between two requests of one connection: agents report every 15."""
SPARE_FILES = 300
"""Open files that the rest of the process needs."""
HEAD_MOST = 16 * 1024
HEAD_S = 10.0
"""Seconds for a head to arrive."""
CONNECTIONS = 4000
"""Connections at once; a request of one more is answered with 503."""
PATIENCE_S = 5.0


class TimedH11Protocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with a time limit for a request head."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as asyncio calls it
        """Start the head timer for a new connection."""
        super().connection_made(transport)
        self._head = self.loop.call_later(HEAD_S, self._abort_connection)

    def data_received(self, data: bytes) -> None:
        """Handle received bytes: of a head, which has a timer, or of a body, whose time `middleware` limits."""
        if self._head is None and (self.cycle is None or self.cycle.response_complete):
            self._head = self.loop.call_later(HEAD_S, self._abort_connection)
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of a closed connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Stop the timer; the next head gets its own, from its first byte."""
        self._stop_timer()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own words are for its log
        """Refuse what is not HTTP, in the same form as any other refusal."""
        status, headers, body = build_refusal(MessageRefusedError(MALFORMED, "this is not an HTTP/1.1 request"))
        lines = [
            f"HTTP/1.1 {status} Bad Request",
            *(f"{name}: {value}" for name, value in headers.items()),
            "connection: close",
        ]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()

    def _stop_timer(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _abort_connection(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()


class WebServer(uvicorn.Server):
    """uvicorn's server, without TLS at Unix sockets: the watchdog asks for health at one that only it can open."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen at every socket."""
        bound = sockets or []
        await super().startup([one for one in bound if one.family != socket.AF_UNIX])
        loop = asyncio.get_running_loop()
        for one in (one for one in bound if one.family == socket.AF_UNIX):
            self.servers.append(await loop.create_server(self._make_protocol, sock=one, backlog=BACKLOG))

    def _make_protocol(self) -> asyncio.Protocol:
        return TimedH11Protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


@dataclass(slots=True, kw_only=True)
class HttpServer:
    """The server, and whom it asks. `bound`: the sockets. Call `run` once; `end` may be called from another thread."""

    server: uvicorn.Server
    link: WatchdogClient
    bound: Sequence[socket.socket]

    def run(self) -> None:
        """Serve until `end`, a signal, or the end of a watchdog that started this process."""
        asyncio.run(self._serve())

    def end(self) -> None:
        """End soon."""
        self.server.should_exit = True

    async def _serve(self) -> None:
        asyncio.get_running_loop().set_exception_handler(handle_loop_error)
        link_task = asyncio.create_task(self.link.run(self.end))
        try:
            await self.server.serve(sockets=list(self.bound))
        finally:
            link_task.cancel()
            with suppress(asyncio.CancelledError):
                await link_task
            await self.link.close()


def build_server(parts: WebServices, bound: Sequence[socket.socket], link: WatchdogClient) -> HttpServer:
    """Return the server on bound sockets. Raises InputError if it cannot use TLS with the files of the settings."""
    web, seal = parts.web, open_seal(parts.key_file)
    gateway = parts.desk(seal)
    link.foreign, link.note_run = gateway.take_foreign, parts.note_run
    app: ASGIApp = RequestMiddleware(
        build_application(parts, gateway, seal, link),
        hosts=list_allowed_hosts(web),
        log=get_log(),
        secure=web.tls_cert is not None,
    )
    if web.behind_proxy is not None:
        app = ProxyHeadersMiddleware(app, trusted_hosts=[web.behind_proxy])  # type: ignore[arg-type,assignment]  # uvicorn's own ASGI types
        app = app if web.tls_cert is not None else PeerFilter(app, web.behind_proxy)
    return HttpServer(server=WebServer(_build_config(app, web)), link=link, bound=bound)


@contextmanager
def serve_http(parts: WebServices, watchdog: Path | None) -> Iterator[ListenAddress]:
    """Serve in a thread of this process during the block, as tests do; yields the address with the actual port.

    `watchdog`: the path of its socket; None: there is none.
    """
    check_web_files(parts.web, parts.key_file)
    bound = bind_listener(parts.web)
    server = build_server(parts, [bound], WatchdogClient(watchdog))
    thread = threading.Thread(target=server.run, name="web", daemon=True)
    thread.start()
    try:
        yield ListenAddress(parse_listen_address(parts.web.listen or ANY_PORT, "web.listen").host, bound.getsockname()[1])
    finally:
        server.end()
        thread.join(PATIENCE_S)
        bound.close()


def _build_config(app: ASGIApp, web: WebSettings) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=TimedH11Protocol,
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        log_level="error",  # whoever sends nonsense fills no log with it
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,  # `build_server` has them read inside of PeerFilter
        limit_concurrency=_raise_connection_limit(),
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=HEAD_MOST,
        backlog=BACKLOG,
        ssl_certfile=expand_path(web.tls_cert) if web.tls_cert else None,
        ssl_keyfile=expand_path(web.tls_key) if web.tls_key else None,
    )
    try:
        config.load()
    except (OSError, ValueError) as error:  # the watchdog has looked at them: they changed since
        raise InputError(f"TLS cannot be used with these files: {error}", field="web.tls_cert, web.tls_key") from None
    return config


def _raise_connection_limit() -> int:
    """Raise the limit of open files as far as the system allows, and return how many connections fit."""
    most: Any = CONNECTIONS
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        minimum = CONNECTIONS + SPARE_FILES
        if soft != resource.RLIM_INFINITY and soft < minimum:
            soft = minimum if hard == resource.RLIM_INFINITY else min(minimum, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft != resource.RLIM_INFINITY:
            most = max(50, min(CONNECTIONS, soft - SPARE_FILES))
    return int(most)
