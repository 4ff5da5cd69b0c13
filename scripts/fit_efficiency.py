"""Fit the constants of `costguard/data/efficiency.json` to published runs, and say how good they are. Standard library only.

    python scripts/fit_efficiency.py RUNS.csv GPUS.csv [--write costguard/data/efficiency.json]

    log(measured / ideal tokens a second) = sum of weight x feature,   features as in `costguard/sizing/speed/throughput.py`

Ridge least squares towards a prior for each weight (what physics or the literature suggests), within bounds that keep
a cost from becoming a gain, so that combinations nobody has published stay sane. A source with n rows counts as
n ** 0.75 rows, and as n ** 0.25 in the width of intervals: a new source is what they are for. Intervals and accuracy
come from leaving one source out: each row is predicted from other people's runs.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))


from costguard.sizing.speed.efficiency import UNKNOWN_FAMILY, GpuFamily, StepConstants
from costguard.sizing.speed.flops import PeakRate, count_work, find_peak_rate
from costguard.sizing.speed.throughput import StepSetting, compute_arithmetic_seconds, compute_costs
from scripts import published_runs as published
from scripts.efficiency_priors import FAMILY_PRIOR, FULL_POWER, PHYSICS, PRIORS, Prior

Weights = dict[str, float]

SOURCE_POWER = 0.25
"""A row of a source with n rows weighs n ** -SOURCE_POWER: one large table does not outvote the rest."""
SPREAD_POWER = 0.75
SWEEPS = 150
ROBUST_ROUNDS, USUAL_ERROR = 6, 0.2
COVERED = 0.8
LONG_RUN_HOURS, HALF_HOURS = 48, 100.0
TAIL = (1 - COVERED) / 2


@dataclass(frozen=True, slots=True)
class Sample:
    """A run with a measured speed: features and log(measured / ideal)."""

    run: published.Run
    features: Mapping[str, float]
    log_share: float

    @property
    def source(self) -> str:
        """Whose table the run stands in."""
        return self.run.source


@dataclass(frozen=True, slots=True)
class Error:
    """log(predicted / measured) of one sample, and whether every feature of it was seen in the rows fitted on."""

    sample: Sample
    log: float
    seen: bool

    @property
    def relative(self) -> float:
        """|predicted / measured - 1|."""
        return abs(math.expm1(self.log))


@dataclass(frozen=True, slots=True)
class Spread:
    """Log half-widths of the interval: with evidence for every feature, and without."""

    seen: float
    unseen: float


def main() -> None:
    """Fit, report, and write the file if asked."""
    from scripts.efficiency_report import report

    asked = arguments()
    runs = published.runs(asked.runs, published.gpus(asked.gpus))
    samples = [sample(r) for r in runs if r.tokens_per_s_per_gpu]
    fitted = constants(samples, runs)
    print(report(samples, runs))
    if asked.write:
        asked.write.write_text(json.dumps(fitted, indent=2) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("gpus", type=Path)
    parser.add_argument("--write", type=Path, help="the file of constants to write")
    return parser.parse_args()


def constants(samples: list[Sample], runs: list[published.Run]) -> dict[str, object]:
    """The whole file."""
    weights = fit(samples)
    held_out = leave_one_source_out(samples)
    spread = calibrated(held_out)
    evidence = seen_in(samples)
    return {
        "schema": "costguard.efficiency/1",
        "description": "Constants that turn peak FLOPs into tokens a second; see speed/throughput.py. Do not edit: refit.",
        "made_by": "scripts/fit_efficiency.py from data/sizing/runs_dev.csv",
        "rows": len(samples),
        "accuracy": {"in_sample": accuracy(errors(samples, weights, evidence)), "leave_one_source_out": accuracy(held_out)},
        "weights": {name: entry(w, prior(name).why) for name, w in weights.items()},
        "evidence": {name: evidence[name] for name in weights},
        "physics": {name: entry(value, why) for name, (value, why) in PHYSICS.items()},
        "full_power": {name: entry(value, "W per dense 16-bit TFLOPS: " + why) for name, (value, why) in FULL_POWER.items()},
        "spread": {
            "seen": entry(spread.seen, "log half-width of the 80 % interval, every feature seen in published runs"),
            "unseen": entry(spread.unseen, "the same where a feature (a GPU generation, offload ...) was in no published run"),
        },
        "overhead": overhead(runs, weights, spread),
        "serving": {
            "bandwidth_share": entry(0.6, "assumed: no serving run in the data; vLLM reaches about 0.5-0.75 of HBM bandwidth"),
            "compute_share": entry(0.5, "assumed: prefill; llm-analysis suggests 0.7 at best"),
            "factor": entry(1.6, "assumed half-width of the 80 % interval, as a factor"),
        },
    }


def entry(value: float, why: str) -> dict[str, object]:
    """A documented figure, to six digits: refitting on another machine gives the same file."""
    return {"value": float(f"{value:.6g}"), "why": why}


def sample(run: published.Run) -> Sample:
    """The features of a run, and its measured speed against the ideal one."""
    rate = ideal_rate(run)
    return Sample(run, run_features(run), math.log((run.tokens_per_s_per_gpu or 1) / rate))


def ideal_rate(run: published.Run) -> float:
    """Tokens a second per GPU at peak arithmetic."""
    return 1 / compute_arithmetic_seconds(setting_of(run), physics())


def run_features(run: published.Run) -> dict[str, float]:
    """As `costguard.sizing.speed.throughput` sees them."""
    return compute_costs(setting_of(run), physics(), family(run.gpu.arch))


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
    """The constants of the features."""
    return StepConstants(**{name: value for name, (value, _) in PHYSICS.items()})


def family(arch: str) -> GpuFamily:
    """The longest prefix that fits."""
    fitting = [p for p in FULL_POWER if arch.startswith(p)]
    best = max(fitting, key=len, default=None)
    return GpuFamily(prefix=best, full_power_w_per_tflops=FULL_POWER[best][0]) if best else UNKNOWN_FAMILY


def prior(name: str) -> Prior:
    """What is believed of a weight before any row is seen."""
    return PRIORS.get(name, FAMILY_PRIOR)


def fit(samples: list[Sample]) -> Weights:
    """Bounded ridge regression with Huber's weights: a row USUAL_ERROR off counts in full, one twice as far off by half."""
    names = list(dict.fromkeys([*PRIORS, *(n for s in samples for n in s.features)]))
    rows = Counter(s.source for s in samples)
    weights = {n: prior(n).value for n in names}
    trust = [rows[s.source] ** -SOURCE_POWER for s in samples]
    for _ in range(ROBUST_ROUNDS):
        weights = _descend(names, weights, list(zip(samples, trust, strict=True)))
        off = [abs(predicted(s.features, weights) - s.log_share) for s in samples]
        trust = [
            rows[s.source] ** -SOURCE_POWER * min(1.0, USUAL_ERROR / max(x, 1e-9)) for s, x in zip(samples, off, strict=True)
        ]
    return weights


def _descend(names: list[str], start: Weights, counted: list[tuple[Sample, float]]) -> Weights:
    """Bounded ridge least squares by coordinate descent on the normal equations."""
    gram = {(a, b): sum(w * s.features.get(a, 0) * s.features.get(b, 0) for s, w in counted) for a in names for b in names}
    target = {a: sum(w * s.features.get(a, 0) * s.log_share for s, w in counted) for a in names}
    weights = dict(start)
    for _ in range(SWEEPS):
        for a in names:
            p = prior(a)
            rest = target[a] - sum(gram[a, b] * weights[b] for b in names if b != a)
            weights[a] = min(p.high, max(p.low, (rest + p.strength * p.value) / (gram[a, a] + p.strength)))
    return weights


def predicted(features: Mapping[str, float], weights: Weights) -> float:
    """log(speed / ideal speed)."""
    return sum(weights.get(name, 0.0) * x for name, x in features.items())


def errors(samples: Iterable[Sample], weights: Weights, evidence: Counter[str]) -> list[Error]:
    """Each sample's error under `weights`."""
    return [
        Error(s, predicted(s.features, weights) - s.log_share, all(evidence[n] for n, x in s.features.items() if x))
        for s in samples
    ]


def seen_in(samples: Iterable[Sample]) -> Counter[str]:
    """Feature -> rows in which it is not 0."""
    return Counter(name for s in samples for name, x in s.features.items() if x)


def leave_one_source_out(samples: list[Sample]) -> list[Error]:
    """Each source predicted from all the others."""
    found = []
    for source in dict.fromkeys(s.source for s in samples):
        others = [s for s in samples if s.source != source]
        found += errors((s for s in samples if s.source == source), fit(others), seen_in(others))
    return found


def calibrated(held_out: list[Error]) -> Spread:
    """Half-widths that hold COVERED of the errors on unseen sources, for rows with and without evidence."""
    seen = _held([e for e in held_out if e.seen], 0.0)
    return Spread(seen, max(seen, _held([e for e in held_out if not e.seen], seen)))


def _held(found: list[Error], fallback: float) -> float:
    """The half-width that holds COVERED of these errors, rows weighed as in the fit: an unseen source is a new source."""
    rows = Counter(e.sample.source for e in found)
    counted = [(abs(e.log), rows[e.sample.source] ** -SPREAD_POWER) for e in found]
    return weighted_quantile(counted, COVERED) if counted else fallback


def overhead(runs: list[published.Run], weights: Weights, spread: Spread) -> dict[str, dict[str, object]]:
    """What a long run takes over its predicted steady state, and the interval around it that its speed does not explain."""
    ratios: dict[str, list[float]] = {}
    for run in runs:
        if run.tokens and run.gpu_hours and not run.tokens_per_s_per_gpu and run.gpu_hours / run.gpus >= LONG_RUN_HOURS:
            rate = ideal_rate(run) * math.exp(predicted(run_features(run), weights))
            steady = run.tokens / rate / 3600
            come = steady / run.gpus / (steady / run.gpus + HALF_HOURS)
            ratios.setdefault(run.source, []).append(math.log(run.gpu_hours / steady) / come)
    rows = [(ratio, len(found) ** -SPREAD_POWER) for found in ratios.values() for ratio in found]
    expected = max(0.0, statistics.median(statistics.median(r) for r in ratios.values()))
    down, up = expected - weighted_quantile(rows, TAIL), weighted_quantile(rows, 1 - TAIL) - expected
    low, high = (math.sqrt(max(0.0, x * abs(x) - spread.seen**2)) for x in (down, up))
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
    """Median and 90th percentile of the absolute error, and the share within a quarter."""
    off = [e.relative for e in found]
    figures = {"median": quantile(off, 0.5), "p90": quantile(off, 0.9), "within_25_percent": share(off, lambda x: x <= 0.25)}
    return {name: round(x, 4) for name, x in figures.items()}


def quantile(values: list[float], q: float) -> float:
    """The value below which a share `q` lies, between neighbours in proportion."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def weighted_quantile(counted: list[tuple[float, float]], q: float) -> float:
    """As `quantile`, of (value, weight): each value stands in the middle of its weight."""
    total, below = sum(w for _, w in counted), 0.0
    earlier = None
    for value, weight in sorted(counted):
        at = (below + weight / 2) / total
        if at >= q:
            return value if earlier is None else earlier[0] + (q - earlier[1]) / (at - earlier[1]) * (value - earlier[0])
        below, earlier = below + weight, (value, at)
    return max(value for value, _ in counted)


def share(values: list[float], true: Callable[[float], bool]) -> float:
    """Share of `values` for which `true` holds."""
    return sum(map(true, values)) / len(values)


if __name__ == "__main__":
    main()
