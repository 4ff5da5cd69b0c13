"""Somebody outside hears of each run that was committed, and of no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.audit_log import read_head_text
from costguard.services.guarding.watchdog_context import send_heartbeat
from costguard.settings import Settings
from costguard.settings.sections import WatchSettings
from costguard.watchdog.heartbeat import Heartbeat
from tests.conftest import Command

LONG = 30.0


@dataclass(slots=True)
class Listener:
    """What was asked, in order, `by` whom, and what is answered."""

    url: str = ""
    status: int = 200
    asked: list[str] = field(default_factory=list)
    by: list[str] = field(default_factory=list)


@contextmanager
def listening() -> Iterator[Listener]:
    there = Listener()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            there.asked.append(self.path)
            there.by.append(self.headers["User-Agent"])
            self.send_response(there.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    there.url = f"http://127.0.0.1:{server.server_port}/ping/0f8fad5b"
    try:
        yield there
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def no_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever runs the tests may have a ledger of their own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@dataclass(slots=True)
class Told:
    """A log that is kept."""

    events: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def info(self, event: str, /, **fields: object) -> None:
        self.events.append((event, fields))

    warning = error = info


def settings(url: str) -> Settings:
    return Settings(watch=WatchSettings.model_construct(heartbeat_url=url))


def test_it_is_asked_about_once_a_minute_at_most_and_for_each_run_of_a_minute_that_comes_early() -> None:
    told, clock = Told(), [100.0]
    with listening() as there:
        heart = Heartbeat(lambda: send_heartbeat(lambda: settings(there.url)), log=told, clock=lambda: clock[0])
        for at, times in ((100.0, 1), (130.0, 1), (149.9, 1), (159.8, 2), (190.0, 2), (219.5, 3)):
            clock[0] = at
            heart.beat()
            heart.wait(LONG)
            assert there.asked == ["/ping/0f8fad5b"] * times
    assert there.by == ["costguard"] * 3  # there is no ledger whose head it could name
    assert told.events == []


def test_that_nobody_answers_is_said_once_and_that_somebody_does_again_too() -> None:
    told, clock = Told(), [0.0]
    with listening() as there:
        heart = Heartbeat(lambda: send_heartbeat(lambda: settings(there.url)), log=told, clock=lambda: clock[0])
        for status in (200, 500, 500, 200, 404):
            there.status = status
            heart.beat()
            heart.wait(LONG)
            clock[0] += 60
    assert told.events == [
        ("heartbeat_failed", {"why": "it answered 500"}),
        ("heartbeat_heard_again", {}),
        ("heartbeat_failed", {"why": "it answered 404"}),
    ]


def test_an_address_where_nobody_is_holds_nothing_back_and_is_not_shown() -> None:
    with listening() as there:
        gone = there.url
    told = Told()
    heart = Heartbeat(lambda: send_heartbeat(lambda: settings(gone)), log=told)
    heart.beat()
    heart.wait(LONG)
    assert told.events == [("heartbeat_failed", {"why": "its address: no connection (ConnectError)"})]


def test_a_beat_that_does_not_end_holds_back_only_the_next_one() -> None:
    hangs, asked = threading.Event(), list[int]()

    def hang() -> str:
        asked.append(1)
        hangs.wait(LONG)
        return ""

    heart = Heartbeat(hang, log=Told(), every=timedelta())
    heart.beat()
    heart.beat()
    hangs.set()
    heart.wait(LONG)
    heart.beat()
    heart.wait(LONG)
    assert len(asked) == 2


@pytest.mark.parametrize(("flags", "times"), [((), 1), (("--dry-run",), 0)])
def test_a_watch_that_wrote_its_run_is_heard_and_a_dry_one_is_not(
    costguard: Command, tmp_path: Path, flags: tuple[str, ...], times: int
) -> None:
    with listening() as there:
        (tmp_path / "costguard.toml").write_text(
            f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\n[watch]\nheartbeat_url = "http://127.0.0.1:{there.url.split(":")[2].split("/")[0]}/ping"\n'
        )
        ran = costguard("--offline", "watch", "--once", *flags)
        assert ran.code == 0, ran.err
    assert len(there.asked) == times
    with LedgerReader(f"sqlite:///{tmp_path}/ledger.db") as reader, reader.snapshot() as ask:
        assert there.by == [f"costguard audit/{read_head_text(ask)}"] * times
        assert read_head_text(ask)
