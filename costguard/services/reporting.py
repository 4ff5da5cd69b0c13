"""Reports that are due are put into the outbox: made first, without holding anything, then written with the mark that says so.

A crash before that transaction leaves nothing, and the report is made again; after it, the outbox sends it. Of two processes
that make one the second writes nothing. A schedule whose report cannot be made stops no other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Protocol

from costguard.guard.alerts.alert import Notification
from costguard.reporting.schedule import DueReport, ReportSchedule, ScheduleMark, find_schedule_changes, list_due_reports


class ReportScheduleStore(Protocol):
    """Up to where each schedule was reported."""

    def load_marks(self) -> Mapping[str, ScheduleMark]:
        """What is kept of each schedule, by its topic."""

    def record_schedules(self, schedules: Collection[ReportSchedule], now: datetime) -> None:
        """Take down that these schedules are there, and no others."""

    def queue_report(self, schedule: ReportSchedule, until: datetime, messages: Iterable[Notification]) -> bool:
        """Put `messages` out, the report of the period that ends at `until`; False where that was done before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedReports:
    """What came of one look. `seen`: schedules that are new. `put`: reports that are in the outbox now. `failed`: with why."""

    seen: tuple[ReportSchedule, ...] = ()
    put: tuple[tuple[ReportSchedule, DueReport], ...] = ()
    failed: tuple[tuple[ReportSchedule, Exception], ...] = ()


def queue_due_reports(
    schedules: Sequence[ReportSchedule],
    *,
    book: ReportScheduleStore,
    now: datetime,
    zone: tzinfo,
    compose: Callable[[ReportSchedule, DueReport], Sequence[Notification]],
) -> QueuedReports:
    """Put out all that is due at `now`. `compose` makes the messages of a report. LedgerError where marks cannot be read."""
    marks = book.load_marks()
    new, gone = find_schedule_changes(schedules, marks, now)
    if new or gone:
        book.record_schedules(schedules, now)
        marks = book.load_marks()
    put, failed = list[tuple[ReportSchedule, DueReport]](), list[tuple[ReportSchedule, Exception]]()
    for schedule in schedules:
        mark = marks.get(schedule.topic)
        for one in list_due_reports(schedule, mark.since, now, zone) if mark else ():
            try:
                if book.queue_report(schedule, one.of.period.end, compose(schedule, one)):
                    put.append((schedule, one))
            except Exception as wrong:  # noqa: BLE001 - a format is a plug-in, which may raise anything
                failed.append((schedule, wrong))
                break
    return QueuedReports(seen=new, put=tuple(put), failed=tuple(failed))
