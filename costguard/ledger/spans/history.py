"""The ledger's history for a replay: what was said of each resource and when, what it billed, and its samples.

Samples are read one resource at a time, so a month of a fleet needs the memory of one machine's month.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from costguard.guard.evidence import SampleColumns
from costguard.guard.overrides import Override
from costguard.guard.replay.history import (
    HISTORY_LOOKBACK,
    RecordedChange,
    ResourceHistory,
    estimate_hourly_interval,
    expand_sample_hours,
    find_instance_runs,
)
from costguard.ledger.db.asking import Query
from costguard.ledger.db.codecs import ABSENT_STATE, SPAN_COLUMNS, decode_observation, decode_span
from costguard.ledger.guard.guard_state import load_overrides_since
from costguard.ledger.spans.scope_state import load_attributions
from costguard.ledger.spans.sums import JOIN_CORRECTION, format_corrected_column
from costguard.metering.span import Span
from costguard.metering.spending import PollStretch
from costguard.values.instant import HOUR_US, from_micros, to_micros
from costguard.values.period import Period
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import SampleHour

ONE_HOUR = timedelta(hours=1)


class HistoryReader:
    """The history of the ledger that `ask` asks: one snapshot of it."""

    def __init__(self, ask: Query) -> None:
        self._ask = ask
        self._attributions = load_attributions(ask)
        self._rows = {
            ResourceKey(*key): (number, ScopeKey(*scope), from_micros(first_us))
            for number, first_us, *key, provider, account, name in ask(_RESOURCES, ())
            for scope in ((provider, account, name),)
        }

    def load_stretches(self) -> Mapping[ScopeKey, Sequence[PollStretch]]:
        """See `ports.history.Records`."""
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
        """See `ports.history.Records`."""
        return load_overrides_since(self._ask, datetime(1970, 1, 1, tzinfo=UTC))

    def load_resources(self, period: Period) -> list[ResourceKey]:
        """See `ports.history.Records`."""
        ended = {number: from_micros(at_us) for number, at_us in self._ask(_ENDED, ())}
        return [
            key
            for key, (number, _, first) in self._rows.items()
            if first < period.end and ended.get(number, period.end) >= period.start
        ]

    def load_history(self, key: ResourceKey, period: Period, interval: timedelta, *, measured: bool = True) -> ResourceHistory:
        """See `ports.history.Records`."""
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
        """In columns: those kept by the hour first, as samples that fit the hour, then those kept one by one."""
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
SELECT s.attribution_id, {SPAN_COLUMNS.replace("s.presence", format_corrected_column("presence"))}
FROM span AS s {JOIN_CORRECTION} WHERE s.resource_id = ? AND s.start_us < ? ORDER BY s.start_us, s.id
"""  # noqa: S608 - our own column names

_HOURS = """
SELECT signal, hour, count, sum, lowest, highest FROM sample_hour
WHERE resource_id = ? AND hour >= ? AND hour < ? ORDER BY signal, hour
"""

_SAMPLES = """
SELECT signal, at_us, value FROM sample WHERE resource_id = ? AND at_us >= ? AND at_us < ? ORDER BY signal, at_us
"""
