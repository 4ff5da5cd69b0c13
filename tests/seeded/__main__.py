"""Try seeded bugs: `python -m tests.seeded [NAME ...] [--rotate N [--of SEED]]`. Exit 1 where one is not caught.

Without names all are tried, one after the other, each alone in a copy of the tree.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.seeded.corpus import chosen, corpus, faults, seed_of
from tests.seeded.trial import CAUGHT, LIMIT_S, WIDER, Tree


def main(arguments: list[str]) -> int:
    """Try those that `arguments` name, and print a line each."""
    parser = argparse.ArgumentParser(prog="python -m tests.seeded", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="bugs by their names; all where none is named")
    parser.add_argument("--rotate", type=int, metavar="N", help="only N of them")
    parser.add_argument("--of", metavar="SEED", help="which N: any text; else the hash of the corpus and of what it breaks")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="seconds for the named tests of a bug")
    parser.add_argument("--own", action="store_true", help="only their own tests, not the wider ones")
    parser.add_argument("--quick", action="store_true", help="only what `make test` plays of them, without campaigns")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that what runs is ended, too
    bugs = corpus()
    odd = [*faults(bugs), *(f"there is no bug {name}" for name in asked.names if name not in {bug.name for bug in bugs})]
    if odd:
        sys.stderr.write("\n".join(odd) + "\n")
        return 2
    seed = asked.of or seed_of(bugs)
    bugs = tuple(bug for bug in bugs if not asked.names or bug.name in asked.names)
    if asked.rotate is not None:
        bugs = chosen(bugs, asked.rotate, seed)
        _say(f"{len(bugs)} bugs of seed {seed}")
    with TemporaryDirectory(prefix="seeded-") as folder:
        tree = Tree(Path(folder).resolve(), quick=asked.quick)
        trials = []
        for bug in bugs:
            trials.append(tree.tried(bug, limit_s=asked.limit, wider=() if asked.own else WIDER))
            _say(trials[-1].line())
        controlled = tree.held_against(trials)
    for trial in controlled:
        if trial not in trials:
            _say(trial.line())
    counts = Counter(trial.outcome for trial in controlled)
    seconds = [trial.seconds for trial in controlled if trial.outcome == CAUGHT]
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    _say(f"{counts[CAUGHT]} of {len(controlled)} caught ({told}); median {median(seconds or [0]):.1f} s")
    return int(counts[CAUGHT] < len(controlled))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
