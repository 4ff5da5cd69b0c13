"""Store up to when each `[[report]]` was delivered.

This is one transaction with its messages, so no report is repeated or lost. A schedule is stored as an alert state without a
route: `first_at`, when it was first seen, and `last_told_at`, the end of the last period whose report was queued.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime

from costguard.guard.alerts.alert import INFO, AlertState, Notification
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.connection import WriterLock
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.db.store import LedgerStore
from costguard.ledger.guard import outbox
from costguard.reporting.schedule import ReportSchedule, ScheduleMark, find_schedule_changes


class ReportStore(LedgerStore):
    """The reports of the ledger at `url`. Close it, or use it in a `with` statement. Each method may raise LedgerError."""

    writer_lock = WriterLock.GUARD

    def load_marks(self) -> dict[str, ScheduleMark]:
        """Return the mark of each schedule, by its topic."""
        with LedgerReader(self._url) as reader, reader.snapshot() as ask:
            return {topic: _make_mark(one) for topic, one in _load_states(ask).items()}

    def record_schedules(self, schedules: Collection[ReportSchedule], now: datetime) -> None:
        """Store that exactly these schedules exist."""
        with self._begin_write() as (ask, tell):
            states = _load_states(ask)
            new, removed = find_schedule_changes(schedules, {topic: _make_mark(one) for topic, one in states.items()}, now)
            topics = (*removed, *(one.topic for one in new))
            outbox.delete_unrouted_states(tell, (states[topic] for topic in topics if topic in states))
            for one in new:
                state = AlertState(topic=one.topic, subject=one.every, owner="", first_at=now, severity=INFO)
                outbox.record_unrouted_state(tell, state)

    def queue_report(self, schedule: ReportSchedule, until: datetime, messages: Iterable[Notification]) -> bool:
        """Queue `messages`, the report of the period that ends at `until`; return False if it was queued before."""
        with self._begin_write() as (ask, tell):
            state = _load_states(ask).get(schedule.topic)
            if state is None or _make_mark(state).since >= until:
                return False
            outbox.record_unrouted_state(tell, replace(state, last_told_at=until, times=state.times + 1))
            outbox.enqueue_messages(ask, tell, messages)
        return True


def _load_states(ask: Query) -> dict[str, AlertState]:
    return {one.topic: one for one in outbox.load_unrouted_states(ask)}


def _make_mark(one: AlertState) -> ScheduleMark:
    return ScheduleMark(one.subject, one.last_told_at or one.first_at)
