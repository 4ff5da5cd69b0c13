"""Report schedules: a report is sent once to each channel, at an hour of the first day after each day, week or month.

Example: every "month" at 08:00 in Berlin, first seen on 20 October. The report of October is due on 1 November at 08:00 CET;
that of September is never due, because it ended before the schedule existed. If the watchdog is down on 1 November, the report
is due when a watchdog runs again, and is marked as late.

Due reports are computed from two instants in the ledger (when the schedule was first seen, and the end of the last reported
period) and from now: no timer can miss one, and no report is due twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from typing import NamedTuple

from costguard.budgets.budget import MATCH_ALL, ResourceFilter
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
    """A `[[report]]`. `every`: of REPORT_FREQUENCIES. `at`: on the zone's clock. `by`: the keys to group by. `match`: of what.

    `channels`: names, never addresses. `format`: of the attachment, if the channel accepts files.
    """

    name: str
    every: str
    channels: tuple[str, ...]
    by: tuple[str, ...]
    at: time = time(8)
    format: str = "html"
    match: ResourceFilter = MATCH_ALL

    def __post_init__(self) -> None:
        require_one_of(self.every, REPORT_FREQUENCIES, "report.every")

    @property
    def topic(self) -> str:
        """Return its topic among the sent notifications."""
        return f"report:{self.name}"


class ScheduleMark(NamedTuple):
    """The stored state of a schedule: its frequency, and the end of what it reported or when it was first seen."""

    every: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DueReport:
    """A report to be sent. `at`: when it was due. `skipped`: how many earlier ones are permanently left out."""

    of: ReportPeriod
    at: datetime
    skipped: int = 0

    def is_late(self, now: datetime) -> bool:
        """Return whether the report is marked as late."""
        return now - self.at > REPORT_LATE_AFTER


def list_due_reports(schedule: ReportSchedule, since: datetime, now: datetime, zone: tzinfo) -> tuple[DueReport, ...]:
    """Return the reports due at `now`, the oldest first.

    `since`: the end of the last reported period, or when the schedule was first seen.
    """
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
    """Return the schedules without a valid mark, and the topics of removed schedules.

    A schedule with another frequency than before counts as new, and so does one that returns: it owes no reports of the time in
    which it was not configured. A mark dated ahead of `now`, by a wrong clock, is invalid.
    """
    by_topic = {one.topic: one for one in schedules}
    topics = {topic for topic, mark in marks.items() if mark.since <= now + POLL_AHEAD_MAX}
    new = tuple(one for topic, one in by_topic.items() if topic not in topics or marks[topic].every != one.every)
    return new, tuple(topic for topic in marks if topic not in by_topic)


def find_next_report(schedule: ReportSchedule, now: datetime, zone: tzinfo) -> tuple[ReportPeriod, datetime]:
    """Return the current period, and when its report is due."""
    running = _find_running_period(schedule.every, now, zone)
    return running, compute_due_time(schedule, running, zone)


def compute_due_time(schedule: ReportSchedule, of: ReportPeriod, zone: tzinfo) -> datetime:
    """Return when the report of a period is due: at its hour of the first day after the period."""
    return resolve_wall_time(of.period.end.astimezone(zone).date(), schedule.at, zone)


def _list_periods_since(every: str, since: datetime, now: datetime, zone: tzinfo) -> Iterator[ReportPeriod]:
    """Yield the periods that end after `since`, from the current one backwards. A day that the zone skipped is left out."""
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
