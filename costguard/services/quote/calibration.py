"""Calibrate: compare observed runs with their predictions, and update the correction of each family of jobs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from costguard.errors import InputError
from costguard.sizing.calibration import get_memory_family, get_speed_family
from costguard.sizing.job import Table
from costguard.sizing.memory.footprint import Footprint
from costguard.sizing.observed_runs import (
    CalibrationAnswer,
    FigureComparison,
    ObservedRun,
    RunComparison,
    find_contradiction,
    weigh_runs,
)
from costguard.sizing.placement import ImpossiblePlacement, Placement, Placer
from costguard.sizing.speed.duration import compute_duration, compute_job_speed
from costguard.values.gpu import GIB
from costguard.values.interval import Interval

if TYPE_CHECKING:  # types and no more
    from costguard.data import ShippedFacts

RunsReader = Callable[[list[tuple[str, Table]]], tuple[ObservedRun, ...]]


def calibrate_runs(
    fresh: Iterable[ObservedRun],
    *,
    stored_runs: Iterable[ObservedRun] = (),
    facts: ShippedFacts,
    file: str = "",
    warnings: tuple[str, ...] = (),
) -> CalibrationAnswer:
    """Return how `fresh` runs and those already `stored_runs` in `file` change future quotes. Their order does not matter."""
    stored_runs, fresh = list(stored_runs), list(fresh)
    runs = _drop_repeats((*stored_runs, *fresh))
    spread = facts.get_efficiency().spread.dense
    weighed_runs = weigh_runs((compare_with_quote(run, facts) for run in runs), spread_seen=spread)
    new = len(runs) - len(_drop_repeats(stored_runs))
    twice = len(stored_runs) + len(fresh) - len(runs)
    notes = (f"{twice} duplicate rows were counted once: give different runs different names",) if twice else ()
    return CalibrationAnswer(
        file=file,
        runs=tuple(run.table for run in runs),
        new=new,
        weighed=weighed_runs,
        spread=spread,
        warnings=(*warnings, *notes, *_warn_of_assumptions(fresh), *(out.text for out in weighed_runs.left_out)),
    )


def reread_kept_runs(tables: Iterable[Table], read: RunsReader) -> tuple[tuple[ObservedRun, ...], tuple[str, ...]]:
    """Return the kept runs, and a warning for each that is no longer readable (config.json missing, renamed model)."""
    runs: list[ObservedRun] = []
    broken: list[str] = []
    for number, table in enumerate(tables, 1):
        try:
            runs += read([(f"kept run {number}", table)])
        except InputError as wrong:
            broken.append(f"dropped, because it can no longer be read: {wrong.field}: {wrong.what}")
    return tuple(runs), tuple(broken)


def _drop_repeats(runs: Iterable[ObservedRun]) -> tuple[ObservedRun, ...]:
    return tuple({repr(sorted(run.table.items())): run for run in runs}.values())


def _warn_of_assumptions(runs: Iterable[ObservedRun]) -> tuple[str, ...]:
    """Warn once, for all runs, of assumed fields, because they affect the predictions."""
    fields = Counter(f"{field} {value}" for run in runs for field, value in run.job.assumed)
    assumptions = ", ".join(f"{field} ({count} runs)" for field, count in fields.most_common())
    return (f"assumed, because not given: {assumptions}",) if assumptions else ()


def compare_with_quote(run: ObservedRun, facts: ShippedFacts) -> RunComparison:
    """Compare `run` with its uncalibrated quote."""
    placement = Placer(job=run.job).place(run.gpu, run.gpu_count, run.nodes)
    if isinstance(placement, ImpossiblePlacement):
        return RunComparison(
            run=run, speed=FigureComparison(wrong=placement.reason), memory=FigureComparison(wrong=placement.reason)
        )
    return RunComparison(run=run, speed=_compare_speed(run, placement, facts), memory=_compare_memory(run, placement.footprint))


def _compare_speed(run: ObservedRun, placement: Placement, facts: ShippedFacts) -> FigureComparison:
    """Compare the stated speed; if none is stated, the hours of the whole run."""
    if run.tokens_per_s is None and run.hours is None:
        return FigureComparison()
    job, efficiency = run.job, facts.get_efficiency()
    speed = compute_job_speed(job, placement, efficiency)
    if speed is None:
        return FigureComparison(wrong=f"no speed figure for {run.gpu.name} is known")
    ratios = {}
    if run.tokens_per_s is not None:
        ratios["tokens_per_s"] = math.log(run.tokens_per_s / (run.gpus * speed.tokens_per_s_per_gpu.expected))
    if run.hours is not None and job.computed_tokens is not None:
        took = compute_duration(
            job.computed_tokens, speed, gpus=run.gpus, startup_hours=Interval.exactly(0.0), efficiency=efficiency
        )
        ratios["hours"] = math.log(took.hours.expected / run.hours)
    wrong = find_contradiction(ratios)
    ratio = next(iter(ratios.values()))
    share = math.exp(ratio) * speed.efficiency
    if wrong is None and share > 1 and ratio > 0:
        wrong = f"{share:.1f} times the arithmetic that {run.gpu.name} can do"
    family = get_speed_family(job, run.gpu, gpus=run.gpus, nodes=run.nodes)
    return FigureComparison(family=family, ratio=ratio, wrong=wrong)


def _compare_memory(run: ObservedRun, need: Footprint) -> FigureComparison:
    """Compare the allocated peak; if it was not observed, the reserved memory."""
    observed, expected = (run.peak, need.peak) if run.peak is not None else (run.reserved, need.reserved)
    if observed is None:
        return FigureComparison()
    wrong, has = None, run.gpu.card_gib * GIB
    if max(observed, run.reserved or 0.0) > has:
        wrong = f"{max(observed, run.reserved or 0.0) / GIB:.1f} GiB are more than the {has / GIB:.1f} that {run.gpu.name} has"
    elif run.reserved is not None and run.reserved < observed:
        wrong = "less is reserved than allocated"
    return FigureComparison(family=get_memory_family(run.job), ratio=math.log(observed / expected), wrong=wrong)
