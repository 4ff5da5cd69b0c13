"""All lines of one resource, walked through what an observation told: what `accrual` writes down in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from costguard.metering.billing import BillingRule, bound, meters, traffic_meter
from costguard.metering.inventory import Poll
from costguard.metering.meter import COMPUTE, LARGEST_PRICE, Line, Meter
from costguard.metering.observation import Observation
from costguard.metering.scope_state import Correction, Known, Logged, ScopeState
from costguard.metering.span import Span
from costguard.metering.state_transitions import DOWN, UP, Moment, Window, highest_dated, price_moments, with_doubt
from costguard.metering.walk import Walk, either_of, ended_unseen, unseen, up_to
from costguard.values.instant import MICROSECOND
from costguard.values.resource import ENDED, RUNNING, SPOT, STOPPED, ResourceKey

COMPUTING: Line = (COMPUTE, "")


@dataclass(slots=True)
class Changes:
    """What a poll changes, while it is worked out."""

    resources: dict[ResourceKey, Known]
    logged: list[Logged] = field(default_factory=list)
    closed: list[Span] = field(default_factory=list)
    opened: list[Span] = field(default_factory=list)
    corrected: list[Correction] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
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

    def window(self, seen_at: datetime | None) -> Window:
        """Since `seen_at`, less the lag, until the answer; None: nobody looked."""
        return Window(since=None if seen_at is None else seen_at - self.lag, at=self.poll.at, gap=self.gap)

    def meters(self, moment: Moment) -> Mapping[Line, Meter]:
        """What bills at `moment`."""
        if moment.seen is None:
            return {}
        found = meters(moment.seen, self.rule, self.ceilings, price=moment.price)
        if moment.other:
            return either_of(found, meters(moment.other, self.rule, self.ceilings))
        if moment.moving and COMPUTING in found:
            return {**found, COMPUTING: up_to(found[COMPUTING], bound(moment.seen, self.ceilings).high)}
        return found


def write(
    changes: Changes,
    terms: Terms,
    known: Known,
    seen: Observation,
    window: Window,
    *,
    found: list[Moment],
    new: frozenset[Line] = frozenset(),
) -> None:
    """Walk every line of the resource through what was `found`, and take down what comes of it.

    `new`: lines of `known.open` that the ledger does not have yet.
    """
    owner = seen.attribution
    path = [(moment, terms.meters(moment), _elsewhere(terms, moment)) for moment in _path(known, seen, found, window)]
    billing = (line for _, here, there in path for line in (*here, *there))
    open_now, settled, edges = dict[Line, Span](), dict(known.settled), dict[Line, Span]()
    for line in sorted({*known.open, *billing}):
        ceiling = _ceiling(terms, seen, window) if line == COMPUTING else 0
        walk = Walk(seen.key, known.open.get(line), settled.get(line), held=line not in new, ceiling=ceiling)
        for number, (moment, here, there) in enumerate(path):
            after, before = here.get(line), walk.span.meter if walk.span else None
            fuzzy = None
            if moment.unseen:
                fuzzy = unseen(before, after, there.get(line))
            elif before and not after:  # it bills again later: at the new price, which it may have had before it ended, too
                fuzzy = ended_unseen(before, next((later[line] for _, later, _ in path[number:] if line in later), None))
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
    for span in _traffic(terms, known, seen):
        changes.opened.append(span)
        settled[span.line] = span.end or terms.poll.at
    changes.logged.append(Logged(key=seen.key, at=terms.poll.seen_at, observation=seen))
    changes.resources[seen.key] = Known(
        observation=seen,
        first_seen_at=known.first_seen_at,
        logged_at=terms.poll.seen_at,
        open=open_now,
        settled=settled,
        edges=edges or {line: e for line, e in known.edges.items() if seen.state == ENDED and settled.get(line) == e.end},
    )


def _path(known: Known, seen: Observation, found: list[Moment], window: Window) -> list[Moment]:
    """`found`, the changes of price that the provider dates, and last what is so now, in their order."""
    starts = [m.latest for m in found if m.seen and m.seen.state == RUNNING and m.earliest == m.latest]
    computing = known.open.get(COMPUTING)
    begun = starts[-1] if starts else (computing.start if computing else None)
    stops = [m.earliest for m in found if m.seen is None or m.seen.state in DOWN]
    until = stops[-1] if stops and (not starts or stops[-1] >= starts[-1]) else window.at + MICROSECOND
    up = seen if seen.state in UP else replace(seen, state=RUNNING)
    dated = price_moments(up, begun, until) if begun else []
    path = sorted([*found, *dated], key=lambda m: m.latest)
    new, undated = known.observation is seen, not seen.prices or seen.prices[-1].since is None
    if new and undated and seen.tier == SPOT:  # what it cost before anybody looked is not known from what it costs now
        return [*(replace(m, moving=True) for m in path), Moment.at(window.at, seen, "first seen")]
    doubted = path if new or seen.state == ENDED else with_doubt(path, known.observation, seen, window)
    since = window.begin if doubted is path else window.at
    return [*doubted, Moment(earliest=since, latest=window.at, seen=seen, why=f"seen {seen.state}")]


def _elsewhere(terms: Terms, moment: Moment) -> Mapping[Line, Meter]:
    """What would have billed in the other state that the resource may have been in while nobody looked.

    Runs that were over before anybody ever looked are not looked for: the statement says since when it counts.
    """
    if not moment.unseen:
        return {}
    if moment.seen is None:
        ran = meters(replace(moment.other, state=RUNNING), terms.rule, terms.ceilings) if moment.other else {}
        return {line: meter for line, meter in ran.items() if line == COMPUTING}
    state = STOPPED if moment.seen.state in UP else RUNNING
    found = meters(replace(moment.seen, state=state), terms.rule, terms.ceilings)
    if moment.other:  # its price or its disks changed at some moment, too: it may have run at either
        found = either_of(found, meters(replace(moment.other, state=state), terms.rule, terms.ceilings))
    before_us = state == RUNNING and terms.state.complete_at is None
    return {line: meter for line, meter in found.items() if line != COMPUTING} if before_us else found


def _ceiling(terms: Terms, seen: Observation, window: Window) -> int:
    """Nano-units that an hour of it may have cost while nobody looked: a spot price moves, a dated one is known to have."""
    moved = bound(seen, terms.ceilings).high if seen.tier == SPOT else 0
    dated = highest_dated(seen, window.since or seen.started_at or seen.created_at or window.at)
    return min(max(moved, dated), LARGEST_PRICE)


def _traffic(terms: Terms, known: Known, seen: Observation) -> list[Span]:
    """What its counters have counted since the last time they were written down."""
    counted = {c.charge: c.mb for c in known.observation.counters} if known.observation is not seen else {}
    spans = []
    for counter in seen.counters:
        before = counted.get(counter.charge, 0)
        used = replace(
            counter, mb=counter.mb - before if counter.mb >= before else counter.mb
        )  # a counter that fell began anew
        meter = traffic_meter(used, terms.rule)
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
