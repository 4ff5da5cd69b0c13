"""The ledger: what polls cost, what a month's report costs, how large the file and the process grow.

    python -m bench.ledger [--quick] [PART ...]   parts: unchanged changed history items month samples memory

Each part runs in a process of its own. Times are CPU, user and system; a ratio is of two things done in turn in one process,
its median over several rounds. Nothing asserts them. That the yardsticks did the same work is checked: same rows, same sums.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from bench import ledger_history, ledger_items, ledger_month, ledger_polls, ledger_samples
from bench.measured import Measured, table

Part = Callable[[Path], Iterable[Measured]]

PARTS: dict[str, Part] = {
    "unchanged": ledger_polls.unchanged,
    "changed": ledger_polls.changed,
    "history": ledger_history.history,
    "items": ledger_items.items,
    "month": ledger_month.month,
    "samples": ledger_samples.samples,
    "memory": ledger_month.memory,
}
QUICK: dict[str, Part] = {
    "unchanged": partial(ledger_polls.unchanged, instances=1000, rounds=21),
    "changed": partial(ledger_polls.changed, instances=1000, rounds=3),
    "history": partial(ledger_history.history, instances=5000, rounds=3),
    "items": partial(ledger_items.items, instances=5000),
    "month": partial(ledger_month.month, instances=200, minutes=4320),
    "samples": partial(ledger_samples.samples, machines=20, days=4),
    "memory": partial(ledger_month.memory, polls=10_000, warm_up=10_000),
}
"""The same in a minute. Fixed costs weigh more there, so that ratios look worse than they are."""

IN_MEMORY = ("month", "samples", "memory")
"""Parts that count bytes, not seconds: where the system has a folder in memory, nobody has to wait for the disk."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a folder of our own is made in it


def main() -> int:
    """0 where every target is met."""
    words = sys.argv[1:]
    parts = QUICK if "--quick" in words else PARTS
    asked = [word for word in words if word != "--quick"] or list(parts)
    if unknown := [word for word in asked if word not in parts]:
        sys.exit(f"there is no part {unknown[0]}: name any of {' '.join(parts)}")
    spawn = multiprocessing.get_context("spawn")
    missed = 0
    for name in asked:
        with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as alone:
            missed += alone.submit(_part, name, quick="--quick" in words).result()
    return int(missed > 0)


def _part(name: str, *, quick: bool) -> int:
    """Run one part and print its lines as they come."""
    where = SHARED_MEMORY if name in IN_MEMORY and os.access(SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="costguard-bench-", dir=where) as folder:
        return table((QUICK if quick else PARTS)[name](Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
