"""The HTTP server: uvicorn in a thread of the watchdog's process.

It ends with the watchdog; the watchdog outlives its failure. Slow clients are cut off: a request head must arrive within
seconds (uvicorn has no limit), a body and an answer within the limits of `middleware`. The number of connections is limited
(`listener`): one more is refused, and the others continue.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from costguard.agents.messages import MALFORMED, MessageRefusedError
from costguard.errors import InputError
from costguard.services.web_backend import WebServices
from costguard.settings import WebSettings, expand_path
from costguard.settings.web import ListenAddress, list_allowed_hosts, parse_listen_address
from costguard.system.file_security import describe_exposure
from costguard.system.logs import get_log
from costguard.web.app import build_application
from costguard.web.listener import HEAD_S, LimitedListener
from costguard.web.middleware import RequestMiddleware, build_refusal
from costguard.web.signing import open_seal

if TYPE_CHECKING:
    from starlette.types import ASGIApp

IDLE_S = 75
"""Seconds between two requests of one connection: agents report every 15."""
CONNECTIONS, SPARE_FILES = 4000, 200
"""Connections at once, and open files that the rest of the process needs."""
HEAD_MOST = 16 * 1024
BACKLOG = 512
PATIENCE_S = 5.0
SWITCH_S = 0.0005
"""How long a run of the guard may compute before the server has its turn; the usual 5 ms, some times a request, add up."""


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


@contextmanager
def serve_http(parts: WebServices) -> Iterator[ListenAddress]:
    """Serve at the address of the settings during the block; yields that address with the actual port if 0 was set.

    Raises InputError if it cannot listen at the address or use TLS with these files.
    """
    web = parts.web
    seal = open_seal(parts.key_file)
    app = RequestMiddleware(
        build_application(parts, parts.desk(seal), seal),
        hosts=list_allowed_hosts(web),
        log=get_log(),
        secure=web.tls_cert is not None,
    )
    listen = parse_listen_address(web.listen or "127.0.0.1:0", "web.listen")
    server = uvicorn.Server(_build_config(app, web))
    bound = _bind_socket(listen)
    bound.only = "" if web.tls_cert is not None else web.behind_proxy or ""
    at = ListenAddress(listen.host, bound.getsockname()[1])
    thread = threading.Thread(target=_run_server, args=(server, bound), name="web", daemon=True)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    thread.start()
    get_log().info("web_listens", address=at.shown, tls=web.tls_cert is not None, proxy=web.behind_proxy or "")
    try:
        yield at
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        sys.setswitchinterval(before)
        bound.close()


def _build_config(app: ASGIApp, web: WebSettings) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=TimedH11Protocol,
        ws="none",
        lifespan="off",
        loop="costguard.web.listener:ListenerLoop",
        log_config=None,
        log_level="error",  # whoever sends nonsense fills no log with it
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=web.behind_proxy is not None,
        forwarded_allow_ips=[web.behind_proxy] if web.behind_proxy else [],
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=HEAD_MOST,
        backlog=BACKLOG,
        ssl_certfile=expand_path(web.tls_cert) if web.tls_cert else None,
        ssl_keyfile=expand_path(web.tls_key) if web.tls_key else None,
    )
    if web.tls_key is not None and (who := describe_exposure(Path(expand_path(web.tls_key)))):
        raise InputError(who, field=f"web.tls_key {web.tls_key}", hint=f"chmod 600 {web.tls_key}")
    try:
        config.load()
    except (OSError, ValueError) as error:
        told = f"TLS cannot be used with these files: {error.strerror or error if isinstance(error, OSError) else error}"
        hint = "set a PEM certificate chain and its key"
        raise InputError(told, field="web.tls_cert, web.tls_key", hint=hint) from None
    return config


def _run_server(server: uvicorn.Server, bound: socket.socket) -> None:
    try:
        server.run(sockets=[bound])
    except Exception as error:  # noqa: BLE001 - whatever ends it, the guard goes on, and somebody is told
        get_log().error("web_ended", error=f"{type(error).__name__}: {error}")


def _bind_socket(listen: ListenAddress) -> LimitedListener:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    made = LimitedListener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY on such alone
    made.most = _raise_connection_limit()
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((listen.host, listen.port))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        hint = "stop the other watchdog, or set another port"
        raise InputError(f"cannot listen: {error.strerror}", field=f"web.listen {listen.shown}", hint=hint) from None
    made.setblocking(False)  # noqa: FBT003 - the socket's own word
    return made


def _raise_connection_limit() -> int:
    """Raise the limit of open files as far as the system allows, and return how many connections fit."""
    most: Any = CONNECTIONS
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = CONNECTIONS + SPARE_FILES
        if soft != resource.RLIM_INFINITY and soft < wanted:
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft != resource.RLIM_INFINITY:
            most = max(50, min(CONNECTIONS, soft - SPARE_FILES))
    return int(most)
