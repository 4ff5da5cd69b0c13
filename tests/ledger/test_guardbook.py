"""What a guard run leaves to the next, on both databases: all of it or nothing; and what it asks of the whole fleet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import event

from costguard.guard.alerts.alert import Alert, AlertState, DeliveryResult, Notification
from costguard.guard.policy import EscalationState
from costguard.guard.run_facts import GuardRun, ProtectionSighting
from costguard.ledger.counts import load_counts
from costguard.ledger.db.connection import open_engine
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard import guard_state, outbox
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans import observations
from costguard.ledger.spans.writer import LedgerWriter, record_samples
from costguard.reporting.metrics import LedgerCounts
from costguard.values.sample import Sample
from tests.ledger import fleet
from tests.ledger.acts import DAY, HOUR, MINUTE, NOON, SECOND, WIDE, key, life
from tests.ledger.fleet import CEILINGS, RULES, START, machine, poll

RUN = GuardRun(
    id="r1",
    at=NOON,
    epoch=1,
    interval=MINUTE,
    clock_skew=timedelta(milliseconds=-1),
    outcome="acted",
    notes=("one \u00e9", "two"),
    facts=(("breaker", "open"),),
)
NOTICE = Alert(
    topic="policy:idle-gpu",
    subject="aws/i-1",
    owner="ada",
    severity="warning",
    what="idle",
    at=NOON,
    facts=(("since", "11:00"),),
    stage=1,
)
MESSAGE = Notification(
    id="m1", channel="slack", why_now="first", severity="warning", title="idle", notices=(NOTICE, NOTICE), at=NOON
)
TOLD = AlertState(
    route="all",
    topic="policy:idle-gpu",
    subject="aws/i-1",
    owner="",
    first_at=NOON,
    last_told_at=NOON + SECOND,
    times=2,
    recent=(NOON, NOON + SECOND),
)
CLIMB = EscalationState(policy="idle-gpu", life=life(), since=NOON - HOUR, started_at=NOON, done=(0, 2), left_polls=1)


@pytest.fixture
def book(url: str) -> Iterator[GuardStore]:
    with GuardStore(url, rails=WIDE) as opened:
        assert opened.acquire_leader_lease("a", NOON, HOUR) == 1
        yield opened


def due(book: GuardStore, at: datetime) -> list[Notification]:
    """The messages that are due, without the head of the audit that each of them carries."""
    found = book.due_messages(at)
    assert all(re.fullmatch(r"[1-9]\d*:[0-9a-f]{16}", one.audit) for one in found)
    return [replace(one, audit="") for one in found]


def test_a_run_comes_back_with_all_that_it_left(book: GuardStore) -> None:
    assert book.load_last_run() is None
    other = replace(CLIMB, policy="other", life=life("i-2", None), done=())
    seen = ProtectionSighting(key=key(), at=NOON, how="label costguard=never")
    assert book.record_run(RUN, climbs=[other, CLIMB], alert_states=[TOLD], messages=[MESSAGE], protections=[seen])
    assert book.load_last_run() == RUN
    assert book.load_escalations() == [CLIMB, other]
    assert book.load_alert_states() == [TOLD]
    assert due(book, NOON) == [MESSAGE]
    assert book.load_protections() == {key(): seen}


def test_what_a_run_does_not_hand_over_stays_and_what_it_leaves_out_is_gone(book: GuardStore) -> None:
    other = replace(CLIMB, policy="other")
    book.record_run(RUN, climbs=[CLIMB, other], alert_states=[TOLD])
    book.record_run(replace(RUN, id="r2"))
    assert (book.load_escalations(), book.load_alert_states()) == ([CLIMB, other], [TOLD])
    changed = replace(CLIMB, left_polls=0)
    book.record_run(replace(RUN, id="r3"), climbs=[changed], alert_states=[])
    assert (book.load_escalations(), book.load_alert_states()) == ([changed], [])
    assert [run.id for run in book.load_last_runs(2)] == ["r3", "r2"]


def test_a_run_whose_turn_was_stolen_leaves_nothing(book: GuardStore) -> None:
    assert book.acquire_leader_lease("b", NOON + HOUR, MINUTE) == 2
    assert not book.record_run(RUN, climbs=[CLIMB], messages=[MESSAGE])
    assert (book.load_last_run(), book.load_escalations(), book.due_messages(NOON + DAY)) == (None, [], [])
    assert book.record_run(replace(RUN, epoch=2), climbs=[CLIMB])


def test_only_the_last_runs_are_kept(book: GuardStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_state, "RUNS_KEPT", 3)
    for number in range(5):
        book.record_run(replace(RUN, id=f"r{number}"))
    assert [run.id for run in book.load_last_runs(9)] == ["r4", "r3", "r2"]


class _Stop(Exception):  # noqa: N818 - no error: where the run is cut off
    pass


def test_a_run_that_stops_anywhere_leaves_all_as_it_was(book: GuardStore) -> None:
    engine = book._engine
    before: tuple[object, ...] = (None, [], [], [], {})
    total = 0
    for after in range(100):
        seen: list[str] = []

        def stop(*told: object, seen: list[str] = seen, after: int = after) -> None:
            seen.append(str(told[2]))
            if len(seen) > after:
                raise _Stop

        event.listen(engine, "after_cursor_execute", stop)
        try:
            seen_now = [ProtectionSighting(key=key(), at=NOON, how="")]
            book.record_run(RUN, climbs=[CLIMB], alert_states=[TOLD], messages=[MESSAGE], protections=seen_now)
            total = len(seen)
        except _Stop:
            total = 0
        event.remove(engine, "after_cursor_execute", stop)
        left = (
            book.load_last_run(),
            book.load_escalations(),
            book.load_alert_states(),
            book.due_messages(NOON),
            book.load_protections(),
        )
        if total:
            assert left[0] == RUN
            break
        assert left == before, seen[-1]
    assert total > 10


def test_a_message_is_put_out_once_and_sent_once(book: GuardStore) -> None:
    book.record_run(RUN, messages=[MESSAGE])
    book.record_run(replace(RUN, id="r2"), messages=[replace(MESSAGE, title="again")])
    assert due(book, NOON) == [MESSAGE]
    assert book.due_messages(NOON - SECOND) == []
    book.settle_message("m1", DeliveryResult(sent=True), NOON)
    book.settle_message("m1", DeliveryResult(sent=False, why="late"), NOON)
    assert book.due_messages(NOON + DAY) == []
    assert book.undelivered(NOON - DAY) == []
    book.record_run(replace(RUN, id="r3"), messages=[MESSAGE])
    assert book.due_messages(NOON + DAY) == []


def test_a_message_that_fails_is_tried_again_later_and_later_and_then_given_up(book: GuardStore) -> None:
    book.record_run(RUN, messages=[MESSAGE])
    at = NOON
    for after in outbox.RETRY_DELAYS:
        assert due(book, at) == [MESSAGE]
        book.settle_message("m1", DeliveryResult(sent=False, why="503"), at)
        assert book.due_messages(at + after - SECOND) == []
        at += after
    book.settle_message("m1", DeliveryResult(sent=False, why="503 still"), at)
    assert book.due_messages(at + DAY) == []
    assert [(replace(one, audit=""), why) for one, why in book.undelivered(NOON)] == [(MESSAGE, "503 still")]


def test_a_message_that_waits_says_what_holds_when_it_is_sent(book: GuardStore) -> None:
    early = replace(NOTICE, ahead=True, due=NOON + HOUR, facts=(("next", "stop at 13:00"),))
    late = replace(early, due=NOON + 2 * HOUR, what="due at 14:00", facts=(("next", "stop at 14:00"),))
    other = replace(late, owner="somebody else")
    book.record_run(RUN, messages=[replace(MESSAGE, notices=(early,), enclosures=())])
    book.settle_message("m1", DeliveryResult(sent=False, why="503"), NOON)
    for run in ("r2", "r3"):
        book.record_run(replace(RUN, id=run), present=[other])
        (over,) = due(book, NOON + DAY)[0].notices
        assert (over.what, over.ahead, over.due) == ("resolved: idle", False, None), "it announces nothing to its old owner"
    book.record_run(replace(RUN, id="r4"), present=[late])
    (message,) = due(book, NOON + DAY)
    assert (message.notices, message.title, message.id) == ((late,), "due at 14:00", "m1")


def test_a_channel_that_works_again_gets_the_announcements_that_wait_for_it(book: GuardStore) -> None:
    ahead = replace(MESSAGE, id="ahead", notices=(replace(NOTICE, ahead=True),), enclosures=())
    plain = replace(MESSAGE, id="plain", enclosures=())
    elsewhere = replace(ahead, id="elsewhere", channel="another")
    book.record_run(RUN, messages=[ahead, plain, elsewhere, replace(plain, id="news")])
    for name in ("ahead", "plain", "elsewhere"):
        book.settle_message(name, DeliveryResult(sent=False, why="503"), NOON)
    book.settle_message("news", DeliveryResult(sent=True), NOON + SECOND)
    assert [one.id for one in due(book, NOON + SECOND)] == ["ahead"]


def test_what_became_of_messages_is_counted_by_channel_and_stays_when_they_are_deleted(url: str, book: GuardStore) -> None:
    people = [replace(MESSAGE, id=f"m{n}", channel=f"mail:p{n}@lab.example") for n in (2, 3)]
    book.record_run(RUN, messages=[MESSAGE, *people, replace(MESSAGE, id="m4", channel="mail:late@lab.example")])
    book.settle_message("m1", DeliveryResult(sent=False, why="503"), NOON)
    book.settle_message("m1", DeliveryResult(sent=True), NOON)
    book.settle_message("m1", DeliveryResult(sent=True), NOON)
    book.settle_message("m2", DeliveryResult(sent=True), NOON)
    book.settle_message("m3", DeliveryResult(sent=False, why="no such box", again=False), NOON)

    def count() -> LedgerCounts:
        with LedgerReader(url) as reader, reader.snapshot() as ask:
            return load_counts(ask, reader.where)

    counts = count()
    expected = {MESSAGE.channel: (1, 0, 1), "mail": (1, 1, 1)}
    assert (counts.channels, list(counts.channels), counts.waiting) == (expected, list(expected), {"mail": 1})
    book.record_run(replace(RUN, id="late", at=NOON + outbox.RETENTION + SECOND))
    counts = count()
    assert (counts.channels, counts.messages) == (expected, {"sent": 0, "gave_up": 0, "waiting": 1})


def sample(minutes: float, value: float, name: str = "i-1", signal: str = "gpu_util") -> Sample:
    return Sample(key=fleet.key(name), signal=signal, at=START + minutes * MINUTE, value=value)


@pytest.mark.parametrize("few", [0, 50], ids=["all at once", "one by one"])
def test_the_latest_samples_of_the_fleet_come_by_resource(
    url: str, book: GuardStore, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(observations, "SINGLE_QUERIES_MAX", few)
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(0, machine("i-1"), machine("i-2"), machine("i-3"))])
    engine = open_engine(url)
    said = [sample(2, 1), sample(1, 5), sample(0, 9), sample(2, 0.5, signal="cpu_util"), sample(1, 3, "i-2")]
    record_samples(engine, said)
    engine.dispose()
    first = [sample(2, 0.5, signal="cpu_util"), sample(1, 5), sample(2, 1)]
    assert book.load_samples_since(START + MINUTE) == {fleet.key("i-1"): first, fleet.key("i-2"): [sample(1, 3, "i-2")]}
    assert book.load_samples_since(START + MINUTE, [fleet.key("i-1"), fleet.key("i-3"), key("unknown")]) == {
        fleet.key("i-1"): first
    }
    assert book.load_samples_since(START + HOUR) == book.load_samples_since(START, []) == {}
