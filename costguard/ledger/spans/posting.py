"""One transaction's worth of rows: what polls changed, as bulk statements, with the roll-ups kept beside them.

A poll that changed nothing costs one tuple here, and one UPDATE of its scope's coverage when the transaction ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from costguard.errors import LedgerError, shorten
from costguard.ledger.db.asking import Tell, marks
from costguard.ledger.db.codecs import (
    ABSENT,
    ATTRIBUTION,
    METER,
    PERIOD,
    Row,
    attribution_of,
    attribution_row,
    observation_text,
    span_row,
)
from costguard.ledger.spans.rollup import Daily
from costguard.ledger.spans.scope_state import Coverage, ScopeBook
from costguard.metering.scope_state import AccrualResult, ObservationLogEntry, ScopeState, SpanCorrection
from costguard.metering.span import Span
from costguard.values.instant import MICROSECOND, to_micros
from costguard.values.resource import Attribution, ResourceKey, ScopeKey, make_storable

LONGEST_WHY = 300
"""Characters of why a listing failed; an answer of a provider can be a page of HTML."""

NUMBERED = ("scope", "coverage", "resource", "attribution", "observation", "span", "correction")
"""The tables whose ids are counted up here."""


@dataclass(slots=True, kw_only=True)
class Memory:
    """What the writer holds between transactions, all of it read from the ledger. `last_ids`: the highest id of each table."""

    revision: int
    last_ids: dict[str, int]
    books: dict[ScopeKey, ScopeBook]
    attributions: dict[Attribution, int]

    def next_id(self, table: str) -> int:
        """A new id."""
        self.last_ids[table] = found = self.last_ids[table] + 1
        return found


class Posting:
    """The rows of one transaction. `tell` writes at once what must be in order; `finish` writes what adds up.

    `gap`: a longer pause between two polls breaks the coverage of a scope.
    """

    def __init__(self, tell: Tell, memory: Memory, gap: timedelta) -> None:
        self._tell, self._memory, self._gap_us = tell, memory, gap // MICROSECOND
        self._daily = Daily()
        self._begun: dict[int, tuple[int, Coverage]] = {}
        self._moved: dict[int, Coverage] = {}

    def open_book(self, scope: ScopeKey) -> ScopeBook:
        """The book of a scope that was never polled before."""
        book = ScopeBook(id=self._memory.next_id("scope"), state=ScopeState(scope=scope))
        self._write("INSERT INTO scope (id, provider, account, name) VALUES (?, ?, ?, ?)", [(book.id, *scope)])
        self._memory.books[scope] = book
        return book

    def add(self, book: ScopeBook, accrued: AccrualResult) -> None:
        """Write what one fresh poll of the scope `book` changed."""
        if accrued.logged:
            self._log(book, accrued)
        if accrued.closed:
            self._close(book.ids, accrued.closed)
        if accrued.opened:
            self._open(book.ids, accrued.opened)
        if accrued.corrected:
            self._correct(book.ids, accrued.corrected)
        self._cover(book, accrued)
        book.state = accrued.state

    def finish(self) -> None:
        """The last rows, and the revision that says that somebody wrote."""
        self._write(_COVERED, [(row.end_us, row.polls, row.id) for row in self._moved.values()])
        self._write(
            _COVER, [(c.id, scope, c.outcome, c.why, c.start_us, c.end_us, c.polls) for scope, c in self._begun.values()]
        )
        added, changed = self._daily.rows()
        self._write(_ROLL_UP, added)
        self._write(_ROLL_DOWN, changed)
        self._memory.revision += 1
        self._write("UPDATE ledger_state SET revision = ? WHERE id = 1", [(self._memory.revision,)])

    def _log(self, book: ScopeBook, accrued: AccrualResult) -> None:
        resources: list[Row] = []
        rows = [self._logged(book, accrued, row, resources) for row in accrued.logged]
        self._write(_RESOURCE, resources)
        self._write(_OBSERVATION, rows)

    def _logged(self, book: ScopeBook, accrued: AccrualResult, logged: ObservationLogEntry, resources: list[Row]) -> Row:
        key, seen = logged.key, logged.observation
        at_us, number = to_micros(logged.at), self._memory.next_id("observation")
        resource_id = book.ids.get(key)
        if resource_id is None:
            book.ids[key] = resource_id = self._memory.next_id("resource")
            first_seen_us = to_micros(accrued.state.resources[key].first_seen_at)
            resources.append((resource_id, book.id, *key, seen.kind if seen else "", first_seen_us))
        if seen is None:
            seen_us = None if logged.seen_at is None else to_micros(logged.seen_at)
            return (number, resource_id, at_us, seen_us, ABSENT, "", "", "", None, None, "")
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
            observation_text(seen, accrued.state.resources[key].edges),
        )

    def _close(self, ids: Mapping[ResourceKey, int], spans: Iterable[Span]) -> None:
        rows = []
        for span in spans:
            assert span.end is not None  # noqa: S101 - for the type checker: a closed span has its end
            found = self._daily.add(span, self._attribution(span.attribution))
            rows.append((to_micros(span.end), span.ended_by, *found, ids[span.key], span.meter.charge, span.meter.part))
        self._write(_CLOSE, rows)

    def _open(self, ids: Mapping[ResourceKey, int], spans: Iterable[Span]) -> None:
        rows = []
        for span in spans:
            attribution_id = self._attribution(span.attribution)
            found = self._daily.add(span, attribution_id) if span.end else None
            rows.append((self._memory.next_id("span"), *span_row(span, ids[span.key], attribution_id, found)))
        self._write(_OPEN, rows)

    def _correct(self, ids: Mapping[ResourceKey, int], corrections: Iterable[SpanCorrection]) -> None:
        rows = []
        for row in corrections:
            span = row.span
            assert span.end is not None  # noqa: S101 - for the type checker: only closed spans are corrected
            found = self._daily.change(span, replace(span, presence=row.presence), self._attribution(span.attribution))
            place = (ids[span.key], *span.line, to_micros(span.start), to_micros(span.end))
            said = (to_micros(row.at), row.presence, row.reason, *found)
            rows.append((self._memory.next_id("correction"), *place, *said))
        self._write(_CORRECT, rows)

    def _cover(self, book: ScopeBook, accrued: AccrualResult) -> None:
        """Polls in a row that say the same are one row; after a longer pause a new one begins, since nobody looked."""
        at_us, why, last = to_micros(accrued.at), make_storable(shorten(accrued.why, LONGEST_WHY)), book.coverage
        if last is not None and (last.outcome, last.why) == (accrued.outcome, why) and at_us - last.end_us <= self._gap_us:
            last.end_us, last.polls = at_us, last.polls + 1
            if last.id not in self._begun:
                self._moved[last.id] = last
            return
        row = Coverage(self._memory.next_id("coverage"), accrued.outcome, why, at_us, at_us, 1)
        book.coverage = row
        self._begun[row.id] = (book.id, row)

    def _attribution(self, attribution: Attribution) -> int:
        """The id of `attribution`, which is written where it is new."""
        known = self._memory.attributions
        found = known.get(attribution)
        if found is None:
            row = attribution_row(attribution)
            found = known.get(attribution_of(row))
            if found is None:
                found = self._memory.next_id("attribution")
                self._write(_ATTRIBUTION, [(found, *row)])
            known[attribution] = known[attribution_of(row)] = found
        return found

    def _write(self, sql: str, rows: list[Row]) -> None:
        """Execute `sql` for each of `rows`. Each touches one row: anything else is a ledger unlike what we remember."""
        if rows and self._tell(sql, rows) != len(rows):
            what = sql.split("(", maxsplit=1)[0].strip()
            raise LedgerError(
                f"is not as it was left, nothing was written: {what}", field="ledger", hint="run costguard db check"
            )


def _insert(table: str, columns: str) -> str:
    return f"INSERT INTO {table} ({columns}) VALUES ({marks(columns.split(','))})"  # noqa: S608 - our own names


_RESOURCE = _insert("resource", "id, scope_id, provider, account, region, external_id, kind, first_seen_us")
_ATTRIBUTION = _insert("attribution", f"id, {ATTRIBUTION}")
_OBSERVATION = _insert(
    "observation", "id, resource_id, at_us, seen_us, state, name, instance_type, owner, started_us, stopped_us, detail"
)
_OPEN = _insert("span", f"id, resource_id, attribution_id, {METER}, {PERIOD}, low, expected, high")
_CLOSE = """
UPDATE span SET end_us = ?, ended_by = ?, low = ?, expected = ?, high = ?
WHERE resource_id = ? AND charge = ? AND part = ? AND end_us IS NULL
"""
_CORRECT = """
INSERT INTO correction (id, span_id, at_us, presence, reason, low, expected, high)
VALUES (?, (SELECT max(id) FROM span WHERE resource_id = ? AND charge = ? AND part = ? AND start_us = ? AND end_us = ?),
    ?, ?, ?, ?, ?, ?)
"""
_COVER = _insert("coverage", "id, scope_id, outcome, why, start_us, end_us, polls")
_COVERED = "UPDATE coverage SET end_us = ?, polls = ? WHERE id = ?"
_ROLL_UP = (
    _insert("daily", "day, attribution_id, charge, currency, known, low, expected, high, us")
    + """
ON CONFLICT (day, attribution_id, charge, currency, known) DO UPDATE SET low = daily.low + excluded.low,
    expected = daily.expected + excluded.expected, high = daily.high + excluded.high, us = daily.us + excluded.us
"""
)
_ROLL_DOWN = """
UPDATE daily SET low = low + ?, expected = expected + ?, high = high + ?, us = us + ?
WHERE day = ? AND attribution_id = ? AND charge = ? AND currency = ? AND known = ?
"""
