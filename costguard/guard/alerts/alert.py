"""Alerts, notifications and deliveries as values; alerts about one machine (idle, hung, wasted, stopped, unknown).

Example: an 8xA100 at $32.77 an hour, idle from 18:05 to 18:50 (45 min): "so far: $24.58", "per hour: $32.7700". Sums have two
decimals and rates four (DESIGN 5.1). An unknown value is shown as unknown, never as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction

from costguard.guard.policy import TERMINATE
from costguard.guard.signals import Activity
from costguard.values.checks import require, require_one_of
from costguard.values.money import Money, Rate, divide_half_even
from costguard.values.resource import ResourceKey
from costguard.values.text_format import RATE_PLACES, format_command, format_length, format_local_time, get_currency_sign

INFO, WARNING, PAGE = "info", "warning", "page"
SEVERITIES = (INFO, WARNING, PAGE)
FIRST, NEW_IN_GROUP, ESCALATED, WITHDRAWN, REPEAT_DUE, RESOLVED, SNOOZE_ENDED, DUE, LATE, ASKED = (
    "first",
    "new_in_group",
    "escalated",
    "withdrawn",
    "repeat_due",
    "resolved",
    "snooze_ended",
    "due",
    "late",
    "asked",
)
NOTIFY_REASONS = {
    FIRST: "it is new",
    NEW_IN_GROUP: "another item was added",
    ESCALATED: "it got worse",
    WITHDRAWN: "an announced act will not happen when it was announced",
    REPEAT_DUE: "it still applies",
    RESOLVED: "it is resolved",
    SNOOZE_ENDED: "the snooze has ended",
    DUE: "it is due",
    LATE: "it is overdue",
    ASKED: "it was requested",
}
REPEAT_INTERVALS = (timedelta(hours=4), timedelta(hours=24), timedelta(days=7))  # the last one again and again


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A condition to notify about, derived anew in every run for as long as it holds.

    `topic`: its kind, constant while it holds ("policy:idle-gpu", "budget:vision", "rail:breaker"). `subject`: the affected
    thing ("aws/1111/us-east-1/i-0abc", "budget vision"). `owner`: its owner, "" if unknown. `what`: one sentence. `facts`:
    (label, text) lines: since when, why, so far, per hour, next. `keep`: the command that keeps the machine, "" for none.
    `stage`: rises when it gets worse (the number of the policy's step). `to`: the recipients, of AUDIENCES; () for everybody.
    `once`: it is an event, notified once and without a message that it is over. `ahead`: an act comes next, so limits on
    messages do not hold it back. `episode`: the escalation that it belongs to; a new one is notified anew, since its grace
    period counts from that delivery. `due`: when the act is expected; None: no act is announced. `withdraws`: an act that may
    have been announced has a lasting hold. `ask`: the act that it asks about, stop or terminate; "" for no question.
    `links`: (label, URL), added when it is sent. `owners`: whose routes carry it as well. `undelivered`: no channel confirmed
    the announcement yet, so `due` is the earliest time.
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
    episode: str = ""
    due: datetime | None = None
    withdraws: bool = False
    ask: str = ""
    links: tuple[tuple[str, str], ...] = ()
    owners: tuple[str, ...] = ()
    undelivered: bool = False

    def __post_init__(self) -> None:
        require_one_of(self.severity, SEVERITIES, "notice.severity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file sent with a notification if the channel accepts files. `packed`: its bytes as text, see `notifiers.packed`."""

    name: str
    media: str
    packed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Alerts of one owner and topic, or a letter, to be sent once through one channel.

    `id`: the same for every attempt. `told_at`: `at` formatted in the recipients' zone; "" in UTC. `audit`: the head of the
    audit log when it was written ("1234:9f86d081884c7d65"), "" if it was not written. `letter`: paragraphs of lines in place of
    alerts. `days`: for how long it is worth a retry.
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
        require(self.days >= 1, "message.days", "must be at least 1", "state how long it stays relevant")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeDelivery:
    """An alert of `notice_at` whose delivery `channel` confirmed. `owner`: whose machine it was; None: not recorded."""

    channel: str
    notice_at: datetime
    delivered_at: datetime
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """The result of one attempt: `sent`, or `why` not and whether a retry may help (`again`)."""

    sent: bool
    why: str = ""
    again: bool = True


AUDIENCES = ("owner", "admin")
"""Whom a step of a ladder tells, by its `to`."""
GROUP_BY_FIELDS = ("owner", "policy", "topic", "subject")
"""What notices are put together by; `policy` and `topic` are the same thing, as a policy's name is its notices' topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRoute:
    """Where alerts are sent. `name`: the same in every run. `channels`: names of channels, not their secret addresses.

    `group_by`: of GROUP_BY_FIELDS; () groups all alerts of a run. `repeat`: intervals after the first message, of which the
    last recurs; () never repeats. `owners`, `topics`: None for any, () for none; a topic may end in a star (`policy:idle-*`).
    `audience`: of AUDIENCES, None for all. An alert for everybody, or for a recipient that no route serves, goes to every
    route.
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


def is_admin_route(route: AlertRoute) -> bool:
    """Return whether `route` takes warnings that no other route takes: it is limited to no owner and no topic."""
    served = route.audience is None or "admin" in route.audience
    return route.owners is None and route.topics is None and served and route.min_severity != PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertState:
    """What one route has sent about one alert; (`route`, `topic`, `subject`, `owner`) is its key.

    `first_at`: when it was first found. `last_told_at` None and `times` 0: not sent yet (snoozed, or over the hourly limit).
    `stage`, `severity`, `what`: as last sent. `resolved_at`: since when it no longer holds; None while it holds. `over`:
    nothing more is sent; the state is kept for a while, so that a flapping alert is counted. `snoozed`: it was found but not
    sent because of a snooze. `recent`: when it was sent in the last hour. `once`, `episode`: of the alert. `due`: the announced
    time of the act; None: none was announced.
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
    episode: str = ""
    due: datetime | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return the unique key."""
        return (self.route, self.topic, self.subject, self.owner)


WAITING_UNIT = timedelta(minutes=30)  # what waiting costs is told by the half hour: $23.92 an hour is $11.96
KEEP_FOR = "4h"
PRICE_NOT_KNOWN = "unknown: its price is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSubject:
    """The resource that an alert is about. `told`: its shape ("8xA100-80GB p4d.24xlarge"). `rate` None: unknown.

    `topic`: of the alert, "policy:idle-gpu". `name`: given by its owner, any text. `because`: the reasons if they are not its
    activity. `zone`: for the times in the text. `to`: the recipients, see Alert.
    """

    topic: str
    key: ResourceKey
    owner: str
    name: str = ""
    told: str = ""
    rate: Rate | None = None
    because: tuple[str, ...] = ()
    zone: tzinfo = UTC
    to: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """Return its full key as text."""
        return "/".join(self.key)

    def format_moment(self, at: datetime) -> str:
        """Format an instant in the recipients' zone."""
        return format_local_time(at, self.zone)

    @property
    def called(self) -> str:
        """Return its name and shape: `train-3 (8xA100-80GB)`."""
        return f"{self.name or self.key.id}{f' ({self.told})' if self.told else ''}"


def format_alert_sum(money: Money | None) -> str:
    """Format a sum with two decimals: `$33.86`."""
    return PRICE_NOT_KNOWN if money is None else f"{get_currency_sign(money.currency)}{money.format()}"


def format_alert_rate(rate: Rate | None) -> str:
    """Format an hourly rate with four decimals: `$32.7700`."""
    return PRICE_NOT_KNOWN if rate is None else f"{get_currency_sign(rate.currency)}{rate.format(RATE_PLACES)}"


def compute_rate_cost(rate: Rate | None, length: timedelta) -> Money | None:
    """Return the cost of `length` at `rate`, in whole seconds; None: unknown rate."""
    return None if rate is None else rate.multiply_seconds(int(length.total_seconds()))


def compute_wasted_cost(rate: Rate | None, share: Fraction, length: timedelta) -> Money | None:
    """Return the cost of the idle GPUs in `length`: 7/8 of $32.77 an hour over 6 h is $172.04. None: unknown rate."""
    if rate is None:
        return None
    nano = divide_half_even(rate.nano_per_hour * int(length.total_seconds()) * share.numerator, 3600 * share.denominator)
    return Money(nano=nano, currency=rate.currency)


def build_idle_alert(
    matter: AlertSubject,
    work: Activity,
    *,
    at: datetime,
    since: datetime,
    so_far: Money | None,
    then: str = "",
    then_at: datetime | None = None,
) -> Alert:
    """Build the alert of an idle machine. `then`: the next act ("stop"), at `then_at`; "" for only this notification."""
    facts = (*_list_activity_facts(matter, work, at, since, so_far), ("next", format_next_step(then, then_at, matter.zone)))
    return build_alert(matter, WARNING, f"{matter.called} is idle since {matter.format_moment(since)}", at, facts)


def build_planned_alert(
    matter: AlertSubject,
    work: Activity,
    *,
    act: str,
    due: datetime,
    at: datetime,
    since: datetime,
    so_far: Money | None,
    stage: int = 1,
    loses: Sequence[str] = (),
    limit: str = "",
    wait: timedelta = timedelta(),
) -> Alert:
    """Build the alert of an act due at `due`. `limit`: the limit of [rails] that delays it by `wait`; "" for none."""
    coming = format_next_step(act, due, matter.zone)
    if limit:
        cost = format_alert_sum(compute_rate_cost(matter.rate, wait))
        command = format_command("approve", matter.key, act)
        coming = f"held by the limit of {limit} until {matter.format_moment(due)}; costs {cost} meanwhile; now: {command}"
    facts = (*_list_activity_facts(matter, work, at, since, so_far), ("next", coming), ("would be lost", _format_losses(loses)))
    what = f"{_ACT_NAMES[act]} of {matter.called} is due at {matter.format_moment(due)}"
    return replace(build_alert(matter, WARNING, what, at, facts, stage=stage), ahead=True, due=due)


def build_done_alert(
    matter: AlertSubject,
    *,
    act: str,
    at: datetime,
    asked_at: datetime,
    idle_cost: Money | None,
    saves: Rate | None,
    afterwards: str,
    stage: int = 2,
) -> Alert:
    """Build the alert of an act that the provider's listing confirmed. `idle_cost`: the cost while idle.

    `saves`: its hourly compute cost until then; `afterwards`: the hourly cost that remains, in words.
    """
    facts = (
        ("asked for", matter.format_moment(asked_at)),
        ("confirmed", f"{matter.format_moment(at)}, by its provider's listing"),
        ("cost while idle", "not known to be idle" if idle_cost is None and saves else format_alert_sum(idle_cost)),
        ("saved per hour", format_alert_rate(saves)),
        ("still per hour", afterwards),
    )
    return build_alert(matter, INFO, f"{matter.called} is {_ACT_RESULTS[act]}", at, facts, keep=False, stage=stage)


def build_unconfirmed_alert(
    matter: AlertSubject, *, act: str, at: datetime, asked_at: datetime, sends: int, so_far: Money | None
) -> Alert:
    """Build the page of an act not proven ten minutes after its request: the machine may still run and bill."""
    still = "at an unknown price" if matter.rate is None else f"still {format_alert_rate(matter.rate)}/h"
    facts = (
        ("since", matter.format_moment(asked_at)),
        ("why", f"asked {sends} {'time' if sends == 1 else 'times'}, but its provider does not show it as {_ACT_RESULTS[act]}"),
        ("so far", f"{format_alert_sum(so_far)} since the request"),
        ("per hour", format_alert_rate(matter.rate)),
        ("next", f"it is checked in every run; {_ACT_NAMES[act].lower()} it in its provider's console"),
    )
    what = f"{_ACT_NAMES[act].upper()} NOT CONFIRMED: {matter.called}, {still}"
    return build_alert(matter, PAGE, what, at, facts, keep=False, stage=9)


def build_question_alert(
    matter: AlertSubject,
    work: Activity,
    *,
    act: str,
    at: datetime,
    since: datetime,
    so_far: Money | None,
    loses: Sequence[str],
    because: str,
    yes: str = "",
    stage: int = 1,
) -> Alert:
    """Build the question whether to do an act that needs an approval.

    `because`: why it is asked ("its provider has no stop"). `yes`: the command that approves it.
    """
    waiting = format_alert_sum(compute_rate_cost(matter.rate, WAITING_UNIT))
    facts = (
        *_list_activity_facts(matter, work, at, since, so_far),
        ("waiting costs", waiting if matter.rate is None else f"{waiting} per {format_length(WAITING_UNIT)}"),
        ("would be lost", _format_losses(loses)),
        ("asked because", because),
        ("next", "nothing: without an answer it stays as it is"),
        *((("to say yes", yes),) if yes else ()),
    )
    return replace(build_alert(matter, WARNING, f"{_ACT_NAMES[act]} {matter.called}?", at, facts, stage=stage), ask=act)


def build_hang_alert(matter: AlertSubject, work: Activity, *, at: datetime, since: datetime, so_far: Money | None) -> Alert:
    """Build the page of a machine that is busy without progress. No act follows automatically."""
    facts = (*_list_activity_facts(matter, work, at, since, so_far), ("next", "nothing automatic: check the job"))
    return build_alert(
        matter, PAGE, f"{matter.called} hangs: busy without progress since {matter.format_moment(since)}", at, facts
    )


def build_waste_alert(
    matter: AlertSubject, work: Activity, *, idle_gpus: int, gpus: int, at: datetime, since: datetime
) -> Alert:
    """Build the alert of a machine that uses only part of its GPUs: "7 of 8 GPUs idle: $172.04"."""
    wasted = compute_wasted_cost(matter.rate, Fraction(idle_gpus, gpus), at - since)
    facts = (
        *_list_activity_facts(matter, work, at, since, None)[:2],
        ("so far", format_alert_sum(wasted)),
        ("per hour", format_alert_rate(matter.rate)),
        ("next", "nothing: a busy machine is not stopped"),
    )
    return build_alert(
        matter, WARNING, f"{idle_gpus} of {gpus} GPUs of {matter.called} do nothing: {format_alert_sum(wasted)}", at, facts
    )


def build_blind_alert(
    matter: AlertSubject, *, at: datetime, since: datetime | None, why: Sequence[str], so_far: Money | None
) -> Alert:
    """Build the alert of a machine of unknown activity, on which no act is done."""
    facts = (
        ("since", "it was first seen" if since is None else matter.format_moment(since)),
        ("why", "; ".join(why) or "its activity is not measured"),
        ("so far", f"{format_alert_sum(so_far)} since then" if so_far and matter.rate else PRICE_NOT_KNOWN),
        ("per hour", format_alert_rate(matter.rate)),
        ("next", "no acts while this lasts: costguard doctor shows what is missing"),
    )
    return build_alert(matter, WARNING, f"activity of {matter.called} is unknown", at, facts)


def build_churn_alert(matter: AlertSubject, *, controller: str, times: int, within: timedelta, at: datetime) -> Alert:
    """Build the alert of a controller that keeps replacing ended machines. `matter`: the member seen last."""
    facts = (
        ("since", matter.format_moment(at - within)),
        ("why", f"replaced {times} times within {format_length(within)} by {controller}"),
        ("per hour", format_alert_rate(matter.rate)),
        ("next", f"nothing: its machines are never stopped; change {controller} itself"),
    )
    return build_alert(
        matter, WARNING, f"{controller} replaces its machines: {times} times in {format_length(within)}", at, facts
    )


def format_keep_command(key: ResourceKey) -> str:
    """Return the shell-quoted command that keeps the machine."""
    return format_command("keep", key, "--for", KEEP_FOR)


def format_next_step(then: str, then_at: datetime | None, zone: tzinfo = UTC) -> str:
    """Format the next step: `stop at 2026-11-20 19:05 UTC`."""
    if not then:
        return "only this notification"
    return then if then_at is None else f"{then} at {format_local_time(then_at, zone)}"


def _list_activity_facts(
    matter: AlertSubject, work: Activity, at: datetime, since: datetime, so_far: Money | None
) -> tuple[tuple[str, str], ...]:
    why = "; ".join(work.reasons[:3]) or "no reason is known"
    return (
        ("since", f"{matter.format_moment(since)} ({format_length(at - since)})"),
        ("why", "; ".join(matter.because) or f"{why} (confidence {work.confidence:.2f})"),
        ("so far", format_alert_sum(so_far)),
        ("per hour", format_alert_rate(matter.rate)),
    )


def build_alert(
    matter: AlertSubject,
    severity: str,
    what: str,
    at: datetime,
    facts: tuple[tuple[str, str], ...],
    *,
    keep: bool = True,
    stage: int = 0,
) -> Alert:
    """Return an alert about `matter`. `keep`: whether it names the command that keeps the machine."""
    return Alert(
        topic=matter.topic,
        subject=matter.subject,
        owner=matter.owner,
        severity=severity,
        what=what,
        at=at,
        facts=facts,
        keep=format_keep_command(matter.key) if keep else "",
        stage=stage,
        to=matter.to,
    )


def _format_losses(loses: Sequence[str]) -> str:
    return ", ".join(loses) or "nothing"


_ACT_NAMES = {"stop": "Stop", TERMINATE: "Terminate", "start": "Start"}
_ACT_RESULTS = {"stop": "stopped", TERMINATE: "terminated", "start": "running"}
