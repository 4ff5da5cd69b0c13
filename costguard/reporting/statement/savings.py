"""Savings of the guard: acts that a listing confirmed, and the cost that would have continued without them.

A saving is what the act ended, at its price, for as long as it would have continued, less what the stopped machine went on
billing. It continues until the first of these: the machine computes again; another act on it is confirmed; it ends for another
reason; the period ends; or a horizon, since nobody knows when a person would have stopped it:

    low       nothing: its owner could have stopped it in the next minute
    expected  three days: a long weekend, Friday evening to Monday morning
    high      31 days: the bill would have shown it

Example: an 8xA100 at $32.77 an hour with 500 GB of disk, stopped on Friday at 19:05, started on Monday at 09:00: 61 h 55 min,
$2,029.01, less $3.39 for its disk: $2,025.62 expected. A machine that computed again within an hour is a suspected false stop,
and its saving is zero.

A hard cap that stops a machine keeps a limit: only where the machine was idle or hung then, its cost was saved.

A stop ends computing. A termination ends every line that billed when it was sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costguard.guard.action_intents import CONFIRM_WITHIN
from costguard.guard.policy import TERMINATE
from costguard.metering.meter import COMPUTE, GB, Line
from costguard.metering.span import SEEN, Span, compute_amounts
from costguard.values.calendar import Period
from costguard.values.instant import to_micros
from costguard.values.money import Money, MoneyInterval
from costguard.values.resource import Incarnation, ResourceKey

EXPECTED_FOR, HIGH_FOR = timedelta(days=3), timedelta(days=31)
"""The horizons: see above. Assumptions, 2026-11."""
FALSE_STOP_WITHIN = timedelta(hours=1)
"""A machine that computes again within it was probably stopped wrongly; `guard/replay` asks it of would-be stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedAction:
    """An act that a listing confirmed at `confirmed_at`, first requested at `sent_at`.

    `spans`: what the machine billed from then on, and what billed when it was sent. `next_at`: when the next act on it was
    confirmed. `ended_at`: since when it is known to have ended, None: it has not. `name`, `owner`: as last seen. `cut`: a hard
    cap stopped it, and it was not idle: work that was ended is no saving.
    """

    intent_id: str
    life: Incarnation
    act: str
    policy: str
    sent_at: datetime
    confirmed_at: datetime
    spans: tuple[Span, ...] = ()
    next_at: datetime | None = None
    ended_at: datetime | None = None
    name: str = ""
    owner: str = ""
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """The saving of one act in a period, in one currency.

    `at`: when the billing ended; `until`: the end of the expected saving. `avoided`: the cost that would have continued.
    `rest`: the expected cost that was billed instead. `again_at`: when it computed again; within the hour this makes it a
    suspected false stop (`false`).
    """

    act: ConfirmedAction
    at: datetime
    until: datetime
    avoided: MoneyInterval
    rest: Money
    again_at: datetime | None = None

    @property
    def false(self) -> bool:
        """Return whether it is a suspected false stop."""
        return self.again_at is not None and self.again_at - self.at < FALSE_STOP_WITHIN

    @property
    def usd(self) -> MoneyInterval:
        """Return the net saving in its currency. The low end is at most zero: the owner might have stopped it at once."""
        if self.false or self.act.cut:
            zero = replace(self.rest, nano=0)
            return MoneyInterval(low=zero, expected=zero, high=zero)
        low = replace(self.rest, nano=min(0, self.avoided.expected.nano - self.rest.nano))
        return MoneyInterval(low=low, expected=self.avoided.expected - self.rest, high=self.avoided.high - self.rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """The savings of all acts in a period: one net interval per currency, and each act's saving."""

    net: tuple[MoneyInterval, ...] = ()
    savings: tuple[Saving, ...] = ()

    @property
    def counted(self) -> tuple[Saving, ...]:
        """Return the savings without suspected false stops, and without what a hard cap cut off."""
        return tuple(one for one in self.savings if not (one.false or one.act.cut))

    @property
    def cut(self) -> tuple[Saving, ...]:
        """Return what hard caps stopped that was not idle."""
        return tuple(one for one in self.savings if one.act.cut)

    @property
    def false(self) -> tuple[Saving, ...]:
        """Return the suspected false stops."""
        return tuple(one for one in self.savings if one.false)

    def get_net(self, currency: str) -> MoneyInterval:
        """Return the net saving in one currency."""
        zero = Money(nano=0, currency=currency)
        return next(
            (one for one in self.net if one.low.currency == currency), MoneyInterval(low=zero, expected=zero, high=zero)
        )


def compute_savings(acts: Iterable[ConfirmedAction], period: Period, as_of: datetime) -> Savings:
    """Return the savings of `acts` within `period`, as known at `as_of`."""
    savings = [saving for act in acts for saving in compute_action_savings(act, period, as_of)]
    sums: dict[str, MoneyInterval] = {}
    for one in savings:
        currency = one.rest.currency
        sums[currency] = sums[currency].add(one.usd) if currency in sums else one.usd
    net = tuple(sums[currency] for currency in sorted(sums))
    return Savings(net=net, savings=tuple(sorted(savings, key=lambda one: (-one.usd.expected.nano, one.at, one.act.intent_id))))


def compute_action_savings(act: ConfirmedAction, period: Period, as_of: datetime) -> list[Saving]:
    """Return the savings of `act` within `period`, by currency; empty if it ended nothing, or lies outside."""
    ended = _list_ended_spans(act)
    if not ended:
        return []
    at = max(span.end for span in ended if span.end is not None)
    again_at = min((s.start for s in act.spans if s.meter.charge == COMPUTE and s.start >= at), default=None)
    stops = [when for when in (again_at, act.next_at, _find_gone_at(act, at)) if when is not None and when >= at]
    most = min([*stops, at + HIGH_FOR, period.end, as_of])
    expected = min(most, at + EXPECTED_FOR)
    begin = max(at, period.start)
    if most <= begin:
        return []
    avoided: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    rest: dict[str, int] = defaultdict(int)
    for span in ended:
        on = replace(span, start=at, anchor=at, end=None, presence=SEEN)
        currency = span.meter.price.currency
        is_priced = span.meter.price.known  # of a price that nobody stated nothing is expected
        avoided[currency][0] += compute_amounts(on, to_micros(begin), to_micros(max(begin, expected)))[1] if is_priced else 0
        avoided[currency][1] += compute_amounts(on, to_micros(begin), to_micros(most))[2]
    for span in act.spans:
        if span not in ended and span.meter.charge != COMPUTE:
            until = min(max(begin, expected), span.end or as_of)
            rest[span.meter.price.currency] += compute_amounts(span, to_micros(max(begin, at)), to_micros(until))[1]
    return [
        Saving(
            act=act,
            at=at,
            until=max(begin, expected),
            avoided=_build_interval(currency, *avoided[currency]),
            rest=Money(nano=rest[currency], currency=currency),
            again_at=again_at,
        )
        for currency in sorted(avoided)
    ]


def _list_ended_spans(act: ConfirmedAction) -> list[Span]:
    """Return, for each line that the act was to end, the last span that began before its confirmation, if it ended then."""
    lines = dict[Line, Span]()
    for span in sorted(act.spans, key=lambda span: span.start):
        if span.start <= act.confirmed_at and span.meter.unit != GB and (span.meter.charge == COMPUTE or act.act == TERMINATE):
            lines[span.line] = span
    first, last = act.sent_at - CONFIRM_WITHIN, act.confirmed_at + CONFIRM_WITHIN
    return [span for span in lines.values() if span.end is not None and first <= span.end <= last]


def _find_gone_at(act: ConfirmedAction, at: datetime) -> datetime | None:
    """Return since when a stopped machine has ended; None if it has not, or if the act itself terminated it."""
    return None if act.act == TERMINATE or act.ended_at is None else max(at, act.ended_at)


def _build_interval(currency: str, expected: int, high: int) -> MoneyInterval:
    zero = Money(nano=0, currency=currency)
    more = Money(nano=max(expected, high), currency=currency)
    return MoneyInterval(low=zero, expected=Money(nano=expected, currency=currency), high=more)


def order_actions(actions: Iterable[ConfirmedAction]) -> list[ConfirmedAction]:
    """Return `actions` ordered by time, each with the confirmation of the next act on its machine."""
    later, newest_first = dict[ResourceKey, datetime](), list[ConfirmedAction]()
    for one in sorted(actions, key=lambda one: (one.confirmed_at, one.intent_id), reverse=True):
        newest_first.append(replace(one, next_at=later.get(one.life.key)))
        later[one.life.key] = one.confirmed_at
    return newest_first[::-1]
