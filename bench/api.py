"""The Python API: `import costguard; costguard.quote(...)` in a cold process against the command, as a ratio of user CPU.

    python -m bench.api [RUNS]

Target: at most 1.0, and `import costguard` under 50 ms beyond bare Python. All run interleaved, one warm-up not counted.
"""

from __future__ import annotations

import subprocess
import sys
from time import perf_counter

from bench.interleaved import compiled, costguard, report, timed

TARGET, IMPORT_MS = 1.0, 50.0
CALL = "import costguard; costguard.quote(model='llama-3.1-8b', method='qlora', tokens=50e6)"
FLAGS = ("quote", "--model", "llama-3.1-8b", "--method", "qlora", "--tokens", "50e6")


def main() -> int:
    """0 where both targets are met."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    compiled()
    slow = report(
        timed({"costguard.quote(...)": [sys.executable, "-c", CALL], "costguard quote": [*costguard(), *FLAGS]}, runs), TARGET
    )
    took = min(measure_ms("import costguard") for _ in range(runs)) - min(measure_ms("pass") for _ in range(runs))
    print(f"import costguard: {took:.1f} ms beyond bare Python (target {IMPORT_MS:g})")
    return 1 if slow or took > IMPORT_MS else 0


def measure_ms(script: str) -> float:
    """Return the wall-clock milliseconds of a fresh Python that runs `script`."""
    began = perf_counter()
    subprocess.run([sys.executable, "-c", script], check=True)
    return 1000 * (perf_counter() - began)


if __name__ == "__main__":
    sys.exit(main())
