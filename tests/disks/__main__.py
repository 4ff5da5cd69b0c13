"""The figures of disks, each with what it was made with.

    python -m tests.disks [cuts] [failing] [outages]

COSTGUARD_CUTS: power cuts in all (30000); COSTGUARD_CONTROL_CUTS: of each control (400). COSTGUARD_IO_EVERY: of how many
operations one is failed (23; 1 is all of them), COSTGUARD_IO_FIRST: from which on. Exit 1 where one is not as it must be.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime

from tests.disks import cuts, failing, outages
from tests.disks.trace import ROOT, say, why_not

FIGURES = {"cuts": cuts.figure, "failing": failing.figure, "outages": outages.figure}


def main(names: list[str]) -> int:
    """Print the figures of `names`, all where there are none."""
    if why_not():
        sys.stderr.write(f"error: {why_not()}\n")
        return 2
    told = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False)
    say(
        f"commit {told.stdout.strip() or 'unknown'}, {datetime.now(UTC):%Y-%m-%d}, {platform.platform()}, "
        f"{os.cpu_count()} CPUs, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )
    right = [FIGURES[name]() for name in names or FIGURES]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
