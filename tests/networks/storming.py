"""A storm: `costguard watch` in a process of its own, five clouds, and five wires on which things go wrong by a plan.

A watchdog that watched before left three machines due to be stopped. While it storms the process polls and acts; then all wires
are whole, and it must know everything again within three rounds. The judge asks the fakes what arrived, and, at the moment when
an act arrives, plain sqlite3 whether a row of the ledger allows it.
"""

from __future__ import annotations

import re
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.cli.watched import MACHINES, Before, Five, Watching, five_clouds, time_goes_on, until
from tests.fakes.gcp import account_file
from tests.fakes.server import Asked
from tests.networks.cells import line_of
from tests.networks.matrix import folder
from tests.networks.plan import storm
from tests.networks.proxy import Proxy, port_of, proxied

MINUTE = timedelta(minutes=1)
REQUESTS = 300
"""Of each wire for which the plan says something."""
STORM_S = 20.0
MOST_ROUNDS = 3
OF_RESTING = {"done", "executing", "verifying", "unconfirmed"}
STOPPABLE = ("aws", "runpod", "vast")
SETTINGS = """
[watch]
interval = "2s"
jitter = "0s"
[rails]
first_seen = "5s"
acts = { per_10m = 1000, fleet_percent = 100, fleet_percent_day = 100, irreversible_per_h = 100 }
[[policy]]
name = "off"
arm = "ARM"
match = { ids = ["@aws", "@runpod", "@vast"] }
when = 'power == "running"'
for = "2s"
allow_irreversible = true
then = [{ do = "notify" }, { after = "5m", do = "stop" }]
"""

ANNOUNCED_ANEW_S = 420.0
"""Longer than a grace of 5 min: what the storm withdrew is announced again, and its stop waits for that."""


@dataclass(slots=True)
class Storm:
    """What came of one. `struck`: how often each kind of fault happened. `rounds`: until all was known again."""

    seed: str
    struck: Counter[str] = field(default_factory=Counter)
    acts: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    cut_short: int = 0
    asked: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        words = ", ".join(f"{kind} {count}" for kind, count in sorted(self.struck.items()))
        replay = f"python -m tests.networks --cells 0 --storms 1 --seed '{self.seed}'"
        return (
            f"storm {self.seed}: {sum(self.struck.values())} faults ({words}); {self.asked} requests, {self.cut_short} cut and "
            f"refused; acts {dict(self.acts)}; all known again after {self.rounds} rounds; wrong: {self.wrong or 0}; {replay}"
        )


def weathered(seed: str, *, storm_s: float = STORM_S) -> Storm:
    """One storm from `seed`."""
    made = Storm(seed)
    with folder() as place, five_clouds(place, datetime.now(UTC) - 8 * MINUTE) as five, ExitStack() as stack:
        before = Before(five, five.write(SETTINGS.replace("ARM", "notify")), datetime.now(UTC) - 8 * MINUTE, 2 * MINUTE, stack)
        before.watch_until(datetime.now(UTC))
        stack.enter_context(time_goes_on(five))
        for name in five.rigs:
            _judged(five, name, made)
        wires = stack.enter_context(_wired(five, seed))
        process = stack.enter_context(_watching(five))
        while not process.said(" an hour, observing"):
            before.judge(datetime.now(UTC))
            time.sleep(0.05)
        before.give_turn()
        end = time.monotonic() + storm_s
        until(lambda: time.monotonic() > end, process)
        for wire in wires.values():
            wire.heal()
        healed = datetime.now(UTC)
        until(lambda: _current(five, healed), process)
        made.rounds = _rounds(five, healed)
        until(lambda: _settled(five), process, within_s=ANNOUNCED_ANEW_S)
        if process.ended(signal.SIGTERM):
            made.wrong.append(f"it ended badly: {process.tail()}")
        _judge(five, wires, made, process)
    return made


def _watching(five: Five) -> Any:  # noqa: ANN401 - a context manager
    """The process, killed in the end whatever comes."""
    return closing(Watching.started(five, module="tests.networks.child"))


@contextmanager
def _wired(five: Five, seed: str) -> Iterator[dict[str, Proxy]]:
    """A proxy before each of the five, and settings that lead there."""
    with ExitStack() as stack:
        wires = {
            name: stack.enter_context(proxied(port_of(base), storm(f"{seed} {name}", REQUESTS), line_of(five.rigs[name].fake)))
            for name, base in five.bases.items()
        }
        five.bases = {name: f"http://127.0.0.1:{wire.port}" for name, wire in wires.items()}
        (five.folder / "home" / "key.json").write_text(account_file(five.bases["gcp"], "/token"))
        text = five.write(SETTINGS.replace("ARM", "stop"))
        quick = re.sub(r"(?m)^(\[providers\.\w+\])$", r"\1\ntimeout_s = 8", text)
        (five.folder / "costguard.toml").write_text(quick)
        yield wires


def _judged(five: Five, name: str, made: Storm) -> None:
    """Have every act looked at in the moment when it arrives, before the fake does it."""
    rig, lock = five.rigs[name], threading.Lock()
    plain = rig.fake.take

    def take(asked: Asked) -> Any:  # noqa: ANN401 - as the fake's own
        line = line_of(rig.fake)(asked.method, asked.line.partition(" ")[2], asked.headers, asked.body)
        acts = [one for one in (rig.stops, rig.terminates) if one and re.search(one, line)]
        if acts:
            with lock:
                made.acts[name] += 1
                ids = _executing(five.ledger.removeprefix("sqlite:///"), name)
                if five.victim(name) not in ids:
                    made.wrong.append(f"{line[:120]} arrived, and the ledger allows it for {ids or 'nobody'}")
        return plain(asked)

    rig.fake.take = take  # type: ignore[method-assign]


def _asked_of(ledger: str | Path, sql: str, *values: object) -> list[Any]:
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=30)) as connection:
        return connection.execute(sql, values).fetchall()


def _executing(ledger: str, provider: str) -> set[str]:
    """The machines of this provider for which an act is about to be sent, as committed now."""
    sql = "SELECT external_id FROM intent WHERE provider = ? AND state = 'executing'"
    return {row[0] for row in _asked_of(ledger, sql, provider)}


def _file(five: Five) -> Path:
    return five.folder / "ledger.db"


def _current(five: Five, since: datetime) -> bool:
    """Whether the ledger has seen every scope since then."""
    sql = "SELECT s.provider, max(c.end_us) FROM scope AS s JOIN coverage AS c ON c.scope_id = s.id GROUP BY s.id"
    found = _asked_of(_file(five), sql)
    return {row[0] for row in found} == set(five.rigs) and all(row[1] >= since.timestamp() * 1e6 for row in found)


def _rounds(five: Five, since: datetime) -> int:
    """How many guard runs there were since then."""
    ((count,),) = _asked_of(_file(five), "SELECT count(*) FROM guard_run WHERE at_us > ?", int(since.timestamp() * 1e6))
    return int(count)


def _settled(five: Five) -> bool:
    """Whether nothing is in doubt any more, nor under way."""
    return not _asked_of(_file(five), "SELECT id FROM intent WHERE state NOT IN ('done', 'cancelled', 'failed')")


def _judge(five: Five, wires: dict[str, Proxy], made: Storm, process: Watching) -> None:
    for name, wire in wires.items():
        made.struck.update(fault.kind for _, _, fault in wire.struck)
        made.cut_short += five.rigs[name].fake.cut_short
        made.asked += len(five.rigs[name].fake.asked)
    made.wrong += [f"{name} was stopped {count} times" for name, count in made.acts.items() if count > 1]
    if five.resting() != {(name, five.victim(name)) for name in made.acts}:
        made.wrong.append(f"what rests is {five.resting()}, and acts came for {dict(made.acts)}")
    made.wrong += _disagreements(five)
    if made.rounds > MOST_ROUNDS:
        made.wrong.append(f"it took {made.rounds} rounds until all was known again")
    if process.said("Traceback") or process.said("a bug in costguard"):
        made.wrong.append(f"it broke: {process.tail()}")
    left = len(_asked_of(_file(five), "SELECT id FROM resource WHERE kind = 'instance'"))
    if left != MACHINES * len(five.rigs):
        made.wrong.append(f"the ledger knows {left} machines")


def _disagreements(five: Five) -> list[str]:
    """Where the ledger's last word and the clouds differ. One that was just sent may still be in doubt, and says so."""
    found = dict[tuple[str, str], set[str]]()
    for provider, machine, state in _asked_of(_file(five), "SELECT provider, external_id, state FROM intent"):
        found.setdefault((provider, machine), set()).add(state)
    resting = five.resting()
    wrong = [f"{one} rests, and the ledger says {found.get(one)}" for one in resting if not found.get(one, set()) & OF_RESTING]
    wrong += [
        f"the ledger has {one} done, which runs" for one, states in found.items() if "done" in states and one not in resting
    ]
    moves = _asked_of(_file(five), "SELECT at_us, intent_id, moved_from, moved_to, why FROM intent_event ORDER BY id")
    return [*wrong, f"moves: {moves}"] if wrong else []
