"""How good the fitted constants are, as text: accuracy by source, the interval, the weights and the ten worst rows."""

from __future__ import annotations

import json
import math

from scripts import published_runs as published
from scripts.conformal import SourceScore, compute_coverage, compute_source_quantile
from scripts.fit_efficiency import (
    Error,
    Sample,
    accuracy,
    calibrated,
    errors,
    fit,
    half_width,
    overhead,
    seen_in,
)


def report(samples: list[Sample], runs: list[published.Run], held_out: list[Error]) -> str:
    """The accuracy table, by source, and the ten worst rows."""
    weights, evidence = fit(samples), seen_in(samples)
    known, stated = errors(samples, weights, evidence), [e for e in held_out if e.sample.run.stated]
    spread = calibrated(held_out)
    lines = [line("in sample", known), line("leave one source out", held_out), line("  of which tokens/s stated", stated)]
    lines += [line("6ND at 40 % of bf16 peak", [Error(s, rule_of_thumb(s), ()) for s in samples])]
    lines += [f"80 % interval: x/ {math.exp(spread.dense):.2f}, its log times {spread}"]
    lines += [f"  covers {coverage(held_out):.1%} of a source left out of fit and calibration, each source alike"]
    lines += [f"whole-run overhead: {json.dumps({k: v['value'] for k, v in overhead(runs, weights, spread).items()})}", ""]
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


def coverage(held_out: list[Error]) -> float:
    """Share of rows inside an interval calibrated without their own source, each source alike."""
    inside = []
    for source in {e.sample.source for e in held_out}:
        spread = calibrated([e for e in held_out if e.sample.source != source])
        inside += [(source, abs(e.log) <= half_width(e, spread)) for e in held_out if e.sample.source == source]
    return compute_coverage(inside)


def line(name: str, found: list[Error]) -> str:
    """One row of the table."""
    figures = accuracy(found)
    bias = math.exp(compute_source_quantile([SourceScore(e.sample.source, e.log) for e in found], 0.5))
    return (
        f"{name:28s} rows {len(found):4d}  median {figures['median']:6.1%}  p90 {figures['p90']:6.1%}"
        f"  within 25 % {figures['within_25_percent']:6.1%}  predicted/measured {bias:.2f}"
    )


def rule_of_thumb(s: Sample) -> float:
    """Log error of 6ND at 40 % of the 16-bit peak."""
    rate = 0.4 * (s.run.gpu.bf16_tflops or 0) * 1e12 / (6 * s.run.architecture.active_parameters)
    return math.log(rate / (s.run.tokens_per_s_per_gpu or 1))


def likely_cause(e: Error) -> str:
    """What most of the step goes to besides arithmetic, which is where a wrong prediction comes from."""
    seconds = sorted(((x, name) for name, x in e.sample.costs.seconds.items() if x), reverse=True)[:3]
    unseen = f"no other source has {', '.join(e.missing)}; " if e.missing else ""
    arithmetic = e.sample.costs.arithmetic
    return unseen + "over arithmetic: " + ", ".join(f"{name} {x / arithmetic:.2f}" for x, name in seconds)
