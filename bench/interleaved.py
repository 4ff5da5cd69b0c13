"""Timing whole processes in turn (A B A B ...): user CPU of each finished child, medians, and the ratio pair by pair.

Wall time on a shared machine is noise; user CPU and ratios within one run are not (docs/PERFORMANCE.md).
"""

from __future__ import annotations

import compileall
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
HELLO = str(HERE / "hello.py")
WARM_UPS = 1


def costguard() -> list[str]:
    """The installed command, as a user runs it."""
    return [str(Path(sys.executable).parent / "costguard")]


def compiled() -> None:
    """Compile bytecode for everything both sides import: without it every start compiles (PERFORMANCE.md, trap 1)."""
    for folder in (HERE.parent / "costguard", HERE, *map(Path, sys.path[1:])):
        if folder.is_dir():
            compileall.compile_dir(folder, quiet=2, workers=1)


def timed(commands: dict[str, list[str]], runs: int, *, system: bool = False) -> dict[str, list[float]]:
    """User CPU seconds of each command's runs, interleaved; with `system` the kernel's as well."""
    found: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(WARM_UPS + runs):
        for name, command in commands.items():
            seconds = cpu_seconds(command, system=system)
            if number >= WARM_UPS:
                found[name].append(seconds)
    return found


def cpu_seconds(command: list[str], *, system: bool) -> float:
    """User CPU of one run, and the kernel's with `system`; its output is thrown away, its failure is not."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    return usage.ru_utime + (usage.ru_stime if system else 0)


def report(found: dict[str, list[float]], target: float) -> int:
    """Print both medians and the median of the pairwise ratios; 1 where it is over `target`."""
    (ours, a), (theirs, b) = found.items()
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    ratio = statistics.median(ratios)
    print(f"{ours}: {statistics.median(a) * 1000:.0f} ms user CPU (median of {len(a)})")
    print(f"{theirs}: {statistics.median(b) * 1000:.0f} ms")
    verdict = "meets" if ratio <= target else "MISSES"
    print(f"ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {verdict} the target of {target}")
    return int(ratio > target)
