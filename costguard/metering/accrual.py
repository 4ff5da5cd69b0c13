"""One poll in, what the ledger writes out: the heart of metering.

Example: a scope listed completely every minute holds one machine, running since 10:00:00 at $2 an hour. The first poll at
10:00:40 opens a span that starts at 10:00:00. A thousand polls that say the same write nothing but how far the scope is
covered. Then a poll says that it stopped at 18:30:05, and the span is closed there: $17.0028, and no doubt about it. Had the
machine just vanished after 18:30:00, the span would end there, and a minute that nobody saw would be worth $0.00 to $0.03.

Only a complete listing proves absence, and only the second one, at least a minute after the first. A listing that lacks more
than half of what was there, and more than two, proves nothing: it counts as partial until each that is missing has been
looked up by itself, or is back. One that has nothing left of a kind is looked into as well, however little that was: a list
that is empty for no reason is the classic lie, and one or two calls tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from costguard.metering import state_transitions as when
from costguard.metering.billing import BillingRule, meters
from costguard.metering.inventory import COMPLETE, FAILED, PARTIAL, Complete, Failed, Inventory, Partial, Poll, without_doubles
from costguard.metering.line_accrual import Changes, Terms, write
from costguard.metering.observation import Observation, believable
from costguard.metering.scope_state import Accrued, Correction, Known, Logged, ScopeState
from costguard.metering.span import SEEN
from costguard.metering.state_transitions import DOWN, UP, Moment, Window
from costguard.values.resource import ENDED, ResourceKey

SETTLES = timedelta(seconds=60)
"""Between the two complete listings that prove an absence: a page from a cache is rarely older (RELIABILITY H01)."""
GONE = "gone from the listing"
"""Why what no listing has any more is taken to have ended, where no listing showed its end."""

MANY = 2
"""More than so many, and more than half of a scope, gone at once: quarantined (RELIABILITY H01)."""

DOUBTED = timedelta(days=2)
"""A list that is empty, and that nobody could confirm or deny by id, is believed after so long: no provider is known to list
nothing for days while it holds something. An assumption, 2026-11."""

GAP = timedelta(minutes=5)
"""Between two looks, unless stated otherwise: a few missed polls of a minute."""

CORRECTS = timedelta(minutes=10)
"""After so long a start that lies before the one stated last is no old page from a cache, but a correction: an assumption."""

COUNTED_MB = 1000
"""Traffic is written when it has grown by a GB: at under $0.02 a GB, less would be a row a poll for less than two cents."""


def accrue(state: ScopeState, poll: Poll, rule: BillingRule, ceilings: Mapping[str, int], gap: timedelta = GAP) -> Accrued:
    """What `poll` changes of `state`. A poll that lies not after the scope's last one changes nothing."""
    if state.at is not None and poll.seen_at <= state.at:
        return Accrued(state=state, at=state.at, outcome=FAILED, why="not after the last poll", fresh=False)
    inventory, notes = without_doubles(poll.inventory)
    if isinstance(inventory, Failed):
        return Accrued(state=replace(state, at=poll.seen_at), at=poll.seen_at, outcome=FAILED, why=inventory.why, notes=notes)
    doubted = _doubted(state, poll, inventory)
    if doubted:
        why = f"the listing lacks {doubted} that were there, all at once: not believed before each is looked up"
        inventory = Partial(inventory.items, why)
    terms = Terms(state=state, poll=poll, rule=rule, ceilings=ceilings, gap=gap)
    changes = Changes(resources={}, notes=list(notes))
    known = _see(terms, inventory, changes)
    complete = isinstance(inventory, Complete)
    if isinstance(inventory, Complete) and known < len(state.resources):
        _miss(terms, inventory, changes)
    for gone in sorted(poll.gone & state.resources.keys()):
        if gone not in changes.resources and state.resources[gone].observation.state != ENDED:
            _settle(terms, state.resources[gone], changes)
    resources = {**state.resources, **changes.resources} if changes.resources else state.resources
    return Accrued(
        state=replace(state, at=poll.seen_at, complete_at=poll.seen_at if complete else state.complete_at, resources=resources),
        at=poll.seen_at,
        outcome=COMPLETE if complete else PARTIAL,
        why=inventory.why if isinstance(inventory, Partial) else "",
        logged=tuple(changes.logged),
        closed=tuple(changes.closed),
        opened=tuple(changes.opened),
        corrected=tuple(changes.corrected),
        notes=tuple(changes.notes),
    )


def last_seen(known: Known, state: ScopeState) -> datetime:
    """When the resource was last seen, as far as the ledger can tell."""
    if known.seen_at is not None:
        return max(known.seen_at, known.logged_at)
    return max(known.logged_at, state.complete_at or known.logged_at)


def _see(terms: Terms, inventory: Complete | Partial, changes: Changes) -> int:
    """Compare what is listed with what is known; only what differs, or was not looked at for too long, costs more.

    How many of those known are listed.
    """
    state, known_of = terms.state, terms.state.resources
    looked = state.complete_at is not None and terms.poll.seen_at - state.complete_at <= terms.gap
    settled, listed = looked or isinstance(inventory, Partial), 0
    for seen in inventory.items:
        known = known_of.get(seen.key)
        if known is None:
            _begin(terms, seen, changes)
            continue
        listed += 1
        if known.observation != seen or known.absent_at is not None or not settled:
            _go_on(terms, known, seen, changes)
    return listed


def _begin(terms: Terms, seen: Observation, changes: Changes) -> None:
    """A resource that was not known."""
    seen, notes = believable(seen, terms.poll.at)
    changes.notes.extend(notes)
    window = terms.window(terms.state.complete_at)
    known = Known(observation=seen, first_seen_at=terms.poll.seen_at, logged_at=terms.poll.seen_at)
    write(changes, terms, known, seen, window, found=when.first_moments(seen, window, terms.rule.restarts))


def _go_on(terms: Terms, known: Known, seen: Observation, changes: Changes) -> None:
    """A resource that was seen before: did it change, and when?"""
    seen, notes = believable(seen, terms.poll.at)
    before = known.observation
    if _contradicted(terms, known, seen) or _still_over(before, seen):
        return
    if when.outdated(before, seen):
        if terms.poll.seen_at - max(terms.lag, CORRECTS) <= known.logged_at:
            return
        notes = (*notes, f"{seen.key.provider} {seen.key.id}: its start was stated later before, and is taken as stated now")
        before = replace(before, started_at=seen.started_at)
        known = replace(known, observation=before)
    seen = when.with_newest_prices(before, seen)
    window = terms.window(last_seen(known, terms.state))
    same = when.same_run(before, seen, terms.rule.restarts)
    looked = known.absent_at is None and (same is not None or not window.wide)
    if looked and _alike(before, seen):
        return
    changes.notes.extend(notes)
    if known.edges and same and before.state in DOWN and seen.state in UP:
        _resume(terms, known, seen, changes)
    elif before.state == ENDED:
        write(changes, terms, known, seen, window, found=_again(terms, known, seen, window))
    else:
        found = when.next_moments(before, seen, window, terms.rule.restarts)
        write(changes, terms, known, seen, window, found=found)


def _alike(before: Observation, seen: Observation) -> bool:
    """Whether nothing changed but a little traffic."""
    if before.counters == seen.counters or len(before.counters) != len(seen.counters):
        return before == seen
    if replace(before, counters=seen.counters) != seen:
        return False
    return all(
        (b.charge, b.nano_per_gb) == (s.charge, s.nano_per_gb) and 0 <= s.mb - b.mb < COUNTED_MB
        for b, s in zip(before.counters, seen.counters, strict=True)
    )


def _contradicted(terms: Terms, known: Known, seen: Observation) -> bool:
    """Whether `seen` tells of a run that is known to be over, within the time that a listing may lag behind."""
    before = known.observation
    over = before.state in DOWN and seen.state not in DOWN and before.started_at is not None
    return over and before.started_at == seen.started_at and terms.poll.seen_at - terms.lag < known.logged_at


def _still_over(before: Observation, seen: Observation) -> bool:
    """Whether what is known to be gone for good is listed as gone, and no run since is told of."""
    return before.state == ENDED == seen.state and not when.started_anew(before, seen)


def _again(terms: Terms, known: Known, seen: Observation, window: Window) -> list[Moment]:
    """A resource that was gone for good is listed again. Where nobody can tell whether it ran meanwhile, it may have."""
    if when.same_run(known.observation, seen, terms.rule.restarts) is None and known.settled:
        begin = min(known.settled.values())
        return [Moment(earliest=begin, latest=window.at, seen=seen, unseen=True, why="listed again")]
    return when.first_moments(seen, window, terms.rule.restarts)


def _resume(terms: Terms, known: Known, seen: Observation, changes: Changes) -> None:
    """It never ended: what looked like its end is corrected, and what came after it is filled in."""
    at, bills = terms.poll.seen_at, meters(seen, terms.rule, terms.ceilings)
    reason = "seen again, and it is still the same run"
    changes.corrected.extend(Correction(span=e, presence=SEEN, at=at, reason=reason) for e in known.edges.values())
    filled = {
        line: replace(edge, meter=bills[line], start=edge.end or at, end=None, ended_by="", presence=SEEN, why="seen again")
        for line, edge in known.edges.items()
        if line in bills
    }
    known = replace(known, open={**known.open, **filled}, edges={})
    write(changes, terms, known, seen, terms.window(at), found=[], new=frozenset(filled))


def suspects(state: ScopeState, inventory: Inventory) -> tuple[ResourceKey, ...]:
    """What must be looked up by itself before its absence is believed: too much is missing at once. Mostly nothing.

    What was looked up and settled since the last believable listing still counts as missing, so that a lie does not become
    credible by being caught once.
    """
    return _missing(state, inventory)[0]


def _missing(state: ScopeState, inventory: Inventory) -> tuple[tuple[ResourceKey, ...], bool]:
    """What is missing and suspicious, and whether that is many at once; else all that there was of some kind."""
    if not isinstance(inventory, Complete) or not state.resources:
        return (), False
    listed = {item.key for item in inventory.items}
    if listed.issuperset(state.resources):
        return (), False
    there = [known for known in state.resources.values() if _was_there(known, state)]
    missing = [known for known in there if known.observation.key not in listed]
    many = len(missing) > MANY and 2 * len(missing) > len(there)
    if not many:
        kept = {item.kind for item in inventory.items}
        missing = [known for known in missing if known.observation.kind not in kept]
    return tuple(known.observation.key for known in missing if known.observation.state != ENDED), many


def _doubted(state: ScopeState, poll: Poll, inventory: Inventory) -> int:
    """How many are missing whose absence is not believed yet; of a few, only where a look at them had no answer."""
    missing, many = _missing(state, inventory)
    left = [key for key in missing if key not in poll.gone]
    if many or not left:
        return len(left)
    long_ago = state.complete_at is not None and poll.seen_at - state.complete_at >= DOUBTED
    believed = (long_ago or state.resources[key].absent_at is not None for key in left)
    return sum(key in poll.unanswered and not gone for key, gone in zip(left, believed, strict=True))


def _was_there(known: Known, state: ScopeState) -> bool:
    """Whether it lived at the last complete listing, or lives now."""
    return known.observation.state != ENDED or (state.complete_at is not None and known.logged_at > state.complete_at)


def _miss(terms: Terms, inventory: Complete, changes: Changes) -> None:
    """What is known and not listed: noted the first time, believed the second."""
    listed = {item.key for item in inventory.items}
    for key, known in terms.state.resources.items():
        if key in listed or known.observation.state == ENDED or key in terms.poll.gone:
            continue
        if known.absent_at is None:
            _note_absence(terms, known, changes)
        elif terms.poll.seen_at - known.absent_at >= SETTLES:
            _settle(terms, known, changes)


def _note_absence(terms: Terms, known: Known, changes: Changes) -> None:
    """The first complete listing without it."""
    key, seen_at = known.observation.key, last_seen(known, terms.state)
    changes.logged.append(Logged(key=key, at=terms.poll.at, observation=None, seen_at=seen_at))
    changes.resources[key] = replace(known, absent_at=terms.poll.at, seen_at=seen_at)


def _settle(terms: Terms, known: Known, changes: Changes) -> None:
    """It has ended, between the last sight of it and the first listing without it."""
    ended = replace(known.observation, state=ENDED, why=GONE)
    window = terms.window(last_seen(known, terms.state))
    hidden = window.wide and terms.rule.restarts != "never"
    end = when.gone_moment(known.observation, window.begin, known.absent_at or terms.poll.at, hidden=hidden)
    write(changes, terms, known, ended, terms.window(None), found=[end])
