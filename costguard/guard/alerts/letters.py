"""A message as text: why it comes, then of each notice what, whose, since when, why, how much, what next, how to keep it."""

from __future__ import annotations

from collections.abc import Callable

from costguard.guard.alerts.alert import PAGE, RESOLVED, WHY_NOW, Message, Notice
from costguard.values.encoding import LONGEST_TITLE, plain
from costguard.values.text_format import format_local_time

MOST_NOTICES = 20
"""Notices of one message that are written out; the rest is counted."""
MARKS = {PAGE: "PAGE: ", "warning": "", "info": ""}

Encode = Callable[[str], str]


def title_of(message: Message, encode: Encode = plain) -> str:
    """One line: `costguard: PAGE: STOP NOT CONFIRMED ...`."""
    mark = "over: " if message.why_now == RESOLVED and not message.title.startswith("over: ") else MARKS[message.severity]
    text = encode(message.title)
    head = f"costguard: {mark}"
    return head + (text if len(head) + len(text) <= LONGEST_TITLE else f"{text[: LONGEST_TITLE - len(head) - 1]}…")


def body_of(message: Message, encode: Encode = plain) -> str:
    """The text below the title. Each line of it went through `encode` by itself, so that no name can make a line of its own."""
    parts = [f"Told now because {WHY_NOW[message.why_now]}, at {message.told_at or format_local_time(message.at)}."]
    parts += ["\n".join(encode(line) for line in paragraph) for paragraph in message.letter]
    parts += ["\n".join(_lines(notice, encode)) for notice in message.notices[:MOST_NOTICES]]
    more = len(message.notices) - MOST_NOTICES
    if more > 0:
        parts.append(f"and {more} more: costguard status")
    if message.audit:
        parts.append(f"audit {encode(message.audit)}")
    return "\n\n".join(parts)


def _lines(notice: Notice, encode: Encode) -> list[str]:
    whose = encode(notice.owner) if notice.owner else "nobody is known"
    lines = [encode(notice.what), f"  of what: {encode(notice.subject)}", f"  whose: {whose}"]
    lines += [f"  {encode(label)}: {encode(text)}" for label, text in notice.facts]
    return lines if not notice.keep else [*lines, f"  to keep it: {encode(notice.keep)}"]
