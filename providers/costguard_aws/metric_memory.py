"""What is remembered of CloudWatch between the polls of one region: its GPU series, and the values that came.

A watchdog polls each minute, and CloudWatch has a new value every five. Example: at 12:11 the bucket of 12:00 is the only one
that can be asked for. A machine of which it came then is not asked for again until 12:15; one of which it did not come is asked
for each minute. CloudWatch charges for each requested series, so this is four fifths of its bill too.

The series are listed anew after `SERIES_HOLD`; and after `SERIES_AGAIN` already if a machine runs that was not there before, or
one with GPUs had no value of them: a machine whose series are others than those that are known has none. So a new series is
asked for at most that much later than CloudWatch lists it, which it does up to 15 minutes after the first value. What is
remembered can only make a machine blind, never idle: a value counts only if every GPU of the machine has one. Where a machine
runs of a type that nobody knows, its series alone say how many GPUs it has, and each poll lists them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from sys import intern
from typing import Annotated

import msgspec

from costguard.providers.ports import Cache
from costguard.values.calendar import Period
from costguard.values.instant import EPOCH
from costguard.values.resource import ResourceKey
from costguard.values.sample import Sample

SERIES_HOLD, SERIES_AGAIN = timedelta(hours=1), timedelta(minutes=5)
"""How long a list of series is taken to hold, and how long if it is known to lack something: a bucket of CloudWatch."""

NEVER = EPOCH
"""When a list was made that is not to be remembered: it failed, or nobody asked for it."""

BUCKET = timedelta(minutes=5)
"""Of basic monitoring. The agent's own points (each minute) are asked for in the same buckets."""


@dataclass(frozen=True, slots=True)
class GpuSeries:
    """One CloudWatch series by its exact dimensions.

    `rolled`: one series for all GPUs of the machine.
    """

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str = "Average"
    rolled: bool = False

    @property
    def index(self) -> str:
        """The index of the GPU in the machine."""
        return dict(self.dimensions).get("index", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesList:
    """The GPU series of a region as they were listed at `at`.

    `ids`: the instances that ran then. `why`: why there may be more. `lacks`: a machine had no value of its GPUs since.
    """

    at: Annotated[datetime, msgspec.Meta(tz=True)]
    ids: frozenset[str]
    series: dict[str, tuple[GpuSeries, ...]]
    why: str = ""
    lacks: bool = False

    def holds(self, ids: Collection[str], now: datetime) -> bool:
        """Return whether it need not be listed again for `ids` at `now`."""
        is_complete = not self.lacks and self.ids.issuperset(ids)
        return timedelta() <= now - self.at < (SERIES_HOLD if is_complete else SERIES_AGAIN)


def decode_series(data: bytes) -> SeriesList | None:
    """Return what was written as JSON; None for anything else."""
    try:
        return msgspec.json.decode(data, type=SeriesList)
    except msgspec.DecodeError:
        return None


def keep_pairs_once(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return dimensions whose equal strings are stored once: thousands of series have the same."""
    return tuple((intern(name), intern(value)) for name, value in pairs)


@dataclass(slots=True)
class RegionMetrics:
    """What is remembered of one region. `cache`, `name`: where the list of series outlives the process; None: it does not."""

    cache: Cache | None = None
    name: str = ""
    listed: SeriesList | None = None
    samples: dict[ResourceKey, tuple[Sample, ...]] = field(default_factory=dict)

    def find_series(self, ids: Collection[str], now: datetime) -> SeriesList | None:
        """Return the known series; None if they have to be listed."""
        if self.listed is None and self.cache is not None:
            data = self.cache.get(self.name, now - SERIES_HOLD)
            self.listed = decode_series(data) if data else None
        return self.listed if self.listed is not None and self.listed.holds(ids, now) else None

    def keep_series(self, listed: SeriesList) -> None:
        """Remember `listed`, for other processes too."""
        if self.cache is not None:
            self.cache.put(self.name, msgspec.json.encode(listed))
        self.listed = listed

    def find_settled(self, key: ResourceKey, signals: Collection[str], window: Period) -> tuple[Sample, ...] | None:
        """Return the samples of a machine in `window` if each signal has one of every bucket; None if it must be asked for."""
        samples = [sample for sample in self.samples.get(key, ()) if window.holds(sample.at)]
        buckets = window.length // BUCKET
        is_complete = bool(signals) and len({(sample.signal, sample.at) for sample in samples}) == len(signals) * buckets
        return tuple(samples) if is_complete and {sample.signal for sample in samples} == set(signals) else None

    def keep_samples(self, samples: Iterable[Sample]) -> None:
        """Remember `samples` of the last window, and no older ones."""
        by_key: dict[ResourceKey, list[Sample]] = {}
        for sample in samples:
            by_key.setdefault(sample.key, []).append(sample)
        self.samples = {key: tuple(machine_samples) for key, machine_samples in by_key.items()}
