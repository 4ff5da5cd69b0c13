"""Write the changes of polls in one transaction as bulk statements, and update the daily and the monthly sums.

A poll without changes costs one tuple here, and one UPDATE of its scope's coverage when the transaction ends. Daily sums change
in the transaction that closes a span. Example: a machine at $2 an hour from 23:30 to 01:00 adds $1 and half an hour to one day,
and $2 and an hour to the next.

Each poll that changed anything adds one row to the audit log (on PostgreSQL: to that of its account), with the digests of the
rows that it wrote. The last coverage row of a scope is sealed instead until the next one begins, because it changes with each
poll.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache

from costguard.errors import LedgerError, shorten
from costguard.ledger.db.codecs import (
    ABSENT_STATE,
    ATTRIBUTION_COLUMNS,
    METER_COLUMNS,
    PERIOD_COLUMNS,
    Execute,
    NanoAmounts,
    Query,
    SqlRow,
    decode_attribution,
    encode_attribution,
    encode_observation,
    encode_span,
    format_placeholders,
)
from costguard.ledger.spans.correction_parts import load_parts
from costguard.ledger.spans.hourly import HourlyRollup
from costguard.ledger.spans.monthly import MonthlyRollup
from costguard.ledger.spans.numbering import RowNumbers
from costguard.ledger.spans.scope_state import CoverageState, ScopeRecord
from costguard.metering.meter import COMPUTE
from costguard.metering.scope_state import AccrualResult, ObservationLogEntry, ScopeState, SpanCorrection
from costguard.metering.span import Span, split_by_day
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
    recorded. `open_spans`: the id of the open span of each line: resource, charge and part.
    """

    id: int
    revision: tuple[int, int]
    is_new: bool = False
    books: dict[ScopeKey, ScopeRecord] = field(default_factory=dict)
    attributions: dict[Attribution, int] = field(default_factory=dict)
    open_spans: dict[tuple[int, str, str], int] = field(default_factory=dict)


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
        self._begun: dict[int, tuple[int, CoverageState]] = {}
        self._moved: dict[int, CoverageState] = {}

    def open_book(self, scope: ScopeKey) -> ScopeRecord:
        """Create and return the record of a scope that was never polled before."""
        book = ScopeRecord(id=self._numbers.take("scope"), state=ScopeState(scope=scope))
        self._insert("scope", _SCOPE_COLUMNS, [(book.id, *scope)])
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
        moved = [(row.end_us, row.polls, row.id) for row in self._moved.values()]
        begun = [(c.id, scope, c.outcome, c.why, c.start_us, c.end_us, c.polls) for scope, c in self._begun.values()]
        self._write(_EXTEND_COVERAGE, moved)
        self._write(_INSERT_COVERAGE, begun)
        for state in self._changed.values():
            state.revision = (state.revision[0] + 1, state.revision[1])
        revisions = [(state.revision[0], state.id) for state in self._changed.values()]
        self._write("UPDATE account_state SET revision = ? WHERE id = ?", revisions)
        self._daily.write(self._write)

    def _write_observations(self, book: ScopeRecord, accrued: AccrualResult) -> None:
        numbers = self._numbers.take_many("observation", len(accrued.logged))
        new = list(dict.fromkeys(row.key for row in accrued.logged if row.key not in book.ids))
        unused = iter(self._numbers.take_many("resource", len(new)))
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
        self._insert("resource", _RESOURCE_COLUMNS, resources)
        self._insert("observation", _OBSERVATION_COLUMNS, rows)

    def _close_spans(self, book: ScopeRecord, spans: Iterable[Span]) -> None:
        rows, state = list[SqlRow](), self._accounts[get_account(book.state.scope)]
        for span in spans:
            assert span.end is not None  # noqa: S101 - for the type checker: a closed span has its end
            found = self._daily.add(span, self._find_attribution(state, span.attribution))
            number = state.open_spans.pop((book.ids[span.key], span.meter.charge, span.meter.part), None)
            rows.append((to_micros(span.end), span.ended_by, *found, number))
        self._write(_CLOSE_SPAN, rows)

    def _open_spans(self, book: ScopeRecord, spans: Sequence[Span]) -> None:
        rows, state = list[SqlRow](), self._accounts[get_account(book.state.scope)]
        for span, number in zip(spans, self._numbers.take_many("span", len(spans)), strict=True):
            attribution_id = self._find_attribution(state, span.attribution)
            found = self._daily.add(span, attribution_id) if span.end else None
            rows.append((number, *encode_span(span, book.ids[span.key], attribution_id, found)))
            if found is None:
                state.open_spans[book.ids[span.key], span.meter.charge, span.meter.part] = number
        self._insert("span", _SPAN_COLUMNS, rows)

    def _write_corrections(self, book: ScopeRecord, corrections: Sequence[SpanCorrection]) -> None:
        rows, state = list[SqlRow](), self._accounts[get_account(book.state.scope)]
        for row, number in zip(corrections, self._numbers.take_many("correction", len(corrections)), strict=True):
            span = row.span
            assert span.end is not None  # noqa: S101 - for the type checker: only closed spans are corrected
            place = (book.ids[span.key], *span.line, to_micros(span.start), to_micros(span.end))
            ((span_id,),) = self._ask(_FIND_SPAN, place)
            counted = [part.span for part in load_parts(self._ask, span, span_id)] or [span]
            attribution_id = self._find_attribution(state, span.attribution)
            found = self._daily.replace(counted, [replace(span, presence=row.presence)], attribution_id)
            rows.append((number, span_id, to_micros(row.at), row.presence, row.reason, *found))
        self._insert("correction", CORRECTION_COLUMNS, rows)

    def _extend_coverage(self, book: ScopeRecord, accrued: AccrualResult) -> None:
        """Extend the last coverage row if outcome and reason are the same and the pause is at most `gap`; else begin a row."""
        at_us, why, last = to_micros(accrued.at), make_storable(shorten(accrued.why, WHY_CHARS_MAX)), book.coverage
        if last is not None and (last.outcome, last.why) == (accrued.outcome, why) and at_us - last.end_us <= self._gap_us:
            last.end_us, last.polls = at_us, last.polls + 1
            if last.id not in self._begun:
                self._moved[last.id] = last
            return
        row = CoverageState(self._numbers.take("coverage"), accrued.outcome, why, at_us, at_us, 1)
        book.coverage = row
        self._begun[row.id] = (book.id, row)

    def _find_attribution(self, state: AccountState, attribution: Attribution) -> int:
        """Return the id of `attribution`, which is written if it is new."""
        known = state.attributions
        found = known.get(attribution)
        if found is None:
            row = encode_attribution(attribution)
            found = known.get(decode_attribution(row))
            if found is None:
                found = self._numbers.take("attribution")
                self._insert("attribution", f"id, {ATTRIBUTION_COLUMNS}", [(found, *row)])
            known[attribution] = known[decode_attribution(row)] = found
        return found

    def _insert(self, table: str, columns: str, rows: list[SqlRow]) -> None:
        self._write(_format_insert(table, columns), rows)

    def _write(self, sql: str, rows: list[SqlRow]) -> None:
        """Execute `sql` for each of `rows`.

        Each must change exactly one row; otherwise the ledger differs from the remembered state, and LedgerError is raised.
        """
        if rows and self._tell(sql, rows) != len(rows):
            what = sql.split("(", maxsplit=1)[0].strip()
            raise LedgerError(
                f"was changed by another program, nothing was written: {what}", field="ledger", hint="run costguard db check"
            )


def _encode_observation_row(number: int, resource_id: int, accrued: AccrualResult, logged: ObservationLogEntry) -> SqlRow:
    """Return the columns of `_OBSERVATION_COLUMNS`."""
    key, seen, at_us = logged.key, logged.observation, to_micros(logged.at)
    if seen is None:
        seen_us = None if logged.seen_at is None else to_micros(logged.seen_at)
        return (number, resource_id, at_us, seen_us, ABSENT_STATE, "", "", "", None, None, "")
    return (
        number,
        resource_id,
        at_us,
        None,
        seen.state,
        make_storable(seen.name),
        make_storable(seen.instance_type),
        make_storable(seen.owner),
        None if seen.started_at is None else to_micros(seen.started_at),
        None if seen.stopped_at is None else to_micros(seen.stopped_at),
        encode_observation(seen, accrued.state.resources[key].edges),
    )


@lru_cache(maxsize=16)
def _format_insert(table: str, columns: str) -> str:
    return f"INSERT INTO {table} ({columns}) VALUES ({format_placeholders(columns.split(','))})"  # noqa: S608 - our own names


_SCOPE_COLUMNS = "id, provider, account, name"
_RESOURCE_COLUMNS = "id, scope_id, provider, account, region, external_id, kind, first_seen_us"
_OBSERVATION_COLUMNS = "id, resource_id, at_us, seen_us, state, name, instance_type, owner, started_us, stopped_us, detail"
_SPAN_COLUMNS = f"id, resource_id, attribution_id, {METER_COLUMNS}, {PERIOD_COLUMNS}, low, expected, high"
_CLOSE_SPAN = "UPDATE span SET end_us = ?, ended_by = ?, low = ?, expected = ?, high = ? WHERE id = ? AND end_us IS NULL"
CORRECTION_COLUMNS = "id, span_id, at_us, presence, reason, low, expected, high"
_FIND_SPAN = "SELECT max(id) FROM span WHERE resource_id = ? AND charge = ? AND part = ? AND start_us = ? AND end_us = ?"
_COVERAGE_COLUMNS = "id, scope_id, outcome, why, start_us, end_us, polls"
_INSERT_COVERAGE = _format_insert("coverage", _COVERAGE_COLUMNS)
_EXTEND_COVERAGE = "UPDATE coverage SET end_us = ?, polls = ? WHERE id = ?"
_INSERT_DAILY = (
    _format_insert("daily", "day, attribution_id, charge, currency, known, low, expected, high, us")
    + """
ON CONFLICT (day, attribution_id, charge, currency, known) DO UPDATE SET low = daily.low + excluded.low,
    expected = daily.expected + excluded.expected, high = daily.high + excluded.high, us = daily.us + excluded.us
"""
)
_UPDATE_DAILY = """
UPDATE daily SET low = low + ?, expected = expected + ?, high = high + ?, us = us + ?
WHERE day = ? AND attribution_id = ? AND charge = ? AND currency = ? AND known = ?
"""


DailyPlace = tuple[int, int, str, str, int]
"""Day since 1970 in UTC, attribution, charge, currency, and 1 where the price is known."""


class DailyRollup:
    """The amounts that one transaction adds to each row of `daily`, of `monthly` and of `hourly`."""

    def __init__(self) -> None:
        self._sums: dict[DailyPlace, list[int]] = {}
        self._months, self._hours = MonthlyRollup(), HourlyRollup()

    def add(self, span: Span, attribution_id: int) -> NanoAmounts:
        """Add a closed span, and return its amounts, which are the exact sum of its days."""
        return self._add_signed(span, attribution_id, 1)

    def replace(self, before: Iterable[Span], after: Iterable[Span], attribution_id: int) -> NanoAmounts:
        """Subtract the spans `before` and add those `after`; return the amounts of `after`."""
        for span in before:
            self._add_signed(span, attribution_id, -1)
        low = expected = high = 0
        for span in after:
            amounts = self._add_signed(span, attribution_id, 1)
            low, expected, high = low + amounts[0], expected + amounts[1], high + amounts[2]
        return low, expected, high

    def write(self, write: Callable[[str, list[SqlRow]], object]) -> None:
        """Write the sums by `write`, which takes a statement and its rows."""
        added, changed = self.build_rows()
        write(_INSERT_DAILY, added)
        write(_UPDATE_DAILY, changed)
        self._months.write(write)
        self._hours.write(write)

    def build_rows(self) -> tuple[list[SqlRow], list[SqlRow]]:
        """Return rows to insert or add to (place, amounts, microseconds), and rows to update (the same, place last).

        A correction can lower one amount and not another; such a row could not be inserted, but the row that it changes exists.
        """
        added: list[SqlRow] = []
        changed: list[SqlRow] = []
        for place, (low, expected, high, us) in sorted(self._sums.items()):
            if 0 <= low <= expected <= high and us >= 0:
                added.append((*place, low, expected, high, us))
            else:
                changed.append((low, expected, high, us, *place))
        return added, changed

    def _add_signed(self, span: Span, attribution_id: int, sign: int) -> NanoAmounts:
        meter, counts = span.meter, is_machine_time(span)
        charge, currency, known = meter.charge, meter.price.currency, int(meter.price.known)
        low = expected = high = 0
        for part in split_by_day(span):
            day, amounts, us = part
            low, expected, high = low + amounts[0], expected + amounts[1], high + amounts[2]
            place = (day, attribution_id, charge, currency, known)
            sums = self._sums.get(place)
            if sums is None:
                sums = self._sums[place] = [0, 0, 0, 0]
            sums[0] += sign * amounts[0]
            sums[1] += sign * amounts[1]
            sums[2] += sign * amounts[2]
            sums[3] += sign * us if counts else 0
            self._months.add_day(span, attribution_id, part, sign)
        self._hours.add(span, expected, sign)
        return low, expected, high


def is_machine_time(span: Span) -> bool:
    """Return whether the time of `span` is machine time: computing of an instance; a disk's hours are not."""
    return span.meter.charge == COMPUTE and span.attribution.kind == INSTANCE
