"""Notices: what people are told, why now, and what they can do about it; and what became of telling them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.core.checks import one_of

INFO, WARNING, PAGE = "info", "warning", "page"
SEVERITIES = (INFO, WARNING, PAGE)
FIRST, NEW_IN_GROUP, ESCALATED, REPEAT_DUE, RESOLVED, SNOOZE_ENDED = (
    "first",
    "new_in_group",
    "escalated",
    "repeat_due",
    "resolved",
    "snooze_ended",
)
WHY_NOW = {
    FIRST: "it is new",
    NEW_IN_GROUP: "something joined it",
    ESCALATED: "it got worse",
    REPEAT_DUE: "it still holds",
    RESOLVED: "it is over",
    SNOOZE_ENDED: "its snooze has ended",
}
REPEATS = (timedelta(hours=4), timedelta(hours=24), timedelta(days=7))
"""After the first; the last one again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something to tell about one thing, derived anew in every run for as long as it holds.

    `topic`: what it is about, the same for as long as it holds ("policy:idle-gpu", "budget:vision", "rail:breaker"). `subject`:
    of what ("aws/1111/us-east-1/i-0abc", "budget vision"). `owner`: whose, "" where nobody is known. `what`: one sentence.
    `facts`: (label, text) lines: since when, why, so far, per hour, next. `keep`: the command that keeps it, "" for none.
    `stage`: rises when it gets worse (the number of the ladder's step).
    """

    topic: str
    subject: str
    owner: str
    severity: str
    what: str
    at: datetime
    facts: tuple[tuple[str, str], ...] = ()
    keep: str = ""
    stage: int = 0

    def __post_init__(self) -> None:
        one_of(self.severity, SEVERITIES, "notice.severity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Notices of one owner and topic, to be sent through one channel once. `id`: the same for every try."""

    id: str
    channel: str
    why_now: str
    severity: str
    title: str
    notices: tuple[Notice, ...]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """`sent`; else `why`, and whether another try may help."""

    sent: bool
    why: str = ""
    again: bool = True
