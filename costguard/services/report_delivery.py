"""Reports as messages: the letter that people read, and the report itself where a channel takes files."""

from __future__ import annotations

import hashlib
import json
import mimetypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from costguard.errors import InputError
from costguard.guard.alerts.alert import DUE, INFO, LATE, Attachment, Notification
from costguard.notifiers import pack_content
from costguard.providers import plugins
from costguard.reporting.schedule import DueReport, ReportSchedule
from costguard.reporting.statement import Statement
from costguard.reporting.statement.period import ReportPeriod
from costguard.services.ledger_answers import CHARTS_NEED, build_report
from costguard.services.telling import WEBHOOK, find_channel_kind
from costguard.settings import Settings
from costguard.settings.addresses import CONSOLE_CHANNEL
from costguard.values.checks import require
from costguard.values.encoding import quote_shell_word
from costguard.values.text_format import format_local_time
from costguard.views.document import Document
from costguard.views.report_delivery import build_report_paragraphs, format_report_title

JSON_MEDIA, BYTES_MEDIA = "application/json", "application/octet-stream"
ENCLOSURE_BYTES_MAX, JSON_BYTES_MAX = 8 * 2**20, 2**20
"""Bytes of what is enclosed: mail servers and chats take ten megabytes as a rule, web servers one."""
DELIVERY_DAYS = 7
"""For how long a report is worth another try: longer than a channel is down over a long weekend."""
FILE_SUFFIXES = {"markdown": "md", "table": "txt", "focus": "csv"}
"""Of formats whose files are not called as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLetter:
    """A report on its way. `again`: the command that prints it. `before`: a paragraph that stands first, () for none."""

    statement: Statement
    document: Document
    chosen: plugins.ReportFormat
    again: str
    before: tuple[str, ...] = ()

    def build_message(self, message_id: str, channel: str, why_now: str, now: datetime, zone: tzinfo) -> Notification:
        """The message for `channel`, with what it can take."""
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
    """The messages of a report that is due, one a channel."""
    zone, chosen = settings.defaults.zone, find_report_format(schedule.format)
    statement, document = build_report(settings, owed.of, by=schedule.by, zone=zone, now=now, drawn=chosen.needs == CHARTS_NEED)
    letter = ReportLetter(
        statement=statement,
        document=document,
        chosen=chosen,
        again=build_report_command({schedule.every: owed.of.label}, schedule.by, zone),
        before=tuple(_list_remarks(schedule, owed, now, zone)),
    )
    why = LATE if owed.is_late(now) else DUE
    return [
        letter.build_message(_make_message_id(schedule, owed.of, channel), channel, why, now, zone)
        for channel in schedule.channels
    ]


def build_report_command(stated: dict[str, str], by: Sequence[str], zone: tzinfo) -> str:
    """The command line that prints the report of the period that was `stated`."""
    words = [word for name, text in stated.items() for word in (f"--{name}", quote_shell_word(text))]
    return " ".join(
        ("costguard report", *words, "--by", ",".join(map(quote_shell_word, by)), "--zone", quote_shell_word(str(zone)))
    )


def find_report_format(name: str) -> plugins.ReportFormat:
    """The installed format `name`."""
    return plugins.load_report_format(name)


def check_report_formats(settings: Settings) -> None:
    """InputError where a report is to be sent in a format that is not installed."""
    for schedule in settings.reports:
        try:
            find_report_format(schedule.format)
        except InputError as wrong:
            raise InputError(wrong.what, field=f"report {schedule.name}.format", hint=wrong.hint) from None


def _list_remarks(schedule: ReportSchedule, owed: DueReport, now: datetime, zone: tzinfo) -> list[str]:
    """What people should know of its way."""
    late = f"It was due at {format_local_time(owed.at, zone)} and is late: no watchdog that could send it ran then."
    many = owed.skipped
    were = f"1 earlier report of a {schedule.every} was" if many == 1 else f"{many} earlier reports of a {schedule.every} were"
    skipped = f"{were} due too and will not be sent: costguard report --{schedule.every} prints any."
    return [*([late] if owed.is_late(now) else []), *([skipped] if many else [])]


def _build_enclosures(letter: ReportLetter, kind: str) -> tuple[tuple[Attachment, ...], tuple[str, ...]]:
    """What goes with a message to a channel of `kind`, and what is said of what is too large for it."""
    if kind == CONSOLE_CHANNEL:
        return (), ()
    if kind == WEBHOOK:
        content, name, media, most = json.dumps(letter.document.data).encode(), "report.json", JSON_MEDIA, JSON_BYTES_MAX
    else:
        content, most = _render_enclosure(letter), ENCLOSURE_BYTES_MAX
        name = f"costguard-{_make_plain(letter.statement.label)}.{_choose_file_suffix(letter.chosen.name)}"
        media = mimetypes.guess_type(name)[0] or BYTES_MEDIA
    if len(content) > most:
        return (), (f"The report itself is too large to be enclosed: {len(content) / 2**20:.1f} MiB. {letter.again} -o FILE",)
    return (Attachment(name=name, media=media, packed=pack_content(content)),), ()


def _render_enclosure(letter: ReportLetter) -> bytes:
    needs = letter.chosen.needs
    there = not needs or getattr(letter.document, needs, None) is not None
    require(there, "format", f"{letter.chosen.name} is not made of reports", 'write "html"')
    rendered = letter.chosen.render(letter.document)
    pieces = [rendered] if isinstance(rendered, str) else rendered
    return b"".join(piece.encode() if isinstance(piece, str) else piece for piece in pieces)


def _choose_file_suffix(name: str) -> str:
    return FILE_SUFFIXES.get(name, name.rpartition("-")[2])


def _make_plain(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", label).strip("-")


def _make_message_id(schedule: ReportSchedule, of: ReportPeriod, channel: str) -> str:
    """An id that every process gives the same message."""
    parts = ("report", schedule.name, schedule.every, of.label, channel)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
