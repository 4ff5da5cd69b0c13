"""The acting story, out of memory at a point: of the process, of Python's allocations from the n-th on, or of SQLite's.

A life may die of it, or end with an error, or go on (and is killed in the end): what the judge asks is the same.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

from tests.crashes import acting_kills
from tests.crashes.acting_kills import AIMED, Stage, stage
from tests.crashes.actor import ACT, Fate
from tests.crashes.ends import NO_ALLOCATION, NO_HEAP, STARVED

MOST = {STARVED: 3000, NO_ALLOCATION: 3000, NO_HEAP: 60}
"""KiB, allocations, KiB."""
CODES = frozenset((0, 1, -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT))
"""1: an error that is said. CPython itself may break where an allocation fails; to die is no lie."""


def fate(chance: random.Random, number: int, task: str) -> Fate:
    """Which memory ends for the life of this number, where, and how much is left."""
    kind = (STARVED, NO_ALLOCATION, NO_HEAP)[number % 3]
    point, most = chance.choice(AIMED)
    amount = round(MOST[kind] * chance.random() ** 2)
    return Fate(task, "", "", 0, point=point, nth=1 + chance.randrange(most), end=kind, amount=amount, after_s=0.4)


def play(theatre: Stage, seed: int, number: int, tries: int, *, task: str = ACT, keep: Path | None = None) -> dict[str, Any]:
    """A chunk of so many lives."""
    return acting_kills.play(theatre, seed, number, tries, task=task, keep=keep, draw=fate, name="starving", codes=CODES)


__all__ = ["play", "stage"]
