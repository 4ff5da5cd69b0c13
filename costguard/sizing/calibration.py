"""Calibration: observed runs shift the expected speed and memory of their family, with shrinkage.

A family is the kind of GPU, the method, the size of the model, and whether the job uses one GPU, one machine or several. The
error of a prediction has one part that all runs of the family share and one part of each run; each part has half of the
variance (`SHARED_VARIANCE`). With variances t (shared) and s (of one run), n runs whose mean log ratio of observed to expected
is m move the expectation by n t / (n t + s) of m: one run by half of m, four runs by four fifths.

Example: the model's interval is a factor 1.21 (log half-width 0.19), so t = s = (0.19 / 1.2816)^2 / 2 = 0.0110. Four runs reach
0.80, 0.82, 0.78 and 0.81 of the expected speed: m = -0.221. They agree, so s falls to 0.0065. The weight is 4 t / (4 t + s) =
0.87; the expectation is multiplied by exp(-0.192) = 0.825, and the half-width becomes 0.118 instead of 0.19. A fifth run at
0.40 is cut off at 1.5 usual scatters from the median and changes the factor to 0.803; the plain mean would give 0.70.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from costguard.sizing.architecture import Architecture
from costguard.sizing.job import Job
from costguard.sizing.memory.footprint import Footprint, MemoryPhase, TermExplanation
from costguard.sizing.memory.interval import PEAK_SPREAD
from costguard.sizing.memory.phases import build_phase
from costguard.sizing.speed.throughput import Throughput
from costguard.values.gpu import Gpu
from costguard.values.interval import Interval

HALF_WIDTH_80 = 1.2816
"""Standard deviations from the middle to the end of an 80 % interval."""

SHARED_VARIANCE = 0.5
"""Of the variance of a speed's error, what the runs of a family share: 0.36 over published runs of 76 families of one source
each, predicted without that source (intraclass correlation), and 0.54 before the model of a step was additive. With a half,
calibrated intervals cover 81 % of those runs (scripts/check_calibration.py, 2026-11; decision 0010)."""

MEMORY_SPREAD = PEAK_SPREAD.one_gpu
"""Log half-width of the 80 % interval of a peak on one GPU."""

SCATTER_RUNS = 4
"""Runs that the usual scatter counts for when a family's own scatter is estimated."""

FAR_SCATTERS = 1.5
"""Usual scatters from the median at which a run's pull stops growing (Huber's 1.5)."""

SIZES = ((1e9, "under 1B"), (4e9, "1B to 4B"), (16e9, "4B to 16B"), (64e9, "16B to 64B"), (math.inf, "64B and more"))
"""Parameters below which a model is of this size."""

ANY = "any"


class RunFamily(NamedTuple):
    """A group of jobs whose predictions have correlated errors.

    `measure`: "speed" or "memory". Memory does not depend on `chip` or `reach`.
    """

    measure: str
    method: str
    size: str
    chip: str = ANY
    reach: str = ANY

    @property
    def text(self) -> str:
        """Return the family as readable text: `full, 4B to 16B, Ampere GA100, one machine`."""
        return ", ".join(part for part in (self.method, self.size, self.chip, self.reach) if part != ANY)


class FamilyEstimate(NamedTuple):
    """The error estimated from the runs of one family.

    `runs`: their number. `mean`: mean of log(observed / expected), with outliers cut off. `variance`: variance of one run
    around it. `scatter`: log distance from `mean` that contains four of five runs. `usual`: the assumed variance before any run
    was observed.

    This is a NamedTuple, like RunFamily: a dataclass takes half a millisecond to define, which would slow down each quote.
    """

    runs: int
    mean: float
    variance: float
    scatter: float
    usual: float

    def shift(self, half_width: float) -> tuple[float, float]:
        """Return (log shift, new log half-width) for a prediction with this 80 % log half-width."""
        shared = max((half_width / HALF_WIDTH_80) ** 2 - self.usual, self.usual)
        weight = self.runs * shared / (self.runs * shared + self.variance)
        surprise = (1 - weight) ** 2 * max(0.0, self.mean**2 - shared)
        spread = math.sqrt(shared * (1 - weight) + self.variance + surprise)
        return weight * self.mean, max(HALF_WIDTH_80 * spread, self.scatter)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedFootprint(Footprint):
    """A footprint whose peak was shifted by `runs` observed runs.

    `plain`: the footprint as computed.
    """

    plain: Footprint
    runs: int

    @property
    def note(self) -> str:
        """Return a sentence that describes the calibration: the number of runs and the factor."""
        return f"memory calibrated on {_format_runs(self.runs)}: peak x {self.peak / self.plain.peak:.3f}"

    def explain(self) -> tuple[TermExplanation, ...]:
        """Return every computed term, then the bytes that calibration adds."""
        *terms, context, _ = self.plain.explain()
        added = TermExplanation("calibration", self.peak - self.plain.peak, self.note, "costguard calibrate --show")
        return (*terms, added, context, Footprint.explain(self)[-1])


class Calibration:
    """The estimates of all families, by family; a family without an estimate is not shifted."""

    __slots__ = ("beliefs",)

    def __init__(self, beliefs: Mapping[RunFamily, FamilyEstimate]) -> None:
        self.beliefs = beliefs

    def calibrate_speed(self, throughput: Throughput, job: Job, gpu: Gpu, *, gpus: int, nodes: int) -> Throughput:
        """Return `throughput`, shifted by the estimate of its family."""
        belief = self.beliefs.get(get_speed_family(job, gpu, gpus=gpus, nodes=nodes))
        if belief is None:
            return throughput
        rate = throughput.tokens_per_s_per_gpu
        shift, half_width = belief.shift(compute_half_width(rate))
        factor = math.exp(shift)
        prefill = throughput.prefill_tokens_per_s_per_gpu
        reason = f"calibrated on {_format_runs(belief.runs)}"
        return replace(
            throughput,
            tokens_per_s_per_gpu=Interval.around(rate.expected * factor, math.exp(half_width)),
            efficiency=throughput.efficiency * factor,
            reasons=(*throughput.reasons, (reason, factor)),
            notes=(*throughput.notes, f"{reason}: speed x {factor:.3f}"),
            prefill_tokens_per_s_per_gpu=None if prefill is None else prefill * factor,
        )

    def calibrate_memory(self, footprint: Footprint, job: Job) -> Footprint:
        """Return `footprint`, with every phase shifted by the estimate of its family."""
        belief = self.beliefs.get(get_memory_family(job))
        if belief is None:
            return footprint
        factor = math.exp(belief.shift(MEMORY_SPREAD)[0])
        phases = tuple(_shift_phase(phase, factor) for phase in footprint.phases)
        return CalibratedFootprint(
            phases=phases,
            worst=phases[footprint.phases.index(footprint.worst)],
            context=footprint.context,
            host_bytes=footprint.host_bytes,
            basis=footprint.basis,
            plain=footprint,
            runs=belief.runs,
        )

    def list_notes(self, footprint: Footprint) -> tuple[str, ...]:
        """Return the calibration note of `footprint`; empty if it is not calibrated."""
        return (footprint.note,) if isinstance(footprint, CalibratedFootprint) else ()


def estimate_family(log_ratios: Sequence[float], usual: float) -> FamilyEstimate:
    """Return the estimate from `log_ratios`, the log(observed / expected) of each run in any order.

    `usual`: the assumed variance of one run of a family.
    """
    ratios = sorted(log_ratios)
    middle, reach = (ratios[(len(ratios) - 1) // 2] + ratios[len(ratios) // 2]) / 2, FAR_SCATTERS * math.sqrt(usual)
    clipped_ratios = [min(max(x, middle - reach), middle + reach) for x in ratios]
    mean = math.fsum(clipped_ratios) / len(clipped_ratios)
    around = math.fsum((x - mean) ** 2 for x in clipped_ratios)
    distances = sorted(abs(x - mean) for x in ratios)
    return FamilyEstimate(
        runs=len(ratios),
        mean=mean,
        variance=(SCATTER_RUNS * usual + around) / (SCATTER_RUNS + len(ratios) - 1),
        scatter=distances[-(-4 * len(ratios) // 5) - 1],
        usual=usual,
    )


def compute_usual_variance(half_width: float) -> float:
    """Return the variance of a run around its family for predictions with this 80 % log half-width."""
    return (1 - SHARED_VARIANCE) * (half_width / HALF_WIDTH_80) ** 2


def get_speed_family(job: Job, gpu: Gpu, *, gpus: int, nodes: int) -> RunFamily:
    """Return the family of the job's speed."""
    reach = "one GPU" if gpus == 1 else "one machine" if nodes == 1 else "several machines"
    return RunFamily(measure="speed", method=_name_method(job), size=_name_size(job.architecture), chip=gpu.arch, reach=reach)


def get_memory_family(job: Job) -> RunFamily:
    """Return the family of the job's peak memory."""
    return RunFamily(measure="memory", method=_name_method(job), size=_name_size(job.architecture))


def compute_half_width(interval: Interval) -> float:
    """Return the log half-width of `interval`: half of log(high / low)."""
    return math.log(interval.high / interval.low) / 2


def _name_method(job: Job) -> str:
    """Return the method name of the family.

    `pretrain` counts as `full`, because both do the same work. Preference training adds its algorithm, because it does other
    work.
    """
    method = "full" if job.recipe.method == "pretrain" else job.recipe.method
    return f"{job.beside.algorithm} {method}" if job.beside else method


def _name_size(architecture: Architecture) -> str:
    return next(name for below, name in SIZES if architecture.parameters < below)


def _shift_phase(phase: MemoryPhase, factor: float) -> MemoryPhase:
    """Return `phase` with its total multiplied by `factor`.

    An increase is added to buffers. A decrease is subtracted from the least certain terms first (activations, logits, buffers),
    and from gradients, optimizer states and weights last.
    """
    change = int(phase.total * factor) - phase.total
    terms = dict(phase.terms)
    if change > 0:
        terms["buffers"] += change
    for term in ("activations", "logits", "buffers", "gradients", "optimizer", "weights"):
        reduction = min(terms[term], max(-change, 0))
        terms[term] -= reduction
        change += reduction
    return build_phase(phase.name, **terms)


def _format_runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
