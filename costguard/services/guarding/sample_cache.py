"""Recent samples in memory, for the recheck right before an act. Not durable: a watchdog starts empty and reads the ledger."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from costguard.agents.samples import MEASURE_TRUSTED_FOR, TimedRecord, convert_records
from costguard.metering.observation import Observation
from costguard.values.calendar import Period
from costguard.values.instant import to_micros
from costguard.values.resource import ResourceKey
from costguard.values.sample import Sample, UtilizationSamples

SAMPLES_KEPT_FOR = timedelta(minutes=5)
"""What is older a probe finds in the ledger; two intervals of the guard where that is more."""
RECORDS_MAX = 256
"""Records of one machine: an hour of the usual ones."""


class AgentSampleCache:
    """Recent samples of all machines with agents, with the interface of a provider. Thread-safe.

    `kept`: for how long samples are kept.
    """

    def __init__(self) -> None:
        self.kept = SAMPLES_KEPT_FOR
        self._lock = threading.Lock()
        self._records: dict[ResourceKey, deque[TimedRecord]] = {}
        self._measured: dict[ResourceKey, dict[str, Sample]] = {}

    def add(self, key: ResourceKey, records: Iterable[TimedRecord], now: datetime) -> None:
        """Add committed records of `key`."""
        oldest = to_micros(now - self.kept)
        with self._lock:
            line = self._records.setdefault(key, deque(maxlen=RECORDS_MAX))
            line.extend(records)
            while line and line[0].at_us < oldest:
                line.popleft()
            if not line:
                del self._records[key]

    def fetch_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        """Return every record of `observations` within `period`, each as samples of its own. Unreported signals are missing."""
        start, end = to_micros(period.start), to_micros(period.end)
        samples = list[Sample]()
        with self._lock:
            for one in observations:
                records = [record for record in self._records.get(one.key, ()) if start <= record.at_us <= end]
                samples += convert_records(one.key, records)
        return UtilizationSamples(samples=tuple(samples))

    def add_provider_samples(self, samples: Iterable[Sample]) -> None:
        """Keep the newest sample of each signal that a provider measured."""
        with self._lock:
            for sample in samples:
                lines = self._measured.setdefault(sample.key, {})
                old_sample = lines.get(sample.signal)
                if old_sample is None or old_sample.at <= sample.at:
                    lines[sample.signal] = sample

    def get_latest_provider_samples(self, key: ResourceKey) -> Mapping[str, Sample]:
        """Return the newest sample of each signal that its provider measured."""
        with self._lock:
            return dict(self._measured.get(key, {}))

    def forget(self, now: datetime) -> None:
        """Drop samples older than `fresh_samples`."""
        oldest, believed = to_micros(now - self.kept), now - 2 * MEASURE_TRUSTED_FOR
        with self._lock:
            self._records = {key: line for key, line in self._records.items() if line and line[-1].at_us >= oldest}
            fresh_samples = {
                key: {name: one for name, one in lines.items() if one.at >= believed} for key, lines in self._measured.items()
            }
            self._measured = {key: lines for key, lines in fresh_samples.items() if lines}
