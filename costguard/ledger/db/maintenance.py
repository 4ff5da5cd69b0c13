"""Looking after a ledger: where it is, a copy of it, whether it adds up, and bringing it up to this version.

A check trusts nothing that it can work out anew: amounts from the spans' own prices and times, days from the spans, in Python.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.errors import CostguardError, InputError
from costguard.ledger.db import triggers
from costguard.ledger.db.address import FIELD, address
from costguard.ledger.db.asking import Ask
from costguard.ledger.db.codecs import SPAN, Row, span_of
from costguard.ledger.db.reader import Reader
from costguard.ledger.guard.audit_check import checked
from costguard.ledger.spans.rollup import counts_time
from costguard.ledger.spans.scope_state import load_attributions
from costguard.metering.span import Span, compute_amounts, split_by_day
from costguard.values.instant import from_micros
from costguard.values.resource import Attribution, ResourceKey

if TYPE_CHECKING:  # a type and no more: asking for the path imports no SQLAlchemy
    from costguard.ledger.db.connection import Upgrade

MOST_FINDINGS = 20
"""Of one kind; the rest are counted."""

PAGE = 5000
"""Spans read at a time."""

Amounts = tuple[int, int, int]
Day = tuple[int, int, str, str, int]
"""Day, attribution, charge, currency, and 1 where the price is known."""


def ledger_path(url: str) -> str:
    """Where the ledger at `url` is, for people: a file's absolute path, or a server's address without its password."""
    return address(url).shown


def backup(url: str, target: Path) -> int:
    """Make `target`, which must not exist, a checked copy of a SQLite ledger; its size in bytes."""
    from costguard.ledger.db.backup import copy

    where = address(url)
    if where.path is None:
        hint = f"pg_dump --format=custom --file={target} '{where.shown}'"
        raise InputError("is on a PostgreSQL server, whose own tool makes backups", field=FIELD, hint=hint)
    Reader(url).close()  # refuses what is no ledger
    copy(where, target)
    return target.stat().st_size


def upgrade(url: str) -> Upgrade:
    """Make the ledger, or bring an older one up to this version after a copy of it."""
    from costguard.ledger.db.connection import upgrade as bring_up

    return bring_up(url)


def check(url: str) -> list[str]:
    """What is wrong with the ledger at `url`, a sentence each; empty where it is sound. Nothing is changed.

    Of a file that is damaged nothing else is looked at: what it says cannot be believed.
    """
    with Reader(url) as reader, reader.snapshot() as ask:
        server = reader.where.path is None
        damage = [] if server else list(_file(ask))
        if damage:
            return _shortened(damage)
        guarded = _guards(ask, "postgresql" if server else "sqlite")
        kinds = (guarded, _overlaps(ask), _coverage(ask), _amounts(ask), (found.what for found in checked(ask)[1]))
        return [said for kind in kinds for said in _shortened(list(kind))]


def _shortened(findings: Sequence[str]) -> list[str]:
    more = len(findings) - MOST_FINDINGS
    return [*findings[:MOST_FINDINGS], *([f"and {more} more of this kind"] if more > 0 else [])]


def _file(ask: Ask) -> Iterator[str]:
    """What SQLite itself says."""
    try:
        said = [text for (text,) in ask(f"PRAGMA integrity_check({MOST_FINDINGS})", ()) if text != "ok"]
    except sqlite3.DatabaseError as broken:  # so damaged that it cannot be gone through
        said = [str(broken)]
    yield from (f"the file is damaged: {text}" for text in said)
    if said:
        return
    for table, row, parent, _ in ask("PRAGMA foreign_key_check", ()):
        yield f"row {row} of {table} names a row of {parent} that does not exist"


def _guards(ask: Ask, dialect: str) -> Iterator[str]:
    """Triggers that somebody took down."""
    there = {name for name, _ in ask(triggers.THERE[dialect], ())}
    for name in triggers.names(dialect):
        if name not in there:
            yield f"the guard {name} is gone: costguard db upgrade puts it up again"


def _overlaps(ask: Ask) -> Iterator[str]:
    for first, second, provider, external_id, charge in ask(_OVERLAPS, ()):
        yield f"spans {first} and {second} of {provider} {external_id} ({charge}) overlap"


def _coverage(ask: Ask) -> Iterator[str]:
    for row, provider, account, name in ask(_STRETCHES, ()):
        yield f"coverage {row} of {provider}/{account}/{name} starts before the one before it ends"


def _amounts(ask: Ask) -> Iterator[str]:
    """Closed spans, corrections and days whose money is not what their times and prices come to."""
    days: dict[Day, list[int]] = {}
    attributions = load_attributions(ask)
    for row in _closed(ask):
        try:
            number, attribution_id, span, stated, corrected = _read(row, attributions)
        except CostguardError as broken:
            yield f"span {row[0]} cannot be: {broken.field} {broken.what}"
            continue
        came_to = _whole(span)
        if came_to != stated:
            yield f"span {number} says {_shown(stated)} and comes to {_shown(came_to)} nano-units"
        if corrected is not None:
            correction, presence, money = corrected
            span = replace(span, presence=presence)
            if _whole(span) != money:
                yield f"correction {correction} says {_shown(money)} and comes to {_shown(_whole(span))} nano-units"
        price, known = span.meter.price, int(span.meter.price.known)
        for day, money, us in split_by_day(span):
            sums = days.setdefault((day, attribution_id, span.meter.charge, price.currency, known), [0, 0, 0, 0])
            for place, value in enumerate((*money, us if counts_time(span) else 0)):
                sums[place] += value
    yield from _days(ask, days)


def _days(ask: Ask, days: dict[Day, list[int]]) -> Iterator[str]:
    kept = {tuple(row[:5]): list(row[5:]) for row in ask(_DAILY, ())}
    for place in sorted({*days, *kept}):
        says, adds_up_to = kept.get(place, [0, 0, 0, 0]), days.get(place, [0, 0, 0, 0])
        if says != adds_up_to:
            day, attribution_id, charge, currency, _ = place
            which = f"{from_micros(day * 86_400_000_000):%Y-%m-%d}, {charge} of attribution {attribution_id} in {currency}"
            yield f"the roll-up of {which} says {_shown(says)} and its spans add up to {_shown(adds_up_to)}"


def _closed(ask: Ask) -> Iterator[Row]:
    """The row of every closed span and its last correction."""
    last = 0
    while page := ask(_CLOSED, (last, PAGE)):
        yield from page
        last = page[-1][0]


def _read(row: Row, attributions: dict[int, Attribution]) -> tuple[int, int, Span, Amounts, tuple[int, str, Amounts] | None]:
    """A closed span: its id, its attribution's, itself, its stated amounts, and its last correction."""
    number, attribution_id, *rest = row
    span = span_of(ResourceKey(*rest[:4]), attributions[attribution_id], tuple(rest[4:22]))
    stated, correction = tuple(rest[22:25]), rest[25]
    corrected = None if correction is None else (correction, rest[26], tuple(rest[27:30]))
    return number, attribution_id, span, stated, corrected


def _whole(span: Span) -> Amounts:
    """What all of a closed span comes to."""
    return compute_amounts(span, 0, FAR_US)


def _shown(values: Sequence[int]) -> str:
    return " / ".join(str(value) for value in values)


FAR_US = 2**62
"""Later than any span's end."""

_OVERLAPS = """
SELECT s.before_id, s.id, r.provider, r.external_id, s.charge
FROM (
    SELECT id, resource_id, charge, start_us,
        lag(id) OVER line AS before_id, lag(coalesce(end_us, 9223372036854775807)) OVER line AS before_us
    FROM span WHERE end_us IS NULL OR end_us > start_us
    WINDOW line AS (PARTITION BY resource_id, charge, part ORDER BY start_us, id)
) AS s JOIN resource AS r ON r.id = s.resource_id
WHERE s.before_us > s.start_us ORDER BY s.id
"""

_STRETCHES = """
SELECT c.id, s.provider, s.account, s.name
FROM (SELECT id, scope_id, start_us, lag(end_us) OVER (PARTITION BY scope_id ORDER BY id) AS before_us FROM coverage) AS c
JOIN scope AS s ON s.id = c.scope_id
WHERE c.before_us > c.start_us ORDER BY c.id
"""

_CLOSED = f"""
SELECT s.id, s.attribution_id, r.provider, r.account, r.region, r.external_id, {SPAN}, s.low, s.expected, s.high,
    c.id, c.presence, c.low, c.expected, c.high
FROM span AS s JOIN resource AS r ON r.id = s.resource_id
LEFT JOIN correction AS c ON c.id = (SELECT max(l.id) FROM correction AS l WHERE l.span_id = s.id)
WHERE s.id > ? AND s.end_us IS NOT NULL ORDER BY s.id LIMIT ?
"""  # noqa: S608 - our own names

_DAILY = "SELECT day, attribution_id, charge, currency, known, low, expected, high, us FROM daily"
