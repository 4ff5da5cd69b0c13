"""Whether calibration helps: published runs, each predicted without its source, then shifted by the other runs of its family.

    python scripts/check_calibration.py RUNS.csv [GPUS.csv]

Here a family is one source's, since a source is what a user is: one team, one set of habits. Prints the intraclass correlation
that `SHARED_VARIANCE` in `costguard/sizing/calibration.py` rounds, and errors and interval coverage before and after.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parent.parent))

from costguard.sizing.calibration import RunFamily, compute_usual_variance, estimate_family, get_speed_family
from costguard.sizing.job import Job
from scripts import published_runs as published
from scripts.fit_efficiency import Error, calibrated, half_width, leave_one_source_out, quantile, sample

GPUS = Path(__file__).parent.parent / "costguard" / "data" / "gpus.csv"
Kin = tuple[str, RunFamily]


def main() -> None:
    """Print both tables."""
    gpus = published.gpus(GPUS)
    runs = [run for path in sys.argv[1:] for run in published.runs(Path(path), gpus)]
    held_out = leave_one_source_out([sample(r) for r in runs if r.tokens_per_s_per_gpu])
    spread = calibrated(held_out)
    families: dict[Kin, list[Error]] = defaultdict(list)
    for error in held_out:
        families[kin(error)].append(error)
    seen = [[-e.log for e in errors if not e.classes] for errors in families.values()]
    print(f"shared by a family: {shared([ratios for ratios in seen if ratios]):.2f} of the variance, {len(seen)} families")
    before: list[tuple[float, float]] = []
    after: list[tuple[float, float]] = []
    for errors in families.values():
        for error in errors if len(errors) > 1 else ():
            others = [-e.log for e in errors if e is not error]
            own = half_width(error, spread)
            moved, width = estimate_family(others, compute_usual_variance(spread.dense)).shift(own)
            before.append((error.log, own))
            after.append((error.log + moved, width))
    print(line("as shipped", before))
    print(line("calibrated", after))


def kin(error: Error) -> Kin:
    """The source, and the family as a user's runs would have it."""
    run = error.sample.run
    return run.source, get_speed_family(
        Job(architecture=run.architecture, recipe=run.recipe), run.gpu, gpus=run.gpus, nodes=run.nodes
    )


def shared(groups: list[list[float]]) -> float:
    """The intraclass correlation: variance between groups over the whole, one-way analysis of variance."""
    rows, whole = sum(map(len, groups)), fmean(x for g in groups for x in g)
    within = sum((x - fmean(g)) ** 2 for g in groups for x in g) / (rows - len(groups))
    between = sum(len(g) * (fmean(g) - whole) ** 2 for g in groups) / (len(groups) - 1)
    each = (rows - sum(len(g) ** 2 for g in groups) / rows) / (len(groups) - 1)
    part = max(0.0, (between - within) / each)
    return part / (part + within)


def line(name: str, found: list[tuple[float, float]]) -> str:
    """Errors and coverage of (log of predicted over measured, log half-width) pairs."""
    off = [abs(math.expm1(log)) for log, _ in found]
    inside = sum(abs(log) <= width for log, width in found) / len(found)
    width = quantile([math.exp(w) for _, w in found], 0.5)
    return (
        f"{name}: {len(found)} rows, median {quantile(off, 0.5):.1%}, p90 {quantile(off, 0.9):.1%}, "
        f"inside the 80 % interval {inside:.0%}, median interval factor {width:.2f}"
    )


if __name__ == "__main__":
    main()
