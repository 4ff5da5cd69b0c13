"""What a signal said of a resource, and when: GPU duty, power, network, a job's heartbeat. Missing is no sample, never zero."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from costguard.core.checks import number, require
from costguard.core.instant import sensible
from costguard.core.metering.resource import ResourceKey

LARGEST_VALUE = 1e18


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """`value` of `signal` at `at`, in the signal's own unit. Never NaN or infinite: that is a missing sample."""

    key: ResourceKey
    signal: str
    at: datetime
    value: float

    def __post_init__(self) -> None:
        require(bool(self.signal), "signal", "needs a name")
        sensible(self.at, f"sample of {self.key.id}")
        number(self.value, f"{self.signal} of {self.key.id}", least=-LARGEST_VALUE, most=LARGEST_VALUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleHour:
    """The samples of one signal within the hour that begins at `start` (UTC): how many, and what they come to."""

    start: datetime
    count: int
    sum: float
    lowest: float
    highest: float
