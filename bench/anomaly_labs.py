"""A lab of one quarter drawn from a seed, and twelve kinds of anomalies staged in it, for `bench.anomalies`.

Times are hours since the lab's first Monday 00:00 (UTC), prices dollars an hour as public lists had them in 2026-11.
Researchers work on weekdays with their own hours, GPUs and diligence, and have busy weeks before deadlines; two of them train
on whole nodes, too; one team trains on spot machines at night; services run day and night, more of them by day, and grow; a
quiet week and a new colleague come by themselves.

    lab = draw_lab(seed=7)
    staged = stage_anomalies(7, lab)     # twelve days of the last nine weeks, one kind each
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from costguard.metering.meter import COMPUTE, STORAGE
from costguard.values.resource import INSTANCE, SPOT, Attribution

WEEKS, QUIET_WEEKS = 14, 5
HOURS = WEEKS * 168
H100, A100, L40S, B200 = ("H100-80GB-SXM", 2.99), ("A100-80GB-SXM", 1.99), ("L40S", 0.99), ("B200-180GB-SXM", 5.49)
ON_DEMAND = "on-demand"
SMALL, SMALL_MAX = (0.18, 0.28), 0.3
"""Of a usual day's spend: what the smaller anomalies cost a day, and below which an anomaly counts as small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabLine:
    """What bills from `start` to `end`, at `rate` dollars an hour. `kind`: of the anomaly that it belongs to; "" for none."""

    number: int
    start: float
    end: float
    rate: float
    attribution: Attribution
    charge: str = COMPUTE
    quantity: int = 1
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedAnomaly:
    """An anomaly from `start` to `end`; `share` of a usual day's spend that it costs in 24 hours."""

    kind: str
    start: float
    end: float
    share: float


class Lab:
    """Makes the lines of a lab."""

    def __init__(self, dice: Random) -> None:
        self.dice, self.lines = dice, list[LabLine]()

    def add(
        self, start: float, length: float, gpu: tuple[str, float], owner: str, *, count: int = 1, tier: str = ON_DEMAND,
        region: str = "us-east-1", account: str = "main", price: float = 1.0, kind: str = "",
    ) -> None:  # fmt: skip
        """Add a machine."""
        name, rate = gpu
        where = Attribution("aws", account, region, INSTANCE, name, count, tier, owner, f"{name.lower()}.{count}x")
        number = len(self.lines)
        self.lines.append(
            LabLine(
                number=number,
                start=start,
                end=min(start + length, HOURS),
                rate=rate * count * price,
                attribution=where,
                kind=kind,
            )
        )


def draw_lab(seed: int) -> Lab:
    """Draw the lab of `seed`."""
    dice = Random(f"lab {seed}")
    lab = Lab(dice)
    quiet = dice.randrange(6, WEEKS)
    for number in range(dice.randint(5, 9)):
        _draw_researcher(
            lab, f"researcher-{number}", quiet, first_week=dice.randrange(6, 11) if number == 0 else 0, trains=number in (1, 4)
        )
    _draw_spot_team(lab)
    for number in range(dice.randint(2, 4)):
        _draw_service(lab, f"service-{number}")
    _draw_disks(lab)
    return lab


def _draw_researcher(lab: Lab, owner: str, quiet: int, *, first_week: int, trains: bool) -> None:
    dice = lab.dice
    gpu, diligence, arrives = dice.choice((H100, A100, A100, L40S)), dice.uniform(0.3, 0.95), dice.uniform(8.5, 11)
    usual, second = dice.choice((1, 1, 2, 2, 4)), dice.choice((H100, A100, L40S))
    deadline = dice.uniform(7, WEEKS + 4)
    for day in range(WEEKS * 7):
        week = day // 7
        if (day % 7 >= 5 and dice.random() > 0.12) or week == quiet or week < first_week:
            continue
        busy = 0 <= deadline - day / 7 < 1.5
        if dice.random() < diligence + 0.2 * busy:
            start = day * 24 + arrives + dice.gauss(0, 0.7)
            lab.add(start, max(1.0, dice.gauss(8, 1.5) + 2 * busy), gpu, owner, count=usual)
        if dice.random() < 0.1 + 0.15 * busy:
            lab.add(day * 24 + dice.uniform(10, 18), dice.lognormvariate(2.0, 0.6), second, owner, count=dice.choice((1, 1, 2)))
        if trains and dice.random() < 0.2 + 0.1 * busy:
            lab.add(day * 24 + dice.uniform(15, 19), dice.uniform(10, 30), gpu, owner, count=dice.choice((4, 4, 8)))


def _draw_spot_team(lab: Lab) -> None:
    dice = lab.dice
    size, region = dice.randint(4, 8), dice.choice(("us-east-1", "us-west-2"))
    for day in range(WEEKS * 7):
        price = dice.uniform(0.38, 0.46)
        for _ in range(max(1, round(dice.gauss(size, 0.8)))):
            start, left = day * 24 + dice.uniform(19, 21), dice.uniform(7, 11)
            while left > 0:
                length = min(left, dice.expovariate(1 / 12))
                lab.add(start, length, A100, "spot-team", count=4, tier=SPOT, region=region, price=price)
                start, left = start + length + 0.2, left - length


def _draw_service(lab: Lab, owner: str) -> None:
    dice = lab.dice
    gpu, count, growth = dice.choice((A100, L40S, L40S)), dice.randint(8, 16), dice.uniform(0, 0.02)
    region, account = dice.choice((("us-east-1", "main"), ("eu-west-1", "serving")))
    for _ in range(count):
        at = -dice.uniform(0, 700)
        while at < HOURS:
            length = dice.uniform(10, 50) * 24
            lab.add(max(at, 0), length + min(at, 0), gpu, owner, region=region, account=account)
            at += length + 0.02
    for day in range(WEEKS * 7):
        for _ in range(round(count * 0.5 * (1 + growth) ** (day / 7) * (0.6 if day % 7 >= 5 else 1))):
            lab.add(day * 24 + 7 + dice.random(), dice.uniform(11, 14), gpu, owner, region=region, account=account)


def _draw_disks(lab: Lab) -> None:
    for number in range(6):
        where = Attribution("aws", "main", "us-east-1", "volume", owner=f"researcher-{number % 3}")
        lab.lines.append(_make_disk(len(lab.lines), 0, HOURS, 2000 + 500 * number, where))


def _make_disk(  # noqa: PLR0917 - the fields of a line
    number: int, start: float, end: float, gigabytes: int, where: Attribution, kind: str = ""
) -> LabLine:
    rate = gigabytes * 0.08 / 730
    return LabLine(
        number=number, start=start, end=end, rate=rate, attribution=where, charge=STORAGE, quantity=gigabytes, kind=kind
    )


class Stage:
    """Stages anomalies in a lab. `day`: what a working day of it usually costs."""

    def __init__(self, lab: Lab, dice: Random) -> None:
        self.lab, self.dice = lab, dice
        sums = [sum(_overlap(one, day * 24) * one.rate for one in lab.lines) for day in range(21, 35) if day % 7 < 5]
        self.day = sorted(sums)[len(sums) // 2]
        self.staged = list[StagedAnomaly]()

    def launch(  # noqa: PLR0917 - as the days read
        self,
        kind: str,
        start: float,
        hours: float,
        share: float,
        gpu: tuple[str, float],
        owner: str,
        *,
        count: int = 8,
        **where: str,
    ) -> None:
        """Launch so many machines that they cost `share` of a usual day, counted over 24 hours at most."""
        machines = max(1, round(share * self.day / (gpu[1] * count * min(hours, 24))))
        while machines * gpu[1] * count * min(hours, 24) < share * self.day * 0.8:
            machines += 1
        for _ in range(machines):
            self.lab.add(start, hours, gpu, owner, count=count, kind=kind, **where)  # type: ignore[arg-type]
        self.note(kind, start, hours, machines * gpu[1] * count * min(hours, 24) / self.day)

    def note(self, kind: str, start: float, hours: float, share: float) -> None:
        """Note what was staged."""
        self.staged.append(StagedAnomaly(kind=kind, start=start, end=start + hours, share=share))


def stage_anomalies(seed: int, lab: Lab) -> list[StagedAnomaly]:
    """Stage each kind once, on days that the seed draws in the last nine weeks; lines of `lab` are added and replaced."""
    dice = Random(f"stage {seed}")
    stage, kinds = Stage(lab, dice), list(KINDS)
    dice.shuffle(kinds)
    first = QUIET_WEEKS * 7 + 1
    for place, kind in enumerate(kinds):
        day = first + place * 5 + dice.randrange(2)
        while kind in WORKDAYS and day % 7 >= 5:
            day -= 1
        KINDS[kind](stage, kind, day * 24.0)
    return sorted(stage.staged, key=lambda one: one.start)


def _stage_tuesday(stage: Stage, kind: str, at: float) -> None:
    """Three more days' spend in one: sweeps of a researcher on whole nodes."""
    day = int(at // 24)
    start = (day - day % 7 + 1) * 24 + stage.dice.uniform(9, 12)
    stage.launch(kind, start, 14, 3, H100, "researcher-1")


def _stage_sweep(stage: Stage, kind: str, at: float) -> None:
    """A researcher's sweep on many small machines."""
    stage.launch(kind, at + stage.dice.uniform(9, 16), 10, stage.dice.uniform(0.35, 0.8), A100, "researcher-2", count=1)


def _stage_runaway(stage: Stage, kind: str, at: float) -> None:
    """A service that adds a replica every 20 minutes and removes none."""
    dice, start = stage.dice, at + stage.dice.uniform(6, 14)
    share, last = dice.uniform(0.4, 0.9), 24
    count = max(6, round(share * stage.day / (A100[1] * 16)))
    for number in range(count):
        stage.lab.add(start + number / 3, last - number / 3, A100, "service-0", kind=kind)
    stage.note(kind, start, last, count * A100[1] * 16 / stage.day)


def _stage_left_on(stage: Stage, kind: str, at: float) -> None:
    """Machines that stay on over a weekend, at the hour when they are usually off."""
    day = int(at // 24)
    start = (day - day % 7 + 4) * 24 + 16.5
    stage.launch(kind, start, 62, stage.dice.uniform(*SMALL), H100, "researcher-3", count=2)


def _stage_region(stage: Stage, kind: str, at: float) -> None:
    stage.launch(
        kind, at + stage.dice.uniform(0, 24), 20, stage.dice.uniform(*SMALL), A100, "researcher-1", count=1, region="ap-south-1"
    )


def _stage_type(stage: Stage, kind: str, at: float) -> None:
    stage.launch(kind, at + stage.dice.uniform(0, 24), 20, stage.dice.uniform(*SMALL), B200, "researcher-2", count=1)


def _stage_account(stage: Stage, kind: str, at: float) -> None:
    share = stage.dice.uniform(0.3, 0.6)
    stage.launch(kind, at + stage.dice.uniform(0, 24), 20, share, A100, "", count=2, account="unknown-7")


def _stage_ownerless(stage: Stage, kind: str, at: float) -> None:
    """Machines without an owner, in a region and of a type that are usual: a key that leaked."""
    stage.launch(kind, at + stage.dice.uniform(0, 24), 20, stage.dice.uniform(*SMALL), A100, "", count=2)


def _stage_price(stage: Stage, kind: str, at: float) -> None:
    """The price of a service's machines rises, for those that run and those that come."""
    start, factor, share = at + stage.dice.uniform(0, 24), stage.dice.uniform(1.35, 1.9), 0.0
    for line in [one for one in stage.lab.lines if one.attribution.owner == "service-0" and one.end > start and not one.kind]:
        begun = max(line.start, start)
        raised = replace(line, start=begun, rate=line.rate * factor, kind=kind)
        if line.start < start:
            share += line.rate * (factor - 1) * 24 / stage.day
            stage.lab.lines[line.number] = replace(line, end=start)
            stage.lab.lines.append(replace(raised, end=min(line.end, start + 48)))
            if line.end > start + 48:
                stage.lab.lines.append(replace(line, start=start + 48))
    stage.note(kind, start, 48, share)


def _stage_disk(stage: Stage, kind: str, at: float) -> None:
    start = at + stage.dice.uniform(0, 24)
    line = next(one for one in stage.lab.lines if one.charge == STORAGE and one.start < start < one.end)
    gigabytes = line.quantity + round(stage.dice.uniform(*SMALL) * stage.day * 730 / 24 / 0.08)
    stage.lab.lines[stage.lab.lines.index(line)] = replace(line, end=start)
    grown = replace(_make_disk(line.number, start, start + 72, gigabytes, line.attribution, kind))
    stage.lab.lines += [grown, replace(line, start=start + 72)]
    stage.note(kind, start, 72, (grown.rate - line.rate) * 24 / stage.day)


def _stage_on_demand(stage: Stage, kind: str, at: float) -> None:
    """The spot team's night runs on demand: as many machines, at more than twice the price."""
    night, extra = (at, at + 24), 0.0
    machines = [one for one in stage.lab.lines if one.attribution.owner == "spot-team" and night[0] <= one.start < night[1]]
    start = min((one.start for one in machines), default=at + 20)
    for line in machines:
        where = replace(line.attribution, tier=ON_DEMAND)
        rate = A100[1] * line.attribution.gpu_count
        extra += (rate - line.rate) * (line.end - line.start)
        stage.lab.lines[line.number] = replace(line, attribution=where, rate=rate, kind=kind)
    stage.note(kind, start, 12, extra / stage.day)


def _stage_restarts(stage: Stage, kind: str, at: float) -> None:
    """A job that fails and is started anew every ten minutes, on ever more machines."""
    start, share = at + stage.dice.uniform(0, 12), stage.dice.uniform(0.3, 0.6)
    machines = max(1, round(share * stage.day / (A100[1] * 8 * 8)))
    for minute in range(0, 480, 10):
        for _ in range(machines):
            stage.lab.add(start + minute / 60, 9 / 60, A100, "spot-team", count=8, kind=kind)
    stage.note(kind, start, 8, machines * A100[1] * 8 * 8 * 0.9 / stage.day)


KINDS: dict[str, Callable[[Stage, str, float], None]] = {
    "tuesday": _stage_tuesday,
    "sweep": _stage_sweep,
    "runaway": _stage_runaway,
    "left on": _stage_left_on,
    "new region": _stage_region,
    "new type": _stage_type,
    "new account": _stage_account,
    "no owner": _stage_ownerless,
    "price": _stage_price,
    "disk": _stage_disk,
    "on demand": _stage_on_demand,
    "restarts": _stage_restarts,
}
WORKDAYS = frozenset(("tuesday", "sweep", "runaway", "left on"))


def _overlap(line: LabLine, start: float) -> float:
    return max(0.0, min(line.end, start + 24) - max(line.start, start))


def list_running(lines: list[LabLine], at: float) -> Iterator[LabLine]:
    """Yield the lines that bill at `at`."""
    return (one for one in lines if one.start <= at < one.end)
