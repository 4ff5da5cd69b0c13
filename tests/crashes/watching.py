"""The installed console script over a real ledger and a fake RunPod, ended at any moment by SIGKILL or SIGTERM.

A watchdog of the real flows has watched before (tests/cli/watched.py), so that machines are due to stop when it comes. Half of
the lives are `costguard watch --once`, half a resident `costguard watch`. Moments are drawn, or are those of a request: the
cloud sees it and the process is ended before it has its answer, or a moment later.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.cli.watched import LONGEST_S, ROOT, Before, Five, Watching, time_goes_on
from tests.crashes.acting_judge import EXPIRES_US, chain
from tests.crashes.acting_kills import folder_of
from tests.crashes.judge import as_left
from tests.fakes.server import Answer, Asked, FakeCloud, serving
from tests.providers.runpod.rig import RunpodRig

SCRIPT = Path(sys.executable).with_name("costguard")
MACHINES, KEPT = 26, 2
MINUTE = timedelta(minutes=1)
OBSERVING = " an hour, observing"
CONFIG = """
[watch]
interval = "5s"
jitter = "0s"
[rails]
first_seen = "5s"
acts = { per_run = 2, per_10m = 1000, fleet_percent = 100, fleet_percent_day = 100, irreversible_per_h = 1000 }
[[policy]]
name = "off"
arm = "ARM"
match = { ids = [IDS] }
when = 'power == "running"'
for = "5s"
allow_irreversible = true
then = [{ do = "notify" }, { after = "5m", do = "stop" }]
"""
LOOK, CALL = r"GET /v2/pods/[^/?]+$", r"POST /v2/pods/([^/]+)/action"
EVENTS = (
    ("a listing", r"GET /v2/pods\?", 1), ("a look", LOOK, 1), ("a look", LOOK, 2), ("a look", LOOK, 3), ("a call", CALL, 1),
    ("a call", CALL, 2),
)  # fmt: skip
"""Of one act the first look comes before its row is committed, the second after it, the third is the adapter's own."""
WHOLE_S = 90.0
"""What the unit allows (TimeoutStopSec)."""
TWICE = "twice"
"""A control: each call is written down once more, which nothing has let go."""


@dataclass
class Snare:
    """Ends a process when the cloud has heard the `nth` request like `line` since it was laid, `after_s` later."""

    line: str
    nth: int
    after_s: float
    number: int
    pid: int = 0

    def heard(self, line: str) -> None:
        if re.search(self.line, line):
            self.nth -= 1
            if self.nth == 0:
                self.spring()

    def spring(self) -> None:
        if self.after_s:
            threading.Timer(self.after_s, self._sent).start()
        else:
            self._sent()

    def _sent(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, self.number)


@dataclass
class World:
    """A fake RunPod whose machines are due, the watchdog that was there before, and who is to be ended."""

    five: Five
    before: Before
    calls: list[tuple[str, int]] = field(default_factory=list)
    snare: Snare | None = None
    unheard: int = 0

    def hears(self, fake: FakeCloud) -> None:
        """Have every request told to the snare before it is answered, and calls written down."""
        plain = fake.answer

        def answer(asked: Asked) -> Answer:
            called = re.fullmatch(CALL, asked.line)
            if called:
                self.calls.append((called[1], time.time_ns() // 1000))
            if self.snare is not None:
                self.snare.heard(asked.line)
            return plain(asked)

        fake.answer = answer  # type: ignore[method-assign]  # of this one cloud

    @property
    def ledger(self) -> Path:
        return self.five.folder / "ledger.db"

    def once(self, snare: Snare | None, at_s: float | None) -> tuple[int, str]:
        """One `costguard watch --once`; its exit code, and the end of what it said."""
        self._prepare()
        self.before.give_turn()
        process = self._started("watch", "--once", "--interval", "1m")
        self._aim(process.pid, snare)
        with suppress(subprocess.TimeoutExpired):
            process.wait(at_s if at_s is not None else LONGEST_S)
        if process.poll() is None:
            process.kill()
        _, err = process.communicate()
        self.snare = None
        return process.returncode, err.decode()[-300:]

    def resident(self, snare: Snare | None, at_s: float | None, number: int) -> tuple[int, float, str]:
        """One `costguard watch` that gets the turn once it has looked; exit code, how long it took to end, its last words."""
        self._prepare()
        watching = Watching(self._started("--json-log", "watch", text=True))
        try:
            _read_all(watching)
            self._aim(watching.process.pid, snare)
            self._accompany(watching, at_s)
            asked = time.monotonic()
            if watching.process.poll() is None:
                watching.process.send_signal(number)
            code = watching.process.wait(WHOLE_S)
            return code, time.monotonic() - asked, watching.tail()[-600:]
        finally:
            self.snare = None
            watching.close()

    def _accompany(self, watching: Watching, at_s: float | None) -> None:
        """The one before goes on until this one has looked, and then lets it act; until its time has come."""
        let, end = False, time.monotonic() + (30 if at_s is None else at_s)
        while watching.process.poll() is None and time.monotonic() < end:
            if not let:
                self.before.judge(datetime.now(UTC))
                if watching.said(OBSERVING):
                    self.before.give_turn()
                    let = True
            time.sleep(0.1)

    def _started(self, *words: str, text: bool = False) -> subprocess.Popen[Any]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [str(SCRIPT), *words], cwd=self.five.folder, env=self.five.environ, stdout=pipe, stderr=pipe, text=text
        )

    def _aim(self, pid: int, snare: Snare | None) -> None:
        if snare is not None:
            snare.pid = pid
        self.snare = snare

    def _prepare(self) -> None:
        """Whoever had the turn has it no more, as after a minute; the one before looks, and measures as often as it must be."""
        if self.before.book.load_leader_lease() is not None:
            self.before.give_turn()
        self.before.watch(datetime.now(UTC))
        self.before.fill()

    def faults(self) -> list[str]:
        """What an outside judge finds in what arrived and in what is written."""
        found = []
        with as_left(self.ledger, by_another=True) as file:
            found += [f"the file is damaged: {said}" for (said,) in file.execute("PRAGMA integrity_check") if said != "ok"]
            rows = file.execute(
                "SELECT i.external_id, e.at_us FROM intent_event AS e JOIN intent AS i ON i.id = e.intent_id "
                "WHERE e.moved_to = 'executing'"
            ).fetchall()
            done = file.execute("SELECT external_id FROM intent WHERE state = 'done'").fetchall()
            found += list(chain(lambda sql: file.execute(sql).fetchall()))
        left = Counter(rows)
        for name, at_us in self.calls:
            mine = [row for row in left if row[0] == name and left[row] and row[1] <= at_us < row[1] + EXPIRES_US]
            if mine:
                left[mine[0]] -= 1
            else:
                found.append(f"{name} was asked to stop, and nothing (more) was let go")
        for name in self.five.ids["runpod"][:KEPT]:
            found += [f"{name} was asked to stop, and no policy means it" for one, _ in self.calls if one == name]
        found += [f"{name} is written down as done, and runs" for (name,) in done if self._runs(name)]
        return found

    def half_done(self, since_us: int) -> list[str]:
        """What stands in the ledger as if somebody was about to send it, of what was let go since then."""
        with as_left(self.ledger, by_another=True) as file:
            sql = "SELECT external_id FROM intent WHERE state = 'executing' AND sent_us >= ?"
            return [name for (name,) in file.execute(sql, (since_us,))]

    def in_doubt(self) -> int:
        """Of how many nobody knows yet what came."""
        with as_left(self.ledger, by_another=True) as file:
            (count,) = file.execute("SELECT count(*) FROM intent WHERE state IN ('executing', 'verifying')").fetchone()
            return int(count)

    def _runs(self, name: str) -> bool:
        return self.five.rigs["runpod"].state_of(name) == "running"

    def in_words(self, *words: str) -> list[str]:
        """A command of costguard that must end with 0."""
        ran = subprocess.run(
            [str(SCRIPT), *words], cwd=self.five.folder, env=self.five.environ, capture_output=True, text=True, check=False
        )
        return [] if ran.returncode == 0 else [f"costguard {' '.join(words)} ended with {ran.returncode}: {ran.stderr[-200:]}"]


def _read_all(watching: Watching) -> None:
    for pipe, lines in ((watching.process.stdout, watching.out), (watching.process.stderr, watching.err)):
        assert pipe is not None

        def read(pipe: Any = pipe, lines: list[str] = lines) -> None:  # noqa: ANN401 - a pipe of text
            with suppress(ValueError):
                lines.extend(pipe)

        threading.Thread(target=read, daemon=True).start()


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """All of it, with machines that are due."""
    (folder / "home").mkdir(parents=True)
    began = datetime.now(UTC) - 8 * MINUTE
    with ExitStack() as stack:
        five = Five(folder, rigs={"runpod": RunpodRig()})
        five.set_clocks(began)
        rig = five.rigs["runpod"]
        assert isinstance(rig, RunpodRig)
        five.ids = {"runpod": rig.put(MACHINES)}
        rig.fake.manners.idle.update(five.ids["runpod"][KEPT:])
        five.bases = {"runpod": stack.enter_context(serving(rig.fake))}
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
        dirs = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "CACHE")}
        ours = {
            "HOME": str(folder / "home"),
            "COSTGUARD_LEDGER__URL": five.ledger,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'providers'}",
        }
        five.environ = {**kept, **dirs, **ours, **rig.environ()}
        text = CONFIG.replace("IDS", ", ".join(f'"{name}"' for name in five.ids["runpod"][KEPT:]))
        before = Before(five, five.write(text.replace("ARM", "notify")), began, 2 * MINUTE, stack)
        before.watch_until(datetime.now(UTC))
        five.write(text.replace("ARM", "stop"))
        stack.enter_context(time_goes_on(five))
        made = World(five, before)
        made.hears(rig.fake)
        yield made


@contextmanager
def stage() -> Iterator[None]:
    """Each chunk has a world of its own."""
    yield None


def play(_: None, seed: int, number: int, tries: int, *, task: str = "", keep: Path | None = None) -> dict[str, Any]:
    """A chunk of so many lives."""
    began, chance = time.monotonic(), random.Random(f"{seed}/watching/{number}")  # noqa: S311 - moments are drawn, not secret
    windows, counts, wrong = Counter[str](), Counter[str](), list[str]()
    with folder_of(number, keep) as folder, world(folder) as one:
        for life in range(tries):
            name, told = _life(one, chance, life, wrong)
            windows[name] += 1
            counts[told] += 1
            if task == TWICE and one.calls:
                one.calls.append((one.calls[-1][0], one.calls[-1][1] + 1))
            found = one.faults()
            wrong += [f"life {life} ({name}): {fault}" for fault in found]
            if found:
                break
        if not wrong and not task:
            wrong += _settled(one)
            counts["a call too many, and seen"] = len(_too_many(one))
        counts["calls"] = len(one.calls)
    took_s = round(time.monotonic() - began, 2)
    return {"kills": windows.total(), "windows": dict(windows), "counts": dict(counts), "wrong": wrong[:5], "took_s": took_s}


def _life(one: World, chance: random.Random, life: int, wrong: list[str]) -> tuple[str, str]:
    """One of them: where it was to end, and how it did."""
    resident, term = life % 2 == 1, life % 4 == 3
    number = signal.SIGTERM if term else signal.SIGKILL
    name, line, nth = chance.choice(EVENTS)
    moment = chance.random() < 0.3
    snare = None if moment else Snare(line, nth, 0.0 if chance.random() < 0.5 else 0.05 * chance.random(), number)
    where = "any moment" if moment else name
    if not resident:
        code, tail = one.once(snare, 2.5 * chance.random() if moment else None)
        if code not in (0, -signal.SIGKILL):
            wrong.append(f"life {life}: --once ended with {code}: {tail}")
        return f"--once, {where}", f"--once ended with {code}"
    born_us = time.time_ns() // 1000
    code, took_s, tail = one.resident(snare, 7 * chance.random() if moment else None, number)
    starting = '"started"' not in tail and "stopping" not in tail
    unfinished = code == 1 and '"unfinished"' in tail  # it waited for a minute, said what did not end, and ended
    fine = (0,) if term and not starting else (0, -number)
    if code not in fine and not unfinished:
        wrong.append(f"life {life}: after {signal.Signals(number).name} it ended with {code}: {tail}")
    if term and code == 0 and (half := one.half_done(born_us)):
        wrong.append(f"life {life}: it ended well, and left {half} half done")
    how = f"{signal.Signals(number).name} to resident, {where}"
    return how, f"resident ended with {code}{' while starting' if term and code else ''}{', slowly' if took_s > 10 else ''}"


def _too_many(one: World) -> list[str]:
    """What the judge says where the last call came once more: a control, which costs nothing here."""
    last = one.calls[-1:]
    one.calls += last
    found = [one for one in one.faults() if "nothing (more) was let go" in one]
    del one.calls[len(one.calls) - len(last) :]
    return found


def _settled(one: World) -> list[str]:
    """Left in peace it settles all that there is; and costguard's own commands find nothing wrong."""
    end = time.monotonic() + 120
    while (left := one.in_doubt()) and time.monotonic() < end:
        for name in one.five.ids["runpod"]:  # so that no new act is begun
            one.five.rigs["runpod"].let(name, "stopped")
        code, tail = one.once(None, None)
        if code:
            return [f"a run that was left in peace ended with {code}: {tail}"]
        time.sleep(1)
    wrong = [f"{left} intents are not settled"] if left else []
    return [*wrong, *one.faults(), *one.in_words("db", "check"), *one.in_words("audit", "verify")]
