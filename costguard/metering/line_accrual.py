"""Accrue one resource line by line: which spans end, which time is uncertain, which spans begin.

Example: computing at $2 an hour, on until some instant in [12:00, 12:03), then off. The span is closed at 12:00, an EDGE of
three minutes follows (from $0.00 to $0.10), and no span is open after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from costguard.metering.billing import BillingRule, bound_unknown_price, list_meters, make_traffic_meter
from costguard.metering.inventory import Poll
from costguard.metering.meter import COMPUTE, LARGEST_PRICE, Line, Meter
from costguard.metering.observation import Observation
from costguard.metering.scope_state import KnownResource, ObservationLogEntry, ScopeState, SpanCorrection
from costguard.metering.span import EDGE, GAP, MAYBE, SEEN, Span
from costguard.metering.state_transitions import (
    DOWN_STATES,
    UP_STATES,
    ObservationWindow,
    StateTransition,
    add_disk_doubt,
    find_highest_dated_price,
    list_price_transitions,
)
from costguard.values.instant import MICROSECOND
from costguard.values.resource import ENDED, RUNNING, SPOT, STOPPED, Attribution, ResourceKey

COMPUTE_LINE: Line = (COMPUTE, "")


@dataclass(slots=True)
class PollChanges:
    """The changes of one poll, collected while they are computed."""

    resources: dict[ResourceKey, KnownResource]
    logged: list[ObservationLogEntry] = field(default_factory=list)
    closed: list[Span] = field(default_factory=list)
    opened: list[Span] = field(default_factory=list)
    corrected: list[SpanCorrection] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccrualTerms:
    """The inputs of every step: the poll, the scope's state before it, and the provider's rule."""

    state: ScopeState
    poll: Poll
    rule: BillingRule
    ceilings: Mapping[str, int]
    gap: timedelta

    @property
    def lag(self) -> timedelta:
        """How far the provider's listing may lag behind."""
        return timedelta(seconds=self.rule.lag_s)

    def make_window(self, seen_at: datetime | None) -> ObservationWindow:
        """Return the window from `seen_at`, less the lag, to the answer; None: never seen before."""
        return ObservationWindow(since=None if seen_at is None else seen_at - self.lag, at=self.poll.at, gap=self.gap)

    def list_meters_at(self, moment: StateTransition) -> Mapping[Line, Meter]:
        """Return the meters that run from `moment` on, by line."""
        if moment.seen is None:
            return {}
        meters = list_meters(moment.seen, self.rule, self.ceilings, price=moment.price)
        if moment.other:
            return merge_alternatives(meters, list_meters(moment.other, self.rule, self.ceilings))
        if moment.moving and COMPUTE_LINE in meters:
            return {
                **meters,
                COMPUTE_LINE: raise_price_bound(meters[COMPUTE_LINE], bound_unknown_price(moment.seen, self.ceilings).high),
            }
        return meters


def record_line_changes(
    changes: PollChanges,
    terms: AccrualTerms,
    resource: KnownResource,
    observation: Observation,
    window: ObservationWindow,
    *,
    transitions: list[StateTransition],
    new: frozenset[Line] = frozenset(),
) -> None:
    """Apply the transitions in `transitions` to every line of the resource, and add the results to `changes`.

    `new`: lines of `resource.open` that the ledger does not have yet.
    """
    owner = observation.attribution
    path = [
        (moment, terms.list_meters_at(moment), _list_other_state_meters(terms, moment))
        for moment in _order_transitions(resource, observation, transitions, window)
    ]
    billing = (line for _, meters, other_meters in path for line in (*meters, *other_meters))
    open_now, settled, edges = dict[Line, Span](), dict(resource.settled), dict[Line, Span]()
    for line in sorted({*resource.open, *billing}):
        ceiling = _compute_ceiling(terms, observation, window) if line == COMPUTE_LINE else 0
        walk = LineWalk(
            observation.key, resource.open.get(line), settled.get(line), is_recorded=line not in new, ceiling=ceiling
        )
        for number, (moment, meters, other_meters) in enumerate(path):
            new_meter, old_meter = meters.get(line), walk.span.meter if walk.span else None
            fuzzy = None
            if moment.unseen:
                fuzzy = bound_unseen_usage(old_meter, new_meter, other_meters.get(line))
            elif old_meter and not new_meter:
                # It bills again later: at the new price, which it may have had before it ended, too.
                fuzzy = bound_unseen_end(old_meter, next((later[line] for _, later, _ in path[number:] if line in later), None))
            walk.change(moment.earliest, moment.latest, new_meter=new_meter, fuzzy=fuzzy, owner=owner, why=moment.why)
        walk.hand_over(terms.poll.at, owner)
        changes.closed.extend(walk.closed)
        changes.opened.extend(walk.opened)
        if walk.floor is not None and (walk.closed or walk.added):
            settled[line] = max(span.end for span in (*walk.closed, *walk.added) if span.end is not None)
        if walk.span:
            open_now[line] = walk.span
        elif walk.edge:
            edges[line] = walk.edge
    for span in _list_traffic_spans(terms, resource, observation):
        changes.opened.append(span)
        settled[span.line] = span.end or terms.poll.at
    changes.logged.append(ObservationLogEntry(key=observation.key, at=terms.poll.seen_at, observation=observation))
    changes.resources[observation.key] = KnownResource(
        observation=observation,
        first_seen_at=resource.first_seen_at,
        logged_at=terms.poll.seen_at,
        open=open_now,
        settled=settled,
        edges=edges
        or {line: e for line, e in resource.edges.items() if observation.state == ENDED and settled.get(line) == e.end},
    )


def _order_transitions(
    resource: KnownResource, observation: Observation, transitions: list[StateTransition], window: ObservationWindow
) -> list[StateTransition]:
    """Return `transitions`, the dated price changes, and last the present state, in order of time."""
    starts = [m.latest for m in transitions if m.seen and m.seen.state == RUNNING and m.earliest == m.latest]
    computing = resource.open.get(COMPUTE_LINE)
    begun = starts[-1] if starts else (computing.start if computing else None)
    stops = [m.earliest for m in transitions if m.seen is None or m.seen.state in DOWN_STATES]
    until = stops[-1] if stops and (not starts or stops[-1] >= starts[-1]) else window.at + MICROSECOND
    up = observation if observation.state in UP_STATES else replace(observation, state=RUNNING)
    dated = list_price_transitions(up, begun, until) if begun else []
    path = sorted([*transitions, *dated], key=lambda m: m.latest)
    new, undated = resource.observation is observation, not observation.prices or observation.prices[-1].since is None
    if new and undated and observation.tier == SPOT:  # what it cost before anybody looked is not known from what it costs now
        return [*(replace(m, moving=True) for m in path), StateTransition.at(window.at, observation, "first seen")]
    doubted = path if new or observation.state == ENDED else add_disk_doubt(path, resource.observation, observation, window)
    since = window.begin if doubted is path else window.at
    return [*doubted, StateTransition(earliest=since, latest=window.at, seen=observation, why=f"seen {observation.state}")]


def _list_other_state_meters(terms: AccrualTerms, moment: StateTransition) -> Mapping[Line, Meter]:
    """Return the meters of the other state that the resource may have been in while it was not observed.

    Runs that ended before the first poll are ignored: the statement gives the date from which it counts.
    """
    if not moment.unseen:
        return {}
    if moment.seen is None:
        ran = list_meters(replace(moment.other, state=RUNNING), terms.rule, terms.ceilings) if moment.other else {}
        return {line: meter for line, meter in ran.items() if line == COMPUTE_LINE}
    state = STOPPED if moment.seen.state in UP_STATES else RUNNING
    meters = list_meters(replace(moment.seen, state=state), terms.rule, terms.ceilings)
    if moment.other:  # its price or its disks changed at some moment, too: it may have run at either
        meters = merge_alternatives(meters, list_meters(replace(moment.other, state=state), terms.rule, terms.ceilings))
    before_us = state == RUNNING and terms.state.complete_at is None
    return {line: meter for line, meter in meters.items() if line != COMPUTE_LINE} if before_us else meters


def _compute_ceiling(terms: AccrualTerms, observation: Observation, window: ObservationWindow) -> int:
    """Return the highest price that an unobserved hour may have had, in nano-units.

    It is the higher of the market bound (spot only) and the highest dated price, at most `LARGEST_PRICE`.
    """
    market_max = bound_unknown_price(observation, terms.ceilings).high if observation.tier == SPOT else 0
    dated = find_highest_dated_price(observation, window.since or observation.started_at or observation.created_at or window.at)
    return min(max(market_max, dated), LARGEST_PRICE)


def _list_traffic_spans(terms: AccrualTerms, resource: KnownResource, observation: Observation) -> list[Span]:
    """Return spans for the traffic counted since the counters were last recorded."""
    counted = {c.charge: c.mb for c in resource.observation.counters} if resource.observation is not observation else {}
    spans = []
    for counter in observation.counters:
        old_mb = counted.get(counter.charge, 0)
        used = replace(
            counter, mb=counter.mb - old_mb if counter.mb >= old_mb else counter.mb
        )  # a counter that fell began anew
        meter = make_traffic_meter(used, terms.rule)
        since = resource.logged_at if counted else observation.created_at or observation.started_at or terms.state.complete_at
        start = max(since or terms.poll.at, resource.settled.get((counter.charge, ""), since or terms.poll.at))
        if meter and used.mb and start < terms.poll.at:
            spans.append(
                Span(
                    key=observation.key,
                    attribution=observation.attribution,
                    meter=meter,
                    start=start,
                    anchor=start,
                    end=terms.poll.at,
                    why="counted",
                    ended_by="counted",
                )
            )
    return spans


UncertainMeter = tuple[Meter, str]


class LineWalk:
    """The spans of one line while transitions are applied to it.

    `span`: the open one. `held`: the ledger has it already. `floor`: no span can start before it. `ceiling`: the highest price
    of an unobserved hour in nano-units, where prices change by themselves (spot); 0: no more than the observed prices.
    `closed`: spans of the ledger that end. `added`: new spans with an end.
    """

    def __init__(
        self, key: ResourceKey, span: Span | None, floor: datetime | None, *, is_recorded: bool = True, ceiling: int = 0
    ) -> None:
        self.key, self.span, self.held = key, span, is_recorded and span is not None
        self.floor = floor if span is None else span.start
        self.ceiling = ceiling
        self.closed: list[Span] = []
        self.added: list[Span] = []

    def change(
        self,
        earliest: datetime,
        latest: datetime,
        *,
        new_meter: Meter | None,
        fuzzy: UncertainMeter | None,
        owner: Attribution,
        why: str,
    ) -> None:
        """Apply one transition: from some instant within [earliest, latest] on, `new_meter` bills (None: nothing).

        `fuzzy`: the meter and presence of the time in between; None: derived from the meters before and after. `owner`: the
        attribution of new spans.
        """
        old_meter = self.span.meter if self.span else None
        if fuzzy == (new_meter, SEEN):
            fuzzy, latest = None, earliest
        if new_meter == old_meter and fuzzy is None:
            return
        begin = earliest if self.floor is None else max(earliest, self.floor)
        end = max(begin, latest)
        anchor = self.span.anchor if self.span else begin
        if self.span:
            self._end_span(begin, why)
        if begin < end and (fuzzy := fuzzy or bound_transition(old_meter, new_meter)):
            meter, presence = fuzzy
            if presence != SEEN and self.ceiling > meter.price.high:
                meter = replace(meter, price=replace(meter.price, high=self.ceiling))
            self.added.append(self._make_span(meter, begin, anchor=anchor, owner=owner, why=why, presence=presence, end=end))
            self.floor = end
        self.span = None
        if new_meter:
            new_anchor = anchor if old_meter else end
            self.span, self.held = self._make_span(new_meter, end, anchor=new_anchor, owner=owner, why=why), False
        self.floor = end

    def hand_over(self, at: datetime, owner: Attribution) -> None:
        """Split the open span at `at` if its attribution differs from `owner`; the second part gets `owner`."""
        if self.span and self.span.attribution != owner:
            old, begin = self.span, max(at, self.span.start)
            self._end_span(begin, "attribution changed")
            self.span = replace(old, start=begin, attribution=owner, why="attribution changed", end=None, ended_by="")
            self.held, self.floor = False, begin

    @property
    def opened(self) -> list[Span]:
        """The spans that are new to the ledger, in order; the last one may be open."""
        return [*self.added, self.span] if self.span and not self.held else self.added

    @property
    def edge(self) -> Span | None:
        """The last added span if it is an EDGE (an unproven end) and the line no longer bills; else None."""
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
    """Return `span` with its end.

    Written out because `dataclasses.replace` takes four times as long and every change uses this function.
    """
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


def bound_transition(old_meter: Meter | None, new_meter: Meter | None) -> UncertainMeter | None:
    """Return the meter and presence of the time in which `old_meter` changed to `new_meter` at an unknown instant."""
    if old_meter and new_meter:
        mixed = old_meter.price.currency != new_meter.price.currency
        return (old_meter, EDGE) if mixed else (_merge_meters(old_meter, new_meter), SEEN)
    if old_meter:
        return bound_unseen_end(old_meter, None)
    return (replace(new_meter, minimum_s=0), EDGE) if new_meter else None  # the minimum is owed by the span that follows


def bound_unseen_usage(old_meter: Meter | None, meter: Meter | None, elsewhere: Meter | None) -> UncertainMeter | None:
    """Return the meter and presence of an unobserved time.

    `old_meter`: the meter before it. `meter`: the meter in the state that was found. `elsewhere`: the meter in the other state
    that the resource may have been in. None: nothing bills there.
    """
    if meter and elsewhere:
        return _merge_meters(_merge_meters(meter, elsewhere), old_meter), SEEN
    if meter:
        return _merge_meters(meter, old_meter), GAP
    return (elsewhere, MAYBE) if elsewhere else None


def bound_unseen_end(meter: Meter, later: Meter | None) -> UncertainMeter:
    """Return the meter and presence of the time in which `meter` ended.

    `later`: the meter when the line begins again; None: it does not.
    """
    return _merge_meters(meter, later), EDGE


def merge_alternatives(one: Mapping[Line, Meter], other: Mapping[Line, Meter]) -> dict[Line, Meter]:
    """Return the meters that may run if either `one` or `other` applies.

    A line of only one of them has a price from 0.
    """
    both = {line: _merge_meters(meter, other[line]) for line, meter in one.items() if line in other}
    alone = {line: meter for line, meter in (*one.items(), *other.items()) if line not in both}
    return {**both, **{line: _allow_zero(meter) for line, meter in alone.items()}}


def _allow_zero(meter: Meter) -> Meter:
    return replace(meter, price=replace(meter.price, low=0, expected=meter.price.expected // 2))


def raise_price_bound(meter: Meter, high: int) -> Meter:
    """Return `meter` with a price that changes by itself: from 0 to `high`, expected as now."""
    return replace(meter, price=replace(meter.price, low=0, high=max(meter.price.high, high), known=False))


def _merge_meters(one: Meter, other: Meter | None) -> Meter:
    """Return a meter that covers both; `one` alone if they are equal or their currencies differ."""
    mixed = other is None or one == other or one.price.currency != other.price.currency
    return one if mixed or other is None else one.merge_with(other)
