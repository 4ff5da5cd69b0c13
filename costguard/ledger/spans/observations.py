"""Read for the whole fleet at once: latest samples and first listings; and each resource's history for a replay.

Samples are returned in columns: a fleet of 10,000 with 45 samples of 4 signals has 1.8 million of them, too many for objects. A
replay reads one resource at a time, so a month of a fleet needs the memory of one machine's month.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from operator import le, lt

from costguard.guard.overrides import Override
from costguard.guard.replay.history import (
    HISTORY_LOOKBACK,
    RecordedChange,
    ResourceHistory,
    estimate_hourly_interval,
    expand_sample_hours,
    find_instance_runs,
)
from costguard.guard.run_facts import DepartureEvidence, FirstSighting
from costguard.guard.signals import SampleColumns
from costguard.ledger.db.codecs import (
    ABSENT_STATE,
    Query,
    SqlRow,
    decode_observation,
    decode_span,
    format_placeholders,
)
from costguard.ledger.guard.guard_state import load_overrides_since
from costguard.ledger.spans.scope_state import load_attributions
from costguard.ledger.spans.sums import CORRECTED_SPAN_COLUMNS, JOIN_CORRECTION
from costguard.metering.accrual import GONE_REASON
from costguard.metering.span import Span
from costguard.metering.spending import PollStretch
from costguard.system.process import pause_gc
from costguard.values.calendar import Period
from costguard.values.instant import HOUR_US, from_micros, to_micros
from costguard.values.resource import ENDED, ResourceKey, ScopeKey
from costguard.values.sample import Sample, SampleHour

SINGLE_QUERIES_MAX = 50
"""Of so many accounts each one is asked for by itself."""
SPREAD_MAX = 3
"""Rows of a batch that lie so much wider apart are asked for by name: between them lie those of other accounts."""
BATCH_RESOURCES = 25
"""Resources of which rows are held at once, with up to some 10,000 samples each: rows take ten times the memory of columns."""


def load_samples_since(
    ask: Query, at: datetime, keys: Collection[ResourceKey] | None = None
) -> dict[ResourceKey, list[Sample]]:
    """Return the samples at or after `at` of `keys` (None: of all), by signal and in order of time.

    Resources without samples are left out.
    """
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
    """Return the samples at or after `at` of `keys` (None: of all), in columns; resources without samples are left out."""
    found: dict[ResourceKey, SampleColumns] = {}
    for lot in iterate_columns_since(ask, at, keys):
        found |= lot
    return found


def iterate_columns_since(
    ask: Query, at: datetime, keys: Collection[ResourceKey] | None = None
) -> Iterator[dict[ResourceKey, SampleColumns]]:
    """Yield the result of `load_columns_since` for `BATCH_RESOURCES` resources at a time."""
    named = _load_keys(ask, keys)
    numbers = sorted(named)
    for first in range(0, len(numbers), BATCH_RESOURCES):
        lot = numbers[first : first + BATCH_RESOURCES]
        if lot[-1] - lot[0] < SPREAD_MAX * BATCH_RESOURCES:
            rows = ask(_SAMPLES_OF_MANY, (lot[0], lot[-1], to_micros(at)))
        else:
            rows = ask(_SAMPLES_OF_NAMED.format(format_placeholders(lot)), (*lot, to_micros(at)))
        yield {named[number]: columns for number, columns in _group_columns(rows) if number in named}


def _load_keys(ask: Query, keys: Collection[ResourceKey] | None) -> dict[int, ResourceKey]:
    """Return `keys` (None: all) that are in the ledger, by the number of their row."""
    wanted = None if keys is None else set(keys)
    accounts = None if wanted is None else sorted({key[:2] for key in wanted})
    if accounts is None or len(accounts) > SINGLE_QUERIES_MAX:
        rows = ask(_KEYS.format(""), ())
    else:
        rows = [row for account in accounts for row in ask(_KEYS.format("WHERE provider = ? AND account = ?"), account)]
    named = {number: ResourceKey(*key) for number, *key in rows}
    return named if wanted is None else {number: key for number, key in named.items() if key in wanted}


def _group_columns(rows: Sequence[SqlRow]) -> Iterator[tuple[int, SampleColumns]]:
    """Group `rows` by resource and signal.

    They are usually sorted, but a server may choose another order, and sorting in the database would sort all rows at once.
    """
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
    """Return the samples of one signal, in order of time."""
    if not all(map(lt, ats, ats[1:])):
        ats, values = zip(*sorted(zip(ats, values, strict=True)), strict=True)
    return array("q", ats), array("d", values)


def load_first_seen(ask: Query, keys: Collection[ResourceKey] | None = None) -> dict[ResourceKey, FirstSighting]:
    """Return since when, and through how many complete listings of its scope, each of `keys` (None: all) is known.

    A coverage row stores only the number of its polls; those since the resource appeared are estimated from the share of the
    time.
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


def load_last_awake(ask: Query, key: ResourceKey) -> datetime | None:
    """Return when a listing last began to show `key` in a state other than stopped, stopping or absent; None: never."""
    at_rest = ("stopped", "suspended", "stopping", ENDED, ABSENT_STATE)
    sql = f"""
SELECT max(o.at_us) FROM observation AS o JOIN resource AS r ON r.id = o.resource_id
WHERE r.provider = ? AND r.account = ? AND r.region = ? AND r.external_id = ?
AND o.state NOT IN ({format_placeholders(at_rest)})
"""  # noqa: S608 - placeholders
    (last,) = ask(sql, (*key, *at_rest))[0]
    return None if last is None else from_micros(last)


def load_departure(ask: Query, key: ResourceKey, since: datetime) -> DepartureEvidence:
    """Return the evidence for the end of `key`.

    It is the listing of `key` as ended, or the number of complete listings in a row, from `since` on, that lack it.
    """
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
    """Return how many of the `polls` between `start_us` and `end_us` came at or after `first_us`, if evenly spread."""
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

_KEYS = "SELECT id, provider, account, region, external_id FROM resource {} ORDER BY id"

_SAMPLE = "s.resource_id, s.signal, s.at_us, s.value"

_SAMPLES_OF_MANY = f"""
SELECT {_SAMPLE} FROM ({_SKIP_SCAN.format(first="s.resource_id >= ?", last="AND s.resource_id <= ?")}) AS line
JOIN sample AS s ON s.resource_id = line.resource_id AND s.signal = line.signal AND s.at_us >= ?
"""  # noqa: S608 - our own column names

_SAMPLES_OF_NAMED = f"""
WITH RECURSIVE line (resource_id, signal) AS (
    SELECT r.id, (SELECT min(s.signal) FROM sample AS s WHERE s.resource_id = r.id) FROM resource AS r WHERE r.id IN ({{}})
    UNION ALL
    SELECT line.resource_id, {_NEXT_SIGNAL} FROM line WHERE line.signal IS NOT NULL
)
SELECT {_SAMPLE} FROM (SELECT resource_id, signal FROM line WHERE signal IS NOT NULL) AS line
JOIN sample AS s ON s.resource_id = line.resource_id AND s.signal = line.signal AND s.at_us >= ?
"""  # noqa: S608 - our own column names

_COVERAGE_AFTER = "SELECT scope_id, start_us, end_us, polls FROM coverage WHERE outcome = 'complete'"

_LAST = """
SELECT r.scope_id, o.state, o.at_us, o.detail FROM resource AS r JOIN observation AS o ON o.resource_id = r.id
WHERE r.provider = ? AND r.account = ? AND r.region = ? AND r.external_id = ? ORDER BY o.id DESC LIMIT 3
"""

_FIRST = "SELECT scope_id, first_seen_us, provider, account, region, external_id FROM resource"


ONE_HOUR = timedelta(hours=1)


class HistoryReader:
    """The history in the ledger, as of one snapshot.

    `ask`: queries within it.
    """

    def __init__(self, ask: Query) -> None:
        self._ask = ask
        self._attributions = load_attributions(ask)
        self._rows = {
            ResourceKey(*key): (number, ScopeKey(*scope), from_micros(first_us))
            for number, first_us, *key, provider, account, name in ask(_RESOURCES, ())
            for scope in ((provider, account, name),)
        }

    def load_stretches(self) -> Mapping[ScopeKey, Sequence[PollStretch]]:
        """Return the coverage of each scope, in order of time."""
        found: dict[ScopeKey, list[PollStretch]] = defaultdict(list)
        for provider, account, name, outcome, start_us, end_us, polls, why in self._ask(_COVERAGE_RUNS, ()):
            scope = ScopeKey(provider, account, name)
            found[scope].append(
                PollStretch(
                    scope=scope, outcome=outcome, start=from_micros(start_us), end=from_micros(end_us), polls=polls, why=why
                )
            )
        return found

    def load_overrides(self) -> list[Override]:
        """Return every override ever made, oldest first."""
        return load_overrides_since(self._ask, datetime(1970, 1, 1, tzinfo=UTC))

    def load_resources(self, period: Period) -> list[ResourceKey]:
        """Return the resources that were first seen before the end of `period` and had not ended before its start."""
        ended = {number: from_micros(at_us) for number, at_us in self._ask(_ENDED, ())}
        return [
            key
            for key, (number, _, first) in self._rows.items()
            if first < period.end and ended.get(number, period.end) >= period.start
        ]

    def load_history(self, key: ResourceKey, period: Period, interval: timedelta, *, measured: bool = True) -> ResourceHistory:
        """Return the observations, spans and samples of one resource up to the end of `period`.

        `interval`: the shortest time between samples that are reconstructed from hourly sums. `measured` False: without
        samples.
        """
        number, scope, first = self._rows[key]
        said = tuple(
            RecordedChange(at=from_micros(at_us), seen=None if state == ABSENT_STATE else decode_observation(key, detail)[0])
            for at_us, state, detail in self._ask(_OBSERVATIONS, (number, to_micros(period.end)))
        )
        made = ResourceHistory(key=key, scope=scope, first_seen_at=first, said=said, spans=self._spans(key, number, period))
        if not measured:
            return made
        samples, hourly_until = self._samples(made, number, period, interval)
        return ResourceHistory(
            key=key,
            scope=scope,
            first_seen_at=first,
            said=said,
            spans=made.spans,
            samples=samples,
            hourly_until=hourly_until,
        )

    def _spans(self, key: ResourceKey, number: int, period: Period) -> tuple[Span, ...]:
        rows = self._ask(_SPANS, (number, to_micros(period.end)))
        return tuple(decode_span(key, self._attributions[attribution], columns) for attribution, *columns in rows)

    def _samples(
        self, past: ResourceHistory, number: int, period: Period, interval: timedelta
    ) -> tuple[SampleColumns, datetime | None]:
        """Return the samples in columns, and the end of the hours that are stored as sums only (None: there are none).

        Hourly sums come first, as samples that fit the hour, then single samples.
        """
        first_us, last_us = to_micros(period.start - HISTORY_LOOKBACK), to_micros(period.end)
        hours: dict[str, list[SampleHour]] = defaultdict(list)
        for signal, hour, *values in self._ask(_HOURS, (number, first_us // HOUR_US, -(-last_us // HOUR_US))):
            count, total, lowest, highest = values
            made = SampleHour(start=from_micros(hour * HOUR_US), count=count, sum=total, lowest=lowest, highest=highest)
            hours[signal].append(made)
        every, runs = (
            estimate_hourly_interval((hour for of in hours.values() for hour in of), interval),
            find_instance_runs(past.said),
        )
        found = {signal: _pack_samples(*expand_sample_hours(of, every, runs)) for signal, of in hours.items()}
        for signal, at_us, value in self._ask(_SAMPLES, (number, first_us, last_us)):
            ats, worths = found.setdefault(signal, (array("q"), array("d")))
            ats.append(at_us)
            worths.append(value)
        ends = [of[-1].start + ONE_HOUR for of in hours.values()]
        return found, max(ends, default=None)


def _pack_samples(ats: list[int], values: list[float]) -> tuple[array[int], array[float]]:
    return array("q", ats), array("d", values)


_RESOURCES = """
SELECT r.id, r.first_seen_us, r.provider, r.account, r.region, r.external_id, s.provider, s.account, s.name
FROM resource AS r JOIN scope AS s ON s.id = r.scope_id ORDER BY r.id
"""

_COVERAGE_RUNS = """
SELECT s.provider, s.account, s.name, c.outcome, c.start_us, c.end_us, c.polls, c.why
FROM coverage AS c JOIN scope AS s ON s.id = c.scope_id ORDER BY s.provider, s.account, s.name, c.start_us
"""

_ENDED = """
SELECT r.id, o.at_us FROM resource AS r
JOIN observation AS o ON o.id = (SELECT max(x.id) FROM observation AS x WHERE x.resource_id = r.id) WHERE o.state = 'ended'
"""

_OBSERVATIONS = "SELECT at_us, state, detail FROM observation WHERE resource_id = ? AND at_us < ? ORDER BY id"

_SPANS = f"""
SELECT s.attribution_id, {CORRECTED_SPAN_COLUMNS}
FROM span AS s {JOIN_CORRECTION} WHERE s.resource_id = ? AND s.start_us < ? ORDER BY s.start_us, s.id, p.start_us
"""  # noqa: S608 - our own column names

_HOURS = """
SELECT signal, hour, count, sum, lowest, highest FROM sample_hour
WHERE resource_id = ? AND hour >= ? AND hour < ? ORDER BY signal, hour
"""

_SAMPLES = """
SELECT signal, at_us, value FROM sample WHERE resource_id = ? AND at_us >= ? AND at_us < ? ORDER BY signal, at_us
"""
