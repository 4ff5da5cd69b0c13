"""Send reports: the letter, the report itself as an attachment, and the schedule of `[[report]]`.

A due report is built without holding a lock, then written to the outbox together with the mark that it was built. After a crash
before that transaction the report is built again; after it, the outbox sends it. If two processes build the same report, the
second writes nothing. A report that cannot be built does not affect others.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Protocol

from costguard.budgets.budget import MATCH_ALL, ResourceFilter, list_filter_words
from costguard.errors import CostguardError, InputError
from costguard.guard.alerts.alert import ASKED, DUE, INFO, LATE, Attachment, Notification
from costguard.notifiers import pack_content
from costguard.providers import plugins
from costguard.reporting.schedule import DueReport, ReportSchedule, ScheduleMark, find_schedule_changes, list_due_reports
from costguard.reporting.statement.groups import parse_group_keys
from costguard.reporting.statement.period import ReportPeriod, parse_report_period
from costguard.reporting.statement.statement import Statement
from costguard.services import CommandAnswer
from costguard.services.guarding.ask_links import format_channel_name
from costguard.services.guarding.dispatch import WEBHOOK, find_channel_kind, open_notifier
from costguard.services.poll.configured_providers import SystemClock
from costguard.services.report.ledger_answers import CHARTS_NEED, build_report
from costguard.settings import Settings, load_zone, read_settings
from costguard.settings.budgets import parse_filter
from costguard.settings.notify import CONSOLE_CHANNEL, read_person, read_recipient
from costguard.values.checks import require
from costguard.values.text_format import format_instant, format_local_time, quote_shell_word
from costguard.views.document import Document
from costguard.views.report import build_incomplete_report_error, list_report_warnings
from costguard.views.report_delivery import (
    ReportDelivery,
    build_delivery_document,
    build_report_paragraphs,
    format_report_title,
)

JSON_MEDIA, BYTES_MEDIA = "application/json", "application/octet-stream"
ENCLOSURE_BYTES_MAX, JSON_BYTES_MAX = 8 * 2**20, 2**20
"""Bytes of what is enclosed: mail servers and chats take ten megabytes as a rule, web servers one."""
DELIVERY_DAYS = 7
"""For how long a report is worth another try: longer than a channel is down over a long weekend."""
FILE_SUFFIXES = {"markdown": "md", "table": "txt", "focus": "csv"}
"""Of formats whose files are not called as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLetter:
    """A report to be sent. `again`: the command that prints it. `before`: a first paragraph, () for none."""

    statement: Statement
    document: Document
    chosen: plugins.ReportFormat
    again: str
    before: tuple[str, ...] = ()

    def build_message(self, message_id: str, channel: str, why_now: str, now: datetime, zone: tzinfo) -> Notification:
        """Build the message for `channel`, with the attachments that it accepts."""
        files, left_out = _build_enclosures(self, find_channel_kind(channel))
        body = build_report_paragraphs(self.statement, self.document, self.again)
        return Notification(
            id=message_id,
            channel=channel,
            why_now=why_now,
            severity=INFO,
            title=format_report_title(self.statement),
            notices=(),
            at=now,
            told_at=format_local_time(now, zone),
            letter=tuple(part for part in (self.before, *body, left_out) if part),
            enclosures=files,
            days=DELIVERY_DAYS,
        )


def compose_report_messages(
    settings: Settings, schedule: ReportSchedule, owed: DueReport, now: datetime
) -> Sequence[Notification]:
    """Compose the messages of a due report, one per channel."""
    zone, chosen = settings.defaults.timezone, find_report_format(schedule.format)
    statement, document = build_report(
        settings,
        owed.of,
        by=schedule.by,
        zone=zone,
        now=now,
        drawn=chosen.needs == CHARTS_NEED,
        match=schedule.match,
    )
    letter = ReportLetter(
        statement=statement,
        document=document,
        chosen=chosen,
        again=build_report_command({schedule.every: owed.of.label}, schedule.by, zone, schedule.match),
        before=tuple(_list_remarks(schedule, owed, now, zone)),
    )
    why = LATE if owed.is_late(now) else DUE
    return [
        letter.build_message(_make_message_id(schedule, owed.of, channel), channel, why, now, zone)
        for channel in schedule.channels
    ]


def build_report_command(period: dict[str, str], by: Sequence[str], zone: tzinfo, match: ResourceFilter = MATCH_ALL) -> str:
    """Return the command line that prints the report of the period `period`."""
    words = [word for name, text in period.items() for word in (f"--{name}", quote_shell_word(text))]
    words += [word for text in list_filter_words(match) for word in ("--only", quote_shell_word(text))]
    return " ".join(
        ("costguard report", *words, "--by", ",".join(map(quote_shell_word, by)), "--zone", quote_shell_word(str(zone)))
    )


def find_report_format(name: str) -> plugins.ReportFormat:
    """Return the installed format `name`."""
    return plugins.load_report_format(name)


def check_report_formats(settings: Settings) -> None:
    """Raise InputError if a report is to be sent in a format that is not installed."""
    for schedule in settings.reports:
        try:
            find_report_format(schedule.format)
        except InputError as wrong:
            raise InputError(wrong.what, field=f"report {schedule.name}.format", hint=wrong.hint) from None


def _list_remarks(schedule: ReportSchedule, owed: DueReport, now: datetime, zone: tzinfo) -> list[str]:
    """Return remarks on late and skipped reports."""
    late = f"It was due at {format_local_time(owed.at, zone)} and is late: no watchdog was running then to send it."
    many = owed.skipped
    were = f"1 earlier report of a {schedule.every} was" if many == 1 else f"{many} earlier reports of a {schedule.every} were"
    skipped = f"{were} due too and will not be sent: costguard report --{schedule.every} prints any."
    return [*([late] if owed.is_late(now) else []), *([skipped] if many else [])]


def _build_enclosures(letter: ReportLetter, kind: str) -> tuple[tuple[Attachment, ...], tuple[str, ...]]:
    """Return the attachments for a channel of `kind`, and a paragraph on what is too large for it."""
    if kind == CONSOLE_CHANNEL:
        return (), ()
    if kind == WEBHOOK:
        content, name, media, most = json.dumps(letter.document.data).encode(), "report.json", JSON_MEDIA, JSON_BYTES_MAX
    else:
        content, most = _render_enclosure(letter), ENCLOSURE_BYTES_MAX
        name = f"costguard-{_make_plain(letter.statement.label)}.{_choose_file_suffix(letter.chosen.name)}"
        media = mimetypes.guess_type(name)[0] or BYTES_MEDIA
    if len(content) > most:
        return (), (f"The report is too large to attach: {len(content) / 2**20:.1f} MiB. {letter.again} -o FILE",)
    return (Attachment(name=name, media=media, packed=pack_content(content)),), ()


def _render_enclosure(letter: ReportLetter) -> bytes:
    needs = letter.chosen.needs
    is_available = not needs or getattr(letter.document, needs, None) is not None
    require(is_available, "format", f"{letter.chosen.name} cannot render reports", 'write "html"')
    rendered = letter.chosen.render(letter.document)
    pieces = [rendered] if isinstance(rendered, str) else rendered
    return b"".join(piece.encode() if isinstance(piece, str) else piece for piece in pieces)


def _choose_file_suffix(name: str) -> str:
    return FILE_SUFFIXES.get(name, name.rpartition("-")[2])


def _make_plain(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", label).strip("-")


def _make_message_id(schedule: ReportSchedule, of: ReportPeriod, channel: str) -> str:
    """Return an id that is the same in every process."""
    parts = ("report", schedule.name, schedule.every, of.label, channel)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


NOTIFY_HINT = 'write the name of a route, "console", "env:SLACK_URL" or "https://example.com/hook"'


def send_report(
    *,
    period: Mapping[str, str | None],
    by: str | None,
    only: Sequence[str] = (),
    zone: str | None,
    strict: bool,
    people: Sequence[str],
    routes: Sequence[str],
    attach: str,
    config: str | None,
) -> CommandAnswer:
    """Send the report of a period to `people` by mail and to `routes`, each once, even if some fail.

    Raises InputError before anything is built if one of them cannot be reached by the settings. `attach`: the format of the
    attachment. `strict`: a period that was not observed throughout is refused, and nothing is sent.
    """
    settings, now = read_settings(config), get_utc_now()
    place = settings.defaults.timezone if zone is None else load_zone(zone, "--zone")
    keys, of, chosen = parse_group_keys(by), parse_report_period(period, now, place), find_report_format(attach)
    ways = {name: open_notifier(name, settings, SystemClock()) for name in _choose_channels(settings, people, routes)}
    match, is_drawn = parse_filter(only, "--only"), chosen.needs == CHARTS_NEED
    statement, document = build_report(settings, of, by=keys, zone=place, now=now, drawn=is_drawn, match=match)
    refusal = build_incomplete_report_error(statement) if strict else None
    if refusal is not None:
        raise refusal
    flags = {name: text for name, text in period.items() if text is not None} or {"month": of.label}
    if "last" in flags:  # it is another period tomorrow
        flags = {"from": format_instant(of.period.start), "to": format_instant(of.period.end)}
    again = build_report_command(flags, keys, place, match)
    letter = ReportLetter(statement=statement, document=document, chosen=chosen, again=again)
    sent = list[ReportDelivery]()
    for name, way in ways.items():
        message = letter.build_message(secrets.token_hex(16), name, ASKED, now, place)
        enclosed = tuple(one.name for one in message.enclosures)
        sent.append(ReportDelivery(to=format_channel_name(name), delivery=way(message), enclosed=enclosed))
    return CommandAnswer(
        document=build_delivery_document(of.label, format_report_title(statement), sent),
        warnings=list_report_warnings(statement),
        refusal=_explain_unsent(sent),
    )


def get_utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def _choose_channels(settings: Settings, people: Sequence[str], routes: Sequence[str]) -> dict[str, None]:
    mail = [read_person(text, "--email", mail=settings.mail) for text in people]
    others = [
        name
        for text in routes
        for name in read_recipient(text, "--notify", routes=settings.routes, mail=settings.mail, hint=NOTIFY_HINT)
    ]
    return dict.fromkeys((*mail, *others))


def _explain_unsent(sent: Sequence[ReportDelivery]) -> CostguardError | None:
    failed = [one for one in sent if not one.delivery.sent]
    if not failed:
        return None
    first = failed[0]
    hint = "fix the route and send it again" + (f" (to {len(failed)} of {len(sent)} it was not sent)" if len(sent) > 1 else "")
    return CostguardError(f"was not sent: {first.delivery.why}", field=first.to, hint=hint)


class ReportScheduleStore(Protocol):
    """Stores up to when each schedule was reported."""

    def load_marks(self) -> Mapping[str, ScheduleMark]:
        """Return the mark of each schedule, by its topic."""

    def record_schedules(self, schedules: Collection[ReportSchedule], now: datetime) -> None:
        """Record that exactly these schedules exist."""

    def queue_report(self, schedule: ReportSchedule, until: datetime, messages: Iterable[Notification]) -> bool:
        """Queue `messages`, the report of the period that ends at `until`; return False if that was done before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedReports:
    """Result of one check of the schedules. `seen`: new schedules. `put`: reports now in the outbox.

    `failed`: schedules that failed, with the exception.
    """

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
    """Queue every report due at `now`. `compose` builds its messages. Raises LedgerError if marks cannot be read."""
    marks = book.load_marks()
    new, dropped_schedules = find_schedule_changes(schedules, marks, now)
    if new or dropped_schedules:
        book.record_schedules(schedules, now)
        marks = book.load_marks()
    queued, failed = list[tuple[ReportSchedule, DueReport]](), list[tuple[ReportSchedule, Exception]]()
    for schedule in schedules:
        mark = marks.get(schedule.topic)
        for one in list_due_reports(schedule, mark.since, now, zone) if mark else ():
            try:
                if book.queue_report(schedule, one.of.period.end, compose(schedule, one)):
                    queued.append((schedule, one))
            except Exception as wrong:  # noqa: BLE001 - a format is a plug-in, which may raise anything
                failed.append((schedule, wrong))
                break
    return QueuedReports(seen=new, put=tuple(queued), failed=tuple(failed))
