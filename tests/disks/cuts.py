"""Power cuts: a life of a ledger, written down once, and then cut at any operation with any outcome that a disk may have.

python -m tests.disks cuts                          the figure, with its controls
python -m tests.disks.cuts LIFE CUTS SHARE          one process's part of it
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.disks import judge
from tests.disks.judge import Course
from tests.disks.platter import Platter
from tests.disks.trace import ROOT, Op, environment, read, say

SEED = 20261122
CUTS, CONTROL_CUTS = 30_000, 400
CLOSELY, WHOLLY = 25, 251
"""Of how many cuts one is looked at closely (integrity, every promise), and one goes through the product's own commands."""
WORKERS = max(1, min(2, os.cpu_count() or 1))
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of this test's own is made there
WAYS = {"new": "work"}
"""The lives that must hold, and their task. With a second revision comes that of an upgraded ledger."""
CONTROLS = {"synchronous NORMAL": "normal", "synchronous OFF": "off", "acknowledged early": "early"}
"""The lives that must be caught."""


@dataclass(frozen=True, slots=True)
class Life:
    """What was written down. `start`: the files that were there before."""

    ops: list[Op]
    start: dict[str, bytes]
    course: Course


@dataclass(slots=True)
class Outcome:
    """What came of `cuts`; `kinds`: kind of fault -> how many cuts had one; `first`: where, and what it was."""

    cuts: int = 0
    closely: int = 0
    wholly: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Count `other` in."""
        self.cuts += other.cuts
        self.closely += other.closely
        self.wholly += other.wholly
        self.kinds += other.kinds
        self.first += other.first


def record_life(task: str, folder: Path) -> Life:
    """A life of a ledger in `folder`, written down, and what it leads to in peace."""
    root, trace = folder / "disk", folder / "trace"
    ledger = root / "data" / "ledger.db"
    root.mkdir(parents=True)
    start = dict[str, bytes]()
    command = [sys.executable, "-m", "tests.disks.story", task, str(ledger)]
    subprocess.run(command, env=environment(root, trace), cwd=ROOT, check=True)
    ops = read(trace)
    with judged_in(folder) as looked:
        found = judge.course(ops, start, str(ledger), looked)
    return Life(ops, start, found)


@contextmanager
def judged_in(folder: Path) -> Iterator[Path]:
    """A folder for what is looked at: in memory, where there is such a thing."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else folder, prefix="costguard-disks-") as made:
        yield Path(made)


def cut(life: Life, cuts: int, share: int, folder: Path) -> Outcome:
    """The part `share` of `cuts` cuts, spread evenly over all operations."""
    outcome, platter = Outcome(), Platter.holding(life.start)
    number = len(life.ops)
    for done, op in enumerate(life.ops, start=1):
        platter.take(op)
        for nth in range((done - 1) * cuts // number, done * cuts // number):
            if nth % WORKERS != share:
                continue
            chance = Random(f"{SEED}/{done}/{nth}")  # noqa: S311 - outcomes are drawn, not secret
            files = platter.cut(chance)
            closely, wholly = nth % CLOSELY == 0, nth % WHOLLY == 0
            found = list(judge.faults(life.course, files, done, folder, closely=closely))
            if wholly and not found:
                from tests.disks.wholly import faults

                found = list(faults(life.course, files, done, folder))
            outcome.add(Outcome(1, int(closely), int(wholly), Counter({kind for kind, _ in found})))
            if found and len(outcome.first) < 3:
                outcome.first.append(f"cut {nth} after operation {done}: {found[0][0]}: {found[0][1]}")
    return outcome


def campaign(task: str, cuts: int, folder: Path) -> tuple[Life, Outcome]:
    """A life, and `cuts` cuts of it, by WORKERS processes."""
    life = record_life(task, folder)
    kept = folder / "life.pickle"
    kept.write_bytes(pickle.dumps(life))
    command = [sys.executable, "-m", "tests.disks.cuts", str(kept), str(cuts)]
    path = os.pathsep.join(map(str, (ROOT, ROOT / "providers")))
    started = [
        subprocess.Popen(
            [*command, str(n)], cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
        )
        for n in range(WORKERS)
    ]
    outcome = Outcome()
    for process in started:
        said, _ = process.communicate()
        assert process.returncode == 0, f"the share ended with {process.returncode}"
        told = json.loads(said.splitlines()[-1])
        outcome.add(Outcome(**(told | {"kinds": Counter(told["kinds"])})))
    return life, outcome


def _share(words: list[str]) -> None:
    life = pickle.loads(Path(words[0]).read_bytes())  # noqa: S301 - our own file, of this test
    with judged_in(Path(words[0]).parent) as folder:
        outcome = cut(life, int(words[1]), int(words[2]), folder)
    sys.stdout.write(
        f"{json.dumps({name: getattr(outcome, name) for name in ('cuts', 'closely', 'wholly', 'kinds', 'first')})}\n"
    )


def figure() -> bool:
    """Print what the cuts and the controls come to; whether all is as it must be."""
    all_cuts, control_cuts = (
        int(os.environ.get(name, usual)) for name, usual in (("COSTGUARD_CUTS", CUTS), ("COSTGUARD_CONTROL_CUTS", CONTROL_CUTS))
    )
    right, tried, bad = True, 0, 0
    for way, task in {**WAYS, **CONTROLS}.items():
        begun = time.monotonic()
        with TemporaryDirectory() as folder:
            life, outcome = campaign(task, all_cuts // len(WAYS) if way in WAYS else control_cuts, Path(folder))
        say(f"{'power cuts' if way in WAYS else 'control'}: {way}: {told(life, outcome)}; {time.monotonic() - begun:.0f} s")
        for said in (*outcome.first[:3], *life.course.faults[:3]):
            say(f"  {said}")
        if way in WAYS:
            tried, bad = tried + outcome.cuts, bad + outcome.kinds.total()
        right = right and not life.course.faults and bool(outcome.kinds) != (way in WAYS)
    bound = f", 95 % bound {3 / tried:.1e}" if tried and not bad else ""
    say(f"power cuts: {tried:,} in all, {bad} that lost or harmed anything{bound}; seed {SEED}")
    return right


def told(life: Life, outcome: Outcome) -> str:
    """What came of the cuts of one life."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in outcome.kinds.items()) or "0 lost, 0 damaged"
    return (
        f"{len(life.ops):,} operations, {len(life.course.promises)} acknowledged; {outcome.cuts:,} cuts "
        f"({outcome.closely:,} looked at closely, {outcome.wholly:,} by the product): {kinds}"
    )


if __name__ == "__main__":
    _share(sys.argv[1:])
