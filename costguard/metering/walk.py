"""Walking one line of one resource through moments: which span ends where, what nobody saw, which span begins.

Example: computing at $2 an hour, on until some moment in [12:00, 12:03), then off. The span is closed at 12:00, an EDGE of
three minutes follows (it may have billed all of it or nothing), and nothing is open after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from costguard.metering.meter import Line, Meter
from costguard.metering.span import EDGE, GAP, MAYBE, SEEN, Span
from costguard.values.resource import Attribution, ResourceKey

UncertainMeter = tuple[Meter, str]


class LineWalk:
    """One line on its way. `span`: what bills now. `held`: whether the ledger has it already.

    `floor`: before it nothing can start. `ceiling`: nano-units that an hour may have cost while nobody looked, where prices
    move by themselves (spot); 0: no more than the prices seen. `closed`: spans of the ledger that end. `added`: new ones with
    an end.
    """

    def __init__(
        self, key: ResourceKey, span: Span | None, floor: datetime | None, *, held: bool = True, ceiling: int = 0
    ) -> None:
        self.key, self.span, self.held = key, span, held and span is not None
        self.floor = floor if span is None else span.start
        self.ceiling = ceiling
        self.closed: list[Span] = []
        self.added: list[Span] = []

    def change(
        self,
        earliest: datetime,
        latest: datetime,
        *,
        after: Meter | None,
        fuzzy: UncertainMeter | None,
        owner: Attribution,
        why: str,
    ) -> None:
        """From some instant within [earliest, latest] on, `after` bills (None: nothing); in between, `fuzzy`."""
        before = self.span.meter if self.span else None
        if fuzzy == (after, SEEN):
            fuzzy, latest = None, earliest
        if after == before and fuzzy is None:
            return
        begin = earliest if self.floor is None else max(earliest, self.floor)
        end = max(begin, latest)
        anchor = self.span.anchor if self.span else begin
        if self.span:
            self._end_span(begin, why)
        if begin < end and (fuzzy := fuzzy or bound_transition(before, after)):
            meter, presence = fuzzy
            if presence != SEEN and self.ceiling > meter.price.high:
                meter = replace(meter, price=replace(meter.price, high=self.ceiling))
            self.added.append(self._make_span(meter, begin, anchor=anchor, owner=owner, why=why, presence=presence, end=end))
            self.floor = end
        self.span = None
        if after:
            kept = anchor if before else end
            self.span, self.held = self._make_span(after, end, anchor=kept, owner=owner, why=why), False
        self.floor = end

    def hand_over(self, at: datetime, owner: Attribution) -> None:
        """The same goes on billing to somebody else's account of things from `at` on."""
        if self.span and self.span.attribution != owner:
            old, begin = self.span, max(at, self.span.start)
            self._end_span(begin, "attribution changed")
            self.span = replace(old, start=begin, attribution=owner, why="attribution changed", end=None, ended_by="")
            self.held, self.floor = False, begin

    @property
    def opened(self) -> list[Span]:
        """Spans that are new to the ledger, in order; the last one may be open."""
        return [*self.added, self.span] if self.span and not self.held else self.added

    @property
    def edge(self) -> Span | None:
        """The unproven end that is left behind, where the line bills no more."""
        last = self.added[-1] if self.added else None
        return last if self.span is None and last and last.presence == EDGE else None

    def _end_span(self, at: datetime, why: str) -> None:
        assert self.span is not None  # noqa: S101 - for the type checker; asked before
        ended = close_span(self.span, at, why)
        if self.held:
            self.closed.append(ended)
        elif at > ended.start:
            self.added.append(ended)

    def _make_span(
        self,
        meter: Meter,
        start: datetime,
        *,
        anchor: datetime,
        owner: Attribution,
        why: str,
        presence: str = SEEN,
        end: datetime | None = None,
    ) -> Span:
        return Span(
            key=self.key,
            attribution=owner,
            meter=meter,
            start=start,
            anchor=min(anchor, start),
            end=end,
            presence=presence,
            why=why,
            ended_by=why if end else "",
        )


def close_span(span: Span, at: datetime, why: str) -> Span:
    """`span` with its end. Written out, since `dataclasses.replace` costs four times as much and every change comes by here."""
    return Span(
        key=span.key,
        attribution=span.attribution,
        meter=span.meter,
        start=span.start,
        anchor=span.anchor,
        end=at,
        presence=span.presence,
        why=span.why,
        ended_by=why,
    )


def bound_transition(before: Meter | None, after: Meter | None) -> UncertainMeter | None:
    """What billed while the one gave way to the other at an unknown instant."""
    if before and after:
        mixed = before.price.currency != after.price.currency
        return (before, EDGE) if mixed else (_merge_meters(before, after), SEEN)
    if before:
        return bound_unseen_end(before, None)
    return (replace(after, minimum_s=0), EDGE) if after else None  # the minimum is owed by the span that follows


def bound_unseen_usage(before: Meter | None, here: Meter | None, elsewhere: Meter | None) -> UncertainMeter | None:
    """What billed while nobody looked: `here` bills in the state it was found in, `elsewhere` in the other one."""
    if here and elsewhere:
        return _merge_meters(_merge_meters(here, elsewhere), before), SEEN
    if here:
        return _merge_meters(here, before), GAP
    return (elsewhere, MAYBE) if elsewhere else None


def bound_unseen_end(before: Meter, later: Meter | None) -> UncertainMeter:
    """What billed while `before` ended at some moment; `later`: what the line bills when it begins again, None: it does not."""
    return _merge_meters(before, later), EDGE


def merge_alternatives(one: Mapping[Line, Meter], other: Mapping[Line, Meter]) -> dict[Line, Meter]:
    """What bills where nobody knows whether it is as the one says or as the other: a line of only one of them may not bill."""
    both = {line: _merge_meters(meter, other[line]) for line, meter in one.items() if line in other}
    alone = {line: meter for line, meter in (*one.items(), *other.items()) if line not in both}
    return {**both, **{line: _allow_zero(meter) for line, meter in alone.items()}}


def _allow_zero(meter: Meter) -> Meter:
    return replace(meter, price=replace(meter.price, low=0, expected=meter.price.expected // 2))


def raise_price_bound(meter: Meter, high: int) -> Meter:
    """`meter` at a price that moves by itself: from nothing to `high`, probably as now."""
    return replace(meter, price=replace(meter.price, low=0, high=max(meter.price.high, high), known=False))


def _merge_meters(one: Meter, other: Meter | None) -> Meter:
    """Both in range; `one` alone where they agree or their currencies cannot be mixed."""
    mixed = other is None or one == other or one.price.currency != other.price.currency
    return one if mixed or other is None else one.merge_with(other)
