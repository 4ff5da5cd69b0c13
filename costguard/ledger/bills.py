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

from costguard.core.billed import Imported
from costguard.core.drift import Part, Result
from costguard.core.guard.notice import Message
from costguard.core.instant import instant, micros
from costguard.core.metering.resource import storable
from costguard.core.period import Period
from costguard.errors import shortened
from costguard.ledger import outbox
from costguard.ledger.asking import Ask, Tell, in_lots, marks
from costguard.ledger.opening import open_engine, writing
from costguard.ledger.rows import Row
from costguard.ledger.staging import COLUMNS, FACTS, LOT, Staging, digest
from costguard.ledger.voices import voices

LONGEST_WHY = 300
CALLED = {"start_us": "period", "end_us": "period", "nano": "amount", "estimated": "whether it is estimated"}
"""Fact -> what people call it, where that is another word."""
WITHDRAWN = "a newer statement has it no more"


@dataclass(slots=True, kw_only=True)
class _Taking:
    """One import under way, and what it has changed so far."""

    ask: Ask
    tell: Tell
    number: int
    now_us: int
    stated_us: int
    added: int = 0
    replaced: int = 0
    withdrawn: int = 0
    outdated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """One statement to be taken in: its lines, gathered, where they are from, and when they were stated.

    `asked`: the providers that answered, and for which period: what they stated of that before, and state no more, is
    withdrawn, but where `why` says that the answer is not whole.
    """

    staged: Staging
    source: str
    stated_at: datetime
    asked: tuple[Sequence[str], Period] | None = None
    why: str = ""


class Bills:
    """The bill's part of the ledger at `url`, which is made where there is none. Use it in a `with` statement."""

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._engine.dispose()

    def take_in(self, statements: Sequence[Gathered], *, who: str, now: datetime) -> list[Imported]:
        """Write what `statements` change, in their order and one transaction; what came of each provider's lines."""
        with writing(self._engine) as connection:
            ask, tell = voices(connection)
            return [one for statement in statements for one in _taken(ask, tell, statement, who, now)]

    def record(
        self, results: Sequence[Result], *, who: str, messages: Sequence[Message] = (), told: Collection[Result] = ()
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


def _taken(ask: Ask, tell: Tell, statement: Gathered, who: str, now: datetime) -> Iterator[Imported]:
    staged, asked = statement.staged, statement.asked
    for provider in sorted({*staged.providers(), *(asked[0] if asked else ())}):
        lines, start_us, end_us, estimated = staged.extent(provider)
        if asked is not None:
            start_us, end_us = micros(asked[1].start), max(micros(asked[1].start), end_us)
        stated_us = micros(statement.stated_at)
        taking = _Taking(ask=ask, tell=tell, number=_next(ask, "bill_import"), now_us=micros(now), stated_us=stated_us)
        facts = (taking.number, micros(now), storable(who), provider, storable(statement.source), start_us, end_us, stated_us)
        rest = (int(not statement.why), storable(shortened(statement.why, LONGEST_WHY)), lines)
        tell(_IMPORT, [(*facts, *rest)])
        if asked is not None and not statement.why:
            _withdraw(taking, staged, provider, asked[1])
        for lot in staged.lots(provider):
            _take(taking, lot)
        yield Imported(
            provider=provider,
            source=statement.source,
            start=instant(start_us),
            end=instant(end_us),
            lines=lines,
            added=taking.added,
            replaced=taking.replaced,
            withdrawn=taking.withdrawn,
            outdated=taking.outdated,
            estimated=estimated,
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
        new.append((taking.number, *row, taking.stated_us))
    _write(taking.tell, _REPLACE, gone)
    _write(taking.tell, _LINE, new)
    taking.added, taking.replaced = taking.added + len(new) - len(gone), taking.replaced + len(gone)


def _withdraw(taking: _Taking, staged: Staging, provider: str, period: Period) -> None:
    """Mark what the provider stated of `period` before and states no more, of the accounts and statements that it speaks of."""
    speaks_of = {row[1:3] for lot in staged.lots(provider) for row in lot}
    last = 0
    values = (provider, micros(period.start), micros(period.end), taking.stated_us)
    while rows := taking.ask(_STILL, (*values, last, LOT)):
        last = rows[-1][0]
        names = [(provider, *row[1:4]) for row in rows]
        stated = {found for some in in_lots(names) for found in staged.states(some)}
        gone = [
            (taking.now_us, taking.number, WITHDRAWN, row[0])
            for row, name in zip(rows, names, strict=True)
            if name[1:3] in speaks_of and digest(*name) not in stated
        ]
        _write(taking.tell, _REPLACE, gone)
        taking.withdrawn += len(gone)


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


def _result_row(result: Result, who: str, *, told: bool) -> Row:
    return (
        micros(result.at),
        storable(who),
        result.provider,
        storable(result.account),
        result.currency,
        micros(result.period.start),
        micros(result.period.end),
        result.billed,
        *result.charged,
        result.unexplained,
        result.allowed,
        result.outcome,
        result.tolerance,
        int(told),
    )


def _part_row(part: Part, currency: str) -> Row:
    facts = (part.cause, part.charge, storable(part.sku), currency, part.nano, int(part.explained), part.resources, part.lines)
    return (*facts, storable(part.reason))


_LINE = f"INSERT INTO bill_line (import_id, {COLUMNS}, stated_us) VALUES ({', '.join('?' * (len(COLUMNS.split(',')) + 2))})"  # noqa: S608 - our own names
_REPLACE = "UPDATE bill_line SET replaced_us = ?, replaced_by = ?, replaced_why = ? WHERE id = ?"
_KNOWN = f"""
SELECT id, stated_us, line_id, {FACTS} FROM bill_line
WHERE provider = ? AND account = ? AND statement = ? AND line_id IN ({{ids}}) AND replaced_us IS NULL
"""  # noqa: S608 - our own names
_STILL = """
SELECT id, account, statement, line_id FROM bill_line
WHERE provider = ? AND start_us >= ? AND start_us < ? AND replaced_us IS NULL AND stated_us <= ? AND id > ? ORDER BY id LIMIT ?
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
