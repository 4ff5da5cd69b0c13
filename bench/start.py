"""Start-up: user and system CPU of costguard's commands against a bare typer + rich "hello", in one interleaved run.

    python -m bench.start [RUNS]        needs: make test (once)

`--help` and `quote --help` are held against hello's `--help`, commands that answer against hello's run; `status`, `report` and
`plan` read the demo's ledger. Both sides run from the same environment, with bytecode compiled, one warm-up not counted.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.interleaved import HELLO, compiled, costguard, timed

HELP, RUN = "hello --help", "hello"
JOB = ("--model", "llama-3.1-8b", "--method", "qlora")
TARGETS = {
    "--help": (HELP, 1.2),
    "quote --help": (HELP, 2.2),
    f"quote {' '.join(JOB)} --tokens 50e6": (RUN, 3.0),
    f"size {' '.join(JOB)}": (RUN, 3.0),
    "status": (RUN, 5.5),
    "report": (RUN, 5.5),
    "plan": (RUN, 6.0),
}
"""Command -> what it is compared with, and how many times that it may take (HOUSE.md, decision 3)."""


def main() -> int:
    """0 where every target is met."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    compiled()
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "demo.db"
        subprocess.run([*costguard(), "demo", "--ledger", str(ledger)], check=True, capture_output=True)
        os.environ["COSTGUARD_LEDGER__URL"] = f"sqlite:///{ledger}"
        os.chdir(folder)  # no settings of this machine
        commands = {HELP: [sys.executable, HELLO, "--help"], RUN: [sys.executable, HELLO, "quote"]}
        commands |= {words: [*costguard(), *words.split()] for words in TARGETS}
        seconds = timed(commands, runs, system=True)
    misses = 0
    for words, (yardstick, target) in TARGETS.items():
        ratio = statistics.median(a / b for a, b in zip(seconds[words], seconds[yardstick], strict=True))
        misses += ratio > target
        verdict = "meets" if ratio <= target else "MISSES"
        spent = statistics.median(seconds[words]) * 1000
        print(f"{spent:5.0f} ms  {ratio:.2f} of {yardstick}, {verdict} {target}  costguard {words}")
    return int(misses > 0)


if __name__ == "__main__":
    sys.exit(main())
