"""The judge as a program of its own: python -S tests/simulation/judge_main.py FOLDER. 1 where something must not be.

It reads `clouds.jsonl` and `ledger.db` in FOLDER, needs no installed package, and knows nothing of costguard.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from tests.simulation.judge import violations  # noqa: E402 - found by the line above
from tests.simulation.reading import read  # noqa: E402 - as above
from tests.simulation.sometimes import sometimes  # noqa: E402 - as above


def main(folder: str) -> int:
    """Print what must not be, and what happened."""
    record = read(Path(folder))
    wrong = violations(record)
    lines = [*wrong, *(f"sometimes: {what}: {count}" for what, count in sometimes(record).items())]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
