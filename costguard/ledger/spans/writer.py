"""Write polls and samples to the ledger, each call in one transaction.

Each scope's state is held in memory between polls, by account. It is read again from the ledger, with the same result, after a
crash, after a failed transaction, and after another process wrote to that account, which its revision shows.

On PostgreSQL a transaction locks the accounts that it writes and nothing else, so that processes which poll other accounts
write at the same time and keep what they remember. On SQLite there is one writer at a time.

Samples are written one by one (`sample_retention` removes them). They do not change a revision, because a writer of polls
remembers nothing that depends on them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from heapq import heappop, heappush
from types import TracebackType
from typing import Self

from sqlalchemy import BindParameter, ColumnElement, Engine, Insert, and_, bindparam, true
from sqlalchemy import select as select_columns
from sqlmodel import col, select

from costguard.errors import LedgerError
from costguard.ledger.bills.learned import load_learned_rates
from costguard.ledger.db.codecs import Execute, Query
from costguard.ledger.db.connection import IDLE_MACHINE_S, IDLE_POLL_S, WriteConnection, WriterLock, begin_write, open_engine
from costguard.ledger.db.rows import insert_new, read_batches
from costguard.ledger.db.session import open_sql_session
from costguard.ledger.duty_records import CLOCK_OFF_MAX, Lease, read_server_time, require_lease, require_present
from costguard.ledger.spans.account_identities import explain_other_account, load_identities, remember_identity
from costguard.ledger.spans.correction_parts import Rows
from costguard.ledger.spans.numbering import RowNumbers
from costguard.ledger.spans.posting import AccountKey, AccountState, PollTransaction, get_account
from costguard.ledger.spans.sample_retention import RetentionResult, keep_samples_bounded
from costguard.ledger.spans.scope_state import (
    MEMORY_SPAN,
    ScopeRecord,
    is_at,
    is_remembered,
    load_attributions,
    load_known,
    load_scopes,
)
from costguard.ledger.tables.samples import SampleHourRow, SampleRow
from costguard.ledger.tables.spans import AccountStateRow, LedgerStateRow, ResourceRow, ScopeRow, SpanRow
from costguard.ledger.types import BIG_INTEGER
from costguard.metering.accrual import POLL_GAP, accrue_poll, find_suspect_absences
from costguard.metering.billing import BillingRule, get_billing_rule
from costguard.metering.inventory import COMPLETE, POLL_AHEAD_MAX, Complete, Failed, Partial, Poll, remove_duplicates
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
        self._rules, self._ceilings, self._gap, self.ladder = rules, ceilings, gap, ladder
        self._memory: dict[AccountKey, AccountState] = {}
        self._identities: dict[tuple[str, str], str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._memory.clear()
        self._pen.close()

    def has_polls(self) -> bool:
        """Return whether any poll was ever recorded."""
        with self._pen.begin_read() as ask:
            return bool(ask(select(ScopeRow.id).limit(1)))

    def keep_samples_bounded(self, now: datetime) -> RetentionResult:
        """Call `keep_samples_bounded`, from any thread: it uses nothing that this writer remembers."""
        return keep_samples_bounded(self._engine, now)

    def find_suspects(self, poll: Poll) -> tuple[ResourceKey, ...]:
        """Return the resources missing in `poll` that must be looked up before their absence is accepted.

        Usually empty.
        """
        account = self._load_account(get_account(poll.scope))
        book = account.books.get(poll.scope) if account else None
        return find_suspect_absences(book.state, poll.inventory) if book else ()

    def list_scopes_of(self, provider: str) -> tuple[ScopeKey, ...]:
        """Return every scope of `provider` that was ever polled, by name."""
        with self._pen.begin_read() as ask:
            rows = ask(select(ScopeRow.provider, ScopeRow.account, ScopeRow.name).where(col(ScopeRow.provider) == provider))
        return tuple(sorted(ScopeKey(*row) for row in rows))

    def record_polls(self, polls: Sequence[Poll], *, lease: Lease | None = None) -> tuple[AccrualResult, ...]:
        """Write the changes of `polls`, in order and in one transaction, which is on disk when this returns.

        Any grouping of the same polls writes the same rows. A poll that is not later than the last one of its scope changes
        nothing; of a key that is of another account than before nothing else is recorded. `lease`: of the account, which must
        be in force until it is written; LeaseLostError if it is not. ClockError
        for a poll that comes from the future by a server's clock.
        """
        polls = [self._prove_identity(poll) for poll in polls]
        names = sorted({get_account(poll.scope) for poll in polls})  # all lock in this order: so none waits for one that waits
        states = {name: self._memory.pop(name, None) for name in names}  # whatever goes wrong below, it is read anew
        server = self._pen.on_server
        with pause_gc(), self._pen.begin_transaction(WriterLock.ACCOUNTS, idle_s=_choose_idle_s(polls)) as (ask, tell):
            if lease is not None:
                require_present(polls, require_lease(ask, lease), CLOCK_OFF_MAX)
            elif server:
                require_present(polls, read_server_time(ask), POLL_AHEAD_MAX)
            accounts = {name: _lock_account(ask, tell, name, states[name], on_server=server) for name in names}
            posting = PollTransaction(ask, tell, accounts, self._gap, on_server=server)
            accrued = tuple(self._write_poll(ask, posting, accounts[get_account(poll.scope)], poll) for poll in polls)
            if any(accrual.fresh for accrual in accrued):
                posting.finish()
        self._memory |= accounts
        for poll, accrual in zip(polls, accrued, strict=True):
            if poll.identity is not None and not poll.proven and accrual.outcome == COMPLETE:
                self._identities[poll.scope.provider, poll.identity[0]] = poll.identity[1]
                with self._pen.begin_transaction(WriterLock.GUARD) as (ask, tell):
                    remember_identity(ask, tell, (poll.scope.provider, poll.identity[0]), poll.identity[1], poll.at)
        return accrued

    def record_samples(self, samples: Sequence[Sample], *, lease: Lease | None = None) -> frozenset[ResourceKey]:
        """Write `samples` in a separate transaction. `lease`: as in `record_polls`.

        Returns the resources that are not in the ledger, whose samples are left out.
        """
        return record_samples(self._engine, samples, lease=lease)

    def _prove_identity(self, poll: Poll) -> Poll:
        """Return `poll` as proven if its key is of the account that is remembered, as failed if it is of another one."""
        if poll.identity is None:
            return poll
        provider, (name, identity) = poll.scope.provider, poll.identity
        if self._identities.get((provider, name)) != identity:
            with self._pen.begin_read() as ask:
                self._identities |= {(provider, key): one for key, one in load_identities(ask, provider).items()}
        remembered = self._identities.get((provider, name))
        why = explain_other_account((provider, name), identity, remembered)
        if why:
            return replace(poll, inventory=Failed(why), identity=None, gone=frozenset(), samples=())
        return replace(poll, proven=poll.proven or remembered == identity)

    def _load_account(self, name: AccountKey) -> AccountState | None:
        """Return what the ledger knows of an account, read again if another process has written to it; None: nothing."""
        memory = self._memory.get(name)
        with self._pen.begin_read() as ask:
            rows = ask(_select_account(), {"provider": name[0], "account": name[1]})
        if not rows:
            return None
        if memory is None or memory.revision != rows[0][1:]:
            with self._pen.begin_transaction(WriterLock.ACCOUNTS) as (ask, tell):
                memory = _lock_account(ask, tell, name, memory, on_server=self._pen.on_server)
            self._memory[name] = memory
        return memory

    def _write_poll(self, ask: Query, posting: PollTransaction, memory: AccountState, poll: Poll) -> AccrualResult:
        """Write the changes of one poll."""
        book = memory.books.get(poll.scope) or posting.open_book(poll.scope)
        accrued = self._accrue(ask, memory, book, poll)
        if accrued.fresh:
            posting.add(book, accrued)
            _forget_ended(book, accrued)
        return accrued

    def _accrue(self, ask: Query, memory: AccountState, book: ScopeRecord, poll: Poll) -> AccrualResult:
        """Compute the changes of `poll`, after looking up resources that are new to the scope in the whole ledger.

        The changes are computed first, and again if the lookup finds any: a poll without new resources needs no query.
        """
        accrued = self._compute_changes(memory, book, poll)
        new = [row.key for row in accrued.logged if row.key not in book.state.resources]
        memory.is_new = memory.is_new and not any(one.ids for one in memory.books.values())
        if not new or memory.is_new:
            return accrued
        records = load_known(ask, new)
        if not records:
            return accrued
        scopes = {other.id: scope for scope, other in memory.books.items()}
        for key, one in records.items():
            if one.scope_id not in scopes:
                what = f"holds {key.id} of {'/'.join(poll.scope)} under a scope of another account"
                raise LedgerError(what, field="ledger", hint="a provider lists only resources of a scope's own account")
        book.elsewhere |= {key: scopes[one.scope_id] for key, one in records.items() if one.scope_id != book.id}
        book.remember({key: one for key, one in records.items() if one.scope_id == book.id})
        return self._compute_changes(memory, book, poll)

    def _compute_changes(self, memory: AccountState, book: ScopeRecord, poll: Poll) -> AccrualResult:
        """Compute the changes of `poll`, without resources that another scope also lists and saw first."""
        poll, notes = _drop_foreign_resources(poll, book.elsewhere, memory.books)
        rule = get_billing_rule(self._rules, poll.scope.provider)
        ladder = self.ladder and replace(self.ladder, learned=memory.learned)
        accrued = accrue_poll(book.state, poll, rule, self._ceilings, self._gap, ladder=ladder)
        return replace(accrued, notes=(*notes, *accrued.notes)) if notes else accrued


def _choose_idle_s(polls: Sequence[Poll]) -> float:
    """Return for how long the transaction that records `polls` may do nothing."""
    listed = (poll.inventory for poll in polls)
    return IDLE_POLL_S + IDLE_MACHINE_S * sum(0 if isinstance(one, Failed) else len(one.items) for one in listed)


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
    keys = {item.key for item in listed.items if item.state != ENDED}
    lost = {key: scope for key, scope in foreign.items() if key in keys and not _is_counted(books[scope], key)}
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
    resource = book.state.resources.get(key)
    return resource is not None and resource.absent_at is None and resource.observation.state != ENDED


def _format_foreign_note(scope: ScopeKey, foreign: Mapping[ResourceKey, ScopeKey]) -> str:
    return f"{_format_ids(scope, foreign)}: counted under {'/'.join(scope)}, which saw it first"


def _format_lost_note(scope: ScopeKey, lost: Mapping[ResourceKey, ScopeKey]) -> str:
    return f"NOT counted: {_format_ids(scope, lost)}, which belongs to {'/'.join(scope)}, and is not there any more"


def _format_ids(scope: ScopeKey, foreign: Mapping[ResourceKey, ScopeKey]) -> str:
    ids = sorted(key.id for key, owner in foreign.items() if owner == scope)
    return f"{ids[0]} and {len(ids) - 1} more" if len(ids) > 1 else ids[0]


def _lock_account(ask: Query, tell: Execute, name: AccountKey, memory: AccountState | None, *, on_server: bool) -> AccountState:
    """Lock the account `name` until the transaction ends, and return what the ledger knows of it.

    That is `memory` if no other process has written to it since. An account that is new gets its row.
    """
    place = {"provider": name[0], "account": name[1]}
    rows = ask(_select_account(lock=True), place)
    if not rows:
        (number,) = RowNumbers(ask, on_server=on_server).take_many(AccountStateRow, 1)
        new = AccountStateRow(id=number, **place, revision=0)
        tell(insert_new(AccountStateRow), [new.model_dump()])  # another process may have been faster: then it is that one's row
        ((number, *revision),) = ask(_select_account(lock=True), place)
        if revision[0] == 0:
            return AccountState(id=number, revision=(0, revision[1]), is_new=True)
        rows = [(number, *revision)]
    ((number, *revision),) = rows
    if memory is not None and memory.revision == tuple(revision):
        return memory
    attributions = load_attributions(ask, name)
    return AccountState(
        id=number,
        revision=(revision[0], revision[1]),
        books=load_scopes(ask, name),
        attributions={attribution: number for number, attribution in attributions.items()},
        learned=load_learned_rates(ask, *name),
        open_spans={
            (resource_id, charge, part): number for number, resource_id, charge, part in ask(_select_open_lines(), place)
        },
    )


@cache
def _select_account(*, lock: bool = False) -> Rows:
    """Select the id of an account, its revision and that of the ledger. `lock` its row: rows that name it need not wait."""
    revisions = select_columns(col(AccountStateRow.id), col(AccountStateRow.revision), col(LedgerStateRow.revision))
    statement = revisions.join_from(AccountStateRow, LedgerStateRow, true()).where(*_is_named(AccountStateRow))
    return statement.with_for_update(key_share=True, of=AccountStateRow) if lock else statement


@cache
def _select_open_lines() -> Rows:
    lines = select_columns(col(SpanRow.id), col(SpanRow.resource_id), col(SpanRow.charge), col(SpanRow.part))
    lines = lines.join_from(ScopeRow, ResourceRow, col(ResourceRow.scope_id) == ScopeRow.id)
    is_open = and_(col(SpanRow.resource_id) == ResourceRow.id, col(SpanRow.end_us).is_(None))
    return lines.join(SpanRow, is_open).where(*_is_named(ScopeRow))


def _is_named(row: type[AccountStateRow | ScopeRow]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return col(row.provider) == bindparam("provider"), col(row.account) == bindparam("account")


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
    forgotten = {key for key in due if key in state.resources and not is_remembered(state, state.resources[key])}
    book.state = replace(state, resources={key: resource for key, resource in state.resources.items() if key not in forgotten})
    for key in forgotten:
        del book.ids[key]


def record_samples(engine: Engine, samples: Sequence[Sample], *, lease: Lease | None = None) -> frozenset[ResourceKey]:
    """Write `samples` in one transaction; return the resources that are not in the ledger, whose samples are left out.

    An existing sample stays as it is, and so does an hour that was rolled up: repeating the call changes nothing. They are
    written in the order of their keys, so that two processes that measured the same machine do not wait for each other in turn.
    """
    with begin_write(engine, WriterLock.ACCOUNTS, idle_s=IDLE_POLL_S + IDLE_MACHINE_S * len(samples)) as connection:
        ask, tell = open_sql_session(connection)
        if lease is not None:
            require_lease(ask, lease)
        return write_samples(ask, tell, samples)


def write_samples(ask: Query, tell: Execute, samples: Sequence[Sample]) -> frozenset[ResourceKey]:
    """Write `samples` like `record_samples`, within an open write transaction."""
    ids = _load_resource_ids(ask, {sample.key for sample in samples})
    rows = sorted((ids[s.key], s.signal, to_micros(s.at), float(s.value)) for s in samples if s.key in ids)
    names = [f"new_{name}" for name in (*SampleRow.model_fields, "hour")]
    tell(_insert_sample(), [dict(zip(names, (*row, row[2] // HOUR_US), strict=True)) for row in rows])
    return frozenset(sample.key for sample in samples if sample.key not in ids)


def _load_resource_ids(ask: Query, keys: set[ResourceKey]) -> dict[ResourceKey, int]:
    """Return the row ids of those of `keys` that are in the ledger."""
    places: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for key in keys:
        places[key[:3]].append(key.id)
    numbers = select(ResourceRow.id, ResourceRow.external_id)
    return {
        ResourceKey(*place, name): number
        for place, names in places.items()
        for number, name in read_batches(ask, numbers.where(is_at(*place)), names)
    }


@cache
def _insert_sample() -> Insert:
    """Insert a sample, whose values have "new_" before the names of their columns, unless its hour was rolled up."""
    hour: BindParameter[int] = bindparam("new_hour", type_=BIG_INTEGER)
    row = [bindparam(f"new_{name}", type_=getattr(SampleRow, name).type) for name in SampleRow.model_fields]
    is_hour = and_(
        col(SampleHourRow.resource_id) == row[0], col(SampleHourRow.signal) == row[1], col(SampleHourRow.hour) == hour
    )
    new = select_columns(*row).where(~select(SampleHourRow.hour).where(is_hour).exists())
    return insert_new(SampleRow).from_select(list(SampleRow.model_fields), new)
