"""Notices: what people are told, why now, and what they can do about it; and what became of telling them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.values.checks import require, require_one_of

INFO, WARNING, PAGE = "info", "warning", "page"
SEVERITIES = (INFO, WARNING, PAGE)
FIRST, NEW_IN_GROUP, ESCALATED, REPEAT_DUE, RESOLVED, SNOOZE_ENDED, DUE, LATE, ASKED = (
    "first",
    "new_in_group",
    "escalated",
    "repeat_due",
    "resolved",
    "snooze_ended",
    "due",
    "late",
    "asked",
)
NOTIFY_REASONS = {
    FIRST: "it is new",
    NEW_IN_GROUP: "something joined it",
    ESCALATED: "it got worse",
    REPEAT_DUE: "it still holds",
    RESOLVED: "it is over",
    SNOOZE_ENDED: "its snooze has ended",
    DUE: "it is the time for it",
    LATE: "its time has passed without it",
    ASKED: "somebody asked for it",
}
REPEAT_INTERVALS = (timedelta(hours=4), timedelta(hours=24), timedelta(days=7))
"""After the first; the last one again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something to tell about one thing, derived anew in every run for as long as it holds.

    `topic`: what it is about, the same for as long as it holds ("policy:idle-gpu", "budget:vision", "rail:breaker"). `subject`:
    of what ("aws/1111/us-east-1/i-0abc", "budget vision"). `owner`: whose, "" where nobody is known. `what`: one sentence.
    `facts`: (label, text) lines: since when, why, so far, per hour, next. `keep`: the command that keeps it, "" for none.
    `stage`: rises when it gets worse (the number of the ladder's step). `to`: whom it is for, of AUDIENCES; () for everybody.
    `once`: it tells of an event: told once, and that it is over is no news. `ahead`: an act comes next, so that no limit on
    messages may hold it back.
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
    to: tuple[str, ...] = ()
    once: bool = False
    ahead: bool = False

    def __post_init__(self) -> None:
        require_one_of(self.severity, SEVERITIES, "notice.severity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that goes with a message where the channel can take one. `packed`: its bytes as text, see `notifiers.packed`."""

    name: str
    media: str
    packed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Notices of one owner and topic, or a letter, to be sent through one channel once. `id`: the same for every try.

    `told_at`: `at` as people are told it, in their zone; "" in UTC. `audit`: the head of the audit when it was written
    ("1234:9f86d081884c7d65"), "" where it was not written. `letter`: paragraphs of lines that stand where notices would.
    `days`: for how long it is worth another try.
    """

    id: str
    channel: str
    why_now: str
    severity: str
    title: str
    notices: tuple[Alert, ...]
    at: datetime
    told_at: str = ""
    audit: str = ""
    letter: tuple[tuple[str, ...], ...] = ()
    enclosures: tuple[Attachment, ...] = ()
    days: int = 1

    def __post_init__(self) -> None:
        require(self.days >= 1, "message.days", "must be at least 1", "state how long it is worth sending")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """`sent`; else `why`, and whether another try may help."""

    sent: bool
    why: str = ""
    again: bool = True


AUDIENCES = ("owner", "admin")
"""Whom a step of a ladder tells, by its `to`."""
GROUP_BY_FIELDS = ("owner", "policy", "topic", "subject")
"""What notices are put together by; `policy` and `topic` are the same thing, as a policy's name is its notices' topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRoute:
    """Where notices go. `name`: the same in every run. `channels`: names of channels, never their addresses, which are secret.

    `group_by`: of GROUPED_BY; () puts all of a run together. `repeat`: after the first message, the last one again and again;
    () never repeats. `owners`, `topics`: None for any, () for none; a topic may end in a star (`policy:idle-*`). `audience`:
    of AUDIENCES, None for all; what is for everybody, or for somebody whom no route serves, goes to every route.
    """

    name: str
    channels: tuple[str, ...]
    group_by: tuple[str, ...] = ("owner", "policy")
    repeat: tuple[timedelta, ...] = REPEAT_INTERVALS
    min_severity: str = INFO
    owners: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    audience: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        require_one_of(self.min_severity, SEVERITIES, "notify.route.min_severity")
        for one in self.audience or ():
            require_one_of(one, AUDIENCES, "notify.route.match.audience")
        for one in self.group_by:
            require_one_of(one, GROUP_BY_FIELDS, "notify.route.group_by")
        require(all(one > timedelta() for one in self.repeat), "notify.route.repeat", "must be more than zero", 'write "4h"')


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertState:
    """What one route was told of one notice; (`route`, `topic`, `subject`, `owner`) is its key.

    `first_at`: when it was first found. `last_told_at` None and `times` 0: not told yet (snoozed, or too many came at once).
    `stage`, `severity`, `what`: as they were told last. `resolved_at`: since when it holds no more; None while it holds.
    `over`: nothing more is to be said of it, and it is kept for a while, so that what comes and goes is counted.
    `snoozed`: it was found, and nobody was told because of a snooze. `recent`: when it was told in the last hour. `once`: of
    the notice.
    """

    topic: str
    subject: str
    owner: str
    first_at: datetime
    last_told_at: datetime | None = None
    times: int = 0
    stage: int = 0
    resolved_at: datetime | None = None
    route: str = ""
    severity: str = WARNING
    what: str = ""
    over: bool = False
    snoozed: bool = False
    recent: tuple[datetime, ...] = ()
    once: bool = False

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells it from every other."""
        return (self.route, self.topic, self.subject, self.owner)
