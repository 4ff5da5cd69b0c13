"""What a guard run asks about the whole fleet at once: its latest samples, and for how long each resource has been known.

Samples come back in columns: a fleet of 10,000 with 45 samples of 4 signals is 1.8 million of them, too many to be objects.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from itertools import islice
from operator import le, lt

from costguard.guard.evidence import SampleColumns
from costguard.guard.run import DepartureEvidence, FirstSighting
from costguard.ledger.db.asking import Query, format_placeholders
from costguard.ledger.db.codecs import ABSENT_STATE, SqlRow, decode_observation
from costguard.metering.accrual import GONE_REASON
from costguard.system.gc_pause import pause_gc
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import ENDED, ResourceKey
from costguard.values.sample import Sample

SINGLE_QUERIES_MAX = 50
"""Of so many resources each one is asked for by itself."""
BATCH_RESOURCES = 25
"""Resources of which rows are held at once, with up to some 10,000 samples each: rows take ten times the memory of columns."""


def load_samples_since(
    ask: Query, at: datetime, keys: Collection[ResourceKey] | None = None
) -> dict[ResourceKey, list[Sample]]:
    """The samples at or after `at` of `keys` (None: of all), by signal and in order of time; who has none is left out."""
    return {
        key: [
            Sample(key=key, signal=signal, at=from_micros(at_us), value=value)
            for signal, (ats, values) in columns.items()
            for at_us, value in zip(ats, values, strict=True)
        ]
        for key, columns in load_columns_since(ask, at, keys).items()
    }


def load_columns_since(
    ask: Query, at: datetime, keys: Collection[ResourceKey] | None = None
) -> dict[ResourceKey, SampleColumns]:
    """The samples at or after `at` of `keys` (None: of all), in columns; who has none is left out."""
    found: dict[ResourceKey, SampleColumns] = {}
    for lot in iterate_columns_since(ask, at, keys):
        found |= lot
    return found


def iterate_columns_since(
    ask: Query, at: datetime, keys: Collection[ResourceKey] | None = None
) -> Iterator[dict[ResourceKey, SampleColumns]]:
    """The same, LOT resources at a time."""
    named = {number: ResourceKey(*key) for number, *key in ask(_KEYS, ())}
    if keys is not None:
        wanted = set(keys)
        named = {number: key for number, key in named.items() if key in wanted}
    numbers = sorted(named)
    for first in range(0, len(numbers), BATCH_RESOURCES):
        lot = numbers[first : first + BATCH_RESOURCES]
        if keys is None or len(named) > SINGLE_QUERIES_MAX:
            rows = ask(_SAMPLES_OF_MANY, (lot[0], lot[-1], to_micros(at)))
        else:
            rows = ask(_SAMPLES_OF_FEW.format(format_placeholders(lot)), (*lot, to_micros(at)))
        yield {named[number]: columns for number, columns in _group_columns(rows) if number in named}


def _group_columns(rows: Sequence[SqlRow]) -> Iterator[tuple[int, SampleColumns]]:
    """`rows` by resource and signal. They come in order but for a server's choice, and a database sorts all at once."""
    if not rows:
        return
    with pause_gc():
        numbers, signals, ats, values = zip(*rows, strict=True)
        if not all(map(le, zip(numbers, signals, strict=True), islice(zip(numbers, signals, strict=True), 1, None))):
            numbers, signals, ats, values = zip(*sorted(rows), strict=True)
        first, end = 0, len(numbers)
        while first < end:
            number, columns = numbers[first], dict[str, tuple[Sequence[int], Sequence[float]]]()
            last = bisect_right(numbers, number, first)
            while first < last:
                signal = signals[first]
                until = bisect_right(signals, signal, first, last)
                columns[signal] = _sort_samples(ats[first:until], values[first:until])
                first = until
            yield number, columns


def _sort_samples(ats: Sequence[int], values: Sequence[float]) -> tuple[Sequence[int], Sequence[float]]:
    """One signal's samples, in order."""
    if not all(map(lt, ats, ats[1:])):
        ats, values = zip(*sorted(zip(ats, values, strict=True)), strict=True)
    return array("q", ats), array("d", values)


def load_first_seen(ask: Query, keys: Collection[ResourceKey] | None = None) -> dict[ResourceKey, FirstSighting]:
    """Since when, and through how many complete listings of its scope, each of `keys` (None: all) is known.

    A stretch of listings that were alike keeps only their number: those since the resource came are its share of that time.
    """
    stretches: dict[int, list[tuple[int, int, int]]] = {}
    for scope_id, start_us, end_us, polls in ask(_COVERAGE_AFTER, ()):
        stretches.setdefault(scope_id, []).append((start_us, end_us, polls))
    found = {}
    wanted = None if keys is None else set(keys)
    for scope_id, first_us, *columns in ask(_FIRST, ()):
        key = ResourceKey(*columns)
        if wanted is None or key in wanted:
            polls = sum(_estimate_polls_since(first_us, *stretch) for stretch in stretches.get(scope_id, ()))
            found[key] = FirstSighting(at=from_micros(first_us), polls=polls)
    return found


def load_departure(ask: Query, key: ResourceKey, since: datetime) -> DepartureEvidence:
    """What is known of the end of `key`: as it was listed, or how many complete listings in a row, from `since` on, lack it."""
    absent_us, scope = None, None
    for scope_id, state, at_us, detail in ask(_LAST, tuple(key)):
        seen = None if state == ABSENT_STATE else decode_observation(key, detail)[0]
        if seen is None:
            absent_us, scope = at_us, scope_id
        elif seen.state != ENDED or seen.why != GONE_REASON:
            ended = absent_us is None and seen.state == ENDED
            return (
                DepartureEvidence(listed=seen)
                if ended
                else DepartureEvidence(absences=_count_lacking_polls(ask, scope, absent_us, since))
            )
    return DepartureEvidence(absences=_count_lacking_polls(ask, scope, absent_us, since))


def _count_lacking_polls(ask: Query, scope_id: int | None, absent_us: int | None, since: datetime) -> int:
    if absent_us is None:
        return 0
    first = max(absent_us, to_micros(since))
    return sum(_estimate_polls_since(first, *stretch[1:]) for stretch in ask(_COVERAGE_AFTER, ()) if stretch[0] == scope_id)


def _estimate_polls_since(first_us: int, start_us: int, end_us: int, polls: int) -> int:
    """How many of the `polls` between `start_us` and `end_us` came at or after `first_us`, were they evenly spread."""
    if first_us <= start_us:
        return polls
    return 0 if end_us < first_us else 1 + (polls - 1) * (end_us - first_us) // (end_us - start_us)


_NEXT_SIGNAL = "(SELECT min(s.signal) FROM sample AS s WHERE s.resource_id = line.resource_id AND s.signal > line.signal)"

_SKIP_SCAN = f"""
WITH RECURSIVE line (resource_id, signal) AS (
    SELECT min(s.resource_id), '' FROM sample AS s WHERE {{first}}
    UNION ALL
    SELECT
        CASE WHEN {_NEXT_SIGNAL} IS NULL
            THEN (SELECT min(s.resource_id) FROM sample AS s WHERE s.resource_id > line.resource_id {{last}})
            ELSE line.resource_id END,
        coalesce({_NEXT_SIGNAL}, '')
    FROM line WHERE line.resource_id IS NOT NULL
)
SELECT resource_id, signal FROM line WHERE signal <> ''
"""  # noqa: S608 - our own column names

SAMPLED_SIGNALS = _SKIP_SCAN.format(first="1 = 1", last="")
"""Each signal of each resource, found by leaping through the primary key: there are thousands of samples to each."""

_KEYS = "SELECT id, provider, account, region, external_id FROM resource ORDER BY id"

_SAMPLE = "s.resource_id, s.signal, s.at_us, s.value"

_SAMPLES_OF_MANY = f"""
SELECT {_SAMPLE} FROM ({_SKIP_SCAN.format(first="s.resource_id >= ?", last="AND s.resource_id <= ?")}) AS line
JOIN sample AS s ON s.resource_id = line.resource_id AND s.signal = line.signal AND s.at_us >= ?
"""  # noqa: S608 - our own column names

_SAMPLES_OF_FEW = f"""
SELECT {_SAMPLE} FROM sample AS s WHERE s.resource_id IN ({{}}) AND s.at_us >= ?
"""  # noqa: S608 - our own column names

_COVERAGE_AFTER = "SELECT scope_id, start_us, end_us, polls FROM coverage WHERE outcome = 'complete'"

_LAST = """
SELECT r.scope_id, o.state, o.at_us, o.detail FROM resource AS r JOIN observation AS o ON o.resource_id = r.id
WHERE r.provider = ? AND r.account = ? AND r.region = ? AND r.external_id = ? ORDER BY o.id DESC LIMIT 3
"""

_FIRST = "SELECT scope_id, first_seen_us, provider, account, region, external_id FROM resource"
