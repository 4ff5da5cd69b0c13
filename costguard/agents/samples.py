"""From records of an agent to samples: one of each signal and interval of the guard, merged as the signal means.

Example: an interval of 60 s, and records of 15 s each. Four come to one sample at the end of the fourth: of GPU duty the
mean over time, of busy GPUs the most, of a step counter the last, of key input the latest moment that it counts from. What is
less than half an interval by itself, because nothing came after it, is no sample: it may hide work. Nor is a signal that some
of the records lack, unless it shows work all the same: of a GPU that was read in one of four, nobody knows the other three.

Every record counts once: one that does not end later than all before it was here already. What an agent says of the past is
moved by how far its clock is from ours, where that is more than network and scheduling come to. Of the time before it joined
it says nothing: what a copied disk brings along was measured elsewhere.
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
    STEP,
    Sample,
)

LAST_VALUE_SIGNALS = frozenset((STEP, HEARTBEAT, GPU_POWER_LIMIT, AGENT_ALIVE))
MAX_VALUE_SIGNALS = frozenset((GPU_BUSY_COUNT, GPU_TEMPERATURE, QUEUE_JOBS, CONNECTIONS))
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
    """A record on our clock, in microseconds since 1970."""

    at_us: int
    over_us: int
    signals: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class MergedSamples:
    """`samples`: of the intervals that are over. `rest`: the records of the one that goes on."""

    samples: tuple[Sample, ...]
    rest: tuple[TimedRecord, ...]


def align_records(
    records: Iterable[AgentRecord], *, after_ms: int, sent_ms: int, now: datetime, since: datetime
) -> tuple[tuple[TimedRecord, ...], int]:
    """Those of `records` that count, on our clock, and the end of the last one on the agent's: `after_ms` where none does.

    `sent_ms`: when they were sent, by the agent's clock; it is `now` by ours. `since`: when the agent joined. An `after_ms`
    that has yet to come by the agent's clock was told by a wrong one, which is right now: it does not hold up what follows.
    """
    now_us = to_micros(now)
    skew_ms = sent_ms - now_us // 1000
    moved_us = skew_ms * 1000 if abs(skew_ms) > SKEW_MS else 0
    earliest, found = max(now_us - RECORD_AGE_MAX // MICROSECOND, to_micros(since)), list[TimedRecord]()
    if after_ms > sent_ms + SKEW_MS:
        after_ms = 0
    for record in records:
        if not after_ms < record.at_ms <= sent_ms + SKEW_MS:
            continue
        after_ms = record.at_ms
        at_us = min(record.at_ms * 1000 - moved_us, now_us)
        if at_us >= earliest:
            found.append(TimedRecord(at_us, round(record.over_s * SECOND_US), record.signals))
    return tuple(found), after_ms


def merge_records(key: ResourceKey, waiting: Sequence[TimedRecord], interval: timedelta) -> MergedSamples:
    """`waiting`, in order, merged by intervals, each from its first record on."""
    each, done, lot = interval // MICROSECOND, list[Sample](), list[TimedRecord]()
    for one in waiting:
        if lot and one.at_us < lot[-1].at_us:
            lot = []  # a clock was set back: what is left of it is dated by the wrong one
        if lot and one.at_us - one.over_us - lot[-1].at_us >= each:
            done += _build_samples(key, lot, each)
            lot = []
        lot.append(one)
        if one.at_us - (lot[0].at_us - lot[0].over_us) + one.over_us // 2 >= each:
            done += _build_samples(key, lot, each)
            lot = []
    return MergedSamples(tuple(done), tuple(lot))


def convert_records(key: ResourceKey, waiting: Iterable[TimedRecord]) -> list[Sample]:
    """Each record by itself as samples, for who looks at this very moment."""
    return [
        Sample(key=key, signal=signal, at=from_micros(one.at_us), value=value)
        for one in waiting
        for signal, value in one.signals
    ]


def drop_contradicted_samples(samples: Iterable[Sample], latest: Mapping[str, Sample]) -> tuple[Sample, ...]:
    """`samples` of an agent without those that say quiet where the provider's `latest` of the signal, not long ago, says work.

    Then it is missing, and what is missing is never idle: an agent that lies, or sees another GPU, can hide no work.
    """
    return tuple(one for one in samples if not _is_contradicted(one, latest.get(one.signal)))


def _is_contradicted(said: Sample, measured: Sample | None) -> bool:
    kind = SIGNAL_KINDS.get(said.signal)
    if (
        kind is None
        or measured is None
        or kind.reading not in (LEVEL, VOLUMES)
        or abs(said.at - measured.at) > MEASURE_TRUSTED_FOR
    ):
        return False
    if kind.family == POWER:
        return said.value < measured.value * POWER_SHARE_MIN
    return said.value <= kind.above < measured.value


def _build_samples(key: ResourceKey, lot: Sequence[TimedRecord], each: int) -> list[Sample]:
    """The samples of one interval, at the end of its last record."""
    over_us = sum(one.over_us for one in lot)
    if over_us < INTERVAL_COVERAGE_MIN * each:
        return []
    values = dict[str, list[tuple[TimedRecord, float]]]()
    for one in lot:
        for signal, value in one.signals:
            values.setdefault(signal, []).append((one, value))
    end_us = lot[-1].at_us
    found = ((signal, of, _merge_values(signal, of, end_us)) for signal, of in sorted(values.items()))
    return [
        Sample(key=key, signal=signal, at=from_micros(end_us), value=value)
        for signal, of, value in found
        if sum(one.over_us for one, _ in of) >= SIGNAL_COVERAGE_MIN * over_us or _is_conclusive(signal, value)
    ]


def _is_conclusive(signal: str, value: float) -> bool:
    """Whether what some records say of `signal` holds whatever the others would have said: it shows work, or is no level."""
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
