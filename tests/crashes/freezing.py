"""A watchdog that is suspended while it acts, and goes on when its time is over; another one on the same ledger meanwhile.

Each is stopped by SIGSTOP at a named point and goes on after 1 to 120 s (COSTGUARD_FREEZE_S: at most). Then no request of it
may arrive that nothing let go, or after what let it go has expired; where nobody else is about, one an instance and act.
One window is no guard's to close: from the last look at the clock, right before the first byte, to that byte (RESIDUAL); and
for SEND_S after the last look at the machine, while its adapter connects. What comes late or hits a later life from there is
counted apart.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from costguard.services.guarding.act.send_action import SEND_LIMIT_S
from tests.crashes.acting_cloud import ask
from tests.crashes.acting_judge import Found, in_file, read_log
from tests.crashes.acting_kills import Stage, folder_of, stage
from tests.crashes.actor import ACT, Fate
from tests.crashes.ends import FROZEN

AT = (
    "polling", "listed", "planned", "before a look", "looked", "before commit", "committing", "committed", "before send",
    "checked", "half sent", "sent", "answered", "before record", "recorded",
)  # fmt: skip
OURS = ("committed", "looked", "before send")
"""Where most are stopped: from the row that lets go up to the last look at the clock."""
RESIDUAL = ("checked", "half sent")
SOONEST_S, LATEST_S, AWAKE_S, PATIENCE_S = 1.0, float(os.environ.get("COSTGUARD_FREEZE_S", "120")), 2.0, 30.0
TURNS_S = (3.0, 10.0, 30.0)


@dataclass
class Try:
    """One of them. `second`: another watchdog comes. `calm`: nobody else is about."""

    stage: Stage
    folder: Path
    name: str
    point: str
    nth: int
    freeze_s: float
    turn_s: float
    second: bool
    calm: bool
    task: str
    origin_s: float = field(default_factory=time.monotonic)
    pids: list[int] = field(default_factory=list)
    phase: str = "to be frozen"
    since_s: float = field(default_factory=time.monotonic)

    def begin(self, chance: random.Random) -> None:
        """Its cloud, its ledger, and the one that will be stopped."""
        self.folder.mkdir()
        ask(self.stage.port, f"/{self.name}/new{self.folder}/{chance.randrange(10**9)}")
        if self.calm:
            ask(self.stage.port, f"/{self.name}/calm")
        self._born(self.point, self.task)

    def _born(self, point: str = "", task: str = ACT) -> None:
        fate = Fate(
            task,
            f"sqlite:///{self.folder}/ledger.db",
            str(self.folder),
            self.stage.port,
            base_s=None,
            origin_s=self.origin_s,
            point=point,
            nth=self.nth,
            end=FROZEN,
            turn_s=self.turn_s,
            cloud=self.name,
        )
        self.pids.append(self.stage.asked("begin", asdict(fate))["pid"])

    def step(self) -> bool:
        """What is due now; whether it goes on."""
        passed_s = time.monotonic() - self.since_s
        if self.phase == "to be frozen" and _state(self.pids[0]) == "T":
            self._goes("frozen")
            if self.second:
                self._born()
        elif self.phase == "to be frozen" and passed_s > PATIENCE_S:
            self._goes("never frozen")
        elif self.phase == "frozen" and passed_s >= self.freeze_s:
            os.kill(self.pids[0], signal.SIGCONT)
            self._goes("awake")
        elif self.phase == "awake" and passed_s > AWAKE_S:
            self._goes("over")
        return self.phase not in ("over", "never frozen")

    def _goes(self, phase: str) -> None:
        self.phase, self.since_s = phase, time.monotonic()

    def end(self) -> None:
        """Nobody is left."""
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.stage.asked("reap", pid)
        self.pids.clear()

    def judged(self) -> tuple[Found, list[str], int]:
        """What the judge found, what is wrong, and how many calls came late from the window that nobody can close."""
        found = in_file(self.folder / "ledger.db", self.folder, self.origin_s)
        open_ = self.point in RESIDUAL or (self.point == "before send" and self.freeze_s <= SEND_LIMIT_S + 1)
        residual = found.late + found.later_lives if open_ else 0
        wrong = [one for one in found.faults if not (residual and ("expired" in one or "another run" in one))]
        if self.calm and not residual:
            met = Counter((one.name, one.run) for one in read_log(self.folder / "cloud.jsonl", None)[0])
            wrong += [f"run {run} of {name} was asked to stop {times} times" for (name, run), times in met.items() if times > 1]
        where = f"frozen at {self.point} ({self.nth}) for {self.freeze_s:.1f} s, {'one more' if self.second else 'alone'}"
        return found, [f"{where}: {one}" for one in wrong], residual


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def drawn(stage: Stage, chance: random.Random, folder: Path, name: str, task: str) -> Try:
    """One whose freeze, point and company are drawn: about as many of 1 to 5 s, of 5 to 30 s, and of more."""
    edges = [one for one in (SOONEST_S, 4.5, 29.0, LATEST_S) if one <= LATEST_S]
    edges = sorted({*edges, LATEST_S})
    step = chance.randrange(len(edges) - 1)
    return Try(
        stage,
        folder / name,
        name,
        point=chance.choice(OURS if chance.random() < 0.5 or task != ACT else AT),
        nth=chance.choice((1, 2, 3, 5)),
        freeze_s=chance.uniform(edges[step], edges[step + 1]),
        turn_s=chance.choice(TURNS_S),
        second=chance.random() < 0.7,
        calm=chance.random() < 0.5,
        task=task,
    )


def play(stage: Stage, seed: int, number: int, tries: int, *, task: str = ACT, keep: Path | None = None) -> dict[str, Any]:
    """So many at once."""
    began, chance = time.monotonic(), random.Random(f"{seed}/freezing/{number}")  # noqa: S311 - moments are drawn, not secret
    counts, windows, wrong = Counter[str](), Counter[str](), list[str]()
    with folder_of(number, keep) as folder:
        every = [drawn(stage, chance, folder, f"c{n}", task) for n in range(tries)]
        for one in every:
            one.begin(chance)
        going = list(every)
        while going:
            time.sleep(0.02)
            for one in [one for one in going if not one.step()]:
                one.end()
                going.remove(one)
        for one in every:
            found, faults, residual = one.judged()
            wrong += faults
            windows[one.point if one.phase == "over" else one.phase] += 1
            counts.update(
                {
                    "calls": found.calls,
                    "calls without intent": 0 if residual else found.without_intent,
                    "calls after expiry": 0 if residual else found.late,
                    "from the window that nobody can close": residual,
                    "later lives hit": 0 if residual else found.later_lives,
                    "acknowledged": found.acknowledged,
                    "acknowledged and lost": found.lost,
                    "with a second watchdog": int(one.second),
                    "longer than a row lets go": int(one.freeze_s > 30),
                    "longer than a look is good": int(one.freeze_s > 5),
                    "longer than the turn": int(one.freeze_s > one.turn_s),
                }
            )
    frozen = sum(count for point, count in windows.items() if point in AT)
    took_s = round(time.monotonic() - began, 2)
    return {"kills": frozen, "windows": dict(windows), "counts": dict(counts), "wrong": wrong[:5], "took_s": took_s}


__all__ = ["play", "stage"]
