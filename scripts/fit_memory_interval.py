"""Compute the width of the interval of a peak from published peaks, and say what it covers. Standard library only.

    python scripts/fit_memory_interval.py MEMORY.csv [MEMORY.csv ...] --facts facts.jsonl [--write]

The memory model has no fitted weights; what is fitted here is how far to trust it. Each source counts alike: see
`scripts/conformal.py`. The printed figures belong into `PEAK_SPREAD` of `costguard/sizing/memory/interval.py`; `--write` writes
the kinds of runs that were measured into `measured_runs.py` beside it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from costguard.sizing.memory.interval import PeakSpread, RunKind, measure_distance  # noqa: E402 - after the path above
from scripts.conformal import SourceScore, compute_conformal_width, compute_coverage  # noqa: E402

SHARDED, MIXTURE = 1.25, 1.25
"""How much wider the interval is where GPUs share a job, and of mixtures."""
UNLIKE = (1.0, 1.4, 2.5)
"""The same by the distance to the nearest measured run of another source. The 80th percentile of the errors at distance 1 is
1.2 to 1.7 times that at 0, at distance 2 three to four times, of the given rows and of the facts alike (2026-11). Less was
taken for the last, since few sources lie so far out."""
UNSEEN = 2.5
"""How much wider than these errors say, since the mechanisms of the memory model were chosen with these rows in view.

Chosen, not fitted: of the facts of seven public reports, the intervals hold about four in five with it. Before the mechanisms
that these reports showed were built, those of decision 0048 held half."""
FILE = ROOT / "costguard" / "sizing" / "memory" / "measured_runs.py"


class PeakError(NamedTuple):
    """log(predicted / measured) of one published peak, whose it is, its classes, and what ran on which `gpu` ("": unknown)."""

    source: str
    log: float
    sharded: bool
    mixture: bool
    kind: RunKind | None = None
    gpu: str = ""


def main() -> None:
    """Print the spread and its coverage."""
    from bench import facts
    from bench.published import read_rows
    from bench.scores import list_peak_errors

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("memory", type=Path, nargs="+")
    parser.add_argument("--facts", type=Path)
    parser.add_argument("--write", action="store_true")
    words = parser.parse_args()
    given = list_peak_errors(row for path in words.memory for row in read_rows(path))
    unseen = facts.list_peak_errors(facts.read_facts(words.facts)) if words.facts else []
    spread = compute_spread(given)
    print(spread)
    print(f"{len(given)} rows of {len({e.source for e in given})} sources")
    print(f"covers {compute_held_out_coverage(given):.1%} of a source left out, each source alike")
    if unseen:
        print(f"covers {compute_facts_coverage(given, unseen, spread):.1%} of the facts, which it does not see")
    if words.write:
        write_runs([*given, *unseen])


def compute_spread(found: Sequence[PeakError]) -> PeakSpread:
    """Return the conformal width of the errors, each divided by the factors of its classes, times UNSEEN."""
    plain = PeakSpread(one_gpu=1.0, sharded=SHARDED, mixture=MIXTURE, unlike=UNLIKE)
    factors = [plain.get_factor(sharded=e.sharded, mixture=e.mixture, distance=find_distance(e, found)) for e in found]
    scores = [SourceScore(e.source, abs(e.log) / factor) for e, factor in zip(found, factors, strict=True)]
    return PeakSpread(
        one_gpu=round(UNSEEN * compute_conformal_width(scores), 4), sharded=SHARDED, mixture=MIXTURE, unlike=UNLIKE
    )


def find_distance(error: PeakError, found: Sequence[PeakError]) -> int:
    """Return how far a row is from the nearest one of another source; 0 where kinds are not known."""
    mine = error.kind
    others = {e.kind for e in found if e.source != error.source and e.kind is not None}
    return 0 if mine is None else min((measure_distance(mine, other) for other in others), default=0)


def compute_held_out_coverage(found: Sequence[PeakError]) -> float:
    """Return the share of rows inside an interval computed without their source, each source alike."""
    inside = []
    for source in {e.source for e in found}:
        spread = compute_spread([e for e in found if e.source != source])
        inside += [(source, _is_inside(e, spread, found)) for e in found if e.source == source]
    return compute_coverage(inside)


def compute_facts_coverage(given: Sequence[PeakError], unseen: Sequence[PeakError], spread: PeakSpread) -> float:
    """Return the share of `unseen` rows inside the interval of the given ones, each of their sources alike."""
    return compute_coverage((e.source, _is_inside(e, spread, [*given, *unseen])) for e in unseen)


def _is_inside(error: PeakError, spread: PeakSpread, found: Sequence[PeakError]) -> bool:
    distance = find_distance(error, found)
    return abs(error.log) <= spread.compute_half_width(sharded=error.sharded, mixture=error.mixture, distance=distance)


def write_runs(found: Sequence[PeakError]) -> None:
    """Write every kind of run that was measured, with the GPU that most sources measured it on."""
    gpus: dict[RunKind, Counter[str]] = {}
    for kind, gpu, _ in {(e.kind, e.gpu, e.source) for e in found if e.kind is not None and e.gpu}:
        gpus.setdefault(kind, Counter())[gpu] += 1
    lines = sorted(" ".join((*kind, min(counts, key=lambda gpu: (-counts[gpu], gpu)))) for kind, counts in gpus.items())
    text = "\n".join(lines)
    FILE.write_text(f'{HEAD}\nMEASURED_RUNS = """\n{text}\n"""\n', encoding="utf-8")


HEAD = '''"""The kinds of training and serving runs whose memory somebody measured and published, with a GPU that they ran on.

Written by `python scripts/fit_memory_interval.py --write`; do not edit. One line a kind: the fields of `RunKind`, then the GPU.
"""
'''


if __name__ == "__main__":
    main()
