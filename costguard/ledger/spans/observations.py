"""Read for the whole fleet at once: latest samples and first listings; and each resource's history for a replay.

Samples are returned in columns: a fleet of 10,000 with 45 samples of 4 signals has 1.8 million of them, too many for objects. A
replay reads one resource at a time, so a month of a fleet needs the memory of one machine's month.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import groupby, islice
from operator import attrgetter, le, lt

from sqlalchemy import CTE, BindParameter, ScalarSelect, and_, bindparam, func
from sqlalchemy import select as select_columns
from sqlalchemy.orm import aliased
from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

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
from costguard.ledger.db.codecs import ABSENT_STATE, Query, SqlRow, decode_observation, decode_span
from costguard.ledger.db.rows import IDS
from costguard.ledger.guard.guard_state import load_overrides_since
from costguard.ledger.spans.correction_parts import END, RESOURCE, START, Rows, join_parts, select_corrected_span
from costguard.ledger.spans.scope_state import (
    find_last_observation,
    is_resource,
    load_attributions,
    load_poll_stretches,
    name_resource,
)
from costguard.ledger.tables.samples import SampleHourRow, SampleRow
from costguard.ledger.tables.spans import CorrectionPartRow, CoverageRow, ObservationRow, ResourceRow, ScopeRow, SpanRow
from costguard.ledger.types import BIG_INTEGER
from costguard.metering.accrual import GONE_REASON
from costguard.metering.inventory import COMPLETE
from costguard.metering.span import Span
from costguard.metering.spending import PollStretch
from costguard.system.process import pause_gc
from costguard.values.calendar import Period
from costguard.values.instant import HOUR_US, from_micros, to_micros
from costguard.values.resource import ENDED, STOPPED, ResourceKey, ScopeKey
from costguard.values.sample import Sample, SampleHour

SINGLE_QUERIES_MAX = 50
"""Of so many accounts each one is asked for by itself."""
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
    keys_by_number, columns_by_key = _load_keys(ask, keys), dict[ResourceKey, SampleColumns]()
    numbers = sorted(keys_by_number)
    for first in range(0, len(numbers), BATCH_RESOURCES):
        batch = numbers[first : first + BATCH_RESOURCES]
        rows = ask(_select_samples_since(), {"ids": batch, "since": to_micros(at)})
        columns_by_key |= {keys_by_number[number]: columns for number, columns in _group_columns(rows)}
    return columns_by_key


def _load_keys(ask: Query, keys: Collection[ResourceKey] | None) -> dict[int, ResourceKey]:
    """Return `keys` (None: all) that are in the ledger, by the number of their row."""
    wanted_keys = None if keys is None else set(keys)
    accounts = None if wanted_keys is None else sorted({key[:2] for key in wanted_keys})
    all_keys = select_columns(col(ResourceRow.id), *RESOURCE).order_by(col(ResourceRow.id))
    if accounts is None or len(accounts) > SINGLE_QUERIES_MAX:
        rows = ask(all_keys)
    else:
        places = [(col(ResourceRow.provider) == one, col(ResourceRow.account) == account) for one, account in accounts]
        rows = [row for place in places for row in ask(all_keys.where(*place))]
    keys_by_number = {number: ResourceKey(*key) for number, *key in rows}
    return (
        keys_by_number if wanted_keys is None else {number: key for number, key in keys_by_number.items() if key in wanted_keys}
    )


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
    for scope_id, start_us, end_us, polls in ask(_select_coverage()):
        stretches.setdefault(scope_id, []).append((start_us, end_us, polls))
    first_times = {}
    wanted_keys = None if keys is None else set(keys)
    for scope_id, first_us, *columns in ask(
        select_columns(col(ResourceRow.scope_id), col(ResourceRow.first_seen_us), *RESOURCE)
    ):
        key = ResourceKey(*columns)
        if wanted_keys is None or key in wanted_keys:
            polls = sum(_estimate_polls_since(first_us, *stretch) for stretch in stretches.get(scope_id, ()))
            first_times[key] = FirstSighting(at=from_micros(first_us), polls=polls)
    return first_times


def load_last_awake(ask: Query, key: ResourceKey) -> datetime | None:
    """Return when a listing last began to show `key` in a state other than stopped, stopping or absent; None: never."""
    (last,) = ask(_select_last_awake(), name_resource(key))
    return None if last is None else from_micros(last)


def load_departure(ask: Query, key: ResourceKey, since: datetime) -> DepartureEvidence:
    """Return the evidence for the end of `key`.

    It is the listing of `key` as ended, or the number of complete listings in a row, from `since` on, that lack it.
    """
    absent_us, scope = None, None
    for scope_id, state, at_us, detail in ask(_select_last(), name_resource(key)):
        observation = None if state == ABSENT_STATE else decode_observation(key, detail)[0]
        if observation is None:
            absent_us, scope = at_us, scope_id
        elif observation.state != ENDED or observation.why != GONE_REASON:
            ended = absent_us is None and observation.state == ENDED
            return (
                DepartureEvidence(listed=observation)
                if ended
                else DepartureEvidence(absences=_count_lacking_polls(ask, scope, absent_us, since))
            )
    return DepartureEvidence(absences=_count_lacking_polls(ask, scope, absent_us, since))


def _count_lacking_polls(ask: Query, scope_id: int | None, absent_us: int | None, since: datetime) -> int:
    if absent_us is None:
        return 0
    first = max(absent_us, to_micros(since))
    return sum(_estimate_polls_since(first, *stretch[1:]) for stretch in ask(_select_coverage()) if stretch[0] == scope_id)


def _estimate_polls_since(first_us: int, start_us: int, end_us: int, polls: int) -> int:
    """Return how many of the `polls` between `start_us` and `end_us` came at or after `first_us`, if evenly spread."""
    if first_us <= start_us:
        return polls
    return 0 if end_us < first_us else 1 + (polls - 1) * (end_us - first_us) // (end_us - start_us)


@cache
def _select_last_awake() -> SelectOfScalar[int]:
    at_rest = (STOPPED, "suspended", "stopping", ENDED, ABSENT_STATE)
    awake = select(func.max(ObservationRow.at_us)).join(ResourceRow, col(ResourceRow.id) == ObservationRow.resource_id)
    return awake.where(is_resource(), col(ObservationRow.state).not_in(at_rest))


@cache
def _select_last() -> Rows:
    observation = (getattr(ObservationRow, name) for name in ("state", "at_us", "detail"))
    last = select_columns(col(ResourceRow.scope_id), *observation).where(is_resource())
    last = last.join_from(ObservationRow, ResourceRow, col(ResourceRow.id) == ObservationRow.resource_id)
    return last.order_by(col(ObservationRow.id).desc()).limit(3)


@cache
def _select_coverage() -> Rows:
    coverage = select_columns(*(getattr(CoverageRow, name) for name in ("scope_id", "start_us", "end_us", "polls")))
    return coverage.where(col(CoverageRow.outcome) == COMPLETE)


def find_next_signal(line: CTE, table: type[SampleRow | SampleHourRow] = SampleRow) -> ScalarSelect[str | None]:
    """Select the signal after that of `line` of the same resource in `table`: a leap through its primary key."""
    one = aliased(table)
    following = select(func.min(one.signal)).where(one.resource_id == line.c.resource_id, one.signal > line.c.signal)
    return following.correlate(line).scalar_subquery()


@cache
def _select_samples_since() -> Rows:
    one = aliased(SampleRow)
    first = select(func.min(one.signal)).where(one.resource_id == ResourceRow.id).correlate(ResourceRow).scalar_subquery()
    first_signals = select_columns(col(ResourceRow.id).label("resource_id"), first.label("signal"))
    line = first_signals.where(col(ResourceRow.id).in_(IDS)).cte("line", recursive=True)
    step = select_columns(line.c.resource_id, find_next_signal(line)).where(line.c.signal.is_not(None))
    line = line.union_all(step)
    samples = select_columns(*(getattr(SampleRow, name) for name in SampleRow.model_fields))
    of_line = and_(line.c.resource_id == SampleRow.resource_id, line.c.signal == SampleRow.signal)
    since = col(SampleRow.at_us) >= bindparam("since")
    return samples.join_from(line, SampleRow, and_(of_line, since))


ONE_HOUR = timedelta(hours=1)


class HistoryReader:
    """The history in the ledger, as of one snapshot.

    `ask`: queries within it.
    """

    def __init__(self, ask: Query) -> None:
        self._ask = ask
        self._attributions = load_attributions(ask)
        scope = (col(ScopeRow.provider), col(ScopeRow.account), col(ScopeRow.name))
        resources = select_columns(col(ResourceRow.id), col(ResourceRow.first_seen_us), *RESOURCE, *scope).join_from(
            ResourceRow, ScopeRow, col(ScopeRow.id) == ResourceRow.scope_id
        )
        self._rows = {
            ResourceKey(*names[:4]): (number, ScopeKey(*names[4:]), from_micros(first_us))
            for number, first_us, *names in ask(resources.order_by(col(ResourceRow.id)))
        }

    def load_stretches(self) -> Mapping[ScopeKey, Sequence[PollStretch]]:
        """Return the coverage of each scope, in order of time."""
        return {scope: list(stretches) for scope, stretches in groupby(load_poll_stretches(self._ask), attrgetter("scope"))}

    def load_overrides(self) -> list[Override]:
        """Return every override ever made, oldest first."""
        return load_overrides_since(self._ask, datetime(1970, 1, 1, tzinfo=UTC))

    def load_resources(self, period: Period) -> list[ResourceKey]:
        """Return the resources that were first seen before the end of `period` and had not ended before its start."""
        at_us = select(ResourceRow.id, ObservationRow.at_us).join(
            ObservationRow, col(ObservationRow.id) == find_last_observation()
        )
        ended = {number: from_micros(us) for number, us in self._ask(at_us.where(col(ObservationRow.state) == ENDED))}
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
        changes = tuple(
            RecordedChange(at=from_micros(at_us), seen=None if state == ABSENT_STATE else decode_observation(key, detail)[0])
            for at_us, state, detail in self._ask(_select_changes(), {"resource": number, "end": to_micros(period.end)})
        )
        spans = self._spans(key, number, period)
        history = ResourceHistory(key=key, scope=scope, first_seen_at=first, said=changes, spans=spans)
        if not measured:
            return history
        samples, hourly_until = self._samples(history, number, period, interval)
        return replace(history, samples=samples, hourly_until=hourly_until)

    def _spans(self, key: ResourceKey, number: int, period: Period) -> tuple[Span, ...]:
        rows = self._ask(_select_spans(), {"resource": number, "end": to_micros(period.end)})
        return tuple(decode_span(key, self._attributions[attribution], columns) for attribution, *columns in rows)

    def _samples(
        self, past: ResourceHistory, number: int, period: Period, interval: timedelta
    ) -> tuple[SampleColumns, datetime | None]:
        """Return the samples in columns, and the end of the hours that are stored as sums only (None: there are none).

        Hourly sums come first, as samples that fit the hour, then single samples.
        """
        first_us, last_us = to_micros(period.start - HISTORY_LOOKBACK), to_micros(period.end)
        hours: dict[str, list[SampleHour]] = defaultdict(list)
        within = {"resource": number, "start": first_us // HOUR_US, "end": -(-last_us // HOUR_US)}
        for signal, hour, *values in self._ask(_select_hours(), within):
            count, total, lowest, highest = values
            sample_hour = SampleHour(start=from_micros(hour * HOUR_US), count=count, sum=total, lowest=lowest, highest=highest)
            hours[signal].append(sample_hour)
        every, runs = (
            estimate_hourly_interval((hour for of in hours.values() for hour in of), interval),
            find_instance_runs(past.said),
        )
        samples = {signal: _pack_samples(*expand_sample_hours(of, every, runs)) for signal, of in hours.items()}
        for signal, at_us, value in self._ask(
            _select_single_samples(), {"resource": number, "start": first_us, "end": last_us}
        ):
            ats, worths = samples.setdefault(signal, (array("q"), array("d")))
            ats.append(at_us)
            worths.append(value)
        ends = [of[-1].start + ONE_HOUR for of in hours.values()]
        return samples, max(ends, default=None)


def _pack_samples(ats: list[int], values: list[float]) -> tuple[array[int], array[float]]:
    return array("q", ats), array("d", values)


_RESOURCE: BindParameter[int] = bindparam("resource", type_=BIG_INTEGER)


@cache
def _select_changes() -> Rows:
    changes = select_columns(col(ObservationRow.at_us), col(ObservationRow.state), col(ObservationRow.detail))
    of_resource = (col(ObservationRow.resource_id) == _RESOURCE, col(ObservationRow.at_us) < END)
    return changes.where(*of_resource).order_by(col(ObservationRow.id))


@cache
def _select_spans() -> Rows:
    spans = join_parts(select_columns(col(SpanRow.attribution_id), *select_corrected_span()))
    of_resource = (col(SpanRow.resource_id) == _RESOURCE, col(SpanRow.start_us) < END)
    order = (col(SpanRow.start_us), col(SpanRow.id), col(CorrectionPartRow.start_us))
    return spans.where(*of_resource).order_by(*order)


@cache
def _select_hours() -> Rows:
    hours = select_columns(*(getattr(SampleHourRow, name) for name in SampleHourRow.model_fields if name != "resource_id"))
    hour, of_resource = col(SampleHourRow.hour), col(SampleHourRow.resource_id) == _RESOURCE
    return hours.where(of_resource, hour >= START, hour < END).order_by(col(SampleHourRow.signal), hour)


@cache
def _select_single_samples() -> Rows:
    at_us, of_resource = col(SampleRow.at_us), col(SampleRow.resource_id) == _RESOURCE
    samples = select_columns(col(SampleRow.signal), at_us, col(SampleRow.value)).order_by(col(SampleRow.signal), at_us)
    return samples.where(of_resource, at_us >= START, at_us < END)
