"""Hooks that are urls, over real sockets: what is asked, how it is signed, and what an answer means."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from costguard.guard.escalation import FAILED, SUCCEEDED, Hook, HookEnd
from costguard.notifiers.webhook import sign_webhook
from costguard.services.guarding.act.hooks import HookCall
from costguard.services.guarding.dispatch import build_hook_runner
from costguard.settings import Settings
from costguard.testing import FakeClock

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@dataclass
class Site:
    """A web server that answers `status` with `says`. `silent`: it answers nothing until the test is over."""

    status: int = 200
    says: bytes = b""
    silent: bool = False
    asked: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    url: str = ""


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            site.asked.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            if site.silent:
                site.over.wait(60)
                return
            self.send_response(site.status)
            self.end_headers()
            self.wfile.write(site.says)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature of the library
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    site.url = f"http://127.0.0.1:{server.server_port}/save"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.over.set()
        server.shutdown()
        server.server_close()


def ended(site: Site, *, url: str = "", within_s: float = 30, settings: Settings | None = None) -> HookEnd:
    hooks = build_hook_runner(settings or Settings(), FakeClock(NOON))
    call = HookCall(
        id="run-1",
        hook=Hook(name="drain", url=url or site.url),
        within_s=within_s,
        at=NOON,
        provider="aws",
        account="1111",
        region="east",
        resource="i-1",
        name="train",
        owner="ada",
        policy="idle-gpu",
        reason="GPU duty 0 %",
    )
    hooks.begin(call)
    hooks.wait()
    return hooks.get_ends()["run-1"]


def test_a_url_is_asked_by_post_with_what_whose_why_and_when_and_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_SECRET", "0123456789abcdef")
    with serving(Site(says=b"drained")) as site:
        end = ended(site, settings=Settings(signed_with="env:OUR_SECRET"))
    assert end == HookEnd(state=SUCCEEDED, status=200, output="drained")
    ((headers, body),) = site.asked
    told = json.loads(body)
    assert (told["id"], told["owner"], told["policy"], told["reason"]) == ("i-1", "ada", "idle-gpu", "GPU duty 0 %")
    assert headers["Costguard-Id"] == "run-1"
    stamp = headers["Costguard-Timestamp"]
    assert headers["Costguard-Signature"] == sign_webhook("0123456789abcdef", "run-1", stamp, body)


def test_an_answer_that_is_no_success_is_a_failure_and_is_not_asked_again() -> None:
    with serving(Site(status=503, says=b"busy")) as site:
        assert ended(site) == HookEnd(state=FAILED, status=503, why="it answered 503", output="busy")
    assert len(site.asked) == 1


def test_a_url_that_does_not_answer_fails_when_its_time_is_over() -> None:
    with serving(Site(silent=True)) as site:
        end = ended(site, within_s=1)
    assert end.state == FAILED
    assert end.why.startswith("no answer")


def test_an_address_that_is_not_where_it_is_kept_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOOK_URL", raising=False)
    end = ended(Site(), url="env:HOOK_URL")
    assert (end.state, end.why) == (FAILED, "the variable HOOK_URL is not set")
