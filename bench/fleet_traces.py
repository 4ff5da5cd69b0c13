"""Fleets of 42 machines in mixed real-life use, drawn from a seed: what is measured and what is true at every step.

The traces are ours. Their shapes come from what users wrote about (GUARD section 1, `../shared/data/timelines`): six jobs that
end together each evening, trainings of days that hang at 100 % duty at one of three ends, notebooks whose people are in a
meeting, servers that are asked a few times a night, evaluations of minutes with pauses, data that is prepared on the CPU or
uploaded slowly, machines that nobody ends after their job, processes that died and left GPU memory, weekends.

Truth is one bit a step: somebody needs the machine. It is needed through a pause of its person or its job (a meeting, the time
between two evaluations), and not needed once the job ended, hung, or the person went home.

    fleet = draw_fleet(seed=1, days=3)
    fleet[0].uses[17]              # ("train", True): what it does in step 17, and whether somebody needs it
    fleet[0].values["gpu_util"]    # a value a step
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random

from costguard.values import sample as signals

START = datetime(2026, 11, 26, tzinfo=UTC)
"""A Thursday, so that three days have work and a weekend."""
STEP = timedelta(minutes=5)
STEPS_A_DAY = 288
HOUR = 12
"""Steps an hour."""
LIMIT_W, FLOOR_W = 700.0, 70.0
RATES = ("1.99", "2.99", "4.10", "12.24", "23.92", "32.77")
SIGNALS = (
    *(signals.GPU_UTIL, signals.GPU_MEMORY_USED, signals.GPU_POWER_BUSIEST, signals.GPU_POWER_LIMIT, signals.CPU_UTIL),
    *(signals.CPU_CORES, signals.NETWORK, signals.DISK, signals.AGENT_ALIVE),
)
UNVISITED = frozenset(("batch", "starved", "server", "dev-server", "data", "zombie"))
"""Kinds of machines that nobody connects to."""
Use = tuple[str, bool]
Values = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetMachine:
    """One machine: its price and, a step each, what it does and what an agent on it measures. `cores`: of its processors."""

    name: str
    kind: str
    rate: str
    gpus: int
    cores: int
    uses: Sequence[Use]
    values: Mapping[str, Sequence[float]]


def draw_fleet(seed: int, days: int = 3, times: int = 1) -> list[FleetMachine]:
    """Draw 42 machines; `times`: that often as many."""
    dice, machines = Random(seed), list[FleetMachine]()
    ends = [day * STEPS_A_DAY + 18 * HOUR + dice.randrange(HOUR) for day in range(days)]
    for kind, count in KINDS.items():
        for number in range(count * times):
            gpus = dice.choice((1, 1, 4, 8))
            steps = days * STEPS_A_DAY
            uses = list(PLANS[kind](dice, steps, ends))[:steps]
            uses += [("quiet", False)] * (steps - len(uses))
            cores = 16 * gpus
            machines.append(
                FleetMachine(
                    name=f"{kind}-{number}",
                    kind=kind,
                    rate=RATES[min(len(RATES) - 1, gpus // 2 + dice.randrange(3))],
                    gpus=gpus,
                    cores=cores,
                    uses=uses,
                    values=_measure(dice, uses, cores, kind),
                )
            )
    return machines


def _plan_batch(dice: Random, steps: int, ends: Sequence[int]) -> Iterator[Use]:
    """Six jobs from the morning on that end within minutes of each other; on a weekend none."""
    for day, end in enumerate(ends):
        begin = day * STEPS_A_DAY + 9 * HOUR + dice.randrange(HOUR)
        stop = end + dice.randrange(2)
        works = _is_workday(day)
        for step in range(day * STEPS_A_DAY, min((day + 1) * STEPS_A_DAY, steps)):
            yield ("train", True) if works and begin <= step < stop else ("quiet", False)


def _plan_trainer(dice: Random, steps: int, ends: Sequence[int]) -> Iterator[Use]:  # noqa: ARG001 - a plan
    """Jobs of 6 to 40 hours; one of three ends as a hang; then nothing until somebody looks, 2 to 16 hours later."""
    step = 0
    while step < steps:
        busy, idle = dice.randrange(6 * HOUR, 40 * HOUR), dice.randrange(2 * HOUR, 16 * HOUR)
        after = dice.choice(("hang", "quiet", "quiet", "open"))
        yield from [("train", True)] * busy
        yield from [(after, False)] * idle
        step += busy + idle


def _plan_starved(dice: Random, steps: int, ends: Sequence[int]) -> Iterator[Use]:  # noqa: ARG001 - a plan
    """Trainings that wait for their data."""
    step = 0
    while step < steps:
        busy, idle = dice.randrange(8 * HOUR, 20 * HOUR), dice.randrange(3 * HOUR, 12 * HOUR)
        yield from [("starved", True)] * busy
        yield from [("quiet", False)] * idle
        step += busy + idle


def _plan_notebook(dice: Random, steps: int, ends: Sequence[int]) -> Iterator[Use]:  # noqa: ARG001 - a plan
    """A person from nine to six on workdays, with pauses of 10 to 75 minutes; the kernel keeps its memory at night."""
    for day in range(steps // STEPS_A_DAY):
        begin, end = 8 * HOUR + dice.randrange(2 * HOUR), 17 * HOUR + dice.randrange(2 * HOUR)
        rest = dice.choice(("open", "held", "quiet"))
        yield from [(rest, False)] * begin
        if not _is_workday(day):
            yield from [(rest, False)] * (STEPS_A_DAY - begin)
            continue
        step = begin
        while step < end:
            cells, pause = dice.randrange(6, 30), dice.choice((2, 3, 4, 6, 8, 10, 13, 15))
            yield from [("cells", True)] * min(cells, end - step)
            yield from [("open", True)] * max(0, min(pause, end - step - cells))
            step += cells + pause
        yield from [(rest, False)] * (STEPS_A_DAY - end)


def _plan_server(dice: Random, steps: int, ends: Sequence[int]) -> Iterator[Use]:  # noqa: ARG001 - a plan
    """A server of customers, needed always: busy by day, a request now and then by night."""
    for step in range(steps):
        of_day = step % STEPS_A_DAY
        night = of_day < 6 * HOUR or of_day >= 22 * HOUR
        yield ("serve" if not night or dice.random() < 0.4 else "waits", True)


def _plan_dev_server(dice: Random, steps: int, ends: Sequence[int]) -> Iterator[Use]:
    """A server of one team, asked on workdays only."""
    for step, (use, _) in enumerate(_plan_server(dice, steps, ends)):
        day, of_day = divmod(step, STEPS_A_DAY)
        at_work = _is_workday(day) and 9 * HOUR <= of_day < 18 * HOUR
        yield (use, True) if at_work else ("waits", False)


def _plan_evaluation(dice: Random, steps: int, ends: Sequence[int]) -> Iterator[Use]:  # noqa: ARG001 - a plan
    """Series of evaluations of 8 to 25 minutes with pauses of 5 to 45; between two series nobody needs it."""
    step = 0
    while step < steps:
        for _ in range(dice.randrange(3, 9)):
            busy, pause = dice.randrange(2, 6), dice.randrange(1, 10)
            yield from [("evaluate", True)] * busy
            yield from [("quiet", True)] * pause
            step += busy + pause
        rest = dice.randrange(4 * HOUR, 12 * HOUR)
        yield from [("quiet", False)] * rest
        step += rest


def _plan_data(dice: Random, steps: int, ends: Sequence[int]) -> Iterator[Use]:  # noqa: ARG001 - a plan
    """Preparation on the CPU, a download, an upload of hours; then nothing."""
    step = 0
    while step < steps:
        for use in dice.sample(("prepare", "download", "upload"), 2):
            busy = dice.randrange(2 * HOUR, 6 * HOUR)
            yield from [(use, True)] * busy
            step += busy
        rest = dice.randrange(3 * HOUR, 14 * HOUR)
        yield from [("quiet", False)] * rest
        step += rest


def _plan_forgotten(dice: Random, steps: int, ends: Sequence[int]) -> Iterator[Use]:
    """A job of some hours, then nothing for the rest; one in three keeps a loop that spins a core."""
    busy = dice.randrange(2 * HOUR, 12 * HOUR)
    yield from [("train", True)] * busy
    yield from [(dice.choice(("quiet", "open", "spin")), False)] * (steps - busy)
    del ends


def _plan_zombie(dice: Random, steps: int, ends: Sequence[int]) -> Iterator[Use]:  # noqa: ARG001 - a plan
    """A process that dies and leaves its GPU memory, noticed 5 to 20 hours later."""
    step = 0
    while step < steps:
        busy, idle = dice.randrange(10 * HOUR, 30 * HOUR), dice.randrange(5 * HOUR, 20 * HOUR)
        yield from [("train", True)] * busy
        yield from [("held", False)] * idle
        step += busy + idle


KINDS = {
    "batch": 6, "trainer": 6, "blind": 5, "starved": 2, "notebook": 6, "server": 4, "dev-server": 2, "evaluation": 4, "data": 3,
    "forgotten": 2, "zombie": 2,
}  # fmt: skip
"""How many machines of each kind 42 are. The steps of `batch` and `trainer` are counted, those of `blind` are not."""
PLANS: Mapping[str, Callable[[Random, int, Sequence[int]], Iterator[Use]]] = {
    "batch": _plan_batch,
    "trainer": _plan_trainer,
    "blind": _plan_trainer,
    "starved": _plan_starved,
    "notebook": _plan_notebook,
    "server": _plan_server,
    "dev-server": _plan_dev_server,
    "evaluation": _plan_evaluation,
    "data": _plan_data,
    "forgotten": _plan_forgotten,
    "zombie": _plan_zombie,
}


def _is_workday(day: int) -> bool:
    return (START + timedelta(days=day)).weekday() < 5


def _measure(dice: Random, uses: Sequence[Use], cores: int, kind: str) -> dict[str, list[float]]:
    """Return what an agent measures in each step."""
    names = [*SIGNALS, *((signals.STEP,) if kind in ("batch", "trainer") else ())]
    names += [signals.INPUT_AGE, signals.CONNECTIONS] if kind not in UNVISITED else []
    columns: dict[str, list[float]] = {name: [] for name in names}
    counter, input_age, even_w = 0.0, 1e6, dice.uniform(95, 125)
    for use, _ in uses:
        input_age = dice.uniform(5, 200) if use == "cells" and dice.random() < 0.5 else input_age + 300
        row = {**_measure_quiet(dice), **_measure_use(dice, use, even_w)}
        row[signals.INPUT_AGE] = input_age
        row[signals.CPU_UTIL] = min(100.0, 100 * (row[signals.CPU_CORES] + dice.uniform(0.02, 0.06)) / cores)
        counter += dice.randrange(200, 400) if use == "train" else 0
        row[signals.STEP] = counter
        for name in names:
            columns[name].append(row[name])
    return columns


def _measure_quiet(dice: Random) -> Values:
    return {
        signals.GPU_UTIL: 0.0,
        signals.GPU_MEMORY_USED: 0.4,
        signals.GPU_POWER_BUSIEST: FLOOR_W + dice.uniform(-2, 2),
        signals.GPU_POWER_LIMIT: LIMIT_W,
        signals.CPU_CORES: dice.uniform(0.0, 0.02),
        signals.NETWORK: dice.uniform(500, 30e3),
        signals.DISK: dice.choice((0.0, 4096.0, dice.uniform(0, 60e3))),
        signals.CONNECTIONS: 0.0,
        signals.AGENT_ALIVE: 1.0,
    }


Ranges = Mapping[str, tuple[float, float]]
_UTIL, _MEMORY, _CORES, _NETWORK, _DISK = (
    *(signals.GPU_UTIL, signals.GPU_MEMORY_USED, signals.CPU_CORES),
    *(signals.NETWORK, signals.DISK),
)
USES: Mapping[str, Ranges] = {
    "quiet": {},
    "train": {_UTIL: (82, 100), _MEMORY: (70, 70), _CORES: (1, 8)},
    "starved": {_UTIL: (0, 35), _MEMORY: (40, 40), _CORES: (0.15, 0.9), _NETWORK: (4e5, 3e6)},
    "cells": {_UTIL: (20, 95), _MEMORY: (30, 30), _CORES: (0.05, 1.2), signals.CONNECTIONS: (1, 1)},
    "open": {_MEMORY: (30, 30), signals.CONNECTIONS: (1, 1)},
    "held": {_MEMORY: (60, 60)},
    "spin": {_MEMORY: (30, 30), _CORES: (0.98, 1)},
    "serve": {_UTIL: (8, 80), _MEMORY: (85, 85), _CORES: (0.3, 2), _NETWORK: (1e5, 4e6)},
    "waits": {_MEMORY: (85, 85), _CORES: (0.02, 0.08)},
    "evaluate": {_UTIL: (30, 98), _MEMORY: (50, 50), _CORES: (1, 4)},
    "prepare": {_CORES: (4, 14), _DISK: (2e6, 8e7)},
    "download": {_CORES: (0.05, 0.4), _NETWORK: (4e6, 9e6), _DISK: (4e6, 9e6)},
    "upload": {_CORES: (0.08, 0.3), _NETWORK: (4e5, 9e5), _DISK: (3e5, 9e5)},
    "hang": {_UTIL: (100, 100), _MEMORY: (70, 70), _CORES: (1, 1.1)},
}
"""What each use shows beyond a machine at rest: the range of each signal."""
GPU_SHARES = {"train": 0.97, "starved": 0.6, "cells": 0.35}
"""In what share of the samples the GPU works, where not in all: checkpoints, waiting for data, a person who reads."""
WATTS_PER_PERCENT = 5.6


def _measure_use(dice: Random, use: str, even_w: float) -> Values:
    """Return what `use` shows beyond a machine at rest. `even_w`: watts of its kernels that spin."""
    row = {name: dice.uniform(*bounds) for name, bounds in USES[use].items()}
    if dice.random() >= GPU_SHARES.get(use, 1):
        row[_UTIL] = 0.0
    if use == "hang":
        row[signals.GPU_POWER_BUSIEST] = even_w + dice.uniform(-2, 2)
    elif row.get(_UTIL):
        row[signals.GPU_POWER_BUSIEST] = FLOOR_W + WATTS_PER_PERCENT * row[_UTIL] + dice.uniform(-9, 9)
    return row


def break_source(fleet: Sequence[FleetMachine], how: str, at: int) -> list[FleetMachine]:
    """Return `fleet` with a source of signals that is wrong from step `at` on.

    `how`: "frozen" repeats the last values; "zeroed" gives 0 for each; "swapped" gives each machine those of another;
    "rescaled" gives shares of 1 for percents, kilowatts for watts, megabytes for bytes.
    """
    broken = list[FleetMachine]()
    for number, machine in enumerate(fleet):
        other = fleet[(number + len(fleet) // 2) % len(fleet)]
        values = dict[str, Sequence[float]]()
        for name, of in machine.values.items():
            rest = list(of[at:])
            if name == signals.AGENT_ALIVE:
                pass
            elif how == "frozen":
                rest = [of[at - 1]] * len(rest)
            elif how == "zeroed":
                rest = [0.0] * len(rest)
            elif how == "swapped":
                rest = list(other.values.get(name, of)[at:])
            elif name in RESCALED:
                rest = [value * RESCALED[name] for value in rest]
            values[name] = [*of[:at], *rest]
        broken.append(replace(machine, values=values))
    return broken


RESCALED = {
    signals.GPU_UTIL: 0.01, signals.GPU_MEMORY_USED: 0.01, signals.CPU_UTIL: 0.01, signals.GPU_POWER_BUSIEST: 0.001,
    signals.CPU_CORES: 0.01, signals.NETWORK: 1e-6, signals.DISK: 1e-6,
}  # fmt: skip
"""By what each signal is multiplied where units change: percent to shares, watts to kilowatts, bytes to megabytes."""
