"""Write polls and samples to the ledger, each call in one transaction.

Each scope's state is held in memory between polls. It is read again from the ledger, with the same result, after a crash, after
a failed transaction, and after another process wrote, which the revision shows.

Samples are stored one by one for `SAMPLE_RETENTION`, then as one row per hour with their exact number. Samples do not change
the ledger's revision, because a writer of polls remembers nothing that depends on them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from types import TracebackType
from typing import Self

from sqlalchemy import Engine

from costguard.ledger.db.codecs import Execute, Query, format_placeholders, split_batches
from costguard.ledger.db.connection import WriteConnection, begin_write, open_engine, open_sql_session
from costguard.ledger.spans.observations import SAMPLED_SIGNALS
from costguard.ledger.spans.posting import NUMBERED_TABLES, PollTransaction, WriterState
from costguard.ledger.spans.scope_state import (
    MEMORY_SPAN,
    ScopeRecord,
    is_remembered,
    load_attributions,
    load_known,
    load_scopes,
)
from costguard.metering.accrual import POLL_GAP, accrue_poll, find_suspect_absences
from costguard.metering.billing import BillingRule, get_billing_rule
from costguard.metering.inventory import Complete, Failed, Partial, Poll, remove_duplicates
from costguard.metering.price_ladder import PriceLadder
from costguard.metering.scope_state import AccrualResult
from costguard.system.process import pause_gc
from costguard.values.instant import HOUR_US, to_micros
from costguard.values.resource import ENDED, ResourceKey, ScopeKey
from costguard.values.sample import Sample


class LedgerWriter:
    """The ledger at `url`, for the one process that writes polls; one thread at a time.

    Use it in a `with` statement. `rules`: how each provider bills. `ceilings`: canonical GPU -> the highest known nano-units an
    hour. `gap`: if two looks are further apart and the provider states no start, a machine may have restarted unobserved.
    `ladder`: estimates prices that listings do not state; None: they are bounded by `ceilings` alone.
    """

    def __init__(
        self,
        url: str,
        *,
        rules: Mapping[str, BillingRule],
        ceilings: Mapping[str, int],
        gap: timedelta = POLL_GAP,
        ladder: PriceLadder | None = None,
    ) -> None:
        self._engine = open_engine(url)
        self._pen = WriteConnection(self._engine)
        self._rules, self._ceilings, self._gap, self._ladder = rules, ceilings, gap, ladder
        self._memory: WriterState | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._memory = None
        self._pen.close()

    def has_polls(self) -> bool:
        """Return whether any poll was ever recorded."""
        return bool(self._load_state().books)

    def find_suspects(self, poll: Poll) -> tuple[ResourceKey, ...]:
        """Return the resources missing in `poll` that must be looked up before their absence is accepted.

        Usually empty.
        """
        book = self._load_state().books.get(poll.scope)
        return find_suspect_absences(book.state, poll.inventory) if book else ()

    def list_scopes_of(self, provider: str) -> tuple[ScopeKey, ...]:
        """Return every scope of `provider` that was ever polled, by name."""
        return tuple(sorted(scope for scope in self._load_state().books if scope.provider == provider))

    def record_polls(self, polls: Sequence[Poll]) -> tuple[AccrualResult, ...]:
        """Write the changes of `polls`, in order and in one transaction, which is on disk when this returns.

        Any grouping of the same polls writes the same rows. A poll that is not later than the last one of its scope changes
        nothing.
        """
        memory, self._memory = self._memory, None  # whatever goes wrong below, what we remember is read anew
        with pause_gc(), self._pen.begin_transaction() as (ask, tell):
            memory = _refresh_state(ask, memory)
            posting = PollTransaction(ask, tell, memory, self._gap)
            accrued = tuple(self._write_poll(ask, posting, memory, poll) for poll in polls)
            if any(found.fresh for found in accrued):
                posting.finish()
        self._memory = memory
        return accrued

    def record_samples(self, samples: Sequence[Sample]) -> frozenset[ResourceKey]:
        """Write `samples` in a separate transaction.

        Returns the resources that are not in the ledger, whose samples are left out.
        """
        return record_samples(self._engine, samples)

    def _load_state(self) -> WriterState:
        """Return the state, read again if another process has written."""
        with self._pen.begin_transaction() as (ask, _):
            self._memory = memory = _refresh_state(ask, self._memory)
        return memory

    def _write_poll(self, ask: Query, posting: PollTransaction, memory: WriterState, poll: Poll) -> AccrualResult:
        """Write the changes of one poll."""
        book = memory.books.get(poll.scope) or posting.open_book(poll.scope)
        accrued = self._accrue(ask, memory, book, poll)
        if accrued.fresh:
            posting.add(book, accrued)
            _forget_ended(book, accrued)
        return accrued

    def _accrue(self, ask: Query, memory: WriterState, book: ScopeRecord, poll: Poll) -> AccrualResult:
        """Compute the changes of `poll`, after looking up resources that are new to the scope in the whole ledger.

        The changes are computed first, and again if the lookup finds any: a poll without new resources needs no query.
        """
        accrued = self._compute_changes(memory, book, poll)
        new = [row.key for row in accrued.logged if row.key not in book.state.resources]
        if not new or not memory.last_ids["resource"]:
            return accrued
        found = load_known(ask, new)
        if not found:
            return accrued
        scopes = {other.id: scope for scope, other in memory.books.items()}
        book.elsewhere |= {key: scopes[one.scope_id] for key, one in found.items() if one.scope_id != book.id}
        book.remember({key: one for key, one in found.items() if one.scope_id == book.id})
        return self._compute_changes(memory, book, poll)

    def _compute_changes(self, memory: WriterState, book: ScopeRecord, poll: Poll) -> AccrualResult:
        """Compute the changes of `poll`, without resources that another scope also lists and saw first."""
        poll, notes = _drop_foreign_resources(poll, book.elsewhere, memory.books)
        rule = get_billing_rule(self._rules, poll.scope.provider)
        accrued = accrue_poll(book.state, poll, rule, self._ceilings, self._gap, ladder=self._ladder)
        return replace(accrued, notes=(*notes, *accrued.notes)) if notes else accrued


def _drop_foreign_resources(
    poll: Poll, elsewhere: Mapping[ResourceKey, ScopeKey], books: Mapping[ScopeKey, ScopeRecord]
) -> tuple[Poll, tuple[str, ...]]:
    """Return `poll` without the resources that belong to other scopes, and notes about them.

    Duplicates are removed first, whichever scope their resources belong to. If a listed resource is no longer counted by the
    scope that it belongs to, it is counted nowhere; then the listing becomes partial.
    """
    if not elsewhere:
        return poll, ()
    listed, notes = remove_duplicates(poll.inventory)
    if isinstance(listed, Failed):
        return poll, ()
    foreign = {item.key: elsewhere[item.key] for item in listed.items if item.key in elsewhere}
    if not foreign:
        return poll, ()
    items = tuple(item for item in listed.items if item.key not in foreign)
    there = {item.key for item in listed.items if item.state != ENDED}
    lost = {key: scope for key, scope in foreign.items() if key in there and not _is_counted(books[scope], key)}
    counted = {key: scope for key, scope in foreign.items() if key not in lost}
    missing = tuple(_format_lost_note(scope, lost) for scope in sorted(set(lost.values())))
    why = "; ".join((*([listed.why] if isinstance(listed, Partial) else []), *missing))
    own = Partial(items, why) if why or isinstance(listed, Partial) else Complete(items)
    return replace(poll, inventory=own), (
        *notes,
        *(_format_foreign_note(scope, counted) for scope in sorted(set(counted.values()))),
        *missing,
    )


def _is_counted(book: ScopeRecord, key: ResourceKey) -> bool:
    """Return whether the scope `book` counts the resource `key` now: it is remembered, listed, and has not ended."""
    known = book.state.resources.get(key)
    return known is not None and known.absent_at is None and known.observation.state != ENDED


def _format_foreign_note(scope: ScopeKey, foreign: Mapping[ResourceKey, ScopeKey]) -> str:
    return f"{_format_ids(scope, foreign)}: counted under {'/'.join(scope)}, which saw it first"


def _format_lost_note(scope: ScopeKey, lost: Mapping[ResourceKey, ScopeKey]) -> str:
    return f"NOT counted: {_format_ids(scope, lost)}, which belongs to {'/'.join(scope)}, and is not there any more"


def _format_ids(scope: ScopeKey, foreign: Mapping[ResourceKey, ScopeKey]) -> str:
    ids = sorted(key.id for key, owner in foreign.items() if owner == scope)
    return f"{ids[0]} and {len(ids) - 1} more" if len(ids) > 1 else ids[0]


def _refresh_state(ask: Query, memory: WriterState | None) -> WriterState:
    """Return `memory` if no other process has written since; else the state read from the ledger."""
    ((revision,),) = ask("SELECT revision FROM ledger_state WHERE id = 1", ())
    if memory is not None and memory.revision == revision:
        return memory
    return WriterState(
        revision=revision,
        last_ids={table: ask(f"SELECT coalesce(max(id), 0) FROM {table}", ())[0][0] for table in NUMBERED_TABLES},  # noqa: S608 - our own names
        books=load_scopes(ask),
        attributions={attribution: number for number, attribution in load_attributions(ask).items()},
        open_spans={(resource_id, charge, part): number for number, resource_id, charge, part in ask(_OPEN_SPANS, ())},
    )


_OPEN_SPANS = "SELECT id, resource_id, charge, part FROM span WHERE end_us IS NULL"


def _forget_ended(book: ScopeRecord, accrued: AccrualResult) -> None:
    """Drop resources that ended so long ago that listings no longer show them."""
    for row in accrued.logged:
        if row.observation is not None and row.observation.state == ENDED:
            heappush(book.endings, (row.at, row.key))
    state = book.state
    if state.at is None or not book.endings or book.endings[0][0] > state.at - MEMORY_SPAN:
        return
    due = set()
    while book.endings and book.endings[0][0] <= state.at - MEMORY_SPAN:
        due.add(heappop(book.endings)[1])
    gone = {key for key in due if key in state.resources and not is_remembered(state, state.resources[key])}
    book.state = replace(state, resources={key: known for key, known in state.resources.items() if key not in gone})
    for key in gone:
        del book.ids[key]


SAMPLE_RETENTION = timedelta(hours=48)
"""How long samples are kept one by one: longer than any rule about idle machines looks back."""


def record_samples(engine: Engine, samples: Sequence[Sample]) -> frozenset[ResourceKey]:
    """Write `samples` in one transaction; return the resources that are not in the ledger, whose samples are left out.

    An existing sample stays as it is, and so does an hour that was rolled up: repeating the call changes nothing.
    """
    with begin_write(engine) as connection:
        return write_samples(*open_sql_session(connection), samples)


def write_samples(ask: Query, tell: Execute, samples: Sequence[Sample]) -> frozenset[ResourceKey]:
    """Write `samples` like `record_samples`, within an open write transaction."""
    ids = _load_resource_ids(ask, {sample.key for sample in samples})
    rows = [
        (ids[s.key], s.signal, at_us := to_micros(s.at), float(s.value), ids[s.key], s.signal, at_us // HOUR_US)
        for s in samples
        if s.key in ids
    ]
    if rows:
        tell(_INSERT_SAMPLE, rows)
    return frozenset(sample.key for sample in samples if sample.key not in ids)


def roll_up_samples(engine: Engine, now: datetime) -> int:
    """Replace samples of whole hours older than `SAMPLE_RETENTION` at `now` by one row per hour; return their number.

    It is one transaction: after a crash all or nothing is done, and repeating it changes nothing.
    """
    until_us = to_micros(now - SAMPLE_RETENTION) // HOUR_US * HOUR_US
    with begin_write(engine) as connection:
        ask, tell = open_sql_session(connection)
        lines = [(resource_id, signal, until_us) for resource_id, signal in ask(SAMPLED_SIGNALS, ())]
        if not lines:
            return 0
        tell(_INSERT_SAMPLE_HOURS, lines)
        return tell(_DELETE_SAMPLES, lines)


def _load_resource_ids(ask: Query, keys: set[ResourceKey]) -> dict[ResourceKey, int]:
    """Return the row ids of those of `keys` that are in the ledger."""
    places: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for key in keys:
        places[key[:3]].append(key.id)
    return {
        ResourceKey(*place, name): number
        for place, names in places.items()
        for lot in split_batches(names)
        for number, name in ask(_RESOURCE_IDS.format(format_placeholders(lot)), (*place, *lot))
    }


_RESOURCE_IDS = "SELECT id, external_id FROM resource WHERE provider = ? AND account = ? AND region = ? AND external_id IN ({})"

_INSERT_SAMPLE = """
INSERT INTO sample (resource_id, signal, at_us, value)
SELECT CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS DOUBLE PRECISION)
WHERE NOT EXISTS (SELECT 1 FROM sample_hour WHERE resource_id = ? AND signal = ? AND hour = ?)
ON CONFLICT DO NOTHING
"""

_INSERT_SAMPLE_HOURS = f"""
INSERT INTO sample_hour (resource_id, signal, hour, count, sum, lowest, highest)
SELECT resource_id, signal, at_us / {HOUR_US}, count(*), sum(value), min(value), max(value) FROM sample
WHERE resource_id = ? AND signal = ? AND at_us < ?
GROUP BY resource_id, signal, at_us / {HOUR_US}
"""  # noqa: S608 - our own number

_DELETE_SAMPLES = "DELETE FROM sample WHERE resource_id = ? AND signal = ? AND at_us < ?"
