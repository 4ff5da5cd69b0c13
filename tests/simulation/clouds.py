"""Clouds that write down, by themselves, what they told and what they were asked, and that may meddle in between.

What is written down is plain data, for a judge that knows nothing of costguard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from costguard.core.acting import Reception
from costguard.core.metering.inventory import Failed, Poll
from costguard.core.metering.observation import Observation
from costguard.core.metering.resource import ResourceKey, ScopeKey
from costguard.core.period import Period
from costguard.core.sample import GPU_UTIL, Measured
from costguard.testing import EndingCloud, FakeClock, SimulatedCloud
from tests.simulation.judge import Asked, Told, Witness

BEFORE, AFTER = "before", "after"


class EndedAbruptly(BaseException):
    """The watchdog's process is no more, in the middle of a request."""


@dataclass(slots=True)
class Log:
    """What clouds write down. `run`: of the guard, which it does not know. `meddle`: what happens as it looks.

    `end`: at which moment of the next request the watchdog ends, "" for not at all. `measured`: when, of which machine.
    """

    truth: FakeClock
    clock: FakeClock
    witness: Witness
    run: int = 0
    told: list[Told] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    measured: dict[str, set[datetime]] = field(default_factory=dict)
    meddle: Callable[[str], None] = lambda _name: None
    end: str = ""

    def listed(self, poll: Poll) -> None:
        """Write down a listing as it was told."""
        if not isinstance(poll.inventory, Failed):
            self.told += [
                Told(self.truth.now(), one.key.id, dict(one.labels), one.started_at, one.state) for one in poll.inventory.items
            ]
        for sample in poll.samples:
            if sample.signal == GPU_UTIL:
                self.measured.setdefault(sample.key.id, set()).add(sample.at)

    def request(self, key: ResourceKey, act: str, started_at: datetime | None, do: Callable[[], Reception]) -> Reception:
        """Write down a request with what the ledger held when it came, and do it."""
        rows = tuple(self.witness.intents(key.id))
        self.asked.append(Asked(self.truth.now(), self.clock.now(), self.run, key.id, act, started_at, rows))
        end, self.end = self.end, ""
        if end == BEFORE:
            raise EndedAbruptly
        reception = do()
        if end == AFTER:
            raise EndedAbruptly
        return reception


class LoggedEndingCloud(EndingCloud):
    """One that can only end machines."""

    log: Log

    def poll(self, scope: ScopeKey) -> Poll:
        poll = super().poll(scope)
        self.log.listed(poll)
        return poll

    def look(self, key: ResourceKey) -> Observation | None:
        self.log.meddle(key.id)
        return super().look(key)

    def utilization(self, seen: list[Observation], period: Period) -> Measured:  # type: ignore[override] # as it is called
        found = super().utilization(seen, period)
        for sample in found.samples:
            if sample.signal == GPU_UTIL:
                self.log.measured.setdefault(sample.key.id, set()).add(sample.at)
        return found

    def terminate(self, key: ResourceKey) -> Reception:
        return self.log.request(key, "terminate", self.started(key), lambda: EndingCloud.terminate(self, key))

    def started(self, key: ResourceKey) -> datetime | None:
        """Of the run that it is in, truly."""
        machine = self._machine(key)
        here = machine.now(self._clock.now()) if machine else None
        return here.started_at if here else None


class LoggedCloud(LoggedEndingCloud, SimulatedCloud):
    """One that can stop machines as well."""

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> Reception:
        return self.log.request(key, "stop", self.started(key), lambda: SimulatedCloud.stop(self, key, lose=lose))


class PlainCloud(LoggedCloud):
    """One that tells measures with its listing only, and never late."""

    utilization = None  # type: ignore[assignment] # it cannot be asked
