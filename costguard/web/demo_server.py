"""`costguard demo --serve`: the simulated weekend as pages, for this machine alone, until Ctrl-C."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from fastapi import FastAPI

from costguard.ledger.agents.logins import LoginStore
from costguard.services.guarding.overrides import get_now
from costguard.services.serving.login_key import open_login_key
from costguard.services.serving.web_logins import make_invite
from costguard.services.serving.web_pages import PageServices
from costguard.settings import resolve_ledger_url
from costguard.system.logs import get_log
from costguard.testing.weekend import MEMORY_DISK, keep_weekend
from costguard.values.agent import VIEWER
from costguard.web.app import handle_errors
from costguard.web.middleware import RequestMiddleware
from costguard.web.pages import build_page_router

HOSTS = ("127.0.0.1", "localhost", "[::1]")
START_S = 10.0


def serve_weekend(*, config: str | None = None) -> None:
    """Play the weekend and serve it until somebody ends the process; the login link goes to standard output."""
    sys.stderr.write("simulating a weekend with watchdog ...\n")
    with TemporaryDirectory(prefix="costguard-demo-", dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None) as folder:
        settings, end = keep_weekend(Path(folder), config=config)
        services = PageServices(config=settings, clock=lambda: end, read_only=True)
        with serve_pages(services) as address, suppress(KeyboardInterrupt):
            url = resolve_ledger_url(services.settings)
            with LoginStore(url) as book:
                path, _ = make_invite(book, "demo", VIEWER, who="costguard demo", now=get_now(), key=open_login_key(url))
            sys.stdout.write(f"http://{address}{path}\n")
            sys.stdout.flush()
            sys.stderr.write("open the link, which logs in once; Ctrl-C ends the demo\n")
            threading.Event().wait()


@contextmanager
def serve_pages(services: PageServices, port: int = 0) -> Iterator[str]:
    """Serve the pages alone, at the loopback address, while the block runs; yields the address. `port` 0: any free one."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.include_router(build_page_router(services))
    handle_errors(app)
    guarded = RequestMiddleware(app, hosts=HOSTS, log=get_log())
    config = uvicorn.Config(
        guarded,
        host="127.0.0.1",
        port=port,
        log_config=None,
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="pages", daemon=True)
    thread.start()
    began = time.monotonic()
    while not server.started and thread.is_alive() and time.monotonic() - began < START_S:
        time.sleep(0.02)
    try:
        yield f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(START_S)
