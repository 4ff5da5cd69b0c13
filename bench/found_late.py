"""How wide the cost of a machine is that costguard sees for the first time when it is 30 hours old, with and without its bill.

    python -m bench.found_late

Each cloud's fake is polled twice, over loopback; then the watchdog's duty asks it for its bill. Width = (high - low) / truth,
and the truth is the fake's own bill. RunPod's pod was started an hour ago and has no volume: it has no line of the 29 hours
before.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # bench is a folder beside the package, not installed

from tests.ledger.found_late import FOUND_LATE, measure_found_late  # noqa: E402 - after the path above

GOALS = {"vast": 0.05, "runpod": 0.10, "lambda": 0.035}
"""Width over truth at 30 hours that the bill of each shall leave, at most; Lambda has no bill."""


def main(words: Sequence[str] | None = None) -> int:
    """Print the widths; returns 1 if one is above its goal, or does not hold the truth."""
    del words
    failed = False
    for name, (make_rig, make_resource) in FOUND_LATE.items():
        with TemporaryDirectory() as folder:
            found = measure_found_late(make_rig(), make_resource(), Path(folder), f"sqlite:///{folder}/ledger.db")
        before, after = (found.compute_width(one) for one in (found.before, found.after))
        right = found.after.low - 2 <= found.truth <= found.after.high + 2  # an amount is rounded to a nano-dollar
        failed |= not right or after > GOALS[name]
        bounds = " to ".join(f"{nano / 10**9:.2f}" for nano in (found.after.low, found.after.high))
        print(f"{name:8} without a bill {before:7.3f}, with it {after:6.3f} (goal {GOALS[name]}): ${bounds},", end=" ")
        print(f"truth ${found.truth / 10**9:.2f}{'' if right else ' WRONG'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
