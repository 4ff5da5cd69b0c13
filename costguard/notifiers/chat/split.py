"""Split a message for a service with a limit: the machines first, a line each, and no line, link or name cut.

A message that fits is sent as it is. A longer one becomes several, each with a title that counts its alerts, a line for each of
them, and their whole text as far as there is room. Three stops in two parts:

    costguard: 2 alerts
    train-3 (8x A100 80GB SXM) stops at 19:05 UTC, in 15 min; to keep it: costguard keep aws/1111/us-east-1/i-0abc --for 4h
    train-4 (8x A100 80GB SXM) stops at 19:05 UTC, in 15 min; to keep it: costguard keep aws/1111/us-east-1/i-0abd --for 4h

    costguard: 1 alert
    train-5 (8x A100 80GB SXM) stops at 19:05 UTC, in 15 min; to keep it: costguard keep aws/1111/us-east-1/i-0abe --for 4h

Where even one line is too long (160 characters of an SMS), it is what happens, and then "stop of train-3, in 15 min".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from costguard.guard.alerts.alert import Alert, Notification
from costguard.guard.alerts.dispatch import build_title
from costguard.guard.alerts.part_delivery import list_numbers
from costguard.notifiers import (
    SEVERITY_MARKS,
    TextEncoder,
    format_alert_lines,
    format_body,
    format_end,
    format_title,
    format_what,
)

Fits = Callable[[str, str], bool]
"""Whether a service takes a title and a body whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePart:
    """A message that fits, with the `numbers` of its alerts or of its letter's lines. `body` "": they fit in no message.

    `lines`: what tells each of the numbers, as it stands in the body.
    """

    numbers: tuple[int, ...]
    lines: tuple[str, ...] = ()
    title: str = ""
    body: str = ""


def split_message(
    message: Notification, numbers: Sequence[int], fits: Fits, encode: TextEncoder, now: datetime | None = None
) -> Iterator[MessagePart]:
    """Yield the parts that hold `numbers` of `message`. `now`: see `format_title`."""
    rest, too_long = tuple(numbers), list[int]()
    while rest:
        part = _build_whole(message, rest, fits, encode, now) or _build_longest(message, rest, fits, encode, now)
        if part is None:
            too_long.append(rest[0])
        else:
            yield part
        rest = rest[len(part.numbers) if part else 1 :]
    if too_long:
        yield MessagePart(numbers=tuple(too_long))


def _build_whole(
    message: Notification, numbers: tuple[int, ...], fits: Fits, encode: TextEncoder, now: datetime | None
) -> MessagePart | None:
    """Return all of `numbers` as one message with its usual text; None if that is too long."""
    if len(numbers) < len(list_numbers(message)):
        if message.letter:
            return None
        notices = tuple(message.notices[number] for number in numbers)
        message = replace(message, notices=notices, title=build_title(notices))
    title, body = format_title(message, encode, now), format_body(message, encode, now)
    lines = tuple("\n".join(format_alert_lines(one, encode, now)) for one in message.notices) or (body,)
    return MessagePart(numbers=numbers, lines=lines, title=title, body=body) if fits(title, body) else None


def _build_longest(
    message: Notification, numbers: tuple[int, ...], fits: Fits, encode: TextEncoder, now: datetime | None
) -> MessagePart | None:
    """Return the longest part that begins with the first of `numbers`; None if its line fits nowhere."""
    choices: list[tuple[str, ...]]
    if message.letter:
        letter = [f"\n{line}" if not row else line for rows in message.letter for row, line in enumerate(map(encode, rows))]
        choices, blocks = [(letter[number],) for number in numbers], list[str]()
    else:
        notices = [message.notices[number] for number in numbers]
        choices = [_list_lines(notice, encode, now) for notice in notices]
        blocks = [f"[{format_end(message, encode)}]", *("\n".join(format_alert_lines(one, encode, now)) for one in notices)]

    def format_count(count: int) -> str:
        counted = f"costguard: {SEVERITY_MARKS[message.severity]}{count} alert{'s' if count > 1 else ''}"
        return format_title(message, encode, now) if message.letter else counted

    makers: tuple[Callable[[int], str], ...] = (format_count, lambda _: "costguard", lambda _: "")
    filled = (_fill_part(make_title, choices, blocks, fits) for make_title in makers)
    lines, title, body = next(filter(None, filled), ((), "", ""))
    return MessagePart(numbers=numbers[: len(lines)], lines=lines, title=title, body=body) if lines else None


def _fill_part(
    make_title: Callable[[int], str], choices: Sequence[tuple[str, ...]], blocks: Sequence[str], fits: Fits
) -> tuple[tuple[str, ...], str, str] | None:
    """Return the lines that fit, the longest choice of each that fits by itself, and the text with the first of `blocks`."""
    lines = [next((line for line in every if fits(make_title(1), line)), every[-1]) for every in choices]
    count = _count_most(len(lines), lambda count: fits(make_title(count), "\n".join(lines[:count])))
    if not count:
        return None
    title, body = make_title(count), "\n".join(lines[:count]).strip("\n")
    for block in blocks[: count + 1]:
        if not fits(title, f"{body}\n\n{block}"):
            break
        body = f"{body}\n\n{block}"
    return tuple(lines[:count]), title, body


def _list_lines(notice: Alert, encode: TextEncoder, now: datetime | None) -> tuple[str, ...]:
    """Return the line of an alert with all that an answer needs, and shorter ones for where that is too long."""
    what, links = encode(format_what(notice, now)), [f"{label}: {url}" for label, url in notice.links]
    keep = [f"to keep it: {encode(notice.keep)}"] if notice.keep else []
    short = encode(format_what(replace(notice, what=notice.condition_name), now))
    return "; ".join((what, *keep, *links)), "; ".join((what, *links[-1:])), what, short


def _count_most(most: int, is_fit: Callable[[int], bool]) -> int:
    """Return the largest count up to `most` that fits, where a count fits if a larger one does."""
    low = 0
    while low < most:
        middle = (low + most + 1) // 2
        low, most = (middle, most) if is_fit(middle) else (low, middle - 1)
    return low
