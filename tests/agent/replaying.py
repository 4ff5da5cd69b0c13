"""Labelled traces played by real agents (virtual.py) to a real server, desk and ledger, and what is judged of them."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from costguard.guard.activity import classify_activity
from costguard.guard.alerts.blind import get_agent_state
from costguard.guard.context import estimate_interval_of_samples
from costguard.guard.signals import ACTIVE, HUNG, IDLE, UNKNOWN, Activity
from costguard.services.serving.agent_enrolment import format_code
from costguard.services.serving.web_backend import WebServices
from costguard.settings.sections import WebSettings
from costguard.testing.doubles import FakeClock
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import ResourceKey
from costguard.values.sample import (
    AGENT_ALIVE,
    CPU_CORES,
    DISK,
    GPU_BUSY_COUNT,
    GPU_MEMORY_USED,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_UTIL,
    NETWORK,
    STEP,
    Sample,
)
from costguard.web import middleware, routes
from costguard.web.server import serve_http
from costguard.web.watchdog_server import serve_desk
from costguard.web.watchdog_socket import bind_watchdog_socket
from tests.guard.traces import HANGS, MINUTE, START, WASTE, WORK, Trace, dice_of, machine, traced
from tests.web.desks import MIN, NOON, Rig, keys, ledger_at, rig

ROOT = Path(__file__).parents[2]
HOLD = timedelta(minutes=45)
WARM = 32
"""Minutes of training before each kind: in the first half hour the age of the last input is not known to be more."""
APART = timedelta(hours=8)
"""Between the beginnings of two traces."""
KINDS = {**WORK, **WASTE, **HANGS}
EXACT = {
    GPU_UTIL: 0.51, GPU_BUSY_COUNT: 0, GPU_POWER_BUSIEST: 0.01, GPU_POWER_LIMIT: 0, GPU_MEMORY_USED: 0, CPU_CORES: 0.001,
    NETWORK: 1.0, DISK: 10.0, STEP: 0, AGENT_ALIVE: 0,
}  # fmt: skip
"""How far each may be off: NVML counts whole percents, the kernel hundredths of seconds, bytes and sectors."""


class Shared(FakeClock):
    """The clock that the watchdog and the agent's process go by: a file of eight bytes, Unix milliseconds."""

    def __init__(self, path: Path) -> None:
        super().__init__(NOON)
        self._path = path
        path.write_bytes(bytes(8))
        self.set(NOON)

    def set(self, at: datetime) -> None:
        self._path.write_bytes(struct.pack("<q", to_micros(at) // 1000))

    def now(self) -> datetime:
        return from_micros(struct.unpack("<q", self._path.read_bytes())[0] * 1000)


@dataclass(frozen=True)
class Replayed:
    """What came of one trace. `began`: its minute 0; `samples`: what the ledger holds; `state`: how its agent stands."""

    trace: Trace
    began: datetime
    samples: Sequence[Sample]
    agent: str

    def verdicts(self, first: int, last: int | None = None) -> list[Activity]:
        """The judgement of every minute from `first` on by the ledger: the samples of the 90 minutes before it."""
        seen, ats = replace(machine(), started_at=self.began), [one.at for one in self.samples]
        found = []
        for minute in range(first, len(self.trace.samples) if last is None else last):
            now = self.began + minute * MINUTE
            known = self.samples[bisect_left(ats, now - 90 * MINUTE) : bisect_right(ats, now)]
            found.append(
                classify_activity(
                    seen, known, now=now, since=self.began, poll=estimate_interval_of_samples(known, MIN), window=HOLD
                )
            )
        return found

    def directly(self, first: int) -> list[Activity]:
        """The same by the trace's own samples, without an agent."""
        found = []
        for minute in range(first, len(self.trace.samples)):
            known = [one for later in self.trace.samples[max(0, minute - 90) : minute + 1] for one in later]
            found.append(
                classify_activity(machine(), known, now=START + minute * MINUTE, since=START, poll=MINUTE, window=HOLD)
            )
        return found


@dataclass
class Stage:
    """A watchdog and a process of agents. `play` makes one machine act one trace."""

    desk: Rig
    clock: Shared
    url: str
    folder: Path
    process: subprocess.Popen[str]
    cpu_s: float = 0.0
    _free: list[ResourceKey] = field(default_factory=list)
    _played: int = 0

    def play(self, trace: Trace, frozen: tuple[float, float] | None = None) -> Replayed:
        """What the ledger holds of an agent that lived through `trace`; `frozen`: between which minutes it stood still."""
        key, self._played = self._free.pop(), self._played + 1
        began = NOON + self._played * APART
        self.clock.set(began - MIN)
        code = f"{self._played:04d}-2RXD-9VTP-HW4C"
        self.desk.enrol(key, code=code)
        plan = {
            "folder": str(self.folder / str(self._played)),
            "url": self.url,
            "code": format_code(code, self.desk.desk.seal.public_key),
            "began_s": began.timestamp(),
            "minutes": [{one.signal: one.value for one in minute} for minute in trace.samples],
            "frozen": [60 * at for at in frozen] if frozen else None,
        }
        self.cpu_s = float(self._asked(plan)["cpu_s"])
        (agent,) = [one for one in self.desk.book.load_agents() if one.key == key]
        samples = sorted(self.desk.samples(key), key=lambda one: one.at)
        return Replayed(trace, began, samples, agent.id)

    def state(self, of: Replayed, minute: int) -> str:
        """How the agent stands at this minute of the trace, by what the ledger knows in the end."""
        return get_agent_state(self.desk.agent(of.agent), None, of.began + minute * MINUTE)

    def _asked(self, plan: Mapping[str, object]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(plan) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the agent's process ended"
        found = json.loads(answer)
        assert isinstance(found, dict)
        return found


@contextmanager
def stage(folder: Path, monkeypatch: pytest.MonkeyPatch, *, machines: int) -> Iterator[Stage]:
    """A server that is asked as fast as virtual time goes by, and a process of agents that has not begun yet."""
    for module, name in ((routes, "PER_AGENT"), (middleware, "PER_ADDRESS")):
        monkeypatch.setattr(module, name, 1e6)
    with rig(ledger_at(folder), machines=machines) as desk:
        clock = Shared(folder / "clock")
        desk.clock = desk.desk.clock = desk.guarded.clock = desk.commits.clock = clock
        desk.desk.every_s = 60

        def sealed(seal: Any) -> Any:  # noqa: ANN401 - the server's own
            desk.desk.seal = seal
            return desk.desk

        nobody: Any = None
        web = WebSettings(listen="127.0.0.1:0")
        parts = WebServices(web=web, key_file=folder / "key", desk=sealed, board=nobody, reader=nobody, health=nobody)
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}:{ROOT / 'agent'}:{ROOT / 'tests' / 'agent' / 'fake_nvml'}",
        }
        words = [sys.executable, "-m", "tests.agent.virtual", str(folder / "clock")]
        desk.guarded.start()
        path, bound = bind_watchdog_socket(folder / "own" / "socket")
        with serve_desk(desk.guarded, bound), serve_http(parts, path) as at, (folder / "log").open("w") as log:
            url = f"http://127.0.0.1:{at.port}"
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environ, cwd=folder
            )
            try:
                yield Stage(desk, clock, url, folder, process, _free=keys(machines))
            finally:
                process.stdin and process.stdin.close()
                process.stdout and process.stdout.close()
                process.wait(30)
                desk.guarded.end()


def trace_of(kind: str, variant: int) -> Trace:
    """One variant of a kind, as long as it takes to be found, or to be wrong."""
    length = 15 if kind in HANGS else 93 if kind in {"monitoring-blips", "hourly-cron"} else 48
    return traced(dice_of(kind, variant), KINDS[kind], warm=WARM, length=length)


def stop(found: Sequence[Activity], began: datetime, least: float = 0.9) -> int | None:
    """The first minute at which a rule of 45 idle minutes would act; None: at none. `found`: from the minute WARM on."""
    for minute, work in enumerate(found, WARM):
        if work.state == IDLE and work.confidence >= least and work.since and began + minute * MINUTE - work.since >= HOLD:
            return minute
    return None


def told(kind: str, variant: int, played: Replayed, found: Sequence[Activity], directly: Sequence[Activity]) -> str:
    """One line of a table: how many minutes are judged as the trace by itself, of each state, and when a rule would act."""
    same = sum(one.state == other.state for one, other in zip(found, directly, strict=True))
    acted, before = stop(found, played.began), stop(directly, START)
    said = f"stops at {acted}, directly {before}"
    return f"{kind:28} {variant:2} {same:3}/{len(found)} same: {_shares(found)}; directly {_shares(directly)}; {said}"


def lost(played: Replayed) -> list[str]:
    """Values of the trace that did not arrive in their minute as they were, to within the units of what counts them."""
    by_minute = {(one.signal, round((one.at - played.began) / MINUTE)): one.value for one in played.samples}
    wrong = []
    for minute, samples in enumerate(played.trace.samples[WARM:], WARM):
        for one in samples:
            within = EXACT.get(one.signal)
            arrived = by_minute.get((one.signal, minute))
            if within is not None and (arrived is None or abs(arrived - one.value) > within):
                wrong.append(f"{one.signal} at {minute}: {one.value} became {arrived}")
    return wrong


def _shares(found: Sequence[Activity]) -> str:
    counts = {name: sum(one.state == name for one in found) for name in (ACTIVE, IDLE, HUNG, UNKNOWN)}
    return " ".join(f"{name} {count}" for name, count in counts.items() if count)
