"""All lines of one resource, walked through what an observation told: what `accrual` writes down in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from costguard.metering.billing import BillingRule, bound_unknown_price, list_meters, make_traffic_meter
from costguard.metering.inventory import Poll
from costguard.metering.meter import COMPUTE, LARGEST_PRICE, Line, Meter
from costguard.metering.observation import Observation
from costguard.metering.scope_state import KnownResource, ObservationLogEntry, ScopeState, SpanCorrection
from costguard.metering.span import Span
from costguard.metering.state_transitions import (
    DOWN_STATES,
    UP_STATES,
    ObservationWindow,
    StateTransition,
    add_disk_doubt,
    find_highest_dated_price,
    list_price_transitions,
)
from costguard.metering.walk import LineWalk, bound_unseen_end, bound_unseen_usage, merge_alternatives, raise_price_bound
from costguard.values.instant import MICROSECOND
from costguard.values.resource import ENDED, RUNNING, SPOT, STOPPED, ResourceKey

COMPUTE_LINE: Line = (COMPUTE, "")


@dataclass(slots=True)
class PollChanges:
    """What a poll changes, while it is worked out."""

    resources: dict[ResourceKey, KnownResource]
    logged: list[ObservationLogEntry] = field(default_factory=list)
    closed: list[Span] = field(default_factory=list)
    opened: list[Span] = field(default_factory=list)
    corrected: list[SpanCorrection] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccrualTerms:
    """What every step needs: the poll, the scope before it, and the provider's rule."""

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
        """Since `seen_at`, less the lag, until the answer; None: nobody looked."""
        return ObservationWindow(since=None if seen_at is None else seen_at - self.lag, at=self.poll.at, gap=self.gap)

    def list_meters_at(self, moment: StateTransition) -> Mapping[Line, Meter]:
        """What bills at `moment`."""
        if moment.seen is None:
            return {}
        found = list_meters(moment.seen, self.rule, self.ceilings, price=moment.price)
        if moment.other:
            return merge_alternatives(found, list_meters(moment.other, self.rule, self.ceilings))
        if moment.moving and COMPUTE_LINE in found:
            return {
                **found,
                COMPUTE_LINE: raise_price_bound(found[COMPUTE_LINE], bound_unknown_price(moment.seen, self.ceilings).high),
            }
        return found


def record_line_changes(
    changes: PollChanges,
    terms: AccrualTerms,
    known: KnownResource,
    seen: Observation,
    window: ObservationWindow,
    *,
    found: list[StateTransition],
    new: frozenset[Line] = frozenset(),
) -> None:
    """Walk every line of the resource through what was `found`, and take down what comes of it.

    `new`: lines of `known.open` that the ledger does not have yet.
    """
    owner = seen.attribution
    path = [
        (moment, terms.list_meters_at(moment), _list_other_state_meters(terms, moment))
        for moment in _order_transitions(known, seen, found, window)
    ]
    billing = (line for _, here, there in path for line in (*here, *there))
    open_now, settled, edges = dict[Line, Span](), dict(known.settled), dict[Line, Span]()
    for line in sorted({*known.open, *billing}):
        ceiling = _compute_ceiling(terms, seen, window) if line == COMPUTE_LINE else 0
        walk = LineWalk(seen.key, known.open.get(line), settled.get(line), held=line not in new, ceiling=ceiling)
        for number, (moment, here, there) in enumerate(path):
            after, before = here.get(line), walk.span.meter if walk.span else None
            fuzzy = None
            if moment.unseen:
                fuzzy = bound_unseen_usage(before, after, there.get(line))
            elif before and not after:  # it bills again later: at the new price, which it may have had before it ended, too
                fuzzy = bound_unseen_end(before, next((later[line] for _, later, _ in path[number:] if line in later), None))
            walk.change(moment.earliest, moment.latest, after=after, fuzzy=fuzzy, owner=owner, why=moment.why)
        walk.hand_over(terms.poll.at, owner)
        changes.closed.extend(walk.closed)
        changes.opened.extend(walk.opened)
        if walk.floor is not None and (walk.closed or walk.added):
            settled[line] = max(span.end for span in (*walk.closed, *walk.added) if span.end is not None)
        if walk.span:
            open_now[line] = walk.span
        elif walk.edge:
            edges[line] = walk.edge
    for span in _list_traffic_spans(terms, known, seen):
        changes.opened.append(span)
        settled[span.line] = span.end or terms.poll.at
    changes.logged.append(ObservationLogEntry(key=seen.key, at=terms.poll.seen_at, observation=seen))
    changes.resources[seen.key] = KnownResource(
        observation=seen,
        first_seen_at=known.first_seen_at,
        logged_at=terms.poll.seen_at,
        open=open_now,
        settled=settled,
        edges=edges or {line: e for line, e in known.edges.items() if seen.state == ENDED and settled.get(line) == e.end},
    )


def _order_transitions(
    known: KnownResource, seen: Observation, found: list[StateTransition], window: ObservationWindow
) -> list[StateTransition]:
    """`found`, the changes of price that the provider dates, and last what is so now, in their order."""
    starts = [m.latest for m in found if m.seen and m.seen.state == RUNNING and m.earliest == m.latest]
    computing = known.open.get(COMPUTE_LINE)
    begun = starts[-1] if starts else (computing.start if computing else None)
    stops = [m.earliest for m in found if m.seen is None or m.seen.state in DOWN_STATES]
    until = stops[-1] if stops and (not starts or stops[-1] >= starts[-1]) else window.at + MICROSECOND
    up = seen if seen.state in UP_STATES else replace(seen, state=RUNNING)
    dated = list_price_transitions(up, begun, until) if begun else []
    path = sorted([*found, *dated], key=lambda m: m.latest)
    new, undated = known.observation is seen, not seen.prices or seen.prices[-1].since is None
    if new and undated and seen.tier == SPOT:  # what it cost before anybody looked is not known from what it costs now
        return [*(replace(m, moving=True) for m in path), StateTransition.at(window.at, seen, "first seen")]
    doubted = path if new or seen.state == ENDED else add_disk_doubt(path, known.observation, seen, window)
    since = window.begin if doubted is path else window.at
    return [*doubted, StateTransition(earliest=since, latest=window.at, seen=seen, why=f"seen {seen.state}")]


def _list_other_state_meters(terms: AccrualTerms, moment: StateTransition) -> Mapping[Line, Meter]:
    """What would have billed in the other state that the resource may have been in while nobody looked.

    Runs that were over before anybody ever looked are not looked for: the statement says since when it counts.
    """
    if not moment.unseen:
        return {}
    if moment.seen is None:
        ran = list_meters(replace(moment.other, state=RUNNING), terms.rule, terms.ceilings) if moment.other else {}
        return {line: meter for line, meter in ran.items() if line == COMPUTE_LINE}
    state = STOPPED if moment.seen.state in UP_STATES else RUNNING
    found = list_meters(replace(moment.seen, state=state), terms.rule, terms.ceilings)
    if moment.other:  # its price or its disks changed at some moment, too: it may have run at either
        found = merge_alternatives(found, list_meters(replace(moment.other, state=state), terms.rule, terms.ceilings))
    before_us = state == RUNNING and terms.state.complete_at is None
    return {line: meter for line, meter in found.items() if line != COMPUTE_LINE} if before_us else found


def _compute_ceiling(terms: AccrualTerms, seen: Observation, window: ObservationWindow) -> int:
    """Nano-units that an hour of it may have cost while nobody looked: a spot price moves, a dated one is known to have."""
    moved = bound_unknown_price(seen, terms.ceilings).high if seen.tier == SPOT else 0
    dated = find_highest_dated_price(seen, window.since or seen.started_at or seen.created_at or window.at)
    return min(max(moved, dated), LARGEST_PRICE)


def _list_traffic_spans(terms: AccrualTerms, known: KnownResource, seen: Observation) -> list[Span]:
    """What its counters have counted since the last time they were written down."""
    counted = {c.charge: c.mb for c in known.observation.counters} if known.observation is not seen else {}
    spans = []
    for counter in seen.counters:
        before = counted.get(counter.charge, 0)
        used = replace(
            counter, mb=counter.mb - before if counter.mb >= before else counter.mb
        )  # a counter that fell began anew
        meter = make_traffic_meter(used, terms.rule)
        since = known.logged_at if counted else seen.created_at or seen.started_at or terms.state.complete_at
        start = max(since or terms.poll.at, known.settled.get((counter.charge, ""), since or terms.poll.at))
        if meter and used.mb and start < terms.poll.at:
            spans.append(
                Span(
                    key=seen.key,
                    attribution=seen.attribution,
                    meter=meter,
                    start=start,
                    anchor=start,
                    end=terms.poll.at,
                    why="counted",
                    ended_by="counted",
                )
            )
    return spans
