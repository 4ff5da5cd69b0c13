"""Write the changes of polls in one transaction as bulk statements, and update the daily and the monthly sums.

A poll without changes costs one tuple here, and one UPDATE of its scope's coverage when the transaction ends. Daily sums change
in the transaction that closes a span. Example: a machine at $2 an hour from 23:30 to 01:00 adds $1 and half an hour to one day,
and $2 and an hour to the next.

Each poll that changed anything adds one row to the audit log (on PostgreSQL: to that of its account), with the digests of the
rows that it wrote. The last coverage row of a scope is sealed instead until the next one begins, because it changes with each
poll.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from typing import Any

from sqlalchemy import Insert, Update, bindparam, func, tuple_, update
from sqlmodel import col, select

from costguard.errors import LedgerError, shorten
from costguard.ledger.db.codecs import (
    ABSENT_STATE,
    Execute,
    NanoAmounts,
    Query,
    SqlRow,
    decode_attribution,
    encode_attribution,
    encode_observation,
    encode_optional_instant,
    encode_span,
)
from costguard.ledger.db.rows import RowSums, Write, insert_rows, insert_tuples
from costguard.ledger.spans.correction_parts import load_parts
from costguard.ledger.spans.hourly import HourlyRollup
from costguard.ledger.spans.numbering import RowNumbers
from costguard.ledger.spans.scope_state import ScopeRecord
from costguard.ledger.tables.rollups import DailyRow, MonthlyRow
from costguard.ledger.tables.spans import (
    LINE_KEY,
    AccountStateRow,
    AttributionRow,
    CorrectionRow,
    CoverageRow,
    ObservationRow,
    ResourceRow,
    ScopeRow,
    SpanRow,
)
from costguard.metering.meter import COMPUTE
from costguard.metering.price_ladder import LearnedRate, MachineType
from costguard.metering.scope_state import AccrualResult, ObservationLogEntry, ScopeState, SpanCorrection
from costguard.metering.span import Span, split_by_day
from costguard.values.calendar import find_month_of_day
from costguard.values.instant import MICROSECOND, to_micros
from costguard.values.resource import INSTANCE, Attribution, ScopeKey, make_storable

WHY_CHARS_MAX = 300
"""Characters of why a listing failed; an answer of a provider can be a page of HTML."""

AccountKey = tuple[str, str]
"""A provider, and an account of it. All that polls write belongs to one: scopes, resources, attributions and their spans."""


@dataclass(slots=True, kw_only=True)
class AccountState:
    """What a writer remembers of one account between transactions, all of it read from the ledger.

    `id`: of its row. `revision`: that of the account and of the ledger, when it was read. `is_new`: no resource of it was ever
    recorded. `open_spans`: the id of the open span of each line: resource, charge and part. `learned`: prices.
    """

    id: int
    revision: tuple[int, int]
    is_new: bool = False
    books: dict[ScopeKey, ScopeRecord] = field(default_factory=dict)
    attributions: dict[Attribution, int] = field(default_factory=dict)
    open_spans: dict[tuple[int, str, str], int] = field(default_factory=dict)
    learned: Mapping[MachineType, LearnedRate] = field(default_factory=dict)


def get_account(scope: ScopeKey) -> AccountKey:
    """Return the account that `scope` belongs to."""
    return scope.provider, scope.account


class PollTransaction:
    """The rows of one transaction, which has locked the `accounts`.

    `ask` reads the parts of corrected spans. `tell` writes ordered rows at once; `finish` writes coverage and sums.
    `gap`: a longer pause between two polls starts a new coverage row. `on_server`: the ledger is on PostgreSQL.
    """

    def __init__(
        self, ask: Query, tell: Execute, accounts: Mapping[AccountKey, AccountState], gap: timedelta, *, on_server: bool
    ) -> None:
        self._ask, self._tell, self._accounts, self._gap_us = ask, tell, accounts, gap // MICROSECOND
        self._numbers = RowNumbers(ask, on_server=on_server)
        self._daily = DailyRollup()
        self._changed: dict[AccountKey, AccountState] = {}
        self._begun: dict[int, CoverageRow] = {}
        self._moved: dict[int, CoverageRow] = {}

    def open_book(self, scope: ScopeKey) -> ScopeRecord:
        """Create and return the record of a scope that was never polled before."""
        book = ScopeRecord(id=self._numbers.take(ScopeRow), state=ScopeState(scope=scope))
        insert_tuples(self._write, ScopeRow, [(book.id, *scope)])
        self._accounts[get_account(scope)].books[scope] = book
        return book

    def add(self, book: ScopeRecord, accrued: AccrualResult) -> None:
        """Write the changes of one fresh poll of the scope `book`."""
        account = get_account(book.state.scope)
        self._changed[account] = self._accounts[account]
        if accrued.logged:
            self._write_observations(book, accrued)
        if accrued.closed:
            self._close_spans(book, accrued.closed)
        if accrued.opened:
            self._open_spans(book, accrued.opened)
        if accrued.corrected:
            self._write_corrections(book, accrued.corrected)
        self._extend_coverage(book, accrued)
        book.state = accrued.state

    def finish(self) -> None:
        """Write coverage, daily sums, and the new revisions of the accounts.

        The sums by hour come last: their rows are the only ones that transactions of other accounts write as well.
        """
        ends = [{"row": row.id, "end_us": row.end_us, "polls": row.polls} for row in self._moved.values()]
        self._write(_update_row(CoverageRow), ends)
        insert_rows(self._write, list(self._begun.values()))
        for state in self._changed.values():
            state.revision = (state.revision[0] + 1, state.revision[1])
        revisions = [{"row": state.id, "revision": state.revision[0]} for state in self._changed.values()]
        self._write(_update_row(AccountStateRow), revisions)
        self._daily.write(self._write)

    def _write_observations(self, book: ScopeRecord, accrued: AccrualResult) -> None:
        numbers = self._numbers.take_many(ObservationRow, len(accrued.logged))
        new = list(dict.fromkeys(row.key for row in accrued.logged if row.key not in book.ids))
        unused = iter(self._numbers.take_many(ResourceRow, len(new)))
        resources: list[SqlRow] = []
        for logged in accrued.logged:
            if logged.key not in book.ids:
                book.ids[logged.key] = resource_id = next(unused)
                first_seen_us = to_micros(accrued.state.resources[logged.key].first_seen_at)
                kind = logged.observation.kind if logged.observation else ""
                resources.append((resource_id, book.id, *logged.key, kind, first_seen_us))
        rows = [
            _encode_observation_row(number, book.ids[logged.key], accrued, logged)
            for number, logged in zip(numbers, accrued.logged, strict=True)
        ]
        insert_tuples(self._write, ResourceRow, resources)
        insert_tuples(self._write, ObservationRow, rows)

    def _close_spans(self, book: ScopeRecord, spans: Iterable[Span]) -> None:
        rows, state = list[dict[str, object]](), self._accounts[get_account(book.state.scope)]
        for span in spans:
            assert span.end is not None  # noqa: S101 - for the type checker: a closed span has its end
            resource_id = book.ids[span.key]
            amounts = self._daily.add(span, resource_id, self._find_attribution(state, span.attribution))
            number = state.open_spans.pop((resource_id, span.meter.charge, span.meter.part), None)
            values = (number, to_micros(span.end), span.ended_by, *amounts)
            rows.append(dict(zip(("row", *CLOSING_COLUMNS), values, strict=True)))
        self._write(_close_span(), rows)

    def _open_spans(self, book: ScopeRecord, spans: Sequence[Span]) -> None:
        rows, state = list[SqlRow](), self._accounts[get_account(book.state.scope)]
        for span, number in zip(spans, self._numbers.take_many(SpanRow, len(spans)), strict=True):
            attribution_id = self._find_attribution(state, span.attribution)
            resource_id = book.ids[span.key]
            amounts = self._daily.add(span, resource_id, attribution_id) if span.end else None
            rows.append((number, *encode_span(span, resource_id, attribution_id, amounts)))
            if amounts is None:
                state.open_spans[resource_id, span.meter.charge, span.meter.part] = number
        insert_tuples(self._write, SpanRow, rows)

    def _write_corrections(self, book: ScopeRecord, corrections: Sequence[SpanCorrection]) -> None:
        rows, state = list[SqlRow](), self._accounts[get_account(book.state.scope)]
        for row, number in zip(corrections, self._numbers.take_many(CorrectionRow, len(corrections)), strict=True):
            span = row.span
            assert span.end is not None  # noqa: S101 - for the type checker: only closed spans are corrected
            resource_id, extent = book.ids[span.key], (to_micros(span.start), to_micros(span.end))
            line = tuple_(*(getattr(SpanRow, name) for name in (*LINE_KEY, "start_us", "end_us")))
            (span_id,) = self._ask(select(func.max(SpanRow.id)).where(line == tuple_(resource_id, *span.line, *extent)))
            counted = [part.span for part in load_parts(self._ask, span, span_id)] or [span]
            attribution_id = self._find_attribution(state, span.attribution)
            amounts = self._daily.replace(counted, [replace(span, presence=row.presence)], resource_id, attribution_id)
            rows.append((number, span_id, to_micros(row.at), row.presence, row.reason, *amounts))
        insert_tuples(self._write, CorrectionRow, rows)

    def _extend_coverage(self, book: ScopeRecord, accrued: AccrualResult) -> None:
        """Extend the last coverage row if outcome and reason are the same and the pause is at most `gap`; else begin a row."""
        at_us, why, last = to_micros(accrued.at), make_storable(shorten(accrued.why, WHY_CHARS_MAX)), book.coverage
        if last is not None and (last.outcome, last.why) == (accrued.outcome, why) and at_us - last.end_us <= self._gap_us:
            last.end_us, last.polls = at_us, last.polls + 1
            if last.id not in self._begun:
                self._moved[last.id] = last
            return
        number, outcome = self._numbers.take(CoverageRow), accrued.outcome
        self._begun[number] = book.coverage = CoverageRow(
            id=number, scope_id=book.id, outcome=outcome, why=why, start_us=at_us, end_us=at_us, polls=1
        )

    def _find_attribution(self, state: AccountState, attribution: Attribution) -> int:
        """Return the id of `attribution`, which is written if it is new."""
        ids = state.attributions
        attribution_id = ids.get(attribution)
        if attribution_id is None:
            row = encode_attribution(attribution)
            attribution_id = ids.get(decode_attribution(row))
            if attribution_id is None:
                attribution_id = self._numbers.take(AttributionRow)
                insert_tuples(self._write, AttributionRow, [(attribution_id, *row)])
            ids[attribution] = ids[decode_attribution(row)] = attribution_id
        return attribution_id

    def _write(self, statement: Insert | Update, rows: list[dict[str, Any]]) -> None:
        """Execute `statement` for each of `rows`.

        Each must change exactly one row; otherwise the ledger differs from the remembered state, and LedgerError is raised.
        """
        if self._tell(statement, rows) != len(rows):
            what = statement.table.description
            raise LedgerError(
                f"was changed by another program, nothing was written: {what}", field="ledger", hint="run costguard db check"
            )


def _encode_observation_row(number: int, resource_id: int, accrued: AccrualResult, logged: ObservationLogEntry) -> SqlRow:
    """Return the columns of `ObservationRow`."""
    observation, row = logged.observation, (number, resource_id, to_micros(logged.at))
    if observation is None:
        return (*row, encode_optional_instant(logged.seen_at), ABSENT_STATE, "", "", "", None, None, "")
    names = map(make_storable, (observation.name, observation.instance_type, observation.owner))
    times = map(encode_optional_instant, (observation.started_at, observation.stopped_at))
    detail = encode_observation(observation, accrued.state.resources[logged.key].edges)
    return (*row, None, observation.state, *names, *times, detail)


@cache
def _update_row(row: type[AccountStateRow | CoverageRow | SpanRow]) -> Update:
    return update(row).where(col(row.id) == bindparam("row"))


CLOSING_COLUMNS = ("end_us", "ended_by", "low", "expected", "high")


@cache
def _close_span() -> Update:
    return _update_row(SpanRow).where(col(SpanRow.end_us).is_(None))


class DailyRollup:
    """The amounts that one transaction adds to each row of `daily`, of `monthly` and of `hourly`."""

    def __init__(self) -> None:
        self._days, self._months, self._hours = RowSums(DailyRow, _is_amount), RowSums(MonthlyRow, _is_amount), HourlyRollup()

    def add(self, span: Span, resource_id: int, attribution_id: int) -> NanoAmounts:
        """Add a closed span, and return its amounts, which are the exact sum of its days."""
        return self._add_signed(span, resource_id, attribution_id, 1)

    def replace(
        self, old_spans: Iterable[Span], new_spans: Iterable[Span], resource_id: int, attribution_id: int
    ) -> NanoAmounts:
        """Subtract the spans `old_spans` of a resource and add those `new_spans`; return the amounts of `new_spans`."""
        for span in old_spans:
            self._add_signed(span, resource_id, attribution_id, -1)
        low = expected = high = 0
        for span in new_spans:
            amounts = self._add_signed(span, resource_id, attribution_id, 1)
            low, expected, high = low + amounts[0], expected + amounts[1], high + amounts[2]
        return low, expected, high

    def write(self, tell: Write) -> None:
        """Write the sums by `tell`, which takes a statement and the values of each row."""
        for sums in (self._days, self._months, self._hours.sums):
            sums.write(tell)

    def _add_signed(self, span: Span, resource_id: int, attribution_id: int, sign: int) -> NanoAmounts:
        price, counts = span.meter.price, is_machine_time(span)
        place = (attribution_id, span.meter.charge, price.currency, int(price.known))
        low = expected = high = 0
        for day, amounts, us in split_by_day(span):
            low, expected, high = low + amounts[0], expected + amounts[1], high + amounts[2]
            self._days.add((day, *place), (*amounts, us if counts else 0), sign)
            self._months.add((find_month_of_day(day), resource_id, *place, span.meter.source), (*amounts, us), sign)
        self._hours.add(span, expected, sign)
        return low, expected, high


def _is_amount(sums: Sequence[int]) -> bool:
    low, expected, high, us = sums
    return 0 <= low <= expected <= high and us >= 0


def is_machine_time(span: Span) -> bool:
    """Return whether the time of `span` is machine time: computing of an instance; a disk's hours are not."""
    return span.meter.charge == COMPUTE and span.attribution.kind == INSTANCE
