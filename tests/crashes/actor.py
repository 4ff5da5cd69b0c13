"""The process that acts and is killed: it lists, settles, stops what nobody keeps, and lists again, until it dies.

    python -m tests.crashes.actor       a life for each line "TASK LEDGER PORT BASE_S POINT NTH AFTER_S" on stdin, by fork

A life dies by SIGKILL: by its own hand when it comes to POINT for the NTH time, or by another's AFTER_S seconds after it began.
On stdout, a line for each: "ended CODE POINT", POINT being the last one that it passed.

Tasks: "act"; "finish" (until nothing is left to do, then end); and actors that are broken on purpose: "blind" (sends what a
crash left without looking), "early" (sends before it commits).
"""

from __future__ import annotations

import gc
import http.client
import json
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from costguard.core.acting import ACCEPTED, UNCLEAR, Reception
from costguard.core.guard.incarnation import incarnation_of
from costguard.core.guard.intent import EXECUTING, IN_DOUBT, READY, UNCONFIRMED, Intent
from costguard.core.guard.policy import STOP, Rails
from costguard.core.metering.observation import Handling, Observation
from costguard.core.metering.resource import RUNNING, ResourceKey
from costguard.errors import LedgerError, UnreachableError
from costguard.flows.acting import Acted, Hands, act, confirm, settle
from costguard.ledger.guardbook import GuardBook

START = datetime(2026, 11, 6, 12, tzinfo=UTC)
BEGAN = START - timedelta(hours=9)
NO_WAIT = timedelta()
POINTS = (
    "listed", "planned", "before a look", "looked", "before commit", "committed", "settled",
    "before send", "half sent", "sent", "answered", "before record", "recorded",
)  # fmt: skip
SHARE = Fraction(10**6)
RAILS = Rails(acts_per_run=10**6, acts_per_10m=10**6, fleet_share_10m=SHARE, fleet_share_day=SHARE)
Mark = Callable[[str], None]


def key_of(name: str) -> ResourceKey:
    """Of a machine."""
    return ResourceKey("fake", "1", "all", name)


def begun(run: int) -> datetime:
    """When a run began."""
    return BEGAN + timedelta(milliseconds=run)


@dataclass
class Account:
    """The adapter."""

    port: int
    mark: Mark

    def listing(self) -> list[Observation]:
        """All of them."""
        return [_seen(one) for one in self._get("/machines")]

    def look(self, key: ResourceKey) -> Observation | None:
        """One of them."""
        self.mark("before a look")
        seen = _seen(self._get(f"/machines/{key.id}"))
        self.mark("looked")
        return seen

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> Reception:
        """Ask once. The request goes out in two pieces, so that one can die between them."""
        assert not lose
        body = json.dumps({"id": key.id}).encode()
        head = f"POST /machines HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        self.mark("before send")
        try:
            with closing(socket.create_connection(("127.0.0.1", self.port), timeout=20)) as line:
                line.sendall(head + body[:4])
                self.mark("half sent")
                line.sendall(body[4:])
                self.mark("sent")
                answer = line.recv(4096)
        except OSError as error:
            return Reception(said=UNCLEAR, why=str(error))
        self.mark("answered")
        return Reception(said=ACCEPTED) if b" 200 " in answer else Reception(said=UNCLEAR, why="no answer")

    def _get(self, path: str) -> Any:  # noqa: ANN401 - whatever the API says
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as line:
            try:
                line.request("GET", path)
                return json.loads(line.getresponse().read())
            except OSError as error:
                raise UnreachableError(str(error), provider="fake") from error


def _seen(told: dict[str, Any]) -> Observation:
    return Observation(
        key=key_of(told["id"]),
        state=told["state"],
        created_at=BEGAN,
        started_at=begun(told["run"]),
        labels=(("costguard", "never"),) if told["kept"] else (),
        handling=Handling(stops=True),
    )


@dataclass
class Marked:
    """The ledger's intents, with `mark` told."""

    book: GuardBook
    mark: Mark

    def plan_intent(self, intent: Intent) -> bool:
        planned = self.book.plan_intent(intent)
        self.mark("planned")
        return planned

    def move_intent(self, intent: Intent, state: str, now: datetime, **changes: Any) -> Intent | None:  # noqa: ANN401 - fields of an Intent
        self.mark("before commit" if state == EXECUTING else "before record")
        moved = self.book.move_intent(intent, state, now, fleet=10**6, **changes)
        self.mark("committed" if state == EXECUTING else "recorded")
        return moved

    def open_intents(self) -> list[Intent]:
        return self.book.open_intents()

    def sends_since(self, at: datetime) -> list[Intent]:
        return self.book.sends_since(at)


@dataclass
class Actor:
    """One life. `base_s`: what time it is when it begins."""

    task: str
    account: Account
    intents: Marked
    base_s: float
    epoch: int = 0
    born_s: float = field(default_factory=time.monotonic)

    def now(self) -> datetime:
        """This instant of the story."""
        return START + timedelta(seconds=self.base_s + time.monotonic() - self.born_s)

    @property
    def hands(self) -> Hands:
        return Hands(inspector=self.account, stopper=self.account)

    def still(self, seen: Observation) -> str:
        """Whether anybody keeps it."""
        return "somebody keeps it" if seen.labels else ""

    def round(self) -> bool:
        """List, settle, act, plan; whether anything is left to do. An epoch that has run out ends the life with an error."""
        asked_at, listing = self.now(), {seen.key: seen for seen in self.account.listing()}
        self.intents.mark("listed")
        for one in self.intents.open_intents():
            self._forward(one, listing.get(one.life.key), asked_at)
        for seen in listing.values():
            if seen.state == RUNNING and not seen.labels:
                self.intents.plan_intent(self._intent(seen))
        left = [one for one in self.intents.open_intents() if one.state != UNCONFIRMED]
        return bool(left)

    def _forward(self, one: Intent, seen: Observation | None, asked_at: datetime) -> None:
        if one.state == EXECUTING and self.task == "blind":
            self.account.stop(one.life.key)
        elif one.state == EXECUTING:
            acted = settle(one, self.hands, self.intents, self, self.still, settling=NO_WAIT)
            self._sound(acted)
            self.intents.mark("settled")
        elif one.state in IN_DOUBT:
            acted = confirm(
                one, seen, self.intents, self.still, absences=0, asked_at=asked_at, now=self.now(), settling=NO_WAIT
            )
            self._sound(acted)
            if acted.again:
                self._act(acted.intent)
        else:
            self._act(one)

    def _act(self, one: Intent) -> None:
        if self.task == "early":
            self.account.stop(one.life.key)
        self._sound(act(one, self.hands, self.intents, self, self.still, epoch=self.epoch, seconds=time.monotonic))

    def _sound(self, acted: Acted) -> None:
        if acted.broken:
            raise LedgerError(acted.broken)

    def _intent(self, seen: Observation) -> Intent:
        now = self.now()
        return Intent(
            id=f"{seen.key.id} {now.timestamp():.6f}",
            life=incarnation_of(seen),
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


def live(task: str, ledger: str, port: int, base_s: float, mark: Mark) -> None:
    """One life."""
    with GuardBook(f"sqlite:///{ledger}", rails=RAILS) as book:
        actor = Actor(task, Account(port, mark), Marked(book, mark), base_s)
        epoch = book.take_turn(f"life {base_s}", actor.now(), timedelta(seconds=30))
        assert epoch is not None
        actor.epoch = epoch
        while actor.round() or task != "finish":
            actor = replace(actor, born_s=actor.born_s - (65 if task == "finish" else 0))
            if task == "finish":
                book.take_turn(f"life {base_s}", actor.now(), timedelta(seconds=100))


def main() -> None:
    """Serve lives."""
    page = mmap.mmap(-1, mmap.PAGESIZE)
    import alembic.command  # noqa: F401 - the slowest import, once for all lives

    gc.freeze()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for line in sys.stdin:
        task, ledger, port, base_s, point, nth, after_s = line.split("|")
        child = os.fork()
        if not child:
            status = 1
            try:
                live(task, ledger, int(port), float(base_s), _marker(page, point, int(nth)))
                status = 0
            finally:
                os._exit(status)
        if signal.sigtimedwait({signal.SIGCHLD}, float(after_s)) is None:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            signal.sigwait({signal.SIGCHLD})
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(1, f"ended {code} {POINTS[page[0]]}\n".encode())


def _marker(page: mmap.mmap, point: str, nth: int) -> Mark:
    """One that remembers the last point, and kills its own process at `point`."""
    left = nth

    def mark(passed: str) -> None:
        nonlocal left
        page[0] = POINTS.index(passed)
        left -= passed == point
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    return mark


if __name__ == "__main__":
    main()
