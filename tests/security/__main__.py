"""Figures of the audit: `COSTGUARD_EDITS=10000 python -m tests.security`; see `edits`."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.security import edits

CHANGES, SEED = int(os.environ.get("COSTGUARD_EDITS", "1000")), int(os.environ.get("COSTGUARD_EDITS_SEED", "23"))
CUTS = 100


def main() -> int:
    """Make the changes, print what came of them; 1 where one was missed or a control did not fail."""
    only = os.environ.get("COSTGUARD_EDITS_ONE")
    commit = subprocess.run(("git", "rev-parse", "--short", "HEAD"), capture_output=True, text=True, check=False).stdout.strip()
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        came = edits.tally(Path(folder), CHANGES, SEED, only=None if only is None else int(only))
    say(f"audit edits: {came.tried:,} changes, {len(came.missed)} missed by costguard audit verify")
    say(f"  seed {SEED}, commit {commit}, {time.monotonic() - began:.0f} s; by kind: {dict(sorted(came.kinds.items()))}")
    if not came.missed and came.tried:
        say(f"  0 in {came.tried:,}: at most {3 / came.tried:.2%} of such changes are missed, with 95 % confidence")
    for number, told in came.missed[:20]:
        say(f"  missed {number}: {told}")
        say(f"    COSTGUARD_EDITS={CHANGES} COSTGUARD_EDITS_SEED={SEED} COSTGUARD_EDITS_ONE={number} python -m tests.security")
    without, with_head = unseen()
    say(f"controls, which must not be found by itself: {without} of {CUTS} cut or rewritten tails missed without a head,")
    say(f"  {CUTS - with_head} of {CUTS} found with the head of the last message")
    return 1 if came.missed or without != CUTS or with_head else 0


def unseen() -> tuple[int, int]:
    """Of CUTS tails that were cut off or written anew: how many nobody sees, without a head and with one."""
    without = with_head = 0
    with TemporaryDirectory() as name:
        folder = Path(name)
        file = edits.made(folder)
        noted, whole = edits.head_of(file), file.read_bytes()
        for number in range(CUTS):
            with closing(sqlite3.connect(file)) as connection:
                if number % 2:
                    edits.cut_off(connection, 1 + number % 5)
                else:
                    edits.write_anew(connection)
                connection.commit()
            without += not edits.found(folder)
            with_head += not edits.found(folder, noted)
            file.write_bytes(whole)
    return without, with_head


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
