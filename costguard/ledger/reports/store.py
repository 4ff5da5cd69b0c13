"""Up to where each `[[report]]` was put out, and its messages, in one transaction: nothing is put out twice, nothing is lost.

What is kept of a schedule is what was told of it, as of a notice, but of no route: `first_at`, when it was first seen, and
`last_told_at`, the end of the last period whose report was put out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Self

from costguard.guard.alerts.alert import INFO, AlertState, Notification
from costguard.ledger.db.asking import Ask
from costguard.ledger.db.connection import open_engine, writing
from costguard.ledger.db.reader import Reader
from costguard.ledger.db.voices import Voices, voices
from costguard.ledger.guard import outbox
from costguard.reporting.schedule import ReportSchedule, ScheduleMark, find_schedule_changes


class ReportBook:
    """The reports of the ledger at `url`. Close it, or use it in a `with` statement. Each method may raise LedgerError."""

    def __init__(self, url: str) -> None:
        self._url, self._engine = url, open_engine(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._engine.dispose()

    def marks(self) -> dict[str, ScheduleMark]:
        """What is kept of each schedule, by its topic."""
        with Reader(self._url) as reader, reader.snapshot() as ask:
            return {topic: _mark(one) for topic, one in _kept(ask).items()}

    def see(self, schedules: Collection[ReportSchedule], now: datetime) -> None:
        """Take down that these schedules are there, and no others."""
        with self._writing() as (ask, tell):
            kept = _kept(ask)
            new, gone = find_schedule_changes(schedules, {topic: _mark(one) for topic, one in kept.items()}, now)
            topics = (*gone, *(one.topic for one in new))
            outbox.forget_told_apart(tell, (kept[topic] for topic in topics if topic in kept))
            for one in new:
                told = AlertState(topic=one.topic, subject=one.every, owner="", first_at=now, severity=INFO)
                outbox.write_told_apart(tell, told)

    def put_out(self, schedule: ReportSchedule, until: datetime, messages: Iterable[Notification]) -> bool:
        """Put `messages` out, the report of the period that ends at `until`; False, and nothing, where somebody has done so."""
        with self._writing() as (ask, tell):
            before = _kept(ask).get(schedule.topic)
            if before is None or _mark(before).since >= until:
                return False
            outbox.write_told_apart(tell, replace(before, last_told_at=until, times=before.times + 1))
            outbox.put_out(ask, tell, messages)
        return True

    @contextmanager
    def _writing(self) -> Iterator[Voices]:
        with writing(self._engine) as connection:
            yield voices(connection)


def _kept(ask: Ask) -> dict[str, AlertState]:
    return {one.topic: one for one in outbox.told_apart(ask)}


def _mark(one: AlertState) -> ScheduleMark:
    return ScheduleMark(one.subject, one.last_told_at or one.first_at)
