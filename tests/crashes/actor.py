"""The process that acts, or records, and is killed: it lists, settles, stops what nobody keeps, and lists again, until it dies.

    python -m tests.crashes.actor       a life for each line of JSON (the fields of Fate) on stdin, by fork

It imports everything once and plays a life itself first, so that what a life waits for is the ledger and the cloud; when it
forks it has one thread and no ledger open. On stdout, a line of JSON for each life: how it ended and where.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from costguard.errors import LedgerError
from costguard.guard.action_intents import DOUBTFUL_STATES, EXECUTING, READY, UNCONFIRMED, Intent
from costguard.guard.policy import STOP, Rails
from costguard.ledger.guard.store import GuardStore
from costguard.metering.observation import Observation, identify_incarnation
from costguard.services.guarding.act.lanes import DueAct, perform_in_lanes
from costguard.services.guarding.act.send_action import ActionPorts, ActionResult, confirm_action, send_action, settle_action
from costguard.values.resource import RUNNING
from tests.crashes import ends, recorder
from tests.crashes.account import START, Account, Marked
from tests.crashes.acting_cloud import ask
from tests.crashes.points import COMMITTING, WRITING, Marker, Page

NO_WAIT = timedelta()
SHARE = Fraction(10**6)
RAILS = Rails(acts_per_run=10**6, acts_per_10m=10**6, fleet_share_10m=SHARE, fleet_share_day=SHARE)
ACT, FINISH, WARM = "act", "finish", "warm"
BLIND, EARLY, FORGETFUL, LATE = "blind", recorder.EARLY, recorder.FORGETFUL, "late"
CONTROLS = {
    BLIND: "sends what a crash left without looking",
    EARLY: "sends before it commits",
    FORGETFUL: "its commits are thrown away",
    LATE: "does not look at the clock before it sends",
}
"""Actors that are broken on purpose."""


@dataclass(frozen=True, slots=True)
class Fate:
    """A life to come. `base_s`: what time it is in the story when it begins; None: by the machine's clock, as `origin_s` is.

    It ends `after_s` after it began at the latest. Before that, at `point` for the `nth` time, befalls it what `end` says
    (tests/crashes/ends.py), of which `amount` is how much. `pages`: of log after which SQLite moves it into the file.
    `story`: the file of what is recorded, where the life records and does not act; about `most` listings of it.
    """

    task: str
    url: str
    folder: str
    port: int
    base_s: float | None = 0.0
    origin_s: float = 0.0
    point: str = ""
    nth: int = 1
    end: str = ends.KILLED
    amount: int = 0
    after_s: float = 1.0
    pages: int = 1000
    turn_s: float = 30.0
    cloud: str = "a"
    story: str = ""
    most: int = 0


@dataclass(frozen=True, slots=True)
class Death:
    """How a life ended: its exit code, -9 where it was killed; the last point that it passed; and the windows of that."""

    code: int
    point: str
    windows: list[str]


@dataclass
class Actor:
    """One life. `ahead_s`: how far its time is ahead of the machine's clock."""

    task: str
    account: Account
    intents: Marked
    ahead_s: float
    epoch: int = 0

    def now(self) -> datetime:
        """This instant of the story."""
        return START + timedelta(seconds=self.ahead_s + time.monotonic())

    @property
    def hands(self) -> ActionPorts:
        return ActionPorts(inspector=self.account, stopper=self.account)

    def still(self, seen: Observation) -> str:
        """Whether anybody keeps it."""
        return "it has a lease" if seen.labels else ""

    def round(self) -> bool:
        """List, settle, act, plan; whether anything is left to do. An epoch that has run out ends the life with an error."""
        self.intents.mark("polling")
        asked_at, listing = self.now(), {seen.key: seen for seen in self.account.listing()}
        self.intents.mark("listed")
        acts = [self._due(one, listing.get(one.life.key), asked_at) for one in self.intents.load_open_intents()]
        if self.task == WARM:  # the fork server may keep no thread
            for one in acts:
                one.perform()
        else:
            perform_in_lanes(acts, room=len(acts), may_begin=lambda: True)
        for seen in listing.values():
            if seen.state == RUNNING and not seen.labels:
                self.intents.plan_intent(self._intent(seen))
        left = [one for one in self.intents.load_open_intents() if one.state != UNCONFIRMED]
        return bool(left)

    def _due(self, one: Intent, seen: Observation | None, asked_at: datetime) -> DueAct:
        """Its next step. The machines are of two accounts: in one four acts may be under way, in the other one."""
        even = int(one.life.key.id.removeprefix("i-")) % 2 == 0
        perform = partial(self._forward, one, seen, asked_at)
        return DueAct(intent=one, account=("fake", str(even)), at_once=4 if even else 1, perform=perform)

    def _forward(self, one: Intent, seen: Observation | None, asked_at: datetime) -> None:
        if one.state == EXECUTING and self.task == BLIND:
            self.account.stop(one.life.key)
        elif one.state == EXECUTING:
            acted = settle_action(one, self.hands, self.intents, self, self.still, settling=NO_WAIT)
            self._sound(acted)
            self.intents.mark("settled")
        elif one.state in DOUBTFUL_STATES:
            acted = confirm_action(
                one, seen, self.intents, self.still, absences=0, asked_at=asked_at, now=self.now(), settling=NO_WAIT
            )
            self._sound(acted)
            if acted.again:
                self._act(acted.intent)
        else:
            self._act(one)

    def _act(self, one: Intent) -> None:
        if self.task == EARLY:
            self.account.stop(one.life.key)
        seconds = (lambda: 0.0) if self.task == LATE else time.monotonic
        clock = _Stuck(self.now()) if self.task == LATE else self
        with self.intents.mark.page.acting(one.id):
            self._sound(send_action(one, self.hands, self.intents, clock, self.still, epoch=self.epoch, seconds=seconds))

    def _sound(self, acted: ActionResult) -> None:
        if acted.broken:
            raise LedgerError(acted.broken)

    def _intent(self, seen: Observation) -> Intent:
        now = self.now()
        return Intent(
            id=f"{seen.key.id} {now.timestamp():.6f}",
            life=identify_incarnation(seen),
            act=STOP,
            policy="idle-gpu",
            rule="idle",
            why="nobody keeps it",
            evidence="{}",
            state=READY,
            created_at=now,
            moved_at=now,
            epoch=self.epoch,
        )


@dataclass
class _Stuck:
    """A clock that somebody looked at once."""

    at: datetime

    def now(self) -> datetime:
        return self.at


def live(fate: Fate, page: Page) -> None:
    """One life."""
    mark = Marker(page, fate.point, fate.nth, partial(_befalls, page, fate))
    _watch(page, mark, fate)
    mark("born")
    acked = os.open(Path(fate.folder) / "acked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if fate.story:
        recorder.record(fate.task, fate.story, fate.url, acked=acked, mark=mark, most=fate.most)
        return
    born_s = time.monotonic()
    ahead_s = -fate.origin_s if fate.base_s is None else fate.base_s - born_s
    with GuardStore(fate.url, rails=RAILS) as book:
        mark("opened")
        actor = Actor(fate.task, Account(fate.port, mark, fate.cloud), Marked(book, mark, acked), ahead_s)
        holder, lasts = f"life {os.getpid()} {born_s}", timedelta(seconds=fate.turn_s)
        while not (epoch := book.acquire_leader_lease(holder, actor.now(), lasts)):
            assert fate.base_s is None, "the turn of the life before is over"
            time.sleep(0.1)
        actor.epoch = epoch
        while actor.round() or fate.task not in (FINISH, WARM):
            if fate.task == FINISH:  # as a minute does, which nobody wants to wait for
                actor = replace(actor, ahead_s=actor.ahead_s + 65)
                book.acquire_leader_lease(holder, actor.now(), timedelta(seconds=100))
            elif fate.task == WARM:
                return
            elif fate.base_s is None:
                time.sleep(0.2)
                actor.epoch = book.acquire_leader_lease(holder, actor.now(), lasts) or 0
    os.close(acked)


def _befalls(page: Page, fate: Fate) -> None:
    if fate.end != ends.KILLED:
        page.befallen()
    ends.ENDS[fate.end](fate.amount, fate.url)


def _watch(page: Page, mark: Marker, fate: Fate) -> None:
    """Have `mark` told of commits, and connections opened as `fate` says. For good: in a process that dies."""
    if fate.task == WARM:
        return

    def committing(connection: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own
        if page.transaction == WRITING:
            page.transaction = COMMITTING
            mark("committing")
            if fate.task == FORGETFUL:
                for sql in ("ROLLBACK", "BEGIN"):
                    connection.connection.driver_connection.execute(sql)

    def connected(file: Any, _record: Any) -> None:  # noqa: ANN401 - a driver's own
        if fate.url.startswith("sqlite"):
            file.execute(f"PRAGMA wal_autocheckpoint = {fate.pages}")

    event.listen(Engine, "commit", committing)
    event.listen(Engine, "connect", connected)


def main() -> None:
    """Serve lives: {"live": fate} until it ends; {"begin": fate}, which goes on beside others, until {"reap": its process}."""
    page = Page()
    _warmed(int(sys.argv[1]), page)
    os.write(1, b"ready\n")
    gc.freeze()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for line in sys.stdin:
        ((what, asked),) = json.loads(line).items()
        if what == "begin":
            said: dict[str, Any] = {"pid": _born(Fate(**asked), Page())}
        elif what == "reap":
            said = {"code": os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1])}
            signal.sigtimedwait({signal.SIGCHLD}, 0)
        else:
            said = asdict(_lived(Fate(**asked), page))
        os.write(1, f"{json.dumps(said)}\n".encode())


def _lived(fate: Fate, page: Page) -> Death:
    page.clear()
    if fate.story:
        recorder.load(fate.story)
    child = _born(fate, page)
    if signal.sigtimedwait({signal.SIGCHLD}, fate.after_s) is None:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        signal.sigwait({signal.SIGCHLD})
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ledger = Path(fate.url.removeprefix("sqlite:///")) if fate.url.startswith("sqlite") else None
    return Death(code, page.point, page.windows(ledger))


def _born(fate: Fate, page: Page) -> int:
    """The process of a new life."""
    assert threading.active_count() == 1
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        live(fate, page)
        status = 0
    except (LedgerError, MemoryError) as error:
        if fate.end == ends.KILLED:
            sys.stderr.write(f"{type(error).__name__}: {error}\n"[:300])
    except Exception:  # noqa: BLE001 - it is said, and the process ends
        if fate.end == ends.KILLED:
            traceback.print_exc()
    finally:
        os._exit(status)


def _warmed(port: int, page: Page) -> None:
    """Play a life in this process, so that no life waits for what is done once: imports, compiled patterns, dialects."""
    with tempfile.TemporaryDirectory() as folder:
        ask(port, f"/a/new{folder}/0")
        live(Fate(WARM, f"sqlite:///{folder}/ledger.db", folder, port), page)
        held = [os.fspath(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
        assert not [name for name in held if "ledger.db" in name], held


if __name__ == "__main__":
    main()
