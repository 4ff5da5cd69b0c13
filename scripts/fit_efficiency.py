"""Fit the constants of `costguard/data/efficiency.json` to published runs, and say how good they are. Standard library only.

    python scripts/fit_efficiency.py RUNS.csv GPUS.csv [--write costguard/data/efficiency.json]

    log(measured / ideal tokens a second) = sum of weight x feature,   features as in `costguard/core/step.py`

Ridge least squares towards a prior for each weight (what physics or the literature suggests), within bounds that keep
a cost from becoming a gain, so that combinations nobody has published stay sane. A source with n rows counts as
n ** 0.75 rows. Intervals and accuracy come from leaving one source out: each row is predicted from other people's runs.
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


from costguard.core.efficiency import UNKNOWN_FAMILY, Family, Physics
from costguard.core.step import Setting, arithmetic_seconds, costs
from costguard.core.work import Peak, peak, work
from scripts import published_runs as published
from scripts.efficiency_priors import FAMILY_PRIOR, FULL_POWER, PHYSICS, PRIORS, Prior

Weights = dict[str, float]

SOURCE_POWER = 0.25
"""A row of a source with n rows weighs n ** -SOURCE_POWER: one large table does not outvote the rest."""
SWEEPS = 150
COVERED = 0.8
LONG_RUN_HOURS = 48


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
        "description": "Constants that turn peak FLOPs into tokens a second; see costguard/core/step.py. Do not edit: refit.",
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
        "overhead": overhead(runs, weights),
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
    return 1 / arithmetic_seconds(work(run.architecture, run.recipe), top_of(run), physics())


def run_features(run: published.Run) -> dict[str, float]:
    """As `costguard.core.throughput` sees them."""
    setting = Setting(
        work=work(run.architecture, run.recipe),
        recipe=run.recipe,
        parallel=run.parallel,
        gpu=run.gpu,
        gpus=run.gpus,
        nodes=run.nodes,
        top=top_of(run),
    )
    return costs(setting, physics(), family(run.gpu.arch))


def top_of(run: published.Run) -> Peak:
    """The peak rates of the run's GPU."""
    top = peak(run.recipe, run.gpu)
    if top is None:
        raise SystemExit(f"{run.name}: the rate of {run.gpu.name} is unknown")
    return top


def physics() -> Physics:
    """The constants of the features."""
    return Physics(**{name: value for name, (value, _) in PHYSICS.items()})


def family(arch: str) -> Family:
    """The longest prefix that fits."""
    fitting = [p for p in FULL_POWER if arch.startswith(p)]
    best = max(fitting, key=len, default=None)
    return Family(prefix=best, full_power_w_per_tflops=FULL_POWER[best][0]) if best else UNKNOWN_FAMILY


def prior(name: str) -> Prior:
    """What is believed of a weight before any row is seen."""
    return PRIORS.get(name, FAMILY_PRIOR)


def fit(samples: list[Sample]) -> Weights:
    """Bounded ridge least squares by coordinate descent on the normal equations."""
    names = list(dict.fromkeys([*PRIORS, *(n for s in samples for n in s.features)]))
    rows = Counter(s.source for s in samples)
    counted = [(s, rows[s.source] ** -SOURCE_POWER) for s in samples]
    gram = {(a, b): sum(w * s.features.get(a, 0) * s.features.get(b, 0) for s, w in counted) for a in names for b in names}
    target = {a: sum(w * s.features.get(a, 0) * s.log_share for s, w in counted) for a in names}
    weights = {n: prior(n).value for n in names}
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
    seen = quantile([abs(e.log) for e in held_out if e.seen], COVERED)
    return Spread(seen, max(seen, quantile([abs(e.log) for e in held_out if not e.seen] or [seen], COVERED)))


def coverage(held_out: list[Error]) -> float:
    """Share of rows inside an interval calibrated without their own source."""
    inside = 0
    for source in {e.sample.source for e in held_out}:
        spread = calibrated([e for e in held_out if e.sample.source != source])
        own = [e for e in held_out if e.sample.source == source]
        inside += sum(abs(e.log) <= (spread.seen if e.seen else spread.unseen) for e in own)
    return inside / len(held_out)


def overhead(runs: list[published.Run], weights: Weights) -> dict[str, dict[str, object]]:
    """Hours published over hours predicted in steady state, of long runs that do not state their own speed."""
    ratios: dict[str, list[float]] = {}
    for run in runs:
        if run.tokens and run.gpu_hours and not run.tokens_per_s_per_gpu and run.gpu_hours / run.gpus >= LONG_RUN_HOURS:
            rate = ideal_rate(run) * math.exp(predicted(run_features(run), weights))
            ratios.setdefault(run.source, []).append(run.gpu_hours * 3600 * rate / run.tokens)
    rows = [ratio for found in ratios.values() for ratio in found]
    return {
        "low": entry(1.0, "nothing lost"),
        "expected": entry(max(1.0, statistics.median(statistics.median(r) for r in ratios.values())), "median source"),
        "high": entry(
            quantile(rows, 0.9), f"nine in ten of {len(rows)} long runs; it holds the error of the predicted speed too"
        ),
        "half_hours": entry(
            100.0, "steady hours at which half of it has come: runs under a day show none (23 rows), weeks show all"
        ),
    }


def accuracy(found: list[Error]) -> dict[str, float]:
    """Median and 90th percentile of the absolute error, and the share within a quarter."""
    off = [e.relative for e in found]
    figures = {"median": quantile(off, 0.5), "p90": quantile(off, 0.9), "within_25_percent": share(off, lambda x: x <= 0.25)}
    return {name: round(x, 4) for name, x in figures.items()}


def report(samples: list[Sample], runs: list[published.Run]) -> str:
    """The accuracy table, by source, and the ten worst rows."""
    weights, evidence = fit(samples), seen_in(samples)
    held_out = leave_one_source_out(samples)
    known, stated = errors(samples, weights, evidence), [e for e in held_out if e.sample.run.stated]
    spread = calibrated(held_out)
    lines = [line("in sample", known), line("leave one source out", held_out), line("  of which tokens/s stated", stated)]
    lines += [line("6ND at 40 % of bf16 peak", [Error(s, rule_of_thumb(s), seen=True) for s in samples])]
    lines += [f"80 % interval: x/ {math.exp(spread.seen):.2f} with evidence, x/ {math.exp(spread.unseen):.2f} without; "]
    lines += [f"  covers {coverage(held_out):.1%} of rows of sources left out of fit and calibration"]
    lines += [f"whole-run overhead: {json.dumps({k: v['value'] for k, v in overhead(runs, weights).items()})}", ""]
    by_source = sorted({s.source for s in samples})
    lines += [line(source, [e for e in held_out if e.sample.source == source]) for source in by_source]
    lines += [
        "",
        "weights: " + ", ".join(f"{n} {w:.3f}" for n, w in weights.items()),
        "",
        "worst ten, leaving their source out:",
    ]
    worst = sorted(held_out, key=lambda e: -abs(e.log))[:10]
    lines += [f"  x{math.exp(e.log):.2f} {e.sample.run.name[:80]}: {likely_cause(e)}" for e in worst]
    return "\n".join(lines)


def line(name: str, found: list[Error]) -> str:
    """One row of the table."""
    figures = accuracy(found)
    bias = math.exp(statistics.median(e.log for e in found))
    return (
        f"{name:28s} rows {len(found):4d}  median {figures['median']:6.1%}  p90 {figures['p90']:6.1%}"
        f"  within 25 % {figures['within_25_percent']:6.1%}  predicted/measured {bias:.2f}"
    )


def rule_of_thumb(s: Sample) -> float:
    """Log error of 6ND at 40 % of the 16-bit peak."""
    rate = 0.4 * (s.run.gpu.bf16_tflops or 0) * 1e12 / (6 * s.run.architecture.active_parameters)
    return math.log(rate / (s.run.tokens_per_s_per_gpu or 1))


def likely_cause(e: Error) -> str:
    """The largest costs of a row, which is where a wrong prediction comes from."""
    costs = sorted((x, name) for name, x in e.sample.features.items() if x < 0)[:3]
    unseen = "" if e.seen else "a feature no other source has; "
    return unseen + "largest costs: " + ", ".join(f"{name} {x:.2f}" for x, name in costs)


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
