"""Machines of the fake clouds of `bench.scale` that an armed policy stops, and that somebody starts again.

A rule that asks for no measurements finds them due: every look, notice and check of an act is the real one, but for those of
activity. Their state lies in a folder that all watchdogs share, a file a machine, which says when its run was stopped; a while
later the next run begins by itself. Each look and each request to stop is a line of the log:

    look 1795219200.123 17 4711                      a machine of account 17 was looked up by the process 4711
    sent 1795219200.456 17 4711 3 1795219100000000   it asked to stop the machine 3 of account 17, whose run began then (us)

`judge_acts` holds these lines to the ledger's intents, as a bill is held to a ledger.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from costguard.guard import escalation, policy_evaluation
from costguard.settings import policies
from costguard.values.instant import to_micros

LOOK, SENT = "look", "sent"
TARGETS = 6
"""Machines of an account that the policy means."""
LOOK_S = 0.3
"""How long the cloud takes to answer a look, once it has read the state: what a suspended watchdog saw is old."""
GRACE_S = 30.0
"""Between the notice and the stop. The settings take five minutes at least: then there would be few acts in a campaign."""
NAMED = "stop-me"
POLICY = f"""
[rails]
first_seen = "1s"
acts = {{ per_run = 1000, per_10m = 1000, fleet_percent = 100, fleet_percent_day = 100, least_per_day = 1000000 }}
[[policy]]
name = "off"
arm = "stop"
match = {{ names = ["{NAMED}"] }}
rule = "limit"
when = 'age > duration("1s")'
then = [{{ do = "notify" }}, {{ after = "{GRACE_S:g}s", do = "stop" }}]
[notify]
console_is_delivery = true
"""


class Run(NamedTuple):
    """A run of a machine. `since`: when it began. `ends`: when it was stopped; None: it goes on."""

    since: datetime
    ends: datetime | None


@dataclass(frozen=True, slots=True)
class Machines:
    """The targets of all accounts. `folder`: of their states. `began`: when the first runs began."""

    folder: Path
    began: datetime

    @classmethod
    def open(cls, folder: Path) -> Machines:
        """Return those in `folder`, which is made."""
        folder.mkdir(exist_ok=True)
        begun = folder / "began"
        if not begun.exists():
            begun.write_text(datetime.now(UTC).isoformat())
        return cls(folder, datetime.fromisoformat(begun.read_text()))

    def find_run(self, account: int, place: int, at: datetime) -> Run:
        """Return the run that goes on at `at`, or the last one."""
        path = self.folder / f"{account}-{place}"
        first = self.began - timedelta(hours=1) + timedelta(seconds=self._draw(account, place))
        since, ends = first, None
        if path.exists():
            since, ends = (datetime.fromisoformat(text) for text in path.read_text().split())
        again = ends + timedelta(seconds=5 + self._draw(account, place)) if ends else None
        calm = self.folder / "calm"
        if again and again <= at and not (calm.exists() and again > datetime.fromisoformat(calm.read_text())):
            return Run(again, None)
        return Run(since, ends)

    def stop(self, account: int, place: int, at: datetime) -> Run:
        """Stop it if it runs; return the run that was asked to stop, as it was."""
        run = self.find_run(account, place, at)
        if run.ends is None:
            new = self.folder / f".{account}-{place}-{os.getpid()}"
            new.write_text(f"{run.since.isoformat()} {at.isoformat()}")
            new.rename(self.folder / f"{account}-{place}")
        return run

    def calm_down(self) -> None:
        """From now on nobody starts a machine."""
        (self.folder / "calm").write_text(datetime.now(UTC).isoformat())

    @staticmethod
    def _draw(account: int, place: int) -> int:
        """Return seconds that differ from machine to machine, so that they are not all due at once."""
        return (account * 37 + place * 11) % 60


def judge_acts(log: Path, look: Any, machines: Machines, accounts: int, *, gave_s: float) -> Iterator[str]:  # noqa: ANN401 - a connection
    """Yield what is wrong with the acts: doubled, without an intent that let them go, or missing, a sentence each.

    `gave_s`: seconds beyond the grace after which a machine that runs must at least have an intent that waits, in the calm at
    the end: how long that waits is up to its notice, and those of many machines are put together for minutes.
    """
    lines = [line.split() for line in log.read_text(encoding="utf-8").splitlines() if line.startswith(SENT)]
    calls = Counter((int(account), int(place), int(since)) for _, _, account, _, place, since in lines)
    let_go = {
        (int(account), str(name), int(life.partition("/")[0])): int(count)
        for account, name, life, count in look.execute(_LET_GO).fetchall()
    }
    for (account, place, since), count in calls.items():
        allowed = let_go.get((account, name_machine(account, place), since), 0)
        what = f"machine {place} of account {account} in its run since {since}"
        if count > 1:
            yield f"doubled: {what} was asked to stop {count} times"
        if allowed < count:
            yield f"unrecorded: {what} was asked to stop {count} times, and the ledger let {allowed} go"
    for name, state in look.execute(_IN_DOUBT).fetchall():
        yield f"lost: intent {name} is {state} for minutes"
    now, waiting = datetime.now(UTC), {(int(account), str(name)) for account, name in look.execute(_WAITING).fetchall()}
    for account in range(accounts):
        for place in range(TARGETS):
            run = machines.find_run(account, place, now)
            runs_s = 0.0 if run.ends else (now - run.since).total_seconds()
            if runs_s > GRACE_S + gave_s and (account, name_machine(account, place)) not in waiting:
                yield f"lost: machine {place} of account {account} has run for {runs_s:.0f} s, and no intent waits"


@contextmanager
def shorten_grace() -> Iterator[None]:
    """Let settings state `GRACE_S`, and the guard keep to it."""
    with ExitStack() as stack:
        for module in (policies, escalation, policy_evaluation):
            stack.enter_context(patch.object(module, "GRACE_MIN", timedelta(seconds=GRACE_S)))
        yield


def count_acts(log: Path) -> int:
    """Return how many requests to stop arrived."""
    return sum(line.startswith(SENT) for line in log.read_text(encoding="utf-8").splitlines())


def name_machine(account: int, place: int) -> str:
    """Return its id."""
    return f"i-act-{account}-{place}"


def write_look(log: int, account: int) -> None:
    """Write that a machine was looked up, and take the time that an answer takes."""
    os.write(log, f"{LOOK} {time.time()} {account} {os.getpid()}\n".encode())
    time.sleep(LOOK_S)


def write_sent(log: int, account: int, place: int, run: Run) -> None:
    """Write that a request to stop arrived."""
    os.write(log, f"{SENT} {time.time()} {account} {os.getpid()} {place} {to_micros(run.since)}\n".encode())


_LET_GO = """
SELECT i.account, i.external_id, i.life, count(*) FROM intent_event AS e JOIN intent AS i ON i.id = e.intent_id
WHERE e.moved_to = 'executing' GROUP BY i.account, i.external_id, i.life
"""
_WAITING = "SELECT account, external_id FROM intent WHERE state IN ('grace', 'ready', 'executing', 'verifying')"
_IN_DOUBT = """
SELECT id, state FROM intent
WHERE state IN ('executing', 'verifying') AND moved_us < (extract(epoch FROM clock_timestamp()) - 180) * 1000000
"""
