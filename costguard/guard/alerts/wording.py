"""Notices about machines: what is said of one that idles, hangs, wastes, is stopped, or cannot be judged.

Example: an 8xA100 at $32.77 an hour, idle from 18:05 to 18:50 (45 min): "so far: $24.58", "per hour: $32.7700".
Sums have two decimals and rates four (DESIGN 5.1); what is not known is said to be unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction

from costguard.guard.alerts.alert import INFO, PAGE, WARNING, Notice
from costguard.guard.policy import TERMINATE
from costguard.guard.work import Work
from costguard.values.encoding import shell_word
from costguard.values.money import Money, Rate, divide_half_even
from costguard.values.resource import ResourceKey
from costguard.values.text_format import RATE_PLACES, format_length, format_local_time, get_currency_sign

WAITING = timedelta(minutes=30)
"""What waiting costs is told by the half hour: $23.92 an hour is $11.96."""
KEEP_FOR = "4h"
NOT_KNOWN = "unknown: its price is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matter:
    """What a notice about one resource speaks of. `told`: what it is ("8xA100-80GB p4d.24xlarge"). `rate` None: unknown.

    `topic`: of the notice, "policy:idle-gpu". `name`: what its owner calls it, may be anything at all. `because`: why, where
    that is not its state of work. `zone`: whose clocks people are told by. `to`: whom the notice is for, see Notice.
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
        """Of what: its whole key."""
        return "/".join(self.key)

    def moment(self, at: datetime) -> str:
        """An instant as people are told it."""
        return format_local_time(at, self.zone)

    @property
    def called(self) -> str:
        """`train-3 (8xA100-80GB)`."""
        return f"{self.name or self.key.id}{f' ({self.told})' if self.told else ''}"


def sum_text(money: Money | None) -> str:
    """`$33.86`."""
    return NOT_KNOWN if money is None else f"{get_currency_sign(money.currency)}{money.format()}"


def rate_text(rate: Rate | None) -> str:
    """`$32.7700`, an hour."""
    return NOT_KNOWN if rate is None else f"{get_currency_sign(rate.currency)}{rate.format(RATE_PLACES)}"


def cost_of(rate: Rate | None, length: timedelta) -> Money | None:
    """What `length` at `rate` costs, to the second."""
    return None if rate is None else rate.multiply_seconds(int(length.total_seconds()))


def wasted_of(rate: Rate | None, share: Fraction, length: timedelta) -> Money | None:
    """What the idle share of its GPUs costs in `length`: 7/8 of $32.77 an hour over 6 h is $172.04."""
    if rate is None:
        return None
    nano = divide_half_even(rate.nano_per_hour * int(length.total_seconds()) * share.numerator, 3600 * share.denominator)
    return Money(nano=nano, currency=rate.currency)


def idle(
    matter: Matter,
    work: Work,
    *,
    at: datetime,
    since: datetime,
    so_far: Money | None,
    then: str = "",
    then_at: datetime | None = None,
) -> Notice:
    """It does nothing. `then`: what the ladder does next ("stop"), at `then_at`; "" for nothing but this notice."""
    facts = (*_known(matter, work, at, since, so_far), ("next", next_text(then, then_at, matter.zone)))
    return _notice(matter, WARNING, f"{matter.called} is idle since {matter.moment(since)}", at, facts)


def planned(
    matter: Matter,
    work: Work,
    *,
    act: str,
    due: datetime,
    at: datetime,
    since: datetime,
    so_far: Money | None,
    stage: int = 1,
    loses: Sequence[str] = (),
) -> Notice:
    """An act is coming, and its grace runs until `due`."""
    facts = (
        *_known(matter, work, at, since, so_far),
        ("next", next_text(act, due, matter.zone)),
        ("would be lost", _lost(loses)),
    )
    what = f"{_ACTS[act]} of {matter.called} is due at {matter.moment(due)}"
    return replace(_notice(matter, WARNING, what, at, facts, stage=stage), ahead=True)


def done(
    matter: Matter,
    *,
    act: str,
    at: datetime,
    asked_at: datetime,
    idle_cost: Money | None,
    saves: Rate | None,
    afterwards: Rate | None,
    stage: int = 2,
) -> Notice:
    """The provider's own listing shows it as done. `idle_cost`: what idling cost.

    `saves`: what its computing cost an hour; `afterwards`: what still bills.
    """
    facts = (
        ("asked for", matter.moment(asked_at)),
        ("confirmed", f"{matter.moment(at)}, by its provider's listing"),
        ("cost while idle", sum_text(idle_cost)),
        ("saved per hour", rate_text(saves)),
        ("still per hour", "nothing that is known" if afterwards is None else rate_text(afterwards)),
    )
    return _notice(matter, INFO, f"{matter.called} is {_DONE[act]}", at, facts, keep=False, stage=stage)


def not_confirmed(matter: Matter, *, act: str, at: datetime, asked_at: datetime, sends: int, so_far: Money | None) -> Notice:
    """Asked for, and ten minutes later not proven: it may run and bill. A page."""
    still = "at an unknown price" if matter.rate is None else f"still {rate_text(matter.rate)}/h"
    facts = (
        ("since", matter.moment(asked_at)),
        ("why", f"asked {sends} {'time' if sends == 1 else 'times'}, and its provider does not show it as {_DONE[act]}"),
        ("so far", f"{sum_text(so_far)} since it was asked"),
        ("per hour", rate_text(matter.rate)),
        ("next", f"it is looked at in every run; {_ACTS[act].lower()} it in its provider's console"),
    )
    what = f"{_ACTS[act].upper()} NOT CONFIRMED: {matter.called}, {still}"
    return _notice(matter, PAGE, what, at, facts, keep=False, stage=9)


def asked(
    matter: Matter,
    work: Work,
    *,
    act: str,
    at: datetime,
    since: datetime,
    so_far: Money | None,
    loses: Sequence[str],
    because: str,
    yes: str = "",
    stage: int = 1,
) -> Notice:
    """It is not done without a yes. `because`: why it is asked ("its provider has no stop"). `yes`: what allows it."""
    waiting = sum_text(cost_of(matter.rate, WAITING))
    facts = (
        *_known(matter, work, at, since, so_far),
        ("waiting costs", waiting if matter.rate is None else f"{waiting} per {format_length(WAITING)}"),
        ("would be lost", _lost(loses)),
        ("asked because", because),
        ("next", "nothing: no answer keeps it as it is"),
        *((("to say yes", yes),) if yes else ()),
    )
    return _notice(matter, WARNING, f"{_ACTS[act]} {matter.called}?", at, facts, stage=stage)


def hung(matter: Matter, work: Work, *, at: datetime, since: datetime, so_far: Money | None) -> Notice:
    """It looks busy and makes no progress. A page; nothing is done by itself."""
    facts = (*_known(matter, work, at, since, so_far), ("next", "nothing by itself: look at the job"))
    return _notice(matter, PAGE, f"{matter.called} hangs: busy without progress since {matter.moment(since)}", at, facts)


def waste(matter: Matter, work: Work, *, idle_gpus: int, gpus: int, at: datetime, since: datetime) -> Notice:
    """It works with a part of its GPUs, and the rest is paid for: "7 of 8 GPUs idle: $172.04"."""
    wasted = wasted_of(matter.rate, Fraction(idle_gpus, gpus), at - since)
    facts = (
        *_known(matter, work, at, since, None)[:2],
        ("so far", sum_text(wasted)),
        ("per hour", rate_text(matter.rate)),
        ("next", "nothing: a machine that works is left alone"),
    )
    return _notice(matter, WARNING, f"{idle_gpus} of {gpus} GPUs of {matter.called} do nothing: {sum_text(wasted)}", at, facts)


def blind(matter: Matter, *, at: datetime, since: datetime | None, why: Sequence[str], so_far: Money | None) -> Notice:
    """Whether it works cannot be said, so nothing is done about it."""
    facts = (
        ("since", "it was first seen" if since is None else matter.moment(since)),
        ("why", "; ".join(why) or "nothing measures its work"),
        ("so far", sum_text(so_far)),
        ("per hour", rate_text(matter.rate)),
        ("next", "nothing is done while that is so: costguard doctor says what is missing"),
    )
    return _notice(matter, WARNING, f"whether {matter.called} works cannot be said", at, facts)


def churn(matter: Matter, *, controller: str, times: int, within: timedelta, at: datetime) -> Notice:
    """A controller replaces what ends, again and again. `matter`: of the member seen last."""
    facts = (
        ("since", matter.moment(at - within)),
        ("why", f"replaced {times} times within {format_length(within)} by {controller}"),
        ("per hour", rate_text(matter.rate)),
        ("next", f"nothing: its members are never stopped; change {controller} itself"),
    )
    return _notice(matter, WARNING, f"{controller} replaces its machines: {times} times in {format_length(within)}", at, facts)


def keep_command(resource_id: str) -> str:
    """What somebody may paste to keep it, whatever its id is made of."""
    word = shell_word(resource_id)
    return f"costguard keep --for {KEEP_FOR} -- {word}" if word.startswith("-") else f"costguard keep {word} --for {KEEP_FOR}"


def next_text(then: str, then_at: datetime | None, zone: tzinfo = UTC) -> str:
    """`stop at 2026-11-20 19:05 UTC`."""
    if not then:
        return "nothing but this notice"
    return then if then_at is None else f"{then} at {format_local_time(then_at, zone)}"


def _known(matter: Matter, work: Work, at: datetime, since: datetime, so_far: Money | None) -> tuple[tuple[str, str], ...]:
    why = "; ".join(work.reasons[:3]) or "no reason is known"
    return (
        ("since", f"{matter.moment(since)} ({format_length(at - since)})"),
        ("why", "; ".join(matter.because) or f"{why} (confidence {work.confidence:.2f})"),
        ("so far", sum_text(so_far)),
        ("per hour", rate_text(matter.rate)),
    )


def _notice(
    matter: Matter,
    severity: str,
    what: str,
    at: datetime,
    facts: tuple[tuple[str, str], ...],
    *,
    keep: bool = True,
    stage: int = 0,
) -> Notice:
    return Notice(
        topic=matter.topic,
        subject=matter.subject,
        owner=matter.owner,
        severity=severity,
        what=what,
        at=at,
        facts=facts,
        keep=keep_command(matter.key.id) if keep else "",
        stage=stage,
        to=matter.to,
    )


def _lost(loses: Sequence[str]) -> str:
    return ", ".join(loses) or "nothing"


_ACTS = {"stop": "Stop", TERMINATE: "Terminate"}
_DONE = {"stop": "stopped", TERMINATE: "terminated"}
