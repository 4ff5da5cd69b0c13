"""Bills in the ledger: a statement goes in whole or not at all, and again without changing anything.

A line has a name (provider, account, statement, id). Where the ledger has it as stated now, nothing is written. Where it said
something else before, that row is marked as replaced, by which import and why, and a new one is written; where it is known as
a later statement has it, it stays.

    with Staging() as staged, Bills(url) as bills:
        staged.add(parts)
        bills.take_in([Gathered(staged=staged, source="bill.csv", stated_at=made)], who="ada@lab", now=now)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

from costguard.bills.bill_line import BillImport
from costguard.bills.drift import DriftPart, DriftResult
from costguard.errors import shorten
from costguard.guard.alerts.alert import Notification
from costguard.ledger.bills.staging import COLUMNS, FACTS, LOT, Staging, digest
from costguard.ledger.db.asking import Ask, Tell, in_lots, marks
from costguard.ledger.db.codecs import Row
from costguard.ledger.db.connection import open_engine, writing
from costguard.ledger.db.voices import voices
from costguard.ledger.guard import outbox
from costguard.values.instant import from_micros, to_micros
from costguard.values.period import Period
from costguard.values.resource import make_storable

LONGEST_WHY = 300
CALLED = {"start_us": "period", "end_us": "period", "nano": "amount", "estimated": "whether it is estimated"}
"""Fact -> what people call it, where that is another word."""
WITHDRAWN = "a newer statement has it no more"
FAR_US = 2**62
"""Further than any line reaches."""


@dataclass(slots=True, kw_only=True)
class _Taking:
    """One import under way, and what it has changed so far. `gone_since`: names that a later statement has no more."""

    ask: Ask
    tell: Tell
    number: int
    now_us: int
    stated_us: int
    gone_since: frozenset[Row] = frozenset()
    added: int = 0
    replaced: int = 0
    withdrawn: int = 0
    outdated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """One statement to be taken in: its lines, gathered, where they are from, and when they were stated.

    `asked`: the providers that answered, and for which period: what they stated of that before, and state no more, is
    withdrawn, but where `why` says that the answer is not whole. `whole`: not asked, and all of the bills that its lines stand
    in: what the ledger has of those besides is withdrawn.
    """

    staged: Staging
    source: str
    stated_at: datetime
    asked: tuple[Sequence[str], Period] | None = None
    why: str = ""
    whole: bool = False


class Bills:
    """The bill's part of the ledger at `url`, which is made where there is none. Use it in a `with` statement."""

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._engine.dispose()

    def take_in(self, statements: Sequence[Gathered], *, who: str, now: datetime) -> list[BillImport]:
        """Write what `statements` change, in their order and one transaction; what came of each provider's lines."""
        with writing(self._engine) as connection:
            ask, tell = voices(connection)
            return [one for statement in statements for one in _taken(ask, tell, statement, who, now)]

    def record(
        self,
        results: Sequence[DriftResult],
        *,
        who: str,
        messages: Sequence[Notification] = (),
        told: Collection[DriftResult] = (),
    ) -> None:
        """Write what holding bills against charges showed, with the messages that tell of it, in one transaction.

        `told`: those results that `messages` are of.
        """
        with writing(self._engine) as connection:
            ask, tell = voices(connection)
            for result in results:
                number = _next(ask, "reconciliation")
                tell(_RESULT, [(number, *_result_row(result, who, told=any(result is one for one in told)))])
                _write(tell, _ADJUSTMENT, [(number, *_part_row(part, result.currency)) for part in result.parts])
            outbox.put_out(ask, tell, messages)


def _taken(ask: Ask, tell: Tell, statement: Gathered, who: str, now: datetime) -> Iterator[BillImport]:
    staged, asked = statement.staged, statement.asked
    for provider in sorted({*staged.providers(), *(asked[0] if asked else ())}):
        lines, start_us, end_us, estimated = staged.extent(provider)
        if asked is not None:
            start_us, end_us = to_micros(asked[1].start), max(to_micros(asked[1].start), end_us)
        stated_us = to_micros(statement.stated_at)
        gone_since = ask(_GONE_SINCE, (provider, WITHDRAWN, stated_us)) if ask(_LATER, (provider, stated_us)) else ()
        taking = _Taking(
            ask=ask,
            tell=tell,
            number=_next(ask, "bill_import"),
            now_us=to_micros(now),
            stated_us=stated_us,
            gone_since=frozenset(gone_since),
        )
        facts = (
            taking.number,
            to_micros(now),
            make_storable(who),
            provider,
            make_storable(statement.source),
            start_us,
            end_us,
            stated_us,
        )
        rest = (int(not statement.why), make_storable(shorten(statement.why, LONGEST_WHY)), lines)
        tell(_IMPORT, [(*facts, *rest)])
        lacking = 0
        for gone in _unstated(taking, staged, provider, asked[1] if asked else None):
            if statement.whole or (asked is not None and not statement.why):
                _write(tell, _REPLACE, [(taking.now_us, taking.number, WITHDRAWN, number) for number in gone])
                taking.withdrawn += len(gone)
            else:
                lacking += len(gone)
        for lot in staged.lots(provider):
            _take(taking, lot)
        yield BillImport(
            provider=provider,
            source=statement.source,
            start=from_micros(start_us),
            end=from_micros(end_us),
            lines=lines,
            added=taking.added,
            replaced=taking.replaced,
            withdrawn=taking.withdrawn,
            outdated=taking.outdated,
            estimated=estimated,
            lacking=lacking if taking.added < lines else 0,  # a statement of which nothing was known is another piece
            why=statement.why,
        )


def _take(taking: _Taking, lot: Sequence[Row]) -> None:
    """Write what a lot of lines changes."""
    known = dict[Row, Row]()
    for place, ids in _places(lot).items():
        for some in in_lots(ids):
            sql = _KNOWN.format(ids=marks(some))
            known |= {(*place, row[2]): row for row in taking.ask(sql, (*place, *some))}
    new, gone = list[Row](), list[Row]()
    for row in lot:
        before = known.get(row[:4])
        if before is not None:
            number, stated_us, _, *facts = before
            changed = _changed(facts, row[4:])
            if not changed:
                continue
            if stated_us > taking.stated_us:
                taking.outdated += 1
                continue
            gone.append((taking.now_us, taking.number, f"another {changed}", number))
        elif row[:4] in taking.gone_since:
            taking.outdated += 1
            continue
        new.append((taking.number, *row, taking.stated_us))
    _write(taking.tell, _REPLACE, gone)
    _write(taking.tell, _LINE, new)
    taking.added, taking.replaced = taking.added + len(new) - len(gone), taking.replaced + len(gone)


def _unstated(taking: _Taking, staged: Staging, provider: str, period: Period | None) -> Iterator[list[int]]:
    """Rows, lot by lot, of what was stated before and `staged` has no more: of its bills; of what was asked in `period`.

    A bill delivered whole speaks for every account that it was ever for. Any other answer speaks for the accounts and
    statements that it has lines of, and for `period` alone.
    """
    start_us, end_us = (to_micros(period.start), to_micros(period.end)) if period else (-FAR_US, FAR_US)
    within = (provider, end_us, start_us, taking.stated_us)
    for statement, bill in staged.bills(provider):
        name = f"{bill}|"
        for rows in _rows(taking.ask, _OF_BILL, (*within, statement, len(name), name), -FAR_US):
            yield _missing(staged, rows)
    others = staged.accounts(provider) if period else set()
    for rows in _rows(taking.ask, _OF_PERIOD, within, start_us) if others else ():
        yield _missing(staged, [row for row in rows if row[2:4] in others])


def _rows(ask: Ask, sql: str, values: Row, start_us: int) -> Iterator[Sequence[Row]]:
    """What `sql` finds from `start_us` on, lot by lot in the order of an index: each row is looked at once."""
    last = (start_us, 0)
    while rows := ask(sql, (*values, *last, LOT)):
        last = (rows[-1][5], rows[-1][0])
        yield rows


def _missing(staged: Staging, rows: Sequence[Row]) -> list[int]:
    """Those of `rows` that are not stated."""
    names = [row[1:5] for row in rows]
    stated = {found for some in in_lots(names) for found in staged.states(some)}
    return [row[0] for row, name in zip(rows, names, strict=True) if digest(*name) not in stated]


def _places(lot: Sequence[Row]) -> dict[Row, list[str]]:
    """(provider, account, statement) -> the ids of its lines."""
    found = defaultdict[Row, list[str]](list)
    for row in lot:
        found[row[:3]].append(row[3])
    return found


def _changed(before: Sequence[object], now: Sequence[object]) -> str:
    """What a line says otherwise than before, in words; "" for nothing. `source` and `description` are no facts of money."""
    names = [name for name in FACTS.split(", ") if name not in ("source", "description")]
    pairs = zip(names, before, now, strict=False)
    return ", ".join(dict.fromkeys(CALLED.get(name, name) for name, old, new in pairs if old != new))


def _next(ask: Ask, table: str) -> int:
    return int(ask(f"SELECT coalesce(max(id), 0) + 1 FROM {table}", ())[0][0])  # noqa: S608 - our own names


def _write(tell: Tell, sql: str, rows: list[Row]) -> None:
    if rows:
        tell(sql, rows)


def _result_row(result: DriftResult, who: str, *, told: bool) -> Row:
    return (
        to_micros(result.at),
        make_storable(who),
        result.provider,
        make_storable(result.account),
        result.currency,
        to_micros(result.period.start),
        to_micros(result.period.end),
        result.billed,
        *result.charged,
        result.unexplained,
        result.allowed,
        result.outcome,
        result.tolerance,
        int(told),
    )


def _part_row(part: DriftPart, currency: str) -> Row:
    facts = (
        part.cause,
        part.charge,
        make_storable(part.sku),
        currency,
        part.nano,
        int(part.explained),
        part.resources,
        part.lines,
    )
    return (*facts, make_storable(part.reason))


_LINE = f"INSERT INTO bill_line (import_id, {COLUMNS}, stated_us) VALUES ({', '.join('?' * (len(COLUMNS.split(',')) + 2))})"  # noqa: S608 - our own names
_REPLACE = "UPDATE bill_line SET replaced_us = ?, replaced_by = ?, replaced_why = ? WHERE id = ?"
_KNOWN = f"""
SELECT id, stated_us, line_id, {FACTS} FROM bill_line
WHERE provider = ? AND account = ? AND statement = ? AND line_id IN ({{ids}}) AND replaced_us IS NULL
"""  # noqa: S608 - our own names
_STILL = """
SELECT id, provider, account, statement, line_id, start_us FROM bill_line
WHERE provider = ? AND start_us < ? AND end_us > ? AND replaced_us IS NULL AND stated_us <= ?
"""
_ONWARDS = "AND (start_us, id) > (?, ?) ORDER BY start_us, id LIMIT ?"
_OF_BILL = f"{_STILL} AND statement = ? AND substr(line_id, 1, ?) = ? {_ONWARDS}"
_OF_PERIOD = f"{_STILL} {_ONWARDS}"
_LATER = "SELECT id FROM bill_import WHERE provider = ? AND stated_us > ? LIMIT 1"
_GONE_SINCE = """
SELECT l.provider, l.account, l.statement, l.line_id FROM bill_line AS l JOIN bill_import AS i ON i.id = l.replaced_by
WHERE l.provider = ? AND l.replaced_why = ? AND i.stated_us > ?
"""
_IMPORT = """
INSERT INTO bill_import (id, at_us, who, provider, source, start_us, end_us, stated_us, whole, why, lines)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_RESULT = """
INSERT INTO reconciliation (id, at_us, who, provider, account, currency, start_us, end_us, billed, low, expected, high,
    unexplained, allowed, outcome, tolerance, told)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADJUSTMENT = """
INSERT INTO bill_adjustment (reconciliation_id, cause, charge, sku, currency, nano, explained, resources, lines, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
