"""A line of a benchmark's table: what was measured, the target, what was reached. Nothing here asserts a time."""

from __future__ import annotations

import gc
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """`met` None: stated for comparison, without a target."""

    what: str
    reached: str
    target: str = ""
    met: bool | None = None


def table(lines: Iterable[Measured]) -> int:
    """Print `lines` and return how many miss their target."""
    missed = 0
    for line in lines:
        verdict = {None: "", True: "meets", False: "MISSES"}[line.met]
        missed += line.met is False
        print(f"{line.what:<84} {line.target:>12}  {line.reached:<44} {verdict}".rstrip(), flush=True)
    return missed


def cpu(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds of CPU, user and system, that `work` took, and what it returned. The garbage before it is not its."""
    gc.collect()
    begun = time.process_time()
    done = work()
    return time.process_time() - begun, done


def median(values: Iterable[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def resident_mib() -> float:
    """MiB of memory that this process holds now; on Linux exactly, elsewhere the most that it ever held."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize() / 2**20
    unit = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
