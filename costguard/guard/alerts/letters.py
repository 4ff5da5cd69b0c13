"""A message as text: why it comes, then of each notice what, whose, since when, why, how much, what next, how to keep it."""

from __future__ import annotations

from collections.abc import Callable

from costguard.guard.alerts.alert import NOTIFY_REASONS, PAGE, RESOLVED, Alert, Notification
from costguard.values.encoding import TITLE_CHARS_MAX, encode_plain
from costguard.values.text_format import format_local_time

ALERTS_SHOWN = 20
"""Notices of one message that are written out; the rest is counted."""
SEVERITY_MARKS = {PAGE: "PAGE: ", "warning": "", "info": ""}

TextEncoder = Callable[[str], str]


def format_title(message: Notification, encode: TextEncoder = encode_plain) -> str:
    """One line: `costguard: PAGE: STOP NOT CONFIRMED ...`."""
    mark = (
        "over: " if message.why_now == RESOLVED and not message.title.startswith("over: ") else SEVERITY_MARKS[message.severity]
    )
    text = encode(message.title)
    head = f"costguard: {mark}"
    return head + (text if len(head) + len(text) <= TITLE_CHARS_MAX else f"{text[: TITLE_CHARS_MAX - len(head) - 1]}…")


def format_body(message: Notification, encode: TextEncoder = encode_plain) -> str:
    """The text below the title. Each line of it went through `encode` by itself, so that no name can make a line of its own."""
    parts = [f"Told now because {NOTIFY_REASONS[message.why_now]}, at {message.told_at or format_local_time(message.at)}."]
    parts += ["\n".join(encode(line) for line in paragraph) for paragraph in message.letter]
    parts += ["\n".join(_format_alert_lines(notice, encode)) for notice in message.notices[:ALERTS_SHOWN]]
    more = len(message.notices) - ALERTS_SHOWN
    if more > 0:
        parts.append(f"and {more} more: costguard status")
    if message.audit:
        parts.append(f"audit {encode(message.audit)}")
    return "\n\n".join(parts)


def _format_alert_lines(notice: Alert, encode: TextEncoder) -> list[str]:
    whose = encode(notice.owner) if notice.owner else "nobody is known"
    lines = [encode(notice.what), f"  of what: {encode(notice.subject)}", f"  whose: {whose}"]
    lines += [f"  {encode(label)}: {encode(text)}" for label, text in notice.facts]
    return lines if not notice.keep else [*lines, f"  to keep it: {encode(notice.keep)}"]
