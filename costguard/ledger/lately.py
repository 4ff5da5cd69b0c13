"""What a guard run asks about the whole fleet at once: its latest samples, and for how long each resource has been known.

Samples come back as Sample without being checked anew (the ledger holds none that is not one), and share the objects of their
times, keys and names: a fleet of 10,000 with 45 samples of 4 signals is 1.8 million of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from costguard.core.guard.run import FirstSeen
from costguard.core.instant import instant, micros
from costguard.core.metering.resource import ResourceKey
from costguard.core.sample import Sample
from costguard.ledger.asking import Ask, marks
from costguard.ledger.rows import Row

FEW = 50
"""Of so many resources each one is asked for by itself."""


def samples_since(ask: Ask, at: datetime, keys: Collection[ResourceKey] | None = None) -> dict[ResourceKey, list[Sample]]:
    """The samples at or after `at` of `keys` (None: of all), by signal and in order of time; who has none is left out."""
    named = {number: ResourceKey(*key) for number, *key in ask(_KEYS, ())}
    if keys is not None:
        wanted = set(keys)
        named = {number: key for number, key in named.items() if key in wanted}
    if keys is None or len(named) > FEW:
        return _samples(ask(_ALL, (micros(at),)), named)
    return _samples(ask(_SOME.format(marks(list(named))), (*named, micros(at))), named) if named else {}


def _samples(rows: Sequence[Row], named: Mapping[int, ResourceKey]) -> dict[ResourceKey, list[Sample]]:
    """`rows` by resource. No sample is checked anew, and no instant made twice."""
    with _uninterrupted():
        found: dict[int, list[Row]] = {number: [] for number in named}
        for row in rows:
            if row[0] in found:
                found[row[0]].append(row)
        times: dict[int, datetime] = {}
        return {named[number]: _made(named[number], sorted(of), times) for number, of in found.items() if of}


def _made(key: ResourceKey, rows: Sequence[Row], times: dict[int, datetime]) -> list[Sample]:
    """Samples of `key`: sorted here, since they come sorted but for a server's choice, and a database sorts all at once."""
    made, new = [], object.__new__
    set_key, set_signal, set_at, set_value = _SETTERS
    for _, signal, at_us, value in rows:
        sample = new(Sample)
        set_key(sample, key)
        set_signal(sample, signal)
        set_at(sample, times.get(at_us) or times.setdefault(at_us, instant(at_us)))
        set_value(sample, value)
        made.append(sample)
    return made


def first_seen(ask: Ask, keys: Collection[ResourceKey] | None = None) -> dict[ResourceKey, FirstSeen]:
    """Since when, and through how many complete listings of its scope, each of `keys` (None: all) is known.

    A stretch of listings that were alike keeps only their number: those since the resource came are its share of that time.
    """
    stretches: dict[int, list[tuple[int, int, int]]] = {}
    for scope_id, start_us, end_us, polls in ask(_STRETCHES, ()):
        stretches.setdefault(scope_id, []).append((start_us, end_us, polls))
    found = {}
    wanted = None if keys is None else set(keys)
    for scope_id, first_us, *columns in ask(_FIRST, ()):
        key = ResourceKey(*columns)
        if wanted is None or key in wanted:
            polls = sum(_polls_from(first_us, *stretch) for stretch in stretches.get(scope_id, ()))
            found[key] = FirstSeen(at=instant(first_us), polls=polls)
    return found


def _polls_from(first_us: int, start_us: int, end_us: int, polls: int) -> int:
    """How many of the `polls` between `start_us` and `end_us` came at or after `first_us`, were they evenly spread."""
    if first_us <= start_us:
        return polls
    return 0 if end_us < first_us else 1 + (polls - 1) * (end_us - first_us) // (end_us - start_us)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Without garbage collections, each of which would look through all samples so far: twice the time (2026-11)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_SETTERS: list[Callable[[Sample, object], None]] = [Sample.__dict__[name].__set__ for name in ("key", "signal", "at", "value")]

_NEXT = "(SELECT min(s.signal) FROM sample AS s WHERE s.resource_id = line.resource_id AND s.signal > line.signal)"

LINES = f"""
WITH RECURSIVE line (resource_id, signal) AS (
    SELECT min(resource_id), '' FROM sample
    UNION ALL
    SELECT
        CASE WHEN {_NEXT} IS NULL THEN (SELECT min(s.resource_id) FROM sample AS s WHERE s.resource_id > line.resource_id)
            ELSE line.resource_id END,
        coalesce({_NEXT}, '')
    FROM line WHERE line.resource_id IS NOT NULL
)
SELECT resource_id, signal FROM line WHERE signal <> ''
"""  # noqa: S608 - our own column names
"""Each signal of each resource, found by leaping through the primary key: there are thousands of samples to each."""

_KEYS = "SELECT id, provider, account, region, external_id FROM resource ORDER BY id"

_SAMPLE = "s.resource_id, s.signal, s.at_us, s.value"

_ALL = f"""
SELECT {_SAMPLE} FROM ({LINES}) AS line
JOIN sample AS s ON s.resource_id = line.resource_id AND s.signal = line.signal AND s.at_us >= ?
"""  # noqa: S608 - our own column names

_SOME = f"""
SELECT {_SAMPLE} FROM sample AS s WHERE s.resource_id IN ({{}}) AND s.at_us >= ?
"""  # noqa: S608 - our own column names

_STRETCHES = "SELECT scope_id, start_us, end_us, polls FROM coverage WHERE outcome = 'complete'"

_FIRST = "SELECT scope_id, first_seen_us, provider, account, region, external_id FROM resource"
