"""Speed and hours of published runs: with the shipped constants, with constants fitted to other sources only, and by peers.

Leaving one source out means everything: weights, evidence, spread and whole-run overhead come from the other sources, and
then the shipped code (`costguard.sizing.speed.throughput`, `duration`) predicts the source that was left out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from bench.cases import run_case
from bench.predictions import HOURS, SPEED, timed
from bench.published import FACTS, ROWS_OF, Row
from bench.scores import Scored, attempted, number
from costguard.sizing.speed.efficiency import Efficiency
from costguard.sizing.speed.flops import count_flops_per_token
from costguard.values.interval import Interval
from scripts import fit_efficiency as fitting
from scripts import published_runs
from scripts.efficiency_report import likely_cause

TERA = 1e12
THUMB, LLM_ANALYSIS = 0.4, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A row, its measured values and the sample that a fit takes from it (None where no speed was published)."""

    row: Row
    run: published_runs.Run
    sample: fitting.Sample | None

    @property
    def source(self) -> str:
        """Who published it."""
        return self.run.source


def measured(rows: Iterable[Row]) -> list[Measured]:
    """Every row that can be read, with what was measured."""
    return [found for row in rows if (found := attempted(_measured, row)) is not None]


def _measured(row: Row) -> Measured:
    plain = run_case(row)
    full = {name: row.get(name, "") for name in ("tflops_per_gpu", "tflops_kind", "total_params")}
    stated = number(row, SPEED)
    speed = stated or published_runs.speed_from_tflops(full, plain.architecture, plain.recipe)
    run = replace(plain, tokens_per_s_per_gpu=speed, stated=stated is not None, gpu_hours=number(row, HOURS))
    return Measured(row=row, run=run, sample=fitting.sample(run) if speed else None)


def by_shipped(found: list[Measured]) -> tuple[list[Scored], list[Scored]]:
    """Speeds and hours with the shipped constants, which were fitted to these very rows."""
    return _scored(found, dict.fromkeys({m.source for m in found}, FACTS.get_efficiency()), {})


def by_others(found: list[Measured]) -> tuple[list[Scored], list[Scored]]:
    """Speeds and hours with constants fitted without the row's own source; nothing of a single source."""
    samples = [m.sample for m in found if m.sample]
    if len({s.source for s in samples}) < 2:
        return [], []
    held_out = fitting.leave_one_source_out(samples)
    causes = {e.sample.run.name: likely_cause(e) for e in held_out}
    sources = {m.source for m in found}
    return _scored(found, {source: _without(source, found, held_out) for source in sources}, causes)


def _without(source: str, found: list[Measured], held_out: list[fitting.Error]) -> Efficiency:
    """The shipped constants, refitted to every other source."""
    others = [m for m in found if m.source != source]
    samples = [m.sample for m in others if m.sample]
    weights = fitting.fit(samples)
    spread = fitting.calibrated([e for e in held_out if e.sample.source != source])
    lost = attempted(partial(fitting.overhead, weights=weights, spread=spread), [m.run for m in others])
    shipped = FACTS.get_efficiency()
    return replace(
        shipped,
        weights=weights,
        evidence=fitting.seen_in(samples),
        spread=spread,
        overhead=_ends(lost) if lost else shipped.overhead,
    )


def _ends(lost: Mapping[str, Mapping[str, object]]) -> Interval:
    return Interval(*(float(str(lost[end]["value"])) for end in ("low", "expected", "high")))


def _scored(
    found: list[Measured], constants: Mapping[str, Efficiency], causes: Mapping[str, str]
) -> tuple[list[Scored], list[Scored]]:
    speeds, hours = [], []
    for m in found:
        said = attempted(partial(timed, efficiency=constants[m.source]), m.row)
        if said is None:
            continue
        cause = causes.get(m.run.name, "")
        if m.run.tokens_per_s_per_gpu:
            speeds.append(_one(m, said.speed, m.run.tokens_per_s_per_gpu, cause))
        if m.run.gpu_hours and said.hours:
            hours.append(_one(m, said.hours, m.run.gpu_hours, cause))
    return speeds, hours


def _one(m: Measured, said: Interval, truth: float, cause: str) -> Scored:
    return Scored(
        id=m.run.name,
        source=m.source,
        found=said.expected,
        measured=truth,
        low=said.low,
        high=said.high,
        enough=m.run.stated,
        cause=cause,
        rows_of=m.row.get(ROWS_OF, ""),
    )


def by_peers(found: list[Measured]) -> dict[str, list[Scored]]:
    """The same rows by formulas of others."""
    return {
        "6ND at 40 % of dense bf16 peak": _by_rate(found, {m.run.name: thumb(m.run) for m in found}),
        "llm-analysis at its suggested 0.5": _by_rate(found, {m.run.name: llm_analysis(m.run) for m in found}),
        "class-median efficiency, fitted on these rows": _by_rate(found, class_median(found, own_source=True)),
        "class-median efficiency of other sources": _by_rate(found, class_median(found, own_source=False)),
    }


def thumb(run: published_runs.Run) -> float:
    """6 FLOPs a parameter and token at 40 % of the dense 16-bit peak."""
    return THUMB * (run.gpu.bf16_tflops or 0) * TERA / (6 * run.architecture.active_parameters)


def llm_analysis(run: published_runs.Run) -> float:
    """Forward FLOPs with attention in full, backward twice that, recomputation, at half the dense 16-bit peak.

    Half the fp8 peak, which it would take for fp8 runs, is further off (p90 143 % on the given rows, 62 % so).
    """
    flops = count_flops_per_token(run.architecture, run.recipe)
    again = {"none": 0.0, "selective": 2 * flops.attention * flops.forward, "full": flops.forward * (1 + flops.attention)}
    work = 3 * flops.forward * (1 + flops.attention) + again[run.recipe.checkpointing]
    return LLM_ANALYSIS * (run.gpu.bf16_tflops or 0) * TERA / work


def class_median(found: list[Measured], *, own_source: bool) -> dict[str, float]:
    """Peak times the median share of it that the same generation of GPU reached for the same kind of job."""
    speeds: dict[str, float] = {}
    for m in found:
        others = [x for x in found if (own_source or x.source != m.source) and x.run.tokens_per_s_per_gpu]
        alike = [x for x in others if _class(x) == _class(m)] or others
        if alike:
            shares = [(x.run.tokens_per_s_per_gpu or 0) / thumb(x.run) for x in alike if thumb(x.run)]
            speeds[m.run.name] = thumb(m.run) * statistics.median(shares) if shares else 0.0
    return speeds


def _class(m: Measured) -> tuple[str, bool, str]:
    return m.run.gpu.arch, m.run.recipe.adapters, m.run.recipe.precision


def _by_rate(found: list[Measured], rates: Mapping[str, float]) -> list[Scored]:
    return [
        Scored(
            id=m.run.name,
            source=m.source,
            found=rates[m.run.name],
            measured=m.run.tokens_per_s_per_gpu,
            rows_of=m.row.get(ROWS_OF, ""),
        )
        for m in found
        if m.run.tokens_per_s_per_gpu and rates.get(m.run.name) and math.isfinite(rates[m.run.name])
    ]
