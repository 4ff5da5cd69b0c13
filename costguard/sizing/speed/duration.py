"""Wall-clock hours of a run: start-up, steady state, overhead of long runs, and interruptions.

Example: 50e6 tokens at 2,000 (1,600 to 2,500) tokens per second per GPU on 2 GPUs take 3.47 h (2.78 to 4.34) of steady state.
Such a short run has almost no overhead. With 0.1 h (0.03 to 0.4) of start-up it takes 3.6 h (2.8 to 4.8).

Spot machines: each interruption costs the restart and half a checkpoint interval of lost work. With 0.05 interruptions per
hour, 0.25 h to restart and a checkpoint every hour, a run takes 1 + 0.05 x (0.25 + 0.5) = 1.0375 times as long.

The module also computes the speed and start-up of a placed job, with one model or several that take turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from costguard.sizing.architecture import Architecture
from costguard.sizing.job import Job
from costguard.sizing.placement import Placement
from costguard.sizing.speed.efficiency import Efficiency, read_efficiency
from costguard.sizing.speed.throughput import Throughput, compute_throughput
from costguard.values.interval import Interval

__all__ = [
    "Duration",
    "Efficiency",
    "Throughput",
    "add_interruptions",
    "compute_checkpoint_interval",
    "compute_duration",
    "compute_startup",
    "compute_throughput",
    "read_efficiency",
]

SECONDS_PER_HOUR = 3600
BOOT_HOURS = Interval(0.03, 0.1, 0.4)
"""From the order to the first command: 2 minutes for a container, half an hour for a large VM with drivers. Assumed."""
FETCH_GB_S = Interval(0.1, 0.4, 1.5)
"""Weights from a model hub or a bucket, and into the GPUs. Assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """The hours of a run: `hours` = start-up + training x interruptions.

    `train_hours` includes the overhead of long runs. `parts`: (name, hours) of each contribution to the spread of `hours`.
    """

    hours: Interval
    startup_hours: Interval
    train_hours: Interval
    parts: tuple[tuple[str, Interval], ...] = ()


def compute_startup(*architectures: Architecture, boot: Interval = BOOT_HOURS) -> Interval:
    """Return the hours from the order to the first step: boot, then download of the weights of each model."""
    gigabytes = sum(a.released_bytes * a.parameters for a in architectures) / 1e9
    return boot.add(FETCH_GB_S.invert().scale(gigabytes / SECONDS_PER_HOUR))


def compute_duration(tokens: int, speed: Throughput, *, gpus: int, startup_hours: Interval, efficiency: Efficiency) -> Duration:
    """Return the hours of `tokens` on `gpus` GPUs at `speed`."""
    steady = speed.tokens_per_s_per_gpu.invert().scale(tokens / gpus / SECONDS_PER_HOUR)
    factor = compute_overhead(steady.expected, efficiency)
    train = steady.multiply_independent(factor)
    return Duration(
        hours=train.add(startup_hours),
        startup_hours=startup_hours,
        train_hours=train,
        parts=(
            ("speed", steady),
            ("whole-run overhead", _subtract_to_zero(factor, 1.0).scale(steady.expected)),
            ("start-up", startup_hours),
        ),
    )


def compute_overhead(steady_hours: float, efficiency: Efficiency) -> Interval:
    """Return the hours of the whole run divided by its steady-state hours.

    It is 1 for a short run and approaches `efficiency.overhead` for one of weeks. Example: with 1.2 for weeks and half of it
    after 100 h, a run of 50 h takes 1.2 ^ (50 / 150) = 1.06 times as long.
    """
    grown = steady_hours / (steady_hours + efficiency.overhead_hours)
    weeks = efficiency.overhead
    return Interval(weeks.low**grown, weeks.expected**grown, weeks.high**grown)


def add_interruptions(
    quiet: Duration, interruptions_per_hour: Interval, *, restart_hours: float, checkpoint_every_hours: float
) -> Duration:
    """Return `quiet` with interruptions, each of which costs the restart and half a checkpoint interval."""
    lost_each = restart_hours + checkpoint_every_hours / 2
    factor = interruptions_per_hour.scale(lost_each).add(Interval.exactly(1.0))
    train = quiet.train_hours.multiply_independent(factor)
    lost = _subtract_to_zero(factor, 1.0).scale(quiet.train_hours.expected)
    return replace(
        quiet,
        hours=train.add(quiet.startup_hours),
        train_hours=train,
        parts=(*quiet.parts, ("interruptions", lost)),
    )


def compute_checkpoint_interval(interruptions_per_hour: float, write_hours: float) -> float:
    """Return the hours between checkpoints that lose the least time: sqrt(2 x write / rate) (Young 1974).

    Example: 0.05 interruptions per hour and 36 s to write give 0.63 h.
    """
    return math.sqrt(2 * write_hours / interruptions_per_hour)


def _subtract_to_zero(interval: Interval, x: float) -> Interval:
    """Return `interval` - x, at least 0."""
    return Interval(max(0.0, interval.low - x), max(0.0, interval.expected - x), max(0.0, interval.high - x))


def compute_job_speed(job: Job, placement: Placement, efficiency: Efficiency) -> Throughput | None:
    """Return the tokens of the job per second per GPU; None if no arithmetic rate of the GPU is known."""
    if job.beside is None:
        p = placement
        return compute_throughput(
            job.architecture,
            p.recipe,
            p.parallel,
            p.gpu,
            gpus=p.gpus,
            nodes=p.nodes,
            efficiency=efficiency,
            network=p.network,
        )
    from costguard.sizing.speed.preference import compute_preference_speed

    return compute_preference_speed(job.architecture, job.beside, placement, efficiency)


def compute_job_startup(job: Job, *, booted: bool = False) -> Interval:
    """Return the hours from the order to the first step, including the download of companions' weights.

    `booted`: the machine is running already.
    """
    companions = job.beside.list_with_weights(job.recipe) if job.beside else ()
    boot = Interval.exactly(0.0) if booted else BOOT_HOURS
    return compute_startup(job.architecture, *(c.architecture for c in companions), boot=boot)


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionRate:
    """Interruptions of a provider's spot machines.

    `per_hour`: interruptions per instance-hour. `restart_hours`: hours until the run computes again.
    """

    per_hour: Interval
    restart_hours: float
    source: str = ""


def read_interruptions(rows: Iterable[Mapping[str, str]]) -> dict[str, InterruptionRate]:
    """Return the rate of each provider from `interruptions.csv`; `*` applies to every provider without a row."""
    return {
        row["provider"]: InterruptionRate(
            per_hour=Interval(*(float(row[f"{end}_per_hour"]) for end in ("low", "expected", "high"))),
            restart_hours=float(row["restart_minutes"]) / 60,
            source=f"{row['source']}, {row['observed_on']}",
        )
        for row in rows
    }
