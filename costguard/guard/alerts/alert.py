"""Alerts, notifications and deliveries as values; alerts about one machine (idle, hung, wasted, stopped, unknown).

Example: 8 A100 at $32.77 an hour, idle from 18:05 to 18:50 (45 min): "cost: $32.7700 an hour, $24.58 so far". Sums have two
decimals and rates four (DESIGN 5.1). An unknown value is shown as unknown, never as 0.

An alert names its machine once and starts with what happens, when, what it costs and how to keep the machine; the evidence
follows. `what` holds the time itself; how long it is until then is added only where the text is read at once (`dispatch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.errors import shorten, to_one_line
from costguard.guard.alerts.part_delivery import PartDelivery
from costguard.guard.policy import TERMINATE
from costguard.guard.signals import Activity
from costguard.values.checks import require, require_one_of
from costguard.values.money import Money, Rate
from costguard.values.resource import ResourceKey
from costguard.values.text_format import RATE_PLACES, format_command, format_length, format_near_time, get_currency_sign

INFO, WARNING, PAGE = "info", "warning", "page"
SEVERITIES = (INFO, WARNING, PAGE)
UNUSUAL = "unusual"  # how the topics of what `guard.anomalies` finds begin
FIRST, NEW_IN_GROUP, ESCALATED, WITHDRAWN, REPEAT_DUE = "first", "new_in_group", "escalated", "withdrawn", "repeat_due"
RESOLVED, SNOOZE_ENDED, DUE, LATE, ASKED = "resolved", "snooze_ended", "due", "late", "asked"
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
    thing ("aws/1111/us-east-1/i-0abc", "budget vision"). `owner`: its owner, "" if unknown. `what`: one sentence: what happens
    and when. `facts`: (label, text) pairs: costs (of COST_PHRASES) and evidence: why, next. `keep`: the command that keeps the
    machine, "" for none. `condition`: its noun, for the message that it is resolved: "stop of train"; "" for `what`.
    `stage`: rises when it gets worse (the number of the policy's step). `to`: the recipients, of AUDIENCES; () for everybody.
    `once`: it is an event, notified once and without a message that it is resolved. `ahead`: an act comes next, so limits on
    messages do not hold it back. `episode`: the escalation that it belongs to; a new one is notified anew, since its grace
    period counts from that delivery. `due`: when the act is expected; None: no act is announced. `withdraws`: an act that may
    have been announced has a lasting hold. `ask`: the act that it asks about, stop or terminate; "" for no question.
    `links`: (label, URL), added when it is sent. `owners`: whose routes carry it as well. `undelivered`: no channel confirmed
    the announcement yet, so `due` is the earliest time. `is_over`: it tells that the alert ended.
    """

    topic: str
    subject: str
    owner: str = ""
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
    condition: str = ""
    is_over: bool = False

    def __post_init__(self) -> None:
        require_one_of(self.severity, SEVERITIES, "notice.severity")

    @property
    def condition_name(self) -> str:
        """Return what a message calls it that says that it is resolved."""
        return self.condition or self.what


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
    alerts. `days`: for how long it is worth a retry. `accepted`: (recipient, number) of what earlier tries delivered;
    `refused`: recipients that no retry can reach (`part_delivery`). `route`: the name of its route; "" for a report.
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
    accepted: tuple[tuple[str, int], ...] = ()
    refused: tuple[str, ...] = ()
    route: str = ""

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
    """The result of one attempt: `sent`, or `why` not and whether a retry may help (`again`).

    `parts`: in order; () where it is one for one recipient. `retry_after`: the wait until a retry; None: that of the outbox.
    """

    sent: bool
    why: str = ""
    again: bool = True
    parts: tuple[PartDelivery, ...] = field(default=(), compare=False)
    retry_after: timedelta | None = field(default=None, compare=False)


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
    route. `pagers`: its channels that keep an incident open until they are sent its end.
    """

    name: str
    channels: tuple[str, ...]
    group_by: tuple[str, ...] = ("owner", "policy")
    repeat: tuple[timedelta, ...] = REPEAT_INTERVALS
    min_severity: str = INFO
    owners: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    audience: tuple[str, ...] | None = None
    pagers: tuple[str, ...] = ()

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
    `stage`, `severity`: as last sent; `what`: its condition. `resolved_at`: since when it no longer holds; None while it holds.
    `over`: nothing more is sent; the state is kept for a while, so that a flapping alert is counted. `snoozed`: it was found
    but not sent because of a snooze. `recent`: when it was sent in the last hour. `once`, `episode`: of the alert. `due`: the
    announced time of the act; None: none was announced.
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
NAME_CHARS_MAX = 60
"""Characters of a machine's name in an alert: what happens to it must still be in a title that is cut."""
COST_PHRASES = {
    "per hour": "{} an hour",
    "so far": "{} so far",
    "per hour before": "{} an hour before its stop",
    "saved per hour": "saves {} an hour",
    "still per hour": "hourly cost now: {}",
    "cost while idle": "cost while idle: {}",
    "waiting costs": "waiting costs {}",
}
"""Labels of costs among an alert's facts, and how its line of costs words them, in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSubject:
    """The resource that an alert is about. `told`: its shape ("8x A100 80GB SXM"). `rate` None: unknown.

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

    def format_time(self, at: datetime, now: datetime) -> str:
        """Format an instant in the recipients' zone, without a date if it is today."""
        return format_near_time(at, now, self.zone)

    @property
    def short_name(self) -> str:
        """Return its name, or its id if it has none."""
        return shorten(to_one_line(self.name or self.key.id), NAME_CHARS_MAX)

    @property
    def called(self) -> str:
        """Return its name and shape: `train-3 (8x A100 80GB SXM)`."""
        return f"{self.short_name}{f' ({self.told})' if self.told else ''}"


def format_alert_sum(money: Money | None) -> str:
    """Format a sum with two decimals: `$33.86`."""
    return PRICE_NOT_KNOWN if money is None else f"{get_currency_sign(money.currency)}{money.format()}"


def format_alert_rate(rate: Rate | None) -> str:
    """Format an hourly rate with four decimals: `$32.7700`."""
    return PRICE_NOT_KNOWN if rate is None else f"{get_currency_sign(rate.currency)}{rate.format(RATE_PLACES)}"


def compute_rate_cost(rate: Rate | None, length: timedelta) -> Money | None:
    """Return the cost of `length` at `rate`, in whole seconds; None: unknown rate."""
    return None if rate is None else rate.multiply_seconds(int(length.total_seconds()))


def build_idle_alert(matter: AlertSubject, work: Activity, *, at: datetime, since: datetime, so_far: Money | None) -> Alert:
    """Build the alert of an idle machine on which no act follows."""
    facts = (*list_activity_facts(matter, work, at, since, so_far), ("next", "only this notification"))
    what = f"{matter.called} has been idle since {matter.format_time(since, at)}"
    return build_alert(matter, WARNING, what, at, facts, condition=f"idle {matter.short_name}")


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
    lost = f"; would be lost: {_format_losses(loses)}" if loses else ""
    facts = (*_list_costs(matter, so_far), ("why", f"{_explain_activity(matter, work, at, since)}{lost}"))
    if limit:
        cost = format_alert_sum(compute_rate_cost(matter.rate, wait))
        next_step = f"held by the limit of {limit} until {matter.format_time(due, at)}; costs {cost} meanwhile"
        facts = (*facts, (f"to {act} it now", format_command("approve", matter.key, act)), ("next", next_step))
    what = f"{matter.called} {announce_act(act, due, at, matter.zone)}"
    condition = f"{act} of {matter.short_name}"
    return replace(build_alert(matter, WARNING, what, at, facts, stage=stage, condition=condition), ahead=True, due=due)


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
        ("saved per hour", format_alert_rate(saves)),
        ("still per hour", afterwards),
        ("cost while idle", "not known to be idle" if idle_cost is None and saves else format_alert_sum(idle_cost)),
        ("why", f"requested at {matter.format_time(asked_at, at)}, confirmed by its provider's listing"),
    )
    what = f"{matter.called} was {_ACT_RESULTS[act]} at {matter.format_time(at, at)}"
    return build_alert(matter, INFO, what, at, facts, keep=False, stage=stage)


def build_unconfirmed_alert(
    matter: AlertSubject, *, act: str, at: datetime, asked_at: datetime, sends: int, so_far: Money | None
) -> Alert:
    """Build the page of an act not proven ten minutes after its request: the machine may still run and bill."""
    still = "at an unknown price" if matter.rate is None else f"still {format_alert_rate(matter.rate)}/h"
    requests = f"{sends} {'request' if sends == 1 else 'requests'} since {matter.format_time(asked_at, at)}"
    facts = (
        *_list_costs(matter, so_far),
        ("why", f"{requests}, and its provider does not list it as {_ACT_RESULTS[act]}"),
        ("next", f"it is checked in every run; {act} it in its provider's console"),
    )
    what = f"{act.upper()} NOT CONFIRMED: {matter.called}, {still}"
    condition = f"unconfirmed {act} of {matter.short_name}"
    return build_alert(matter, PAGE, what, at, facts, keep=False, stage=9, condition=condition)


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
        *list_activity_facts(matter, work, at, since, so_far),
        ("waiting costs", waiting if matter.rate is None else f"{waiting} per {format_length(WAITING_UNIT)}"),
        ("would be lost", _format_losses(loses)),
        ("asked because", because),
        ("next", "nothing: without an approval it stays as it is"),
        *((("to approve it", yes),) if yes else ()),
    )
    what, condition = f"{act.capitalize()} {matter.called}?", f"question whether to {act} {matter.short_name}"
    return replace(build_alert(matter, WARNING, what, at, facts, stage=stage, condition=condition), ask=act)


HANG_PAGE_CONFIDENCE = 0.9
"""From this confidence on a hang is a page; without a step counter it is less."""


def build_hang_alert(matter: AlertSubject, work: Activity, *, at: datetime, since: datetime, so_far: Money | None) -> Alert:
    """Build the alert of a machine that is busy without progress: a page if that is nearly certain. No act follows."""
    facts = (*list_activity_facts(matter, work, at, since, so_far), ("next", "nothing automatic: check the job"))
    certain = work.confidence >= HANG_PAGE_CONFIDENCE
    verb = "hangs: busy without progress" if certain else "may hang: busy at low power"
    what = f"{matter.called} {verb} since {matter.format_time(since, at)}"
    return build_alert(matter, PAGE if certain else WARNING, what, at, facts, condition=f"hang of {matter.short_name}")


def build_blind_alert(
    matter: AlertSubject, *, at: datetime, since: datetime | None, why: Sequence[str], so_far: Money | None
) -> Alert:
    """Build the alert of a machine of unknown activity, on which no act is done."""
    facts = (
        *_list_costs(matter, so_far if so_far and matter.rate else None),
        ("since", "it was first seen" if since is None else matter.format_time(since, at)),
        ("why", "; ".join(why) or "its activity is not measured"),
        ("next", "no stop for idleness while this lasts: costguard doctor shows what is missing"),
    )
    return build_alert(matter, WARNING, f"activity of {matter.called} is unknown", at, facts)


def format_keep_command(key: ResourceKey) -> str:
    """Return the shell-quoted command that keeps the machine."""
    return format_command("keep", key, "--for", KEEP_FOR)


def announce_act(act: str, due: datetime, now: datetime, zone: tzinfo = UTC) -> str:
    """Announce an act: `stops at 19:05 UTC`; `was due to stop at 19:05 UTC` once that has passed."""
    moment = format_near_time(due, now, zone)
    return f"{act}s at {moment}" if due >= now else f"was due to {act} at {moment}"


def _list_costs(matter: AlertSubject, so_far: Money | None) -> tuple[tuple[str, str], ...]:
    return ("per hour", format_alert_rate(matter.rate)), ("so far", format_alert_sum(so_far))


def list_activity_facts(
    matter: AlertSubject, work: Activity, at: datetime, since: datetime, so_far: Money | None
) -> tuple[tuple[str, str], ...]:
    """Return what it costs, since when it has this activity, and why."""
    return (*_list_costs(matter, so_far), ("why", _explain_activity(matter, work, at, since)))


def _explain_activity(matter: AlertSubject, work: Activity, at: datetime, since: datetime) -> str:
    """Explain since when and why: `idle since 18:05 UTC (45 min): GPU duty 0 % (confidence 0.90)`."""
    length = f"since {matter.format_time(since, at)} ({format_length(at - since)})"
    if matter.because:
        return f"{length}: {'; '.join(matter.because)}"
    why = "; ".join(work.reasons[:3]) or "no reason is known"
    return f"{work.state} {length}: {why} (confidence {work.confidence:.2f})"


def build_alert(
    matter: AlertSubject,
    severity: str,
    what: str,
    at: datetime,
    facts: tuple[tuple[str, str], ...],
    *,
    keep: bool = True,
    stage: int = 0,
    condition: str = "",
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
        condition=condition,
    )


def _format_losses(loses: Sequence[str]) -> str:
    return ", ".join(loses) or "nothing"


_ACT_RESULTS = {"stop": "stopped", TERMINATE: "terminated", "start": "running"}
