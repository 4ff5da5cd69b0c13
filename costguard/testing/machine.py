"""One machine of the simulated cloud: what it truly is, whatever a listing says, and what it truly costs.

Truth is kept in fractions of a nano-unit and rounded nowhere:

    box = Machine(key=key, rate=Rate.parse("32.77"), created_at=noon, stores=(Store(gb=500, running=80_000_000),))
    box.run(noon); box.turn(evening, STOPPED)
    box.spent(noon, midnight)                    # Fraction of nano-dollars: computing until the evening, the disk all along

Samples by rule: what a machine measures while it works, rests, downloads, hangs or falls silent.

A rule maps each signal to a value or to a function of the instant. `quiet` is a machine that does nothing; the others are
made from it:

    busy(gpus=8, working=1)     GPU 92 % on one of eight, 87 % of its power limit, steps counted up
    transfer(6.1e6)             quiet, and 6.1 MB/s in and to the disk
    computing(1.0, cores=64)    quiet, and one of 64 cores
    hanging(80.0, gpus=8)       GPU 100 %, 80 W each, and no step
    SILENT                      no samples at all
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from costguard.guard.signals import AGENT, CPU, DUTY, IO, PEOPLE, POWER, PROGRESS, QUEUE
from costguard.metering.observation import UNKNOWN_HANDLING, Disk, Handling, Observation, Price
from costguard.values import sample as signals
from costguard.values.money import Rate
from costguard.values.resource import ENDED, RUNNING, STOPPED, ResourceKey
from costguard.values.sample import STEP, Sample

BILLED_STATES = (RUNNING, "stopping")
"""States in which computing bills here. A machine on its way down is billed until it is down."""
COMPUTE, DISKS = "compute", "disk"
MONTH_HOURS = 730
ALL_FAMILIES = frozenset(("duty", "power", "cpu", "io", "progress", "agent", "people", "queue"))

OBEYS, DEAF, LOST, UNCLEAR, REFUSES, WAITS = "obeys", "deaf", "lost", "unclear", "refuses", "waits"
ANSWERS = {
    OBEYS: "it does it and says so",
    DEAF: "it says 200 and does nothing",
    LOST: "it does it, and the answer is lost",
    UNCLEAR: "it does nothing, and the answer is lost",
    REFUSES: "it says no",
    WAITS: "it takes a start, and waits for a GPU that somebody else rents",
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
    from when on and for how many (None: for ever). `rates`: other prices, from when on. `can_start`: whether its provider has a
    start. `waits`: it was started, and waits for its GPU. `looks`: since when which look at it fails (None), or takes so long.
    """

    key: ResourceKey
    name: str
    created_at: datetime
    rate: Rate | None = None
    stores: tuple[SimulatedDisk, ...] = ()
    seen_as: Observation | None = None
    handling: Handling = UNKNOWN_HANDLING
    stops_in: timedelta = timedelta(seconds=60)
    starts_in: timedelta = timedelta(seconds=90)
    gpus: float = 1
    cores: float = 32
    families: frozenset[str] = ALL_FAMILIES
    turns: list[PowerChange] = field(default_factory=list)
    rules: list[tuple[datetime, SampleRule]] = field(default_factory=list)
    more: list[tuple[datetime, str, SignalValue | None]] = field(default_factory=list)
    answers: list[tuple[datetime, str, int | None]] = field(default_factory=list)
    looks: list[tuple[datetime, int, timedelta | None]] = field(default_factory=list)
    labels: list[tuple[datetime, dict[str, str]]] = field(default_factory=list)
    rates: list[tuple[datetime, Rate]] = field(default_factory=list)
    can_start: bool = True
    waits: bool = False

    def run(self, at: datetime) -> None:
        """It starts at `at`: a new run of the same id. What was still to come is forgotten."""
        self.turn(at, RUNNING, started_at=at)

    def turn(self, at: datetime, state: str, *, started_at: datetime | None = None) -> None:
        """It comes to be in `state` at `at`; later turns are forgotten."""
        self.turns = [one for one in self.turns if one.at < at]
        last_start = self.turns[-1].started_at if self.turns else None
        self.turns.append(PowerChange(at, state, started_at or last_start))

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
        power = self.now(at)
        if power is None or power.state not in BILLED_STATES:
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

    def get_rate(self, at: datetime) -> tuple[datetime, Rate | None]:
        """Its price an hour at `at`, and since when."""
        return next(((since, rate) for since, rate in reversed(self.rates) if since <= at), (self.created_at, self.rate))

    def answer(self, at: datetime) -> str:
        """How it takes an act at `at`, of ANSWERS; one that is counted is used up."""
        for number, (since, how, left) in reversed(tuple(enumerate(self.answers))):
            if since <= at and left != 0:
                if left is not None:
                    self.answers[number] = (since, how, left - 1)
                return how
        return OBEYS

    def count_look(self, at: datetime) -> timedelta | None:
        """How long the look at it at `at` takes; None: it fails. The next look of each entry of `looks` is one nearer."""
        due = [takes for since, nth, takes in self.looks if since <= at and nth == 1]
        self.looks = [(since, nth - (since <= at), takes) for since, nth, takes in self.looks if since > at or nth > 1]
        return due[0] if due else timedelta()

    def observation(self, at: datetime) -> Observation | None:
        """What an honest listing says at `at`; None where it did not exist yet."""
        power = self.now(at)
        if power is None:
            return None
        down = power.state in (STOPPED, ENDED)
        labels = next((labels for since, labels in reversed(self.labels) if since <= at), {})
        since, rate = self.get_rate(at)
        waits = self.waits and power.state == STOPPED
        return replace(
            self.seen_as or Observation(key=self.key, state=power.state, name=self.name),
            state=power.state,
            created_at=self.created_at,
            started_at=power.started_at,
            stopped_at=power.at if down else None,
            prices=(Price(rate, since=since),) if rate else (Price(None),),
            why="waits for its GPU, and then starts and bills by itself" if waits else "",
            disks=tuple(Disk(one.gb, one.type, one.price(power.state)) for one in self.stores),
            labels=tuple(sorted(labels.items())),
            handling=replace(self.handling, starts=self.can_start and power.state == STOPPED and not waits),
        )

    def spent(
        self, start: datetime, end: datetime, what: tuple[str, ...] = (COMPUTE, DISKS), *, idle: bool = False
    ) -> Fraction:
        """What it truly cost from `start` to `end`, in nano-units. `idle`: only while it ran and nobody needed it."""
        total = Fraction(0)
        for begin, until, state in self._pieces(start, end):
            if idle and (state not in BILLED_STATES or not self.rule(begin).idle):
                continue
            hours = Fraction((until - begin) // timedelta(microseconds=1), 3600 * 10**6)
            rate = self.get_rate(begin)[1]
            if COMPUTE in what and state in BILLED_STATES and rate is not None:
                total += rate.nano_per_hour * hours
            if DISKS in what and state != ENDED:
                total += sum((Fraction(one.gb * one.price(state)) for one in self.stores), Fraction(0)) * hours / MONTH_HOURS
        return total

    def _pieces(self, start: datetime, end: datetime) -> list[tuple[datetime, datetime, str]]:
        """`start` to `end` cut where its state or its rule changes, as far as it existed."""
        cuts = {start, end, *(one.at for one in self.turns), *(since for since, _ in (*self.rules, *self.rates))}
        inside = sorted(at for at in cuts if start <= at <= end)
        return [(a, b, power.state) for a, b in pairwise(inside) if (power := self.now(a)) is not None]


SignalValue = float | Callable[[datetime], float]
"""A constant, or a function of the instant."""

FLOOR_W, LIMIT_W = 70.0, 700.0
"""Watts of one GPU at rest and at its limit (H100 SXM)."""
LEAST_CORES = 0.2
"""GUARD section 2: a fifth of a core is work."""

FAMILY_OF: Mapping[str, str] = {
    signals.GPU_UTIL: DUTY,
    signals.GPU_BUSY_COUNT: DUTY,
    signals.GPU_MEMORY_USED: DUTY,
    signals.GPU_POWER: POWER,
    signals.GPU_POWER_BUSIEST: POWER,
    signals.GPU_POWER_LIMIT: POWER,
    signals.CPU_UTIL: CPU,
    signals.CPU_CORES: CPU,
    signals.NETWORK: IO,
    signals.DISK: IO,
    signals.STEP: PROGRESS,
    signals.AGENT_ALIVE: AGENT,
    signals.CONNECTIONS: PEOPLE,
    signals.INPUT_AGE: PEOPLE,
    signals.QUEUE_JOBS: QUEUE,
}
"""Which family a signal belongs to: a machine delivers a signal if it delivers its family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRule:
    """What is measured: `values` by signal. `idle`: in truth nobody needs it, so it is waste. `steps`: its job counts them."""

    values: Mapping[str, SignalValue] = field(default_factory=dict)
    idle: bool = False
    steps: bool = False


SILENT = SampleRule()


def make_quiet_rule(*, gpus: float = 1, memory: float = 0.0) -> SampleRule:
    """Everything at rest; `memory`: percent of GPU memory that is held all the same."""
    values: dict[str, SignalValue] = {
        signals.GPU_UTIL: 0.0,
        signals.GPU_BUSY_COUNT: 0.0,
        signals.GPU_MEMORY_USED: memory,
        signals.GPU_POWER: FLOOR_W * gpus,
        signals.GPU_POWER_BUSIEST: FLOOR_W,
        signals.GPU_POWER_LIMIT: LIMIT_W,
        signals.CPU_UTIL: 0.03,
        signals.CPU_CORES: 0.01,
        signals.NETWORK: 900.0,
        signals.DISK: 0.0,
        signals.AGENT_ALIVE: 1.0,
    }
    return SampleRule(idle=True, values=values)


def make_busy_rule(*, gpus: float = 1, duty: float = 92.0, working: float | None = None) -> SampleRule:
    """Training at `duty` percent on all GPUs or on so many as are `working`; the step counter rises by one a second."""
    at_work = gpus if working is None else working
    watts = FLOOR_W + (LIMIT_W - FLOOR_W) * min(1.0, duty / 100)
    values: dict[str, SignalValue] = {
        signals.GPU_UTIL: duty,
        signals.GPU_BUSY_COUNT: at_work,
        signals.GPU_MEMORY_USED: 60.0,
        signals.GPU_POWER: at_work * watts + (gpus - at_work) * FLOOR_W,
        signals.GPU_POWER_BUSIEST: watts,
        signals.CPU_UTIL: 12.0,
        signals.CPU_CORES: max(1.0, at_work),
    }
    return SampleRule(values={**make_quiet_rule(gpus=gpus).values, **values}, steps=True)


def make_transfer_rule(bytes_s: float, *, gpus: float = 1) -> SampleRule:
    """A download onto the disk at `bytes_s`, the GPUs at rest."""
    return SampleRule(values={**make_quiet_rule(gpus=gpus).values, signals.NETWORK: bytes_s, signals.DISK: bytes_s})


def make_cpu_rule(used: float, *, cores: float, gpus: float = 1, memory: float = 50.0) -> SampleRule:
    """`used` of `cores` at work, `memory` percent of GPU memory held, the GPUs at rest."""
    values = {signals.CPU_UTIL: 100 * used / cores, signals.CPU_CORES: used}
    return SampleRule(values={**make_quiet_rule(gpus=gpus, memory=memory).values, **values}, idle=used < LEAST_CORES)


def make_hang_rule(watts: float, *, gpus: float = 1) -> SampleRule:
    """GPUs that spin at `watts` each: 100 % of the time in a kernel, and no step."""
    values = {
        signals.GPU_UTIL: 100.0,
        signals.GPU_BUSY_COUNT: gpus,
        signals.GPU_POWER: watts * gpus,
        signals.GPU_POWER_BUSIEST: watts,
    }
    return SampleRule(values={**make_quiet_rule(gpus=gpus, memory=60.0).values, **values}, idle=True)


def generate_samples(rule: SampleRule, key: ResourceKey, at: datetime, families: frozenset[str]) -> Iterator[Sample]:
    """The samples of `rule` at `at`, of those `families` that the machine delivers."""
    for signal, value in rule.values.items():
        if FAMILY_OF.get(signal, AGENT) in families:
            yield Sample(key=key, signal=signal, at=at, value=value(at) if callable(value) else value)
