"""Every operation of a command on its files, failed once: it says so and exits non-zero, or did what it says all the same.

    COSTGUARD_IO_EVERY=1 python -m tests.disks failing      every operation, in every way

The judge reads the files with plain sqlite3 and the cloud's own log. Ways to fail: EIO once, ENOSPC once, half of a write and
then ENOSPC, ENOSPC from then on (a full disk), EIO from then on (a disk that died).
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from costguard.settings import check_settings
from tests.disks.commands import IDLE, SETTINGS
from tests.disks.trace import ROOT, environment, say

HOWS = {1: "EIO", 2: "ENOSPC", 3: "half, then ENOSPC", 4: "full from then on", 5: "dead from then on"}
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of this test's own is made there
EVERY = 23
"""Of how many operations one is failed, where nobody asks for all."""
NEXT = 5
"""After how many failures the next life must find everything well."""
DUE = 8
"""The minute of the story at which the watchdog stops the machine that nobody keeps."""
GOLDEN = ROOT / "tests" / "ledger" / "old" / "0016-guard.sqlite.sql.gz"
OLD_LEDGER = "old.db"
LONGEST_S = 120.0
MOST_LINES = 5
Held = Callable[[Path, str], bool]
"""Whether what a command says it did is so: its folder, and its stdout."""


@dataclass(frozen=True, slots=True)
class Case:
    """A command. `start`: the folder it begins with. `held`: whether success is true, once it has said so."""

    words: tuple[str, ...]
    start: str
    held: Held


@dataclass(slots=True)
class Ran:
    """How a life ended. `count`: operations; `hit`: the kind of the one that failed, "-" where none was reached."""

    code: int
    count: int
    hit: str
    out: str
    err: str


def _asked(folder: Path, sql: str) -> Any:  # noqa: ANN401 - whatever is asked for
    with closing(sqlite3.connect(f"file:{folder}/data/ledger.db?mode=ro", uri=True)) as file:
        return file.execute(sql).fetchone()[0]


def _recorded(folder: Path, out: str) -> bool:
    return len(json.loads(out)["resources"]) == 2 and _asked(folder, "SELECT max(polls) FROM coverage") >= 1


def _watched(folder: Path, out: str) -> bool:
    return bool(out) and _asked(folder, "SELECT count(*) FROM guard_run") == DUE


def _kept(folder: Path, out: str) -> bool:
    return "until" in out and _asked(folder, "SELECT count(*) FROM wish WHERE what = 'lease'") == 1


def _frozen(folder: Path, out: str) -> bool:
    return bool(out) and _asked(folder, "SELECT count(*) FROM wish WHERE what = 'freeze'") == 1


def _copied(folder: Path, out: str) -> bool:
    with closing(sqlite3.connect(f"file:{folder}/copy.db?mode=ro", uri=True)) as file:
        same = file.execute("SELECT count(*) FROM guard_run").fetchone()[0] == _asked(folder, "SELECT count(*) FROM guard_run")
        return same and file.execute("PRAGMA integrity_check").fetchone() == ("ok",) and "copy.db" in out


def _imported(folder: Path, out: str) -> bool:
    with closing(sqlite3.connect(f"file:{folder}/{OLD_LEDGER}?mode=ro", uri=True)) as file:
        same = file.execute("SELECT count(*), max(hash) FROM audit").fetchone()
        spans = file.execute("SELECT count(*) FROM span").fetchone()[0]
    there = (_asked(folder, "SELECT count(*) FROM audit"), _asked(folder, "SELECT max(hash) FROM audit"))
    return there == same and _asked(folder, "SELECT count(*) FROM span") == spans and OLD_LEDGER in out


def _refreshed(folder: Path, out: str) -> bool:
    with closing(sqlite3.connect(f"file:{folder}/cache/costguard/market.sqlite?mode=ro", uri=True)) as file:
        found = file.execute("SELECT count(*) FROM offers WHERE provider = 'acme'").fetchone()
        return bool(out) and found == (1,) and file.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _told(_: Path, out: str) -> bool:
    return bool(json.loads(out)["schema"])


CASES: Mapping[str, Case] = {
    "first start": Case(("status", "--json"), "empty", _recorded),
    "status": Case(("status", "--json"), "due", _recorded),
    "watch --once": Case(("watch", "--once"), "due", _watched),
    "keep": Case(("keep", IDLE, "--for", "2h", "--why", "a run"), "due", _kept),
    "freeze": Case(("freeze", "--why", "a day off"), "due", _frozen),
    "report": Case(("report", "--json"), "due", _told),
    "audit verify": Case(("audit", "verify", "--json"), "due", _told),
    "db backup": Case(("db", "backup", "copy.db"), "due", _copied),
    "db import": Case(("db", "import", OLD_LEDGER), "old", _imported),
    "prices refresh": Case(("prices", "refresh"), "due", _refreshed),
}

CONTROLS = ("keep", "watch --once")
"""The commands that a broken writer must be caught by."""


@dataclass(slots=True)
class Bench:
    """Where lives are run: a fork server, and the folders that they start with."""

    place: Path
    process: subprocess.Popen[str]
    tally: Counter[str] = field(default_factory=Counter)

    @property
    def folder(self) -> Path:
        """Of the life that is run."""
        return self.place / "disk" / "home"

    @property
    def log(self) -> Path:
        """The cloud's."""
        return self.place / "log"

    def run(self, words: tuple[str, ...], *, nth: int = 0, how: int = 0, minute: float = DUE, deaf: bool = False) -> Ran:
        """One life in the folder as it is. `deaf`: it is broken on purpose."""
        asked = {"words": words, "folder": str(self.folder), "log": str(self.log), "minute": minute, "deaf": deaf}
        asked |= {"nth": nth, "how": how}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline().split()
        assert len(said) == 3, f"{words} with operation {nth} failing died: {(self.place / 'err').read_text()}"
        assert self.process.stdout.readline() == "over\n"
        read = ((self.folder / "out").read_text(), (self.place / "err").read_text())
        return Ran(int(said[0]), int(said[1]), said[2], *read)

    def lay(self, start: str) -> None:
        """Begin with the folder that is kept as `start`."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.place / start, self.folder)
        self.log.write_text("")


@contextmanager
def bench(place: Path) -> Iterator[Bench]:
    """A fork server, an empty folder, one with an old ledger, and one where a machine is due to be stopped."""
    (place / "disk").mkdir(exist_ok=True)
    for start in ("empty", "old"):
        (place / start / "data").mkdir(parents=True)
        (place / start / "costguard.toml").write_text(SETTINGS)
    with closing(sqlite3.connect(place / "old" / OLD_LEDGER)) as file:
        file.executescript(gzip.decompress(GOLDEN.read_bytes()).decode())
    (place / "old" / OLD_LEDGER).chmod(0o600)
    command = [sys.executable, "-m", "tests.disks.commands"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(place / "disk"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            made = Bench(place, process)
            made.lay("empty")
            (policy,) = check_settings(SETTINGS, "costguard.toml").policies
            for minute in range(DUE - 1):
                ran = made.run(("watch", "--once"), minute=minute)
                assert ran.code == 0, ran.err
                if not minute:
                    ran = made.run(("policy", "accept", policy.digest), minute=minute)
                    assert ran.code == 0, ran.err
            assert made.log.read_text() == ""
            shutil.copytree(made.folder, place / "due")
            yield made
        finally:
            process.kill()


def faults(made: Bench, case: Case, ran: Ran, *, before: int) -> Iterator[str]:
    """What is wrong with how a life ended, a sentence each. `before`: rows of the ledger that were there."""
    if ran.code == 0:
        try:
            if not case.held(made.folder, ran.out):
                yield "it says that it succeeded, and it did not"
        except (sqlite3.Error, ValueError, OSError) as error:
            yield f"it says that it succeeded, and what it did cannot be read: {error}"
    else:
        lines = ran.err.splitlines()
        if not any(line.startswith("error: ") for line in lines):
            yield f"no word of an error with exit {ran.code}: {ran.err!r}"
        if "Traceback" in ran.err or "a bug in costguard" in ran.err or "Exception ignored" in ran.err:
            yield f"it is said as a bug of ours: {ran.err[-400:]!r}"
        if len(lines) > MOST_LINES and case.words[0] != "watch":
            yield f"{len(lines)} lines of errors"
    yield from _ledger_faults(made, before)
    asked = made.log.read_text().splitlines()
    if set(asked) - {IDLE} or len(asked) > (case.words[0] == "watch"):
        yield f"the cloud was asked to stop {asked}"
    if asked and not _asked(made.folder, "SELECT count(*) FROM intent_event WHERE moved_to = 'executing'"):
        yield "the cloud was asked to stop a machine, and no intent says so"


def _ledger_faults(made: Bench, before: int) -> Iterator[str]:
    path = made.folder / "data" / "ledger.db"
    if not path.exists():
        if before:
            yield "the ledger is gone"
        return
    try:
        with closing(sqlite3.connect(path)) as file:
            yield from (f"the ledger is damaged: {text}" for (text,) in file.execute("PRAGMA integrity_check") if text != "ok")
            yield from (f"a row of {row[0]} names none of {row[2]}" for row in file.execute("PRAGMA foreign_key_check"))
            if rows(file) < before:
                yield "the ledger has lost rows"
    except sqlite3.Error as error:
        yield f"the ledger is damaged: {error}"


def rows(file: sqlite3.Connection) -> int:
    """How many there are that nothing takes out again."""
    names = ("coverage", "observation", "span", "guard_run", "wish", "intent_event", "audit")
    there = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return sum(file.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names if name in there)  # noqa: S608 - ours


def suffer(made: Bench, name: str, *, every: int, first: int = 0, deaf: bool = False) -> tuple[Counter[str], list[str]]:
    """Fail one in `every` operations of a command in each way, from the `first` on; what came of it, and what is wrong."""
    case, tally, found = CASES[name], Counter[str](), list[str]()
    made.lay(case.start)
    path = made.folder / "data" / "ledger.db"
    before = 0
    if path.exists():
        with closing(sqlite3.connect(path)) as file:
            before = rows(file)
    calm = made.run(case.words)
    wrong = [*faults(made, case, calm, before=before), *([] if calm.code == 0 else [calm.err])]
    found += [f"{name}, where nothing fails: {said}" for said in wrong]
    if case.words[0] == "watch" and made.log.read_text() != f"{IDLE}\n":
        found.append(f"{name}, where nothing fails, stops {made.log.read_text()!r}")
    tally["operations"] = calm.count
    for how, meant in HOWS.items():
        for nth in range(1 + (first + how) % every, calm.count + 1, every):
            made.lay(case.start)
            if deaf and found:
                return tally, found  # a control that is caught is caught
            ran = made.run(case.words, nth=nth, how=how, deaf=deaf)
            if ran.hit == "-":
                continue
            tally["failed"] += 1
            tally["said so" if ran.code else "went on, and did it"] += 1
            tally["stopped after its intent"] += bool(made.log.read_text())
            where = f"{name}, {meant} at operation {nth} ({ran.hit}), exit {ran.code}"
            found += [f"{where}: {said}" for said in faults(made, case, ran, before=before)]
            if tally["failed"] % NEXT == 0 and made.run(("status", "--json"), minute=DUE + 1).code:
                found.append(f"{where}: the next status fails: {(made.place / 'err').read_text()!r}")
    return tally, found


def figure() -> bool:
    """Print what came of it; whether nothing is wrong, and each control was caught."""
    every, first = int(os.environ.get("COSTGUARD_IO_EVERY", EVERY)), int(os.environ.get("COSTGUARD_IO_FIRST", "0"))
    right, begun, whole = True, time.monotonic(), Counter[str]()
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as place, bench(Path(place)) as made:
        for name in CASES:
            tally, found = suffer(made, name, every=every, first=first)
            whole += tally
            say(f"failing I/O: {name}: {told(tally)}; {len(found)} faults", *(f"  {said}" for said in found[:8]))
            right = right and not found
        for name in CONTROLS:
            _, found = suffer(made, name, every=max(1, every // 3), deaf=True)
            say(
                f"control: {name} by a writer that does not hear the disk: {len(found)} faults",
                *(f"  {said}" for said in found[:2]),
            )
            right = right and bool(found)
    say(f"failing I/O: {told(whole)}, one in {every} from {first} on; 95 % bound {3 / max(1, whole['failed']):.1e}; "
          f"{time.monotonic() - begun:.0f} s")  # fmt: skip
    return right


def told(tally: Mapping[str, int]) -> str:
    """For people."""
    return ", ".join(f"{count:,} {what}" for what, count in tally.items())
