"""When a report is to be sent: at an hour of the first day after each day, week or month, to each of its channels once.

Example: every "month" at 08:00 in Berlin, first seen on 20 October. The report of October is due on 1 November at 08:00 CET,
that of September never: it had ended before anybody asked for reports. Where the watchdog is down on 1 November, it is due
when one runs again, and says that it is late.

What is due follows from two instants that the ledger keeps (when the schedule was first seen, and up to where reports were put
out) and from now: no timer can miss it, and nothing is due twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from typing import NamedTuple

from costguard.metering.inventory import POLL_AHEAD_MAX
from costguard.reporting.statement.period import ReportPeriod, parse_report_period
from costguard.values.calendar import resolve_wall_time
from costguard.values.checks import require_one_of

DAY, WEEK, MONTH = "day", "week", "month"
REPORT_FREQUENCIES = (DAY, WEEK, MONTH)
MOST_DUE_REPORTS = 7
"""Reports of one schedule that are sent where many are due, the newest: who was away for a year does not read 365 of them."""
REPORT_LATE_AFTER = timedelta(hours=1)
MAIL_PREFIX = "mail:"
"""What a channel is called that is a person's mail: `mail:lead@lab.org`, through the server of `[notify] mail`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSchedule:
    """A `[[report]]`. `every`: of EVERY. `at`: on the zone's clock. `channels`: names, never addresses. `by`: what to group by.

    `format`: what is enclosed where a channel takes files.
    """

    name: str
    every: str
    channels: tuple[str, ...]
    by: tuple[str, ...]
    at: time = time(8)
    format: str = "html"

    def __post_init__(self) -> None:
        require_one_of(self.every, REPORT_FREQUENCIES, "report.every")

    @property
    def topic(self) -> str:
        """What it is called among what people were told."""
        return f"report:{self.name}"


class ScheduleMark(NamedTuple):
    """What is kept of a schedule: what it reports, and since when: up to where it has, or when it was first seen."""

    every: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DueReport:
    """A report that is to be sent. `at`: when it was due. `skipped`: how many earlier ones are left out for good."""

    of: ReportPeriod
    at: datetime
    skipped: int = 0

    def is_late(self, now: datetime) -> bool:
        """Whether people should be told that it comes late."""
        return now - self.at > REPORT_LATE_AFTER


def list_due_reports(schedule: ReportSchedule, since: datetime, now: datetime, zone: tzinfo) -> tuple[DueReport, ...]:
    """The reports that are due at `now`, the oldest first. `since`: the end of what was reported, or when it was first seen."""
    due = [
        DueReport(of=of, at=at)
        for of in _list_periods_since(schedule.every, since, now, zone)
        if (at := compute_due_time(schedule, of, zone)) <= now
    ]
    skipped = len(due) - MOST_DUE_REPORTS
    if skipped <= 0:
        return tuple(reversed(due))
    *rest, oldest = due[:MOST_DUE_REPORTS]
    return (DueReport(of=oldest.of, at=oldest.at, skipped=skipped), *reversed(rest))


def find_schedule_changes(
    schedules: Iterable[ReportSchedule], marks: Mapping[str, ScheduleMark], now: datetime
) -> tuple[tuple[ReportSchedule, ...], tuple[str, ...]]:
    """The schedules of which nothing is known that counts, and the topics of those that are there no more.

    A schedule that reports other periods than before is a new one, and so is one that comes back: it owes nothing of the time
    in which nobody asked for it. What a wrong clock wrote (dated ahead of `now`) says nothing.
    """
    wanted = {one.topic: one for one in schedules}
    known = {topic for topic, mark in marks.items() if mark.since <= now + POLL_AHEAD_MAX}
    new = tuple(one for topic, one in wanted.items() if topic not in known or marks[topic].every != one.every)
    return new, tuple(topic for topic in marks if topic not in wanted)


def find_next_report(schedule: ReportSchedule, now: datetime, zone: tzinfo) -> tuple[ReportPeriod, datetime]:
    """The period that runs, and when its report is due."""
    running = _find_running_period(schedule.every, now, zone)
    return running, compute_due_time(schedule, running, zone)


def compute_due_time(schedule: ReportSchedule, of: ReportPeriod, zone: tzinfo) -> datetime:
    """When the report of a period is due: at its hour of the first day after it."""
    return resolve_wall_time(of.period.end.astimezone(zone).date(), schedule.at, zone)


def _list_periods_since(every: str, since: datetime, now: datetime, zone: tzinfo) -> Iterator[ReportPeriod]:
    """The periods that end after `since`, from the one that runs back. A day that a zone skipped is none."""
    of: ReportPeriod | None = _find_running_period(every, now, zone)
    while of is not None and of.period.end > since:
        if of.period.length:
            yield of
        of = parse_report_period({every: of.before_label}, now, zone) if of.before is not None else None


def _find_running_period(every: str, now: datetime, zone: tzinfo) -> ReportPeriod:
    on = now.astimezone(zone).date()
    year, week, _ = on.isocalendar()
    label = {DAY: f"{on:%Y-%m-%d}", WEEK: f"{year:04}-W{week:02}", MONTH: f"{on:%Y-%m}"}[every]
    return parse_report_period({every: label}, now, zone)
