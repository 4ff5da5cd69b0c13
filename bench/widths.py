"""How wide the intervals of the demo's fortnight are, over many seeds, and what makes them wide.

    python -m bench.widths              20 fortnights, some 4 s of CPU each
    python -m bench.widths --seeds 5

Width = (high - low) / bill, of each resource of which something was billed. The causes are those of the ledger's spans
(`presence`: seen, edge, gap, maybe) and of their prices.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import connect
from statistics import median, quantiles
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # bench is a folder beside the package, not installed

from costguard.bills.simulated_bill import SimulatedBillCheck  # noqa: E402 - after the path above
from costguard.testing.demo import DEMO_SEED, play_world  # noqa: E402

END = datetime(2026, 11, 27, tzinfo=UTC)
CAUSES = """
    SELECT provider, charge, presence, CASE price_known WHEN 1 THEN 'stated' ELSE 'estimated' END, SUM(high_nano - low_nano)
    FROM v_spans WHERE high_nano > low_nano GROUP BY 1, 2, 3, 4
"""
Cause = tuple[str, ...]
"""Provider, charge, presence and price."""


def main(words: Sequence[str] | None = None) -> int:
    """Print the widths; returns 0."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seeds", type=int, default=20)
    count = asked.parse_args(words).seeds
    played, causes = measure_widths([DEMO_SEED, *range(1, count)])
    print("\n".join(describe_widths(played, causes)))
    return 0


def measure_widths(seeds: Iterable[int]) -> tuple[list[SimulatedBillCheck], Counter[Cause]]:
    """Play a fortnight for each seed; returns them, and nano-dollars of width by cause."""
    played, causes = list[SimulatedBillCheck](), Counter[Cause]()
    for seed in seeds:
        with TemporaryDirectory() as folder:
            file = Path(folder, "ledger.db")
            played.append(play_world(f"sqlite:///{file}", seed=seed, end=END))
            with closing(connect(file)) as ledger:
                for *cause, nano in ledger.execute(CAUSES):
                    causes[tuple(cause)] += nano
    return played, causes


def describe_widths(played: Sequence[SimulatedBillCheck], causes: Counter[Cause]) -> list[str]:
    """Return the lines: the demo's own fortnight, all of them, each cloud, and the causes."""
    first = played[0].width_median
    by_cloud: dict[str, list[float]] = {}
    for cloud in (cloud for one in played for cloud in one.clouds):
        widths = by_cloud.setdefault(cloud.provider, [])
        widths += [float(one.width) for one in cloud.resources if one.width is not None]
    every = [width for widths in by_cloud.values() for width in widths]
    said = [
        f"seed {played[0].seed}: median width {float(first or 0):.2%} of the bill",
        f"{len(played)} fortnights, {len(every)} resources: {_describe(every)}",
        *(f"{name}: {len(widths)} resources: {_describe(widths)}" for name, widths in sorted(by_cloud.items())),
    ]
    total = sum(causes.values()) or 1
    return said + [f"{nano / total:6.1%} of the width in dollars: {', '.join(cause)}" for cause, nano in causes.most_common(8)]


def _describe(widths: Sequence[float]) -> str:
    exact = sum(not width for width in widths) / len(widths)
    return f"median {median(widths):.2%}, p75 {quantiles(widths, n=4)[-1]:.2%}, exact {exact:.0%}"


if __name__ == "__main__":
    sys.exit(main())
