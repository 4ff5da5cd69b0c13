"""Fit the constants of `costguard/data/efficiency.json` to published runs, and say how good they are. Standard library only.

    python scripts/fit_efficiency.py GPUS.csv RUNS.csv [RUNS.csv ...] [--write costguard/data/efficiency.json]

    seconds per token = arithmetic / exp(sum of weight x share) + sum of weight x seconds
    log rate = -log(seconds per token) + sum of weight x factor,   components as in `costguard/sizing/speed/step_time.py`

Each weight has a prior, what physics or the literature suggests, and the fit moves it only as far as the rows insist: least
squares of the log errors with Huber's weights, by Gauss-Newton. Weights of seconds are fitted in the log, so none becomes
negative. A source with n rows counts as n ** 0.25 rows. Intervals and accuracy come from leaving one source out, each source
alike: see `scripts/conformal.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))


from costguard.sizing.speed.efficiency import OF_CARD, UNKNOWN_FAMILY, GpuFamily, SpeedSpread, StepConstants
from costguard.sizing.speed.flops import PeakRate, count_work, find_peak_rate
from costguard.sizing.speed.step_time import StepCosts, StepSetting, compute_costs
from costguard.sizing.speed.throughput import list_evidence_names, list_factors
from scripts import published_runs as published
from scripts.conformal import (
    COVERED,
    SourceScore,
    compute_conformal_width,
    compute_source_quantile,
    compute_weighted_quantile,
)
from scripts.efficiency_priors import ACHIEVED, FAMILY_PRIOR, FULL_POWER, PHYSICS, PRIORS, Prior

Weights = dict[str, float]

SOURCE_POWER = 0.75
"""A row of a source with n rows weighs n ** -SOURCE_POWER: one large table does not outvote the rest."""
ROUNDS, MOST_STEP = 30, 0.5
USUAL_ERROR = 0.2
LONG_RUN_HOURS, HALF_HOURS = 48, 100.0
TAIL = (1 - COVERED) / 2
FACTORS = {"mixture": 2.0, "host": 1.3, "new_card": 1.5, "new_kind": 2.0}
"""How much wider the interval of a class is. Chosen so that each class is held alike, 81-89 %, when its source is left out:
with three to five sources a class, a factor computed from them changes by a half with each source."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A run with a measured speed.

    `names`: its components, card and library. `log_rate`: log of the measured tokens a second.
    """

    run: published.Run
    costs: StepCosts
    names: tuple[str, ...]
    log_rate: float

    @property
    def source(self) -> str:
        """Whose table the run stands in."""
        return self.run.source


@dataclass(frozen=True, slots=True)
class Error:
    """log(predicted / measured) of one sample, and which of its names no row that was fitted on had."""

    sample: Sample
    log: float
    missing: tuple[str, ...]

    @property
    def relative(self) -> float:
        """|predicted / measured - 1|."""
        return abs(math.expm1(self.log))

    @property
    def classes(self) -> tuple[str, ...]:
        """Those of FACTORS that widen the sample's interval."""
        found: list[str] = [name for name in ("mixture", "host") if name in self.sample.names]
        if any(not name.startswith(OF_CARD) for name in self.missing):
            found.append("new_kind")
        elif self.missing:
            found.append("new_card")
        return tuple(found)


def main() -> None:
    """Fit, report, and write the file if asked."""
    from scripts.efficiency_report import report

    asked = arguments()
    gpus = published.gpus(asked.gpus)
    runs = [run for path in asked.runs for run in published.runs(path, gpus)]
    samples = [sample(r) for r in runs if r.tokens_per_s_per_gpu]
    held_out = leave_one_source_out(samples)
    print(report(samples, runs, held_out))
    if asked.write:
        names = [path.name for path in asked.runs]
        asked.write.write_text(json.dumps(constants(samples, runs, held_out, names), indent=2) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpus", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--write", type=Path, help="the file of constants to write")
    return parser.parse_args()


def constants(
    samples: list[Sample], runs: list[published.Run], held_out: list[Error], names: Sequence[str] = ()
) -> dict[str, object]:
    """The whole file. `names`: of the files that hold the rows."""
    weights = fit(samples)
    spread, evidence = calibrated(held_out), seen_in(samples)
    return {
        "schema": "costguard.efficiency/2",
        "description": "Constants that turn peak FLOPs into tokens a second; see speed/efficiency.py. Do not edit: refit.",
        "made_by": f"scripts/fit_efficiency.py from data/sizing: {', '.join(names)}",
        "rows": len(samples),
        "sources": len({s.source for s in samples}),
        "accuracy": {"in_sample": accuracy(errors(samples, weights, evidence)), "leave_one_source_out": accuracy(held_out)},
        "weights": {name: entry(w, prior(name).why) for name, w in weights.items()},
        "evidence": dict(sorted(evidence.items())),
        "physics": {name: entry(value, why) for name, (value, why) in PHYSICS.items()},
        "full_power": {name: entry(value, "W per dense 16-bit TFLOPS: " + why) for name, (value, why) in FULL_POWER.items()},
        "achieved_share": {name: entry(value, why) for name, (value, why) in ACHIEVED.items()},
        "spread": {
            "dense": entry(
                spread.dense, "log half-width of the 80 % interval: a dense model, a card and a library of published runs"
            ),
            "mixture": entry(spread.mixture, "times the width: mixtures"),
            "host": entry(spread.host, "times the width: offload to the host"),
            "new_card": entry(spread.new_card, "times the width: no published run used the card or the library"),
            "new_kind": entry(spread.new_kind, "times the width: nor its generation, or a component of the job is in none"),
        },
        "overhead": overhead(runs, weights, spread),
        "serving": {
            "bandwidth_share": entry(0.85, SERVED),
            "compute_share": entry(0.55, SERVED),
            "mixture_compute_share": entry(0.25, SERVED),
            "layer_s": entry(1e-4, SERVED),
            "factor": entry(1.6, "half-width of the 80 % interval, as a factor: the worst of four sources, each held out"),
            "mixture_factor": entry(2.2, "the same of mixtures: the worst of two sources, each held out"),
        },
    }


SERVED = "fitted to published servers, each source alike (bench/serving.py, decision 0049)"


def entry(value: float, why: str) -> dict[str, object]:
    """A documented figure, to six digits: refitting on another machine gives the same file."""
    return {"value": float(f"{value:.6g}"), "why": why}


def sample(run: published.Run) -> Sample:
    """The components of a run, and its measured speed."""
    costs = costs_of(run)
    return Sample(run, costs, names_of(run, costs), math.log(run.tokens_per_s_per_gpu or 1))


def costs_of(run: published.Run) -> StepCosts:
    """As `costguard.sizing.speed.throughput` sees them."""
    return compute_costs(setting_of(run), physics(), family(run.gpu.arch))


def names_of(run: published.Run, costs: StepCosts) -> tuple[str, ...]:
    """What the run shares with others: components, card and library."""
    sampled = run.architecture.sample_tokens is not None
    return list_evidence_names(costs.names, run.recipe, run.gpu.name, sampled=sampled)


def setting_of(run: published.Run) -> StepSetting:
    """The run as the job that `costguard.sizing.speed.throughput` times."""
    return StepSetting(
        work=count_work(run.architecture, run.recipe),
        recipe=run.recipe,
        parallel=run.parallel,
        gpu=run.gpu,
        gpus=run.gpus,
        nodes=run.nodes,
        top=top_of(run),
    )


def top_of(run: published.Run) -> PeakRate:
    """The peak rates of the run's GPU."""
    top = find_peak_rate(run.recipe, run.gpu)
    if top is None:
        raise SystemExit(f"{run.name}: the rate of {run.gpu.name} is unknown")
    return top


def physics() -> StepConstants:
    """The constants of the components."""
    return StepConstants(**{name: value for name, (value, _) in PHYSICS.items()})


def family(arch: str) -> GpuFamily:
    """The longest prefix that fits."""
    fitting = [p for p in FULL_POWER if arch.startswith(p)]
    best = max(fitting, key=len, default=None)
    if best is None:
        return UNKNOWN_FAMILY
    return GpuFamily(prefix=best, full_power_w_per_tflops=FULL_POWER[best][0], achieved_share=ACHIEVED[best][0])


def prior(name: str) -> Prior:
    """What is believed of a weight before any row is seen."""
    return PRIORS.get(name, FAMILY_PRIOR)


def fit(samples: list[Sample]) -> Weights:
    """Least squares towards the priors: a row USUAL_ERROR off counts in full, one twice as far off by half."""
    names = list(dict.fromkeys([*PRIORS, *(n for s in samples for n in s.costs.shares)]))
    rows = Counter(s.source for s in samples)
    trust = [rows[s.source] ** -SOURCE_POWER for s in samples]
    at = {name: prior(name).start for name in names}
    for _ in range(ROUNDS):
        step = _solve(*_build_normal_equations(samples, trust, names, at))
        largest = max(map(abs, step), default=0.0)
        shorter = min(1.0, MOST_STEP / largest) if largest else 0.0
        at = {name: at[name] + shorter * x for name, x in zip(names, step, strict=True)}
    return {name: prior(name).to_weight(at[name]) for name in names}


def _build_normal_equations(
    samples: list[Sample], trust: list[float], names: list[str], at: Weights
) -> tuple[list[list[float]], list[float]]:
    """The Gauss-Newton step's matrix and right side, with the priors as rows of their own."""
    place, size = {name: i for i, name in enumerate(names)}, len(names)
    matrix = [[0.0] * size for _ in range(size)]
    right = [0.0] * size
    for s, counted in zip(samples, trust, strict=True):
        said, slopes = _predict_with_slopes(s.costs, at)
        off = s.log_rate - said
        weight = counted * min(1.0, USUAL_ERROR / max(abs(off), 1e-9)) / USUAL_ERROR**2
        moved = [(place[name], slope) for name, slope in slopes if slope]
        for i, a in moved:
            right[i] += weight * a * off
            row = matrix[i]
            for j, b in moved:
                row[j] += weight * a * b
    for name, i in place.items():
        p = prior(name)
        matrix[i][i] += 1 / p.sd**2
        right[i] += (p.start - at[name]) / p.sd**2
    return matrix, right


def _predict_with_slopes(costs: StepCosts, at: Weights) -> tuple[float, list[tuple[str, float]]]:
    """Log rate, and its derivative by each parameter that concerns the job."""
    weights = {name: prior(name).to_weight(x) for name, x in at.items()}
    share = sum(weights[name] * x for name, x in costs.shares.items())
    multiplied = costs.arithmetic * math.exp(-share)
    added = {name: weights[name] * x for name, x in costs.seconds.items() if x}
    spent = multiplied + sum(added.values())
    slopes = [(name, x * multiplied / spent) for name, x in costs.shares.items()]
    slopes += [(name, -x / spent) for name, x in added.items()]
    slopes += list(costs.factors.items())
    return -math.log(spent) + sum(weights[name] * x for name, x in costs.factors.items()), slopes


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss elimination; the priors make the matrix positive definite."""
    size = len(right)
    rows = [[*matrix[i], right[i]] for i in range(size)]
    for i in range(size):
        for j in range(i + 1, size):
            factor = rows[j][i] / rows[i][i]
            if factor:
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (rows[i][size] - sum(rows[i][j] * found[j] for j in range(i + 1, size))) / rows[i][i]
    return found


def predicted(costs: StepCosts, weights: Weights) -> float:
    """Log of tokens a second per GPU, as `costguard.sizing.speed.throughput` computes it."""
    return -math.log(costs.arithmetic) + sum(math.log(factor) for _, factor in list_factors(costs, weights))


def errors(samples: Iterable[Sample], weights: Weights, evidence: Counter[str]) -> list[Error]:
    """Each sample's error under `weights`."""
    return [Error(s, predicted(s.costs, weights) - s.log_rate, tuple(n for n in s.names if not evidence[n])) for s in samples]


def seen_in(samples: Iterable[Sample]) -> Counter[str]:
    """Name -> sources that have it."""
    return Counter(MEASURED_APART) + Counter(name for name, _ in {(name, s.source) for s in samples for name in s.names})


MEASURED_APART = {"adapters": 1}
"""Components that runs outside the fit were measured with: `bench/card.csv`, whose figures the constant itself was read off."""


def leave_one_source_out(samples: list[Sample]) -> list[Error]:
    """Each source predicted from all the others."""
    found = []
    for source in dict.fromkeys(s.source for s in samples):
        others = [s for s in samples if s.source != source]
        found += errors((s for s in samples if s.source == source), fit(others), seen_in(others))
    return found


def calibrated(held_out: list[Error]) -> SpeedSpread:
    """The width that holds COVERED of the errors on unseen sources, each divided by the factors of its classes."""
    scores = [SourceScore(e.sample.source, abs(e.log) / factor_of(e)) for e in held_out]
    return SpeedSpread(dense=UNSEEN * compute_conformal_width(scores), **FACTORS)


UNSEEN = 1.5
"""How much wider than these errors say, since the components of a step were chosen with these rows in view.

Of facts from ten public reports that nobody had seen, the width without it held 59 %, with it 74 % (2026-11)."""


def factor_of(e: Error) -> float:
    """How much wider the interval of a row is than that of a plain one."""
    return math.prod(FACTORS[name] for name in e.classes)


def half_width(e: Error, spread: SpeedSpread) -> float:
    """The log half-width of the interval of a row."""
    return spread.dense * factor_of(e)


def overhead(runs: list[published.Run], weights: Weights, spread: SpeedSpread) -> dict[str, dict[str, object]]:
    """What a long run takes over its predicted steady state, and the interval around it that its speed does not explain."""
    ratios: dict[str, list[float]] = {}
    for run in runs:
        if run.tokens and run.gpu_hours and not run.tokens_per_s_per_gpu and run.gpu_hours / run.gpus >= LONG_RUN_HOURS:
            steady = run.tokens / math.exp(predicted(costs_of(run), weights)) / 3600
            come = steady / run.gpus / (steady / run.gpus + HALF_HOURS)
            ratios.setdefault(run.source, []).append(math.log(run.gpu_hours / steady) / come)
    rows = [(ratio, 1 / len(found)) for found in ratios.values() for ratio in found]
    expected = max(0.0, statistics.median(statistics.median(r) for r in ratios.values()))
    down, up = expected - compute_weighted_quantile(rows, TAIL), compute_weighted_quantile(rows, 1 - TAIL) - expected
    low, high = (math.sqrt(max(0.0, x * abs(x) - (spread.dense / UNSEEN) ** 2)) for x in (down, up))
    beyond = f"{len(rows)} long runs, less the spread of their speed (in quadrature)"
    return {
        "low": entry(math.exp(expected - low), f"one in ten of {beyond}; below 1 where little is said of how a run was made"),
        "expected": entry(math.exp(expected), "median source: restarts, evaluation, changes of plan"),
        "high": entry(math.exp(expected + high), f"nine in ten of {beyond}"),
        "half_hours": entry(
            HALF_HOURS, "steady hours at which half of it (of its log) has come: runs of a day show none, of weeks all"
        ),
    }


def accuracy(found: list[Error]) -> dict[str, float]:
    """Median and 90th percentile of the absolute error, and the share within a quarter; each source alike."""
    scores = [SourceScore(e.sample.source, e.relative) for e in found]
    rows = Counter(s.source for s in scores)
    within = sum((s.score <= 0.25) / rows[s.source] for s in scores) / len(rows)
    figures = {
        "median": compute_source_quantile(scores, 0.5),
        "p90": compute_source_quantile(scores, 0.9),
        "within_25_percent": within,
    }
    return {name: round(x, 4) for name, x in figures.items()}


def quantile(values: list[float], q: float) -> float:
    """The value below which a share `q` lies, between neighbours in proportion."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def share(values: list[float], true: Callable[[float], bool]) -> float:
    """Share of `values` for which `true` holds."""
    return sum(map(true, values)) / len(values)


if __name__ == "__main__":
    main()
