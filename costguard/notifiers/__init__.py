"""Notification channels, one module each: a function `notify` sends one message once and returns the result.

Retries, grouping and repeats are implemented elsewhere. Channels raise no errors, and never show an address, because most
addresses hold a secret.

The text of a notification: per alert what happens and when, what it costs, its owner, how to keep the machine, and the
evidence; then why the notification is sent. A stop that is due has four lines, its title included:

    costguard: train-3 (8x A100 80GB SXM) stops at 19:05 UTC, in 15 min
    cost: $32.7700 an hour, $24.58 so far; owner: ann
    to keep it: costguard keep aws/1111/us-east-1/i-0abc --for 4h
    why: idle since 18:05 UTC (45 min): GPU duty 0 % (confidence 0.90) [Sent now because it is new, at 2026-11-20 18:50 UTC.]

"in 15 min" is written only where the text is read when it is sent: in a chat or a terminal, not in a mail or a log.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote_plus

from costguard.errors import shorten, to_one_line
from costguard.guard.alerts.alert import (
    COST_PHRASES,
    NOTIFY_REASONS,
    PAGE,
    PRICE_NOT_KNOWN,
    RESOLVED,
    Alert,
    Attachment,
    DeliveryResult,
    Notification,
)
from costguard.guard.alerts.dispatch import RESOLVED_MARK
from costguard.guard.alerts.part_delivery import PartDelivery
from costguard.system.clock import Clock
from costguard.values.resource import parse_resource_key
from costguard.values.text_format import TITLE_CHARS_MAX, encode_plain, format_local_time, format_time_left

WITHIN_S = 10.0
ANSWER_CHARS_MAX = 200
"""Characters of an answer that are shown."""
SECRET_WORD = re.compile(r"[^\s/?&=:@#;,]{6,}")
"""A part of an address that may be a secret: it is never shown."""
SEVERITY_MARKS = {PAGE: "PAGE: ", "warning": "", "info": ""}

AUDIT_MARK = " audit "

TextEncoder = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A destination of messages.

    - `name`: its name in messages to people. `address` and `secret` are never shown.
    - `secret`: key for signatures; "": none. `within_s`: maximum seconds of one try.
    - `allow_private`: the address may be in a private network.
    - `ca_file`: certificate authorities to trust instead of the system's.
    - `proxy`: http(s) URL of the proxy for chats; a webhook connects directly to the checked address.
    - `person`: recipient of a mail; "": the recipients in the server's address.
    """

    name: str
    clock: Clock
    address: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    within_s: float = WITHIN_S
    allow_private: bool = False
    ca_file: Path | None = None
    proxy: str | None = field(default=None, repr=False)
    person: str = ""


class ChannelPlugin(Protocol):
    """The function that an entry point of `costguard.notifiers` names."""

    def __call__(self, message: Notification, channel: Channel) -> DeliveryResult:
        """Send `message` once; raise nothing."""


PartReporter = Callable[[PartDelivery], bool]
"""Called after each part of a message; returns whether the next part may be sent now."""
_reporter: ContextVar[PartReporter] = ContextVar("costguard_part_reporter", default=lambda _: True)


@contextmanager
def report_parts(reporter: PartReporter) -> Iterator[None]:
    """Call `reporter` after each part that a channel sends within the block: what it records is not sent again."""
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)


def report_part(part: PartDelivery) -> bool:
    """Report `part` to the caller of the channel; return whether the next part may be sent now."""
    return _reporter.get()(part)


def format_answer(status: int, text: str, address: str) -> str:
    """Return an answer on one line, "403 invalid_token", without the parts of `address` that may be secrets."""
    for secret in sorted(set(SECRET_WORD.findall(unquote_plus(address.partition("://")[2]))), key=len, reverse=True):
        text = text.replace(secret, "***")
    return f"{status} {shorten(encode_plain(to_one_line(text)), ANSWER_CHARS_MAX)}".strip()


def pack_content(content: bytes) -> str:
    """Return `content` compressed and encoded as text, as an attachment stores it."""
    return b64encode(zlib.compress(content, level=9)).decode()


def unpack_enclosure(enclosure: Attachment) -> bytes:
    """Return the content that `pack_content` packed."""
    return zlib.decompress(b64decode(enclosure.packed))


def format_title(message: Notification, encode: TextEncoder = encode_plain, now: datetime | None = None) -> str:
    """Return the title, one line: `costguard: PAGE: STOP NOT CONFIRMED ...`.

    `now`: when it is sent, where it is read at once: the time until an act is added. None: it is read later.
    """
    is_marked = message.title.startswith(RESOLVED_MARK)
    mark = RESOLVED_MARK if message.why_now == RESOLVED and not is_marked else SEVERITY_MARKS[message.severity]
    what = message.notices[0].what if message.notices else message.title
    text = encode(message.title.replace(what, format_what(message.notices[0], now), 1) if message.notices else what)
    head = f"costguard: {mark}"
    return head + (text if len(head) + len(text) <= TITLE_CHARS_MAX else f"{text[: TITLE_CHARS_MAX - len(head) - 1]}…")


def format_body(message: Notification, encode: TextEncoder = encode_plain, now: datetime | None = None) -> str:
    """Return the text below the title. `now`: see `format_title`.

    Lines are encoded one by one, so that a name cannot inject a line. An alert that is the title is not repeated, unless the
    title is cut.
    """
    end, notices = format_end(message, encode), message.notices
    if message.letter:
        paragraphs = ["\n".join(encode(line) for line in paragraph) for paragraph in message.letter]
        reason, _, audit = end.partition(AUDIT_MARK)
        return "\n\n".join(filter(None, (reason, *paragraphs, audit and f"{AUDIT_MARK.lstrip()}{audit}")))
    parts = [format_alert_lines(notice, encode, now) for notice in notices]
    if len(parts) == 1:
        is_titled = message.title == notices[0].what and not format_title(message, encode, now).endswith("…")
        *lines, last = ["", *parts[0][1:]] if is_titled else parts[0]
        parts = [[*filter(None, lines), f"{last} [{end}]".strip()]]
    else:
        parts += [[f"[{end}]"]]
    return "\n\n".join("\n".join(lines) for lines in parts)


def format_end(message: Notification, encode: TextEncoder) -> str:
    """Return why `message` is sent now, with the head of the audit log."""
    reason = f"Sent now because {NOTIFY_REASONS[message.why_now]}, at {message.told_at or format_local_time(message.at)}."
    return f"{reason}{AUDIT_MARK}{encode(message.audit)}" if message.audit else reason


def format_what(notice: Alert, now: datetime | None) -> str:
    """Return what happens, with the time until then. `now`: see `format_title`."""
    left = format_time_left(notice.due, now) if now is not None and notice.due is not None else ""
    return f"{notice.what}, {left}" if left else notice.what


def format_alert_lines(notice: Alert, encode: TextEncoder, now: datetime | None) -> list[str]:
    """Return what happens and when; costs and owner; how to keep the machine; and the evidence."""
    is_machine = bool(notice.keep) or parse_resource_key(notice.subject) is not None
    owner = notice.owner or ", ".join(filter(None, notice.owners)) or ("unknown" if is_machine else "")
    about = [f"cost: {_format_costs(notice)}" if _format_costs(notice) else "", f"owner: {owner}" if owner else ""]
    about += [f"machine: {notice.subject}" if is_machine and not notice.keep else ""]
    lines = [encode(format_what(notice, now)), *([encode("; ".join(filter(None, about)))] if any(about) else [])]
    pages = [f"{label}: {url}" for label, url in notice.links]  # ours: a channel's encoding would break them
    if notice.keep:
        lines.append("; ".join([f"to keep it: {encode(notice.keep)}", *pages[:1]]))
        pages = pages[1:]
    facts = [fact for fact in notice.facts if fact[0] not in COST_PHRASES]
    facts.sort(key=lambda fact: not fact[0].startswith("to "))  # what to do comes first: "to approve it"
    return [*lines, *pages, *(encode(f"{label}: {text}") for label, text in facts)]


def _format_costs(notice: Alert) -> str:
    """Return the costs among the facts as one phrase: `$32.7700 an hour, $24.58 so far`."""
    costs = {label: text for label, text in notice.facts if label in COST_PHRASES}
    phrases = [
        phrase.format(costs[one]) for one, phrase in COST_PHRASES.items() if costs.get(one, PRICE_NOT_KNOWN) != PRICE_NOT_KNOWN
    ]
    return ", ".join(phrases) or ("price unknown" if costs else "")
