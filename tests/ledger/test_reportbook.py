"""Up to where reports were put out, on both databases: with their messages or not at all, apart from what routes were told."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier

import pytest

from costguard.guard.alerts.alert import DUE, INFO, Attachment, DeliveryResult, Notification
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.reports.store import ReportStore
from costguard.notifiers import pack_content, unpack_enclosure
from costguard.reporting.schedule import ReportSchedule, ScheduleMark
from tests.ledger.acts import DAY, HOUR, NOON, WIDE
from tests.ledger.test_guardbook import RUN

MONTH = ReportSchedule(name="month", every="month", channels=("console",), by=("owner",))
WEEK = replace(MONTH, name="lab", every="week")
PAGE = Attachment(name="a.html", media="text/html", packed=pack_content(b"<p>\x00 five</p>" * 9))
MESSAGE = Notification(
    id="m1", channel="console", why_now=DUE, severity=INFO, title="October", notices=(), at=NOON,
    letter=(("$5", "of alice"), ("two",)), enclosures=(PAGE,), days=7,
)  # fmt: skip


@pytest.fixture
def book(url: str) -> Iterator[ReportStore]:
    with GuardStore(url, rails=WIDE), ReportStore(url) as made:
        made.record_schedules([MONTH, WEEK], NOON)
        yield made


@pytest.fixture
def guard(url: str, book: ReportStore) -> Iterator[GuardStore]:
    assert book.load_marks()
    with GuardStore(url, rails=WIDE) as made:
        yield made


def test_a_schedule_that_was_seen_is_known_since_then_and_stays_so(book: ReportStore) -> None:
    book.record_schedules([MONTH, WEEK], NOON + DAY)
    assert book.load_marks() == {"report:month": ScheduleMark("month", NOON), "report:lab": ScheduleMark("week", NOON)}
    book.record_schedules([replace(MONTH, every="day")], NOON + DAY)
    assert book.load_marks() == {"report:month": ScheduleMark("day", NOON + DAY)}


def test_a_report_is_put_out_with_its_mark_once(book: ReportStore, guard: GuardStore) -> None:
    assert book.queue_report(MONTH, NOON + HOUR, [MESSAGE])
    assert not book.queue_report(MONTH, NOON + HOUR, [replace(MESSAGE, id="m2")])
    assert not book.queue_report(replace(MONTH, name="gone"), NOON + HOUR, [replace(MESSAGE, id="m3")])
    assert book.load_marks()["report:month"] == ScheduleMark("month", NOON + HOUR)
    [found] = guard.due_messages(NOON)
    assert replace(found, audit="") == MESSAGE
    assert unpack_enclosure(found.enclosures[0]) == b"<p>\x00 five</p>" * 9


def test_of_ten_who_put_it_out_at_once_one_does(url: str, book: ReportStore, guard: GuardStore) -> None:
    start = Barrier(10)

    def put(number: int) -> bool:
        with ReportStore(url) as own:
            start.wait(60)
            return own.queue_report(MONTH, NOON + HOUR, [replace(MESSAGE, id=f"m{number}")])

    with ThreadPoolExecutor(10) as pool:
        assert sum(pool.map(put, range(10))) == 1
    assert len(guard.due_messages(NOON)) == 1
    assert book.load_marks()["report:lab"] == ScheduleMark("week", NOON)


def test_a_guard_run_forgets_what_routes_were_told_and_no_report(book: ReportStore, guard: GuardStore) -> None:
    book.queue_report(MONTH, NOON + HOUR, [MESSAGE])
    before = book.load_marks()
    assert guard.load_alert_states() == []
    assert guard.acquire_leader_lease("this:1", NOON, HOUR) == RUN.epoch
    assert guard.record_run(RUN, alert_states=guard.load_alert_states())
    assert book.load_marks() == before


def test_a_settled_message_lets_go_of_what_it_enclosed(book: ReportStore, guard: GuardStore) -> None:
    book.queue_report(MONTH, NOON + HOUR, [MESSAGE])
    guard.settle_message("m1", DeliveryResult(sent=False, why="down"), NOON)
    [later] = guard.due_messages(NOON + HOUR)
    assert later.enclosures == (PAGE,)
    guard.settle_message("m1", DeliveryResult(sent=False, why="gone", again=False), NOON + HOUR)
    [(lost, why)] = guard.undelivered(NOON)
    assert (lost.enclosures, lost.letter, why) == ((), MESSAGE.letter, "gone")


@pytest.mark.parametrize(("days", "tries"), [(1, 8), (7, 32)])
def test_what_is_worth_sending_for_longer_is_tried_more_often(
    book: ReportStore, guard: GuardStore, days: int, tries: int
) -> None:
    book.queue_report(MONTH, NOON + HOUR, [replace(MESSAGE, days=days)])
    count, now = 0, NOON
    while not guard.undelivered(NOON):
        if guard.due_messages(now):
            count += 1
            guard.settle_message("m1", DeliveryResult(sent=False, why="down"), now)
        now += timedelta(minutes=30)
    assert count == tries
    assert days * DAY * 0.4 < now - NOON < days * DAY
