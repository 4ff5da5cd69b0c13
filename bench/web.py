"""CPU of the page Now with a large fleet: `python -m bench.web [MACHINES ...]` (1000 10000).

The server's CPU is the time of this process for one request, with the client's share measured by a static file of the same
server and taken off. The first request after a guard run builds the fleet for all readers and is shown apart.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from fastapi import FastAPI
from starlette.testclient import TestClient

from costguard.ledger.agents.logins import LoginStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.services.guarding.overrides import get_now
from costguard.services.serving.login_key import open_login_key
from costguard.services.serving.web_logins import make_invite
from costguard.services.serving.web_pages import PageServices
from costguard.web.pages import build_page_router
from tests.metering.stories import SCOPE, machine

REQUESTS = 30
TARGET_MS = {1_000: 20.0, 10_000: 40.0}


def main() -> None:
    """Print a line for each size; end with 1 if a target is missed."""
    missed = False
    for count in [int(one) for one in sys.argv[1:]] or list(TARGET_MS):
        with TemporaryDirectory() as folder:
            took, first, size = measure(Path(folder), count)
        target = TARGET_MS.get(count)
        missed = missed or (target is not None and took > target)
        print(f"{count} machines: {took:.1f} ms CPU a request (goal {target}), first {first:.0f} ms, page {size} bytes")
    sys.exit(int(missed))


def measure(folder: Path, count: int) -> tuple[float, float, int]:
    """Return the CPU of a request and of the first one in milliseconds, and the bytes of the page."""
    config, now = folder / "costguard.toml", datetime.now(UTC)
    url = f"sqlite:///{folder}/ledger.db"
    config.write_text(f'[ledger]\nurl = "{url}"\n')
    seen = tuple(replace(machine(f"i-{n}", started_at=now - timedelta(hours=2)), name=f"train-{n}") for n in range(count))
    with LedgerWriter(url, rules={}, ceilings={}) as ledger:
        for minutes in (10, 0):
            at = now - timedelta(minutes=minutes)
            ledger.record_polls([Poll(scope=SCOPE, at=at, asked_at=at, inventory=Complete(items=seen))])
    app = FastAPI()
    app.include_router(build_page_router(PageServices(config=str(config))))
    client = TestClient(app, base_url="http://localhost")
    with LoginStore(url) as book:
        client.post(
            make_invite(book, "bench", "viewer", who="bench", now=get_now(), key=open_login_key(url))[0], follow_redirects=False
        )
    first, size = _time_request(client, "/")
    page = median(_time_request(client, "/?q=&page=3")[0] for _ in range(REQUESTS))
    beside = median(_time_request(client, "/static/icon.svg")[0] for _ in range(REQUESTS))
    return page - beside, first, size


def _time_request(client: TestClient, path: str) -> tuple[float, int]:
    began = time.process_time()
    came = client.get(path)
    assert came.status_code == 200, came.text  # noqa: S101
    return 1000 * (time.process_time() - began), len(came.content)


if __name__ == "__main__":
    main()
