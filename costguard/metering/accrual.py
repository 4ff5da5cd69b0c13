"""Accrue one poll: compute the spans, log entries and corrections that the ledger writes.

The core of metering. Example: a scope listed completely every minute holds one machine, running since 10:00:00 at $2 an hour.
The first poll at 10:00:40 opens a span that starts at 10:00:00. A thousand unchanged polls extend only the coverage of the
scope. Then a poll reports that the machine stopped at 18:30:05, and the span is closed there: $17.0028, exactly. If the machine
had vanished after 18:30:00 instead, the span would end there, and the unobserved minute after it would cost $0.00 to $0.03.

Only a complete listing proves absence, and only the second one, at least a minute after the first. A listing that lacks more
than half of the known resources, and more than two, counts as partial until each missing resource has been looked up by itself
or is listed again. The same check applies when all resources of one kind are missing, even a few: an empty list without a cause
is a well-known false answer, and one or two calls settle it.

The module also computes usage that may have billed since the last look (`find_unobserved_usage`): spans in addition to the open
ones, with low and expected cost zero.

Example: a machine at $2.99 an hour was off at the last complete listing of its scope, at 12:00; the scope has not answered
since. At 13:00 the machine is probably still off, but may have run all the time: MAYBE from 12:00 to 13:00, $0.00 to $2.99. If
the scope then reports that it runs, and since when, that is written. If it is still off and its provider states starts, nothing
is written.

The high end meanwhile is never below what any later answer produces (docs/decisions/0014): a machine may be running or off,
each line costs its price in that state, and a spot price may have risen to the highest of the market.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from costguard.metering import state_transitions as when
from costguard.metering.billing import BillingRule, bound_unknown_price, list_meters
from costguard.metering.inventory import (
    COMPLETE,
    FAILED,
    PARTIAL,
    SHARES_NOTHING,
    Complete,
    Failed,
    Inventory,
    Partial,
    Poll,
    remove_duplicates,
)
from costguard.metering.line_accrual import AccrualTerms, PollChanges, record_line_changes
from costguard.metering.meter import COMPUTE, Line, Meter, PriceRange
from costguard.metering.observation import Observation, drop_impossible_times
from costguard.metering.scope_state import AccrualResult, KnownResource, ObservationLogEntry, ScopeState, SpanCorrection
from costguard.metering.span import MAYBE, SEEN, Span
from costguard.metering.state_transitions import DOWN_STATES, UP_STATES, ObservationWindow, StateTransition
from costguard.values.resource import ENDED, INSTANCE, RUNNING, SPOT, STOPPED, ResourceKey

if TYPE_CHECKING:  # what only reads a ledger estimates no price
    from costguard.metering.price_ladder import PriceLadder

ABSENCE_SETTLES_AFTER = timedelta(seconds=60)
"""Between the two complete listings that prove an absence: a page from a cache is rarely older (RELIABILITY H01)."""
GONE_REASON = "gone from the listing"
"""Why what no listing has any more is taken to have ended, where no listing showed its end."""

MANY_MISSING = 2
"""More than so many, and more than half of a scope, gone at once: quarantined (RELIABILITY H01)."""

EMPTY_DOUBTED_FOR = timedelta(days=2)
"""A list that is empty, and that nobody could confirm or deny by id, is believed after so long: no provider is known to list
nothing for days while it holds something. An assumption, 2026-11."""

DOUBTED_LISTINGS = 3
"""Listings that share nothing with the last complete one, before they are believed: so an account with one pod a day is
not doubted for ever. An assumption, 2026-11."""

POLL_GAP = timedelta(minutes=5)
"""Between two looks, unless stated otherwise: a few missed polls of a minute."""

CORRECTION_AFTER = timedelta(minutes=10)
"""After so long a start that lies before the one stated last is no old page from a cache, but a correction: an assumption."""

COUNTED_MB = 1000
"""Traffic is written when it has grown by a GB: at under $0.02 a GB, less would be a row a poll for less than two cents."""


def accrue_poll(
    state: ScopeState,
    poll: Poll,
    rule: BillingRule,
    ceilings: Mapping[str, int],
    gap: timedelta = POLL_GAP,
    *,
    ladder: PriceLadder | None = None,
) -> AccrualResult:
    """Compute the changes that `poll` makes to `state`.

    `ceilings`: canonical GPU -> the highest known nano-units per GPU-hour. `gap`: a longer time between two looks counts as
    unobserved. `ladder`: estimates prices that the listing does not state; None: they are bounded by `ceilings` alone. A poll
    that is not later than the scope's last one changes nothing (`fresh` is False).
    """
    if state.at is not None and poll.seen_at <= state.at:
        return AccrualResult(state=state, at=state.at, outcome=FAILED, why="not after the last poll", fresh=False)
    inventory, notes = remove_duplicates(poll.inventory)
    if isinstance(inventory, Failed):
        return AccrualResult(
            state=replace(state, at=poll.seen_at), at=poll.seen_at, outcome=FAILED, why=inventory.why, notes=notes
        )
    if ladder is not None:
        from costguard.metering.price_ladder import apply_learned_rates, estimate_missing_prices

        priced = estimate_missing_prices(inventory.items, state, ladder, poll.seen_at.date())
        own = (ladder.agree(one, poll.seen_at, state.resources.get(one.key)) for one in priced)
        inventory = replace(inventory, items=tuple(apply_learned_rates(ladder.learned, one, poll.seen_at) for one in own))
    doubted = _count_doubted(state, poll, inventory)
    if doubted:
        why = f"the listing lacks {doubted} known resources at once: each stays as it was until it is looked up"
        inventory = Partial(inventory.items, why)
    stranger = _explain_stranger(state, poll, inventory)
    if stranger:
        inventory, poll = Partial(inventory.items, stranger), replace(poll, gone=frozenset())
    terms = AccrualTerms(state=state, poll=poll, rule=rule, ceilings=ceilings, gap=gap)
    changes = PollChanges(resources={}, notes=list(notes))
    listed_count = _compare_listing(terms, inventory, changes)
    complete = isinstance(inventory, Complete)
    if isinstance(inventory, Complete) and listed_count < len(state.resources):
        _handle_missing(terms, inventory, changes)
    for key in sorted(poll.gone & state.resources.keys()):
        if key not in changes.resources and state.resources[key].observation.state != ENDED:
            _settle_absence(terms, state.resources[key], changes)
    resources = {**state.resources, **changes.resources} if changes.resources else state.resources
    return AccrualResult(
        state=replace(
            state,
            at=poll.seen_at,
            complete_at=poll.seen_at if complete else state.complete_at,
            doubted=0 if complete else state.doubted + bool(stranger),
            resources=resources,
        ),
        at=poll.seen_at,
        outcome=COMPLETE if complete else PARTIAL,
        why=inventory.why if isinstance(inventory, Partial) else "",
        logged=tuple(changes.logged),
        closed=tuple(changes.closed),
        opened=tuple(changes.opened),
        corrected=tuple(changes.corrected),
        notes=tuple(changes.notes),
    )


def find_last_seen(resource: KnownResource, state: ScopeState) -> datetime:
    """Return when the resource was last seen, according to the ledger."""
    if resource.seen_at is not None:
        return max(resource.seen_at, resource.logged_at)
    return max(resource.logged_at, state.complete_at or resource.logged_at)


def _compare_listing(terms: AccrualTerms, inventory: Complete | Partial, changes: PollChanges) -> int:
    """Compare the listed resources with the known ones, and return how many of the known ones are listed.

    Only resources that differ, or were not looked at for longer than `gap`, are processed further.
    """
    state, known_of = terms.state, terms.state.resources
    looked = state.complete_at is not None and terms.poll.seen_at - state.complete_at <= terms.gap
    settled, listed = looked or isinstance(inventory, Partial), 0
    for observation in inventory.items:
        resource = known_of.get(observation.key)
        if resource is None:
            _open_resource(terms, observation, changes)
            continue
        listed += 1
        if resource.observation != observation or resource.absent_at is not None or not settled:
            _update_resource(terms, resource, observation, changes)
    return listed


def _open_resource(terms: AccrualTerms, observation: Observation, changes: PollChanges) -> None:
    """Record a resource that was not known before."""
    observation, notes = drop_impossible_times(observation, terms.poll.at)
    changes.notes.extend(notes)
    window = terms.make_window(terms.state.complete_at)
    resource = KnownResource(observation=observation, first_seen_at=terms.poll.seen_at, logged_at=terms.poll.seen_at)
    record_line_changes(changes, terms, resource, observation, window, transitions=_list_first(terms, observation, window))


def _update_resource(terms: AccrualTerms, resource: KnownResource, observation: Observation, changes: PollChanges) -> None:
    """Record a resource that is listed again: whether it changed, and when."""
    observation, notes = drop_impossible_times(observation, terms.poll.at)
    previous = resource.observation
    if _is_stale_page(terms, resource, observation) or _is_still_ended(previous, observation):
        return
    if when.is_outdated(previous, observation):
        if terms.poll.seen_at - max(terms.lag, CORRECTION_AFTER) <= resource.logged_at:
            return
        machine = f"{observation.key.provider} {observation.key.id}"
        notes = (*notes, f"{machine}: its start was stated later before, and is taken as stated now")
        previous = replace(previous, started_at=observation.started_at)
        resource = replace(resource, observation=previous)
    observation = when.merge_prices(previous, observation)
    window = terms.make_window(find_last_seen(resource, terms.state))
    same = when.is_same_run(previous, observation, terms.rule.restarts)
    looked = resource.absent_at is None and (same is not None or not window.wide)
    if looked and _is_unchanged(previous, observation):
        return
    changes.notes.extend(notes)
    if resource.edges and same and previous.state in DOWN_STATES and observation.state in UP_STATES:
        _undo_end(terms, resource, observation, changes)
    elif previous.state == ENDED:
        transitions = _list_reopening(terms, resource, observation, window)
        record_line_changes(changes, terms, resource, observation, window, transitions=transitions)
    else:
        transitions = when.list_next_transitions(previous, observation, window, terms.rule.restarts)
        record_line_changes(changes, terms, resource, observation, window, transitions=transitions)


def _is_unchanged(previous: Observation, observation: Observation) -> bool:
    """Return whether both observations are equal, except for traffic that grew by less than `COUNTED_MB`."""
    if previous.counters == observation.counters or len(previous.counters) != len(observation.counters):
        return previous == observation
    if replace(previous, counters=observation.counters) != observation:
        return False
    return all(
        (b.charge, b.nano_per_gb) == (s.charge, s.nano_per_gb) and 0 <= s.mb - b.mb < COUNTED_MB
        for b, s in zip(previous.counters, observation.counters, strict=True)
    )


def _is_stale_page(terms: AccrualTerms, resource: KnownResource, observation: Observation) -> bool:
    """Return whether `observation` shows a run as active that is known to be over, within the lag of the listing."""
    previous = resource.observation
    over = previous.state in DOWN_STATES and observation.state not in DOWN_STATES and previous.started_at is not None
    return over and previous.started_at == observation.started_at and terms.poll.seen_at - terms.lag < resource.logged_at


def _is_still_ended(previous: Observation, observation: Observation) -> bool:
    """Return whether an ended resource is listed as ended again, with no new run since."""
    return previous.state == ENDED == observation.state and not when.is_new_run(previous, observation)


def _list_reopening(
    terms: AccrualTerms, resource: KnownResource, observation: Observation, window: ObservationWindow
) -> list[StateTransition]:
    """List the transitions of an ended resource that is listed again.

    It may have run meanwhile where the provider does not state it.
    """
    if when.is_same_run(resource.observation, observation, terms.rule.restarts) is None and resource.settled:
        begin = min(resource.settled.values())
        return [StateTransition(earliest=begin, latest=window.at, seen=observation, unseen=True, why="listed again")]
    return _list_first(terms, observation, window)


def _list_first(terms: AccrualTerms, observation: Observation, window: ObservationWindow) -> list[StateTransition]:
    """List the transitions of a resource that was not known before, by its provider's rule."""
    boot_s = terms.rule.longest_boot_s
    boot = None if boot_s is None else timedelta(seconds=boot_s)
    return when.list_first_transitions(observation, window, terms.rule.restarts, boot)


def _undo_end(terms: AccrualTerms, resource: KnownResource, observation: Observation, changes: PollChanges) -> None:
    """Undo an end that was assumed: correct its EDGE spans to SEEN, and open spans for the time after them."""
    at, bills = terms.poll.seen_at, list_meters(observation, terms.rule, terms.ceilings)
    reason = "seen again, and it is still the same run"
    changes.corrected.extend(SpanCorrection(span=e, presence=SEEN, at=at, reason=reason) for e in resource.edges.values())
    filled = {
        line: replace(edge, meter=bills[line], start=edge.end or at, end=None, ended_by="", presence=SEEN, why="seen again")
        for line, edge in resource.edges.items()
        if line in bills
    }
    resource = replace(resource, open={**resource.open, **filled}, edges={})
    record_line_changes(changes, terms, resource, observation, terms.make_window(at), transitions=[], new=frozenset(filled))


def find_suspect_absences(state: ScopeState, inventory: Inventory) -> tuple[ResourceKey, ...]:
    """Return the missing resources that must be looked up by themselves before their absence is accepted.

    Usually empty. Resources that were looked up and settled since the last accepted listing still count as missing, so that a
    wrong listing is not accepted because some of its absences were checked.
    """
    return _find_missing(state, inventory)[0]


def _find_missing(state: ScopeState, inventory: Inventory) -> tuple[tuple[ResourceKey, ...], bool]:
    """Return the missing resources that are suspicious, and whether too many are missing at once.

    False means that they are all resources of some kind, or that there are none.
    """
    if not isinstance(inventory, Complete) or not state.resources:
        return (), False
    listed = {item.key for item in inventory.items}
    if listed.issuperset(state.resources):
        return (), False
    resources = [resource for resource in state.resources.values() if _was_there(resource, state)]
    missing = [resource for resource in resources if resource.observation.key not in listed]
    many = len(missing) > MANY_MISSING and 2 * len(missing) > len(resources)
    if not many:
        kinds = {item.kind for item in inventory.items}
        missing = [resource for resource in missing if resource.observation.kind not in kinds]
    return tuple(resource.observation.key for resource in missing if resource.observation.state != ENDED), many


def _count_doubted(state: ScopeState, poll: Poll, inventory: Inventory) -> int:
    """Return how many missing resources are not accepted as absent yet.

    If too many are missing at once, each one that was not looked up counts. Otherwise only those count whose lookup had no
    answer.
    """
    missing, many = _find_missing(state, inventory)
    left = [key for key in missing if key not in poll.gone]
    if many or not left:
        return len(left)
    long_ago = state.complete_at is not None and poll.seen_at - state.complete_at >= EMPTY_DOUBTED_FOR
    believed = (long_ago or state.resources[key].absent_at is not None for key in left)
    return sum(key in poll.unanswered and not is_gone for key, is_gone in zip(left, believed, strict=True))


def _explain_stranger(state: ScopeState, poll: Poll, inventory: Inventory) -> str:
    """Return why a complete listing may be of another account: nobody proves whose it is, and it shares nothing with the last.

    A pod replaced by another between two polls looks alike, so after `DOUBTED_LISTINGS` they are believed. An empty one is
    settled by look-ups. "" for no doubt.
    """
    resources, at = state.resources, state.complete_at
    if (
        poll.proven
        or at is None
        or state.doubted >= DOUBTED_LISTINGS
        or not (isinstance(inventory, Complete) and inventory.items)
    ):
        return ""
    if any(item.key in resources and resources[item.key].first_seen_at <= at for item in inventory.items):
        return ""
    if not any(one.observation.state != ENDED and one.first_seen_at <= at for one in resources.values()):
        return ""
    return SHARES_NOTHING


def _was_there(resource: KnownResource, state: ScopeState) -> bool:
    """Return whether the resource existed at the last complete listing, or exists now."""
    return resource.observation.state != ENDED or (state.complete_at is not None and resource.logged_at > state.complete_at)


def _handle_missing(terms: AccrualTerms, inventory: Complete, changes: PollChanges) -> None:
    """Process known resources that are not listed: note the first absence, settle the second."""
    listed = {item.key for item in inventory.items}
    for key, resource in terms.state.resources.items():
        if key in listed or resource.observation.state == ENDED or key in terms.poll.gone:
            continue
        if resource.absent_at is None:
            _note_absence(terms, resource, changes)
        elif terms.poll.seen_at - resource.absent_at >= ABSENCE_SETTLES_AFTER:
            _settle_absence(terms, resource, changes)


def _note_absence(terms: AccrualTerms, resource: KnownResource, changes: PollChanges) -> None:
    """Log the first complete listing that lacks the resource."""
    key, seen_at = resource.observation.key, find_last_seen(resource, terms.state)
    changes.logged.append(ObservationLogEntry(key=key, at=terms.poll.at, observation=None, seen_at=seen_at))
    changes.resources[key] = replace(resource, absent_at=terms.poll.at, seen_at=seen_at)


def _settle_absence(terms: AccrualTerms, resource: KnownResource, changes: PollChanges) -> None:
    """Record that the resource ended between the last time it was seen and the first listing without it."""
    ended = replace(resource.observation, state=ENDED, why=GONE_REASON)
    window = terms.make_window(find_last_seen(resource, terms.state))
    hidden = window.wide and terms.rule.restarts != "never"
    end = when.make_gone_transition(resource.observation, window.begin, resource.absent_at or terms.poll.at, hidden=hidden)
    record_line_changes(changes, terms, resource, ended, terms.make_window(None), transitions=[end])


NOT_LOOKED_AT = "not looked at"


def find_unobserved_usage(
    resource: KnownResource,
    seen_at: datetime,
    as_of: datetime,
    *,
    rule: BillingRule,
    dearest: Mapping[Line, Meter],
    gap: timedelta,
) -> tuple[Span, ...]:
    """Return spans that may have billed from the last look at `seen_at` to `as_of`, in addition to the open ones.

    Usually there are none. `dearest`: from `find_dearest_meters`. `gap`: until the last look is older than this, a stopped
    machine counts as stopped and prices as unchanged. `resource` needs its `settled`.
    """
    window = ObservationWindow(since=seen_at - timedelta(seconds=rule.lag_s), at=as_of, gap=gap)
    observation = resource.observation
    if not window.wide or observation.kind != INSTANCE or observation.state == ENDED:
        return ()
    return tuple(_yield_unobserved_spans(resource, window, dearest))


def needs_price_ceilings(observation: Observation, rule: BillingRule) -> bool:
    """Return whether only the market's highest prices bound the cost of the resource: spot, or a price that is unknown."""
    running = list_meters(replace(observation, state=RUNNING), rule, {})
    return observation.tier == SPOT or not all(meter.price.known for meter in running.values())


def find_dearest_meters(observation: Observation, rule: BillingRule, ceilings: Mapping[str, int]) -> dict[Line, Meter]:
    """Return, for each line, the most expensive meter in any state that the machine may have reached."""
    ends = rule.restarts == "never" and observation.state in DOWN_STATES
    meters: dict[Line, Meter] = {}
    for state in (STOPPED,) if ends else (STOPPED, RUNNING):
        for line, meter in list_meters(replace(observation, state=state), rule, ceilings).items():
            if line not in meters or _compute_most(meter) > _compute_most(meters[line]):
                meters[line] = meter
    computing = meters.get((COMPUTE, ""))
    if computing and observation.tier == SPOT:
        high = max(computing.price.high, bound_unknown_price(observation, ceilings).high)
        meters[computing.line] = replace(computing, price=replace(computing.price, high=high))
    return meters


def _yield_unobserved_spans(
    resource: KnownResource, window: ObservationWindow, dearest: Mapping[Line, Meter]
) -> Iterator[Span]:
    for line, meter in sorted(dearest.items()):
        open_now = resource.open.get(line)
        more = _subtract_meter(meter, open_now.meter) if open_now else meter
        floor = open_now.start if open_now else resource.settled.get(line)
        start = window.begin if floor is None else max(window.begin, floor)
        if more and start < window.at:
            yield Span(
                key=resource.observation.key,
                attribution=resource.observation.attribution,
                meter=more,
                start=start,
                anchor=open_now.anchor if open_now else start,
                end=window.at,
                presence=MAYBE,
                why=NOT_LOOKED_AT,
                ended_by=NOT_LOOKED_AT,
            )


def _subtract_meter(meter: Meter, open_now: Meter) -> Meter | None:
    """Return the highest cost of `meter` beyond `open_now`; None if there is none.

    If unit, step or currency differ, the two cannot be compared and all of `meter` is returned.
    """
    price, other = meter.price, open_now.price
    if (meter.unit, meter.quantum_s, price.currency) != (open_now.unit, open_now.quantum_s, other.currency):
        return meter
    more = _compute_most(meter) - _compute_most(open_now)
    if more <= 0:
        return None
    high = -(-more // max(1, meter.quantity))
    return replace(meter, minimum_s=0, price=PriceRange(0, 0, high, price.currency, known=price.known))


def _compute_most(meter: Meter) -> int:
    return meter.price.high * meter.quantity
