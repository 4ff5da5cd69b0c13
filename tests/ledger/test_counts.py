"""Counts for metrics, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from costguard.guard.alerts.alert import Notification
from costguard.guard.policy import Rails
from costguard.guard.run_facts import GuardRun
from costguard.ledger.counts import load_counts, load_last_run_number
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Failed, Poll
from tests.metering.stories import SCOPE, machine

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_polls_runs_and_messages_are_counted_alike_in_a_file_and_on_a_server(url: str) -> None:
    with LedgerWriter(url, rules={}, ceilings={}) as ledger:
        for number in range(3):
            at = NOON + number * MINUTE
            inventory = Failed(why="no answer") if number == 1 else Complete(items=(machine("i-1", started_at=NOON),))
            ledger.record_polls([Poll(scope=SCOPE, at=at, asked_at=at, inventory=inventory)])
    with GuardStore(url, rails=Rails.unlimited()) as store:
        epoch = store.acquire_leader_lease("me", NOON, 5 * MINUTE)
        assert epoch is not None
        waiting = Notification(id="m1", channel="console", why_now="", severity="info", title="t", notices=(), at=NOON)
        assert store.record_run(GuardRun(id="r1", at=NOON, epoch=epoch, interval=MINUTE), messages=[waiting])
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        counts, number = load_counts(ask, reader.where), load_last_run_number(ask)
    assert counts.polls == {(SCOPE.provider, "complete"): 2, (SCOPE.provider, "failed"): 1}
    assert counts.messages == {"sent": 0, "gave_up": 0, "waiting": 1}
    assert counts.oldest_waiting_at == NOON
    assert (counts.runs, number, counts.acts, counts.intents) == (1, 1, {}, {})
    assert counts.writes >= 3
    assert counts.size_bytes > 10_000
