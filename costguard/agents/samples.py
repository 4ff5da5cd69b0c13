"""Convert an agent's records to samples: one per signal and guard interval, merged by the kind of the signal.

Example: an interval of 60 s, and records of 15 s each. Four records become one sample at the end of the fourth: for GPU duty
the mean over time, for busy GPUs the maximum, for a step counter the last value, for key input the smallest age, counted at the
end. Records that cover less than half an interval, because none followed, give no sample: the rest of the interval may contain
work. A signal that some of the records lack gives no sample either, unless it shows work all the same: a GPU that was read in
one of four records may have worked in the other three.

Each record counts once: a record that does not end later than all before it has been received already. Times of an agent are
corrected by the offset of its clock, if that is larger than network and scheduling delays. Records from before the agent joined
are ignored: records on a copied disk were measured on another machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from costguard.agents.messages import AgentRecord
from costguard.guard.signals import AGE, INPUT_COUNTS_FOR, LEVEL, POWER, SIGNAL_KINDS, VOLUMES
from costguard.values.instant import MICROSECOND, SECOND_US, from_micros, to_micros
from costguard.values.resource import ResourceKey
from costguard.values.sample import (
    AGENT_ALIVE,
    CONNECTIONS,
    GPU_BUSY_COUNT,
    GPU_POWER_LIMIT,
    GPU_TEMPERATURE,
    HEARTBEAT,
    INPUT_AGE,
    QUEUE_JOBS,
    SERVER_REQUESTS,
    SERVER_TOKENS,
    STEP,
    Sample,
)

LAST_VALUE_SIGNALS = frozenset((STEP, HEARTBEAT, GPU_POWER_LIMIT, AGENT_ALIVE, SERVER_TOKENS))
MAX_VALUE_SIGNALS = frozenset((GPU_BUSY_COUNT, GPU_TEMPERATURE, QUEUE_JOBS, CONNECTIONS, SERVER_REQUESTS))
SKEW_MS = 2000
"""A clock that is off by less is taken as it is: so much comes from the way."""
RECORD_AGE_MAX = timedelta(hours=47)
"""Records of longer ago come too late: single samples are kept for 48 h."""
INTERVAL_COVERAGE_MIN, SIGNAL_COVERAGE_MIN = 0.5, 0.8
"""Of an interval, the share that records must cover; and of what they cover, the share with a signal that shows no work."""
POWER_SHARE_MIN = 0.8
"""Watts below this share of what the provider measures are another picture."""
MEASURE_TRUSTED_FOR = timedelta(minutes=15)
"""For how long a provider's own measure speaks against what an agent claims: as far back as providers are asked."""


class TimedRecord(NamedTuple):
    """A record by the local clock, in microseconds since 1970."""

    at_us: int
    over_us: int
    signals: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class MergedSamples:
    """`samples`: of the completed intervals.

    `rest`: the records of the interval in progress.
    """

    samples: tuple[Sample, ...]
    rest: tuple[TimedRecord, ...]


def align_records(
    records: Iterable[AgentRecord], *, after_ms: int, sent_ms: int, now: datetime, since: datetime
) -> tuple[tuple[TimedRecord, ...], int]:
    """Return the `records` that count, by the local clock, and the end of the last one by the agent's clock.

    The end is `after_ms` if no record counts. `sent_ms`: the time of sending by the agent's clock, which is `now` by the local
    one. `since`: when the agent joined. An `after_ms` in the future of the agent's clock comes from a clock that was wrong and
    has been corrected; it is ignored, so that it does not block later records.
    """
    now_us = to_micros(now)
    skew_ms = sent_ms - now_us // 1000
    moved_us = skew_ms * 1000 if abs(skew_ms) > SKEW_MS else 0
    earliest, timed_records = max(now_us - RECORD_AGE_MAX // MICROSECOND, to_micros(since)), list[TimedRecord]()
    if after_ms > sent_ms + SKEW_MS:
        after_ms = 0
    for record in records:
        if not after_ms < record.at_ms <= sent_ms + SKEW_MS:
            continue
        after_ms = record.at_ms
        at_us = min(record.at_ms * 1000 - moved_us, now_us)
        if at_us >= earliest:
            timed_records.append(TimedRecord(at_us, round(record.over_s * SECOND_US), record.signals))
    return tuple(timed_records), after_ms


def merge_records(key: ResourceKey, waiting: Sequence[TimedRecord], interval: timedelta) -> MergedSamples:
    """Merge `waiting`, in order, by intervals, each of which begins with its first record."""
    each, samples, records = interval // MICROSECOND, list[Sample](), list[TimedRecord]()
    for one in waiting:
        if records and one.at_us < records[-1].at_us:
            records = []  # a clock was set back: what is left of it is dated by the wrong one
        if records and one.at_us - one.over_us - records[-1].at_us >= each:
            samples += _build_samples(key, records, each)
            records = []
        records.append(one)
        if one.at_us - (records[0].at_us - records[0].over_us) + one.over_us // 2 >= each:
            samples += _build_samples(key, records, each)
            records = []
    return MergedSamples(tuple(samples), tuple(records))


def convert_records(key: ResourceKey, waiting: Iterable[TimedRecord]) -> list[Sample]:
    """Return each record by itself as samples, for a view of the present moment."""
    return [
        Sample(key=key, signal=signal, at=from_micros(one.at_us), value=value)
        for one in waiting
        for signal, value in one.signals
    ]


def drop_contradicted_samples(samples: Iterable[Sample], latest: Mapping[str, Sample]) -> tuple[Sample, ...]:
    """Return `samples` without those that the provider contradicts.

    A sample that shows no work is dropped where the provider's recent `latest` sample of the signal shows work.

    A dropped sample is missing, and missing data never counts as idle: an agent that reports wrong values, or reads another
    GPU, cannot hide work.
    """
    return tuple(one for one in samples if not _is_contradicted(one, latest.get(one.signal)))


def _is_contradicted(sample: Sample, measured: Sample | None) -> bool:
    kind = SIGNAL_KINDS.get(sample.signal)
    if (
        kind is None
        or measured is None
        or kind.reading not in (LEVEL, VOLUMES)
        or abs(sample.at - measured.at) > MEASURE_TRUSTED_FOR
    ):
        return False
    if kind.family == POWER:
        return sample.value < measured.value * POWER_SHARE_MIN
    return sample.value <= kind.above < measured.value


def _build_samples(key: ResourceKey, records: Sequence[TimedRecord], each: int) -> list[Sample]:
    """Return the samples of one interval, dated at the end of its last record."""
    over_us = sum(one.over_us for one in records)
    if over_us < INTERVAL_COVERAGE_MIN * each:
        return []
    values = dict[str, list[tuple[TimedRecord, float]]]()
    for one in records:
        for signal, value in one.signals:
            values.setdefault(signal, []).append((one, value))
    end_us = records[-1].at_us
    merged_signals = ((signal, of, _merge_values(signal, of, end_us)) for signal, of in sorted(values.items()))
    return [
        Sample(key=key, signal=signal, at=from_micros(end_us), value=value)
        for signal, of, value in merged_signals
        if sum(one.over_us for one, _ in of) >= SIGNAL_COVERAGE_MIN * over_us or _is_conclusive(signal, value)
    ]


def _is_conclusive(signal: str, value: float) -> bool:
    """Return whether a partial value of `signal` holds whatever the missing records contain.

    That is so if it shows work, or is no level.
    """
    kind = SIGNAL_KINDS.get(signal)
    if kind is None or kind.reading not in (LEVEL, VOLUMES, AGE):
        return True
    if kind.reading == AGE:
        return value < INPUT_COUNTS_FOR.total_seconds()
    return kind.family != POWER and value > kind.above


def _merge_values(signal: str, of: Sequence[tuple[TimedRecord, float]], end_us: int) -> float:
    if signal in LAST_VALUE_SIGNALS:
        return of[-1][1]
    if signal in MAX_VALUE_SIGNALS:
        return max(value for _, value in of)
    if signal == INPUT_AGE:
        return min(value + (end_us - one.at_us) / SECOND_US for one, value in of)
    over = sum(one.over_us for one, _ in of)
    if not over:
        return sum(value for _, value in of) / len(of)
    return sum(value * one.over_us for one, value in of) / over
