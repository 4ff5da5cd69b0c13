"""What is remembered of Cloud Monitoring between the polls of one project: which metrics have no data.

Google charges each read ($0.01 for 1,000, 2026-11), and of the metrics of GPUs a project has those of the agent that it uses,
or none. Example: two machines without the Ops Agent. At 12:00 its metrics return nothing, so they are read again at 12:05, and
at once if a third machine runs at 12:02. Where the machines have their GPU duty from another metric, it is 13:00.

What is remembered can only make a machine blind, never idle: before an act every metric is read (`fetch_utilization`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from costguard.providers.ports import Cache

ABSENT_HOLD, ABSENT_AGAIN = timedelta(hours=1), timedelta(minutes=5)
"""For how long a metric without data is not read, and for how long where a machine has its signal from no other metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentMetric:
    """A metric that returned nothing at `at`.

    `ids`: the machines that could have had it. `lacks`: one of them had no sample of its signal. `why`: what Google said.
    """

    at: Annotated[datetime, msgspec.Meta(tz=True)]
    ids: frozenset[str]
    lacks: bool
    why: str = ""

    def holds(self, ids: Collection[str], now: datetime) -> bool:
        """Return whether it need not be read for `ids` at `now`."""
        since = now - self.at
        return self.ids.issuperset(ids) and timedelta() <= since < (ABSENT_AGAIN if self.lacks else ABSENT_HOLD)


def decode_absent_metrics(data: bytes | None) -> dict[str, AbsentMetric]:
    """Return what was written as JSON, by the metric's type; empty for anything else."""
    try:
        return msgspec.json.decode(data, type=dict[str, AbsentMetric]) if data else {}
    except msgspec.DecodeError:
        return {}


@dataclass(slots=True)
class MetricMemory:
    """What is remembered of one project. `cache`, `name`: where it outlives the process; None: it does not."""

    cache: Cache | None = None
    name: str = ""
    _absent: dict[str, AbsentMetric] | None = field(default=None, init=False)

    def find_absent(self, metric: str, ids: Collection[str], now: datetime) -> AbsentMetric | None:
        """Return the metric if it need not be read for `ids` at `now`."""
        if self._absent is None:
            self._absent = decode_absent_metrics(self.cache.get(self.name, now - ABSENT_HOLD) if self.cache else None)
        absent = self._absent.get(metric)
        return absent if absent is not None and absent.holds(ids, now) else None

    def record_reads(self, present: Collection[str], absent: dict[str, AbsentMetric]) -> None:
        """Remember `absent`, for other processes too, and forget those that are `present`."""
        metrics = {metric: one for metric, one in (self._absent or {}).items() if metric not in present} | absent
        if self.cache is not None and metrics != self._absent:
            self.cache.put(self.name, msgspec.json.encode(metrics))
        self._absent = metrics
