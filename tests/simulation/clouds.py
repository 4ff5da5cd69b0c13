"""Clouds that write down, by themselves, what they told and what they were asked, and that may meddle in between.

What is written down is lines of JSON in a file, for a judge that knows nothing of costguard.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from costguard.metering.inventory import Complete, Failed, Partial, Poll
from costguard.metering.observation import Observation, Price
from costguard.testing import FakeClock, SimulatedCloud, TerminateOnlyCloud
from costguard.values.calendar import Period
from costguard.values.money import Rate
from costguard.values.provider import ACCEPTED, REFUSED, ActionResponse
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import GPU_UTIL, Sample, UtilizationSamples
from tests.simulation.reading import Witness, micros

BEFORE, AFTER = "before", "after"
FORGETS = "forgets"
"""A listing leaves the label out that protects a machine."""
NOT_OBEYED = {(ACCEPTED, False): "deaf", ("unclear", True): "lost", ("unclear", False): "unclear", (REFUSED, False): "refuses"}


class EndedAbruptly(BaseException):
    """The watchdog's process is no more, in the middle of something."""


@dataclass(slots=True)
class Log:
    """What clouds write down, in the file at `path`. `run`: of the guard, which it does not know.

    `meddle`: what happens as it looks. `end`: at which moment of the next request the watchdog ends, "" for not at all.
    """

    truth: FakeClock
    clock: FakeClock
    witness: Witness
    path: Path
    run: int = 0
    asked: int = 0
    capped: bool = False
    meddle: Callable[[str], None] = lambda _name: None
    end: str = ""
    _lines: list[str] = field(default_factory=list)
    _measured: dict[str, set[datetime]] = field(default_factory=dict)

    def write(self, entry: str, /, **fields: object) -> None:
        """One line, dated now where `fields` do not date it."""
        line = {"e": entry, "at": micros(self.truth.now()), **fields}
        self._lines.append(json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        """Put what was written into the file."""
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(self._lines)
        self._lines.clear()

    def listed(self, poll: Poll, at_work: Sequence[str]) -> None:
        """Write down a listing as it was told."""
        cloud = poll.scope.provider
        for what in at_work:
            self.write("fault", what=what, name=cloud)
        if not isinstance(poll.inventory, Failed):
            items = [
                [one.key.id, dict(one.labels), micros(one.started_at) if one.started_at else None, one.state]
                for one in poll.inventory.items
            ]
            self.write("listed", cloud=cloud, whole=isinstance(poll.inventory, Complete), items=items)
        self.measured(poll.samples)

    def measured(self, samples: Sequence[Sample]) -> None:
        """Write down when work was measured, each time once."""
        new: dict[str, list[int]] = {}
        for one in samples:
            if one.signal == GPU_UTIL and one.at not in self._measured.setdefault(one.key.id, set()):
                self._measured[one.key.id].add(one.at)
                new.setdefault(one.key.id, []).append(micros(one.at))
        for name, times in new.items():
            self.write("measured", name=name, times=times)

    def request(self, cloud: LoggedEndingCloud, key: ResourceKey, act: str, do: Callable[[], ActionResponse]) -> ActionResponse:
        """Write down a request with what the ledger held when it came, and do it."""
        rows, started, clock_at = list(self.witness.intents(key.id)), cloud.started(key), micros(self.clock.now())
        self.asked += 1
        self.capped = self.capped or any(row["rule"] == "cap" for row in rows)
        end, self.end = (self.end, "") if self.end in {BEFORE, AFTER} else ("", self.end)
        at, reception, done = micros(self.truth.now()), None, False
        if end != BEFORE:
            reception = do()
            done = cloud.acts[-1].done
        self.write(
            "asked",
            at=at,
            clock_at=clock_at,
            run=self.run,
            name=key.id,
            act=act,
            started=micros(started) if started else None,
            rows=rows,
            said=reception.said if reception else "",
            done=done,
        )
        if reception and (reception.said, done) in NOT_OBEYED:
            self.write("fault", what=NOT_OBEYED[reception.said, done], name=key.id)
        if end or reception is None:
            self.write("ended", where=f"{end} a call")
            raise EndedAbruptly
        return reception


class LoggedEndingCloud(TerminateOnlyCloud):
    """One that can only end machines. `prices`: of each machine's name, (since, rate, whether its listing says since when)."""

    log: Log

    def __init__(self, provider: str, clock: FakeClock) -> None:
        super().__init__(provider, clock)
        self.prices: dict[str, list[tuple[datetime, Rate, bool]]] = {}

    def poll(self, scope: ScopeKey) -> Poll:
        poll, now = super().poll(scope), self._clock.now()
        truly = {id(one): self._priced(one, now) for one in self._past[-1]}
        self._past[-1] = tuple(truly.values())
        at_work = [one.what for one in self._at_work(now)]
        if not isinstance(poll.inventory, Failed):
            forgotten = {one.name for one in self._at_work(now) if one.what == FORGETS}
            items = tuple(_without(truly.get(id(one), one), forgotten) for one in poll.inventory.items)
            found: Complete | Partial = replace(poll.inventory, items=items)
            poll = replace(poll, inventory=found)
        self.log.listed(poll, at_work)
        return poll

    def look_up(self, key: ResourceKey) -> Observation | None:
        self.log.meddle(key.id)
        seen = super().look_up(key)
        return self._priced(seen, self._clock.now()) if seen else None

    def fetch_utilization(self, observations: list[Observation], period: Period) -> UtilizationSamples:  # type: ignore[override] # as it is called
        found = super().fetch_utilization(observations, period)
        self.log.measured(found.samples)
        return found

    def terminate(self, key: ResourceKey) -> ActionResponse:
        return self.log.request(self, key, "terminate", lambda: TerminateOnlyCloud.terminate(self, key))

    def started(self, key: ResourceKey) -> datetime | None:
        """Of the run that it is in, truly."""
        machine = self._machine(key)
        here = machine.now(self._clock.now()) if machine else None
        return here.started_at if here else None

    def reprice(self, name: str, rate: Rate, *, said: bool) -> None:
        """From now on the machine costs `rate`. `said`: its listing says since when."""
        self.prices.setdefault(name, []).append((self._clock.now(), rate, said))

    def _priced(self, seen: Observation, at: datetime) -> Observation:
        """`seen` with the price that holds at `at`."""
        for since, rate, said in reversed(self.prices.get(seen.name, ())):
            if since <= at:
                return replace(seen, prices=(Price(rate, since=since if said else None),))
        return seen


class LoggedCloud(LoggedEndingCloud, SimulatedCloud):
    """One that can stop machines as well."""

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        return self.log.request(self, key, "stop", lambda: SimulatedCloud.stop(self, key, lose=lose))


class PlainCloud(LoggedCloud):
    """One that tells measures with its listing only, and never late."""

    fetch_utilization = None  # type: ignore[assignment] # it cannot be asked


def _without(seen: Observation, forgotten: set[str]) -> Observation:
    if seen.name not in forgotten:
        return seen
    return replace(seen, labels=tuple(pair for pair in seen.labels if pair[0] != "costguard"))
