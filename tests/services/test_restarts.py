"""A watchdog that is started anew all the time: what it tells people, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from costguard.guard.alerts.alert import WARNING, Alert, AlertRoute, Notification
from costguard.guard.context import GuardConfig
from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.services.guarding.guard import GuardRunner
from costguard.testing import FakeClock
from tests.blank import blank_latest
from tests.ledger.fleet import CEILINGS, RULES, START, machine, poll

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
BEGIN = START + HOUR


class Book(GuardStore):
    """A ledger that keeps the messages. `sent`: by topic, with the time."""

    sent: list[tuple[str, datetime]]

    def record_run(self, run, *, messages=(), **more):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN003, ANN201
        made: tuple[Notification, ...] = tuple(messages)
        self.sent += [(one.topic, run.at) for message in made for one in message.notices]
        return super().record_run(run, messages=made, **more)


@dataclass
class Watch:
    """A fleet of one machine, and a warning that lasts."""

    book: Book
    url: str
    clock: FakeClock = field(default_factory=lambda: FakeClock(BEGIN))
    started: int = 0

    def start(self, *, resident: bool = True) -> GuardRunner:
        """A new process."""
        self.started += 1
        return GuardRunner(
            book=self.book,
            books=partial(SpendingReader, self.url, rules=RULES),
            rules=GuardConfig(admin_route=True, interval=MINUTE),
            latest=blank_latest,
            clock=self.clock,
            holder=f"process {self.started}",
            holds=lambda _: (),
            routes=(AlertRoute(name="admin", channels=("mail",)),),
            resident=resident,
            seconds=lambda: self.clock.now().timestamp(),
            more_alerts=lambda now: [
                Alert(topic="disk", subject="a disk", owner="", severity=WARNING, what="it is full", at=now)
            ],
        )

    def live(self, runs: int, apart: timedelta, *, length: timedelta, resident: bool = True) -> None:
        """Start processes that make so many runs and are gone, one each `apart`, for `length`."""
        end = self.clock.now() + length
        while self.clock.now() < end:
            born, guard = self.clock.now(), self.start(resident=resident)
            for _ in range(runs):
                assert guard.run().committed
                self.clock.advance(MINUTE)
            turn = self.book.load_leader_lease()
            assert turn is not None
            self.book.release_leader_lease(turn.epoch)
            self.clock.advance(born + apart - self.clock.now())

    def count(self) -> Counter[str]:
        return Counter(topic for topic, _ in self.book.sent)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger, Book(url, rails=Rails()) as book:
        ledger.record_polls([poll(0, machine()), poll(1, machine())])
        book.sent = []
        yield Watch(book, url)


@pytest.mark.parametrize(
    ("runs", "apart"),
    [
        pytest.param(1, 3 * MINUTE, id="after each run", marks=pytest.mark.proof),
        pytest.param(1, 15 * MINUTE, id="each quarter of an hour"),
        pytest.param(6, 15 * MINUTE, id="six runs and a gap", marks=pytest.mark.proof),
        pytest.param(1, 40 * MINUTE, id="each 40 minutes"),
    ],
)
def test_a_watchdog_that_is_started_anew_all_the_time_says_so_and_repeats_as_usual(
    watch: Watch, runs: int, apart: timedelta
) -> None:
    """First, once after a gap, and after 4 h; the next repeat is after a day."""
    watch.live(runs, apart, length=12 * HOUR)
    counts = watch.count()
    assert set(counts) <= {"disk", "rail:restarts", "rail:unwatched"}
    assert (counts["disk"], counts["rail:restarts"]) == (3, 2)
    assert counts["rail:unwatched"] <= 2
    told_at = next(at for topic, at in watch.book.sent if topic == "rail:restarts")
    assert told_at == BEGIN + 3 * apart


def test_runs_of_a_timer_that_is_too_slow_are_no_restarts_and_repeat_nothing(watch: Watch) -> None:
    watch.live(1, 15 * MINUTE, length=12 * HOUR, resident=False)
    assert watch.count() == {"disk": 2, "rail:gap": 2}


def test_a_watchdog_that_is_started_three_times_in_a_day_says_nothing_of_it(watch: Watch) -> None:
    watch.live(8, 8 * HOUR, length=24 * HOUR)
    assert watch.count() == {"disk": 3, "rail:unwatched": 2}


def test_a_watchdog_that_died_in_three_runs_says_so_in_the_first_that_it_finishes(watch: Watch) -> None:
    watch.live(3, 3 * MINUTE, length=3 * MINUTE)
    for number in range(3):
        epoch = watch.book.acquire_leader_lease(f"dies {number}", watch.clock.now(), 2 * MINUTE)
        assert epoch is not None
        watch.clock.advance(3 * MINUTE)
    (notice,) = (one for one in watch.start().run().notices if one.topic == "rail:restarts")
    assert "restarted or suspended 4 times within 2 h" in notice.what
