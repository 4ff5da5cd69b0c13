"""The HTTP server: uvicorn in a process of its own, which the watchdog starts and outlives (decision 0091).

Its limits are uvicorn's (connections, idle connections, backlog), those of `protocol` (bytes, reads, seconds) and
of `middleware` (bodies, time).
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

from costguard.errors import InputError
from costguard.services.serving.web_backend import WebServices
from costguard.settings import WebSettings, expand_path
from costguard.settings.web import ListenAddress, list_allowed_hosts, parse_listen_address
from costguard.system.logs import get_log
from costguard.web.app import build_application
from costguard.web.listener import ANY_PORT, BACKLOG, bind_listener, check_web_files
from costguard.web.middleware import PeerFilter, RequestMiddleware
from costguard.web.protocol import BoundedProtocol, HeldState
from costguard.web.signing import open_seal
from costguard.web.watchdog_client import WatchdogClient, handle_loop_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp

IDLE_S = 75
"""Seconds between two requests of one connection: agents report every 15."""
SPARE_FILES = 300
"""Open files that the rest of the process needs."""
CONNECTIONS = 4000
"""Connections at once; a request of one more is answered with 503."""
PATIENCE_S = 5.0


class WebServer(uvicorn.Server):
    """uvicorn's server, without TLS at Unix sockets: the watchdog asks for health at one that only it can open."""

    server_state: HeldState

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.server_state = HeldState()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen at every socket."""
        bound = sockets or []
        await super().startup([one for one in bound if one.family != socket.AF_UNIX])
        loop = asyncio.get_running_loop()
        for one in (one for one in bound if one.family == socket.AF_UNIX):
            self.servers.append(await loop.create_server(self._make_protocol, sock=one, backlog=BACKLOG))

    def _make_protocol(self) -> asyncio.Protocol:
        return BoundedProtocol(self.config, self.server_state, self.lifespan.state)


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
        http=BoundedProtocol,
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
