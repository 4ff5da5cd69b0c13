"""The whole matrix of faults, providers and phases as one command.

python -m tests.networks               every cell once; some minutes
python -m tests.networks --each 10     a campaign
python -m tests.networks --replay '{"provider":"vast","phase":"body","kind":"cut","at":40}'
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

from tests.networks import matrix
from tests.networks.cells import RIGS, Cell, cells


def main(arguments: list[str]) -> int:
    """0 where nothing was wrong."""
    asked = _asked(arguments)
    if asked.replay:
        came = matrix.play([Cell(**json.loads(asked.replay))])
        sys.stdout.write(f"{came[0]}\n")
        return bool(came[0].wrong)
    began = time.monotonic()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    sys.stdout.write(f"commit {commit}, seed {asked.seed}, each {asked.each}\n")
    came = matrix.play(cells(asked.seed, asked.providers or tuple(RIGS), each=asked.each))
    matrix.complain(came)
    sys.stdout.write(f"\nwrong/struck (n? changed bytes that plain http cannot know)\n{matrix.table(came)}\n\n")
    sys.stdout.writelines(f"{name}: {value}\n" for name, value in matrix.summary(came).items())
    sys.stdout.write(f"{time.monotonic() - began:.0f} s\n")
    return any(one.wrong for one in came)


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.networks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", default="7")
    parser.add_argument("--each", type=int, default=1, help="tries of each cell, at other bytes")
    parser.add_argument("--replay", default="")
    parser.add_argument("providers", nargs="*", choices=[*RIGS, []])
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
