"""One machine of the simulated cloud: what it truly is, whatever a listing says, and what it truly costs.

Truth is kept in fractions of a nano-unit and rounded nowhere:

    box = Machine(key=key, rate=Rate.parse("32.77"), created_at=noon, stores=(Store(gb=500, running=80_000_000),))
    box.run(noon); box.turn(evening, STOPPED)
    box.spent(noon, midnight)                    # Fraction of nano-dollars: computing until the evening, the disk all along
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from costguard.metering.observation import UNKNOWN_HANDLING, Disk, Handling, Observation, Price
from costguard.testing.samples import SILENT, SampleRule, SignalValue
from costguard.values.money import Rate
from costguard.values.resource import ENDED, RUNNING, STOPPED, ResourceKey
from costguard.values.sample import STEP

BILLED_STATES = (RUNNING, "stopping")
"""States in which computing bills here. A machine on its way down is billed until it is down."""
COMPUTE, DISKS = "compute", "disk"
MONTH_HOURS = 730
ALL_FAMILIES = frozenset(("duty", "power", "cpu", "io", "progress", "agent", "people", "queue"))

OBEYS, DEAF, LOST, UNCLEAR, REFUSES = "obeys", "deaf", "lost", "unclear", "refuses"
ANSWERS = {
    OBEYS: "it does it and says so",
    DEAF: "it says 200 and does nothing",
    LOST: "it does it, and the answer is lost",
    UNCLEAR: "it does nothing, and the answer is lost",
    REFUSES: "it says no",
}


class SimulatedDisk(NamedTuple):
    """A disk: nano-units a GB-month of 730 h while the machine runs, and while it is stopped (None: the same)."""

    gb: int
    running: int
    stopped: int | None = None
    type: str = "disk"

    def price(self, state: str) -> int:
        """Nano-units a GB-month in `state`."""
        return self.stopped if state == STOPPED and self.stopped is not None else self.running


class PowerChange(NamedTuple):
    """From `at` on it is in `state`; `started_at`: of the run it is in, or was in last."""

    at: datetime
    state: str
    started_at: datetime | None


@dataclass(slots=True, eq=False, kw_only=True)
class SimulatedMachine:
    """See the module. `seen_as`: what its listing says beside state, times and prices. `takes`: how long an act takes.

    `turns`: its states, in order, future ones that an act has set going too. `rules`: what it measures from when on; `more`:
    signals beside them from when on (None: no more). `families`: what is measured of it at all. `answers`: how it takes acts,
    from when on and for how many (None: for ever).
    """

    key: ResourceKey
    name: str
    created_at: datetime
    rate: Rate | None = None
    stores: tuple[SimulatedDisk, ...] = ()
    seen_as: Observation | None = None
    handling: Handling = UNKNOWN_HANDLING
    stops_in: timedelta = timedelta(seconds=60)
    gpus: float = 1
    cores: float = 32
    families: frozenset[str] = ALL_FAMILIES
    turns: list[PowerChange] = field(default_factory=list)
    rules: list[tuple[datetime, SampleRule]] = field(default_factory=list)
    more: list[tuple[datetime, str, SignalValue | None]] = field(default_factory=list)
    answers: list[tuple[datetime, str, int | None]] = field(default_factory=list)
    labels: list[tuple[datetime, dict[str, str]]] = field(default_factory=list)

    def run(self, at: datetime) -> None:
        """It starts at `at`: a new run of the same id. What was still to come is forgotten."""
        self.turn(at, RUNNING, started_at=at)

    def turn(self, at: datetime, state: str, *, started_at: datetime | None = None) -> None:
        """It comes to be in `state` at `at`; later turns are forgotten."""
        self.turns = [one for one in self.turns if one.at < at]
        before = self.turns[-1].started_at if self.turns else None
        self.turns.append(PowerChange(at, state, started_at or before))

    def leave(self, at: datetime, through: str, state: str, takes: timedelta) -> None:
        """It is on its way through `through` from `at`, and in `state` after `takes`."""
        if takes:
            self.turn(at, through)
        self.turn(at + takes, state)

    def now(self, at: datetime) -> PowerChange | None:
        """What it is in at `at`; None before it came to exist."""
        return next((one for one in reversed(self.turns) if one.at <= at), None)

    def rule(self, at: datetime) -> SampleRule:
        """What it measures at `at`: nothing while it does not run."""
        here = self.now(at)
        if here is None or here.state not in BILLED_STATES:
            return SILENT
        rule = next((rule for since, rule in reversed(self.rules) if since <= at), SILENT)
        if rule is SILENT:
            return SILENT
        more: dict[str, SignalValue | None] = {STEP: self._steps(at)}
        more |= {signal: value for since, signal, value in self.more if since <= at}
        return replace(rule, values={**rule.values, **{signal: v for signal, v in more.items() if v is not None}})

    def _steps(self, at: datetime) -> float:
        """Seconds in which its jobs counted steps, until `at`: flat after the job ended."""
        ends = [*(since for since, _ in self.rules[1:]), at]
        pieces = zip(self.rules, ends, strict=True)
        return sum((min(end, at) - since).total_seconds() for (since, rule), end in pieces if rule.steps and since < at)

    def answer(self, at: datetime) -> str:
        """How it takes an act at `at`, of ANSWERS; one that is counted is used up."""
        for number, (since, how, left) in reversed(tuple(enumerate(self.answers))):
            if since <= at and left != 0:
                if left is not None:
                    self.answers[number] = (since, how, left - 1)
                return how
        return OBEYS

    def observation(self, at: datetime) -> Observation | None:
        """What an honest listing says at `at`; None where it did not exist yet."""
        here = self.now(at)
        if here is None:
            return None
        down = here.state in (STOPPED, ENDED)
        labels = next((labels for since, labels in reversed(self.labels) if since <= at), {})
        return replace(
            self.seen_as or Observation(key=self.key, state=here.state, name=self.name),
            state=here.state,
            created_at=self.created_at,
            started_at=here.started_at,
            stopped_at=here.at if down else None,
            prices=(Price(self.rate, since=self.created_at),) if self.rate else (Price(None),),
            disks=tuple(Disk(one.gb, one.type, one.price(here.state)) for one in self.stores),
            labels=tuple(sorted(labels.items())),
            handling=self.handling,
        )

    def spent(
        self, start: datetime, end: datetime, what: tuple[str, ...] = (COMPUTE, DISKS), *, idle: bool = False
    ) -> Fraction:
        """What it truly cost from `start` to `end`, in nano-units. `idle`: only while it ran and nobody needed it."""
        rate = self.rate.nano_per_hour if self.rate else 0
        total = Fraction(0)
        for begin, until, state in self._pieces(start, end):
            if idle and (state not in BILLED_STATES or not self.rule(begin).idle):
                continue
            hours = Fraction((until - begin) // timedelta(microseconds=1), 3600 * 10**6)
            if COMPUTE in what and state in BILLED_STATES:
                total += rate * hours
            if DISKS in what and state != ENDED:
                total += sum((Fraction(one.gb * one.price(state)) for one in self.stores), Fraction(0)) * hours / MONTH_HOURS
        return total

    def _pieces(self, start: datetime, end: datetime) -> list[tuple[datetime, datetime, str]]:
        """`start` to `end` cut where its state or its rule changes, as far as it existed."""
        cuts = {start, end, *(one.at for one in self.turns), *(since for since, _ in self.rules)}
        inside = sorted(at for at in cuts if start <= at <= end)
        return [(a, b, here.state) for a, b in pairwise(inside) if (here := self.now(a)) is not None]
