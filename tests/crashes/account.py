"""The provider's adapter and the ledger's intents of the acting story, with every step told."""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from costguard.errors import UnreachableError
from costguard.guard.action_intents import EXECUTING, Intent
from costguard.ledger.guard.store import GuardStore
from costguard.metering.observation import Handling, Observation
from costguard.system.clock import is_too_late_to_send
from costguard.values.instant import to_micros
from costguard.values.provider import ACCEPTED, UNCLEAR, ActionResponse
from costguard.values.resource import ResourceKey
from tests.crashes.acting_cloud import ask
from tests.crashes.points import LET_GO, SENT, Marker

START = datetime(2026, 11, 6, 12, tzinfo=UTC)
BEGAN = START - timedelta(hours=9)


def key_of(name: str) -> ResourceKey:
    """Of a machine."""
    return ResourceKey("fake", "1", "all", name)


def begun(run: int) -> datetime:
    """When a run began."""
    return BEGAN + timedelta(milliseconds=run)


@dataclass
class Account:
    """The adapter. `cloud`: its name."""

    port: int
    mark: Marker
    cloud: str

    def listing(self) -> list[Observation]:
        """All of them."""
        return [_seen(one) for one in self._get("machines")]

    def look_up(self, key: ResourceKey) -> Observation | None:
        """One of them."""
        self.mark("before a look")
        seen = _seen(self._get(f"machines/{key.id}"))
        self.mark("looked")
        return seen

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        """Ask once. The request goes out in two pieces, so that one can die between them."""
        assert not lose
        body = json.dumps({"id": key.id}).encode()
        head = f"POST /{self.cloud}/machines HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        self.mark("before send")
        try:
            with closing(socket.create_connection(("127.0.0.1", self.port), timeout=20)) as line:
                if is_too_late_to_send():  # as costguard's own transport does
                    raise ConnectionAbortedError("it is too late to send it")
                self.mark("checked")
                line.sendall(head + body[:4])
                self.mark("half sent")
                line.sendall(body[4:])
                self.mark.page.act = SENT
                self.mark("sent")
                answer = line.recv(4096)
        except OSError as error:
            return ActionResponse(said=UNCLEAR, why=str(error))
        self.mark("answered")
        return ActionResponse(said=ACCEPTED) if b" 200 " in answer else ActionResponse(said=UNCLEAR, why="no answer")

    def _get(self, path: str) -> Any:  # noqa: ANN401 - whatever the API says
        try:
            return ask(self.port, f"/{self.cloud}/{path}", timeout_s=20)
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
    """The ledger's intents, with `mark` told; what was committed is acknowledged by a line of the file `acked`."""

    book: GuardStore
    mark: Marker
    acked: int

    def plan_intent(self, intent: Intent) -> bool:
        with self.mark.page.writing():
            planned = self.book.plan_intent(intent)
        if planned:
            self._acknowledge(intent)
        self.mark("planned")
        return planned

    def move_intent(self, intent: Intent, state: str, now: datetime, **changes: Any) -> Intent | None:  # noqa: ANN401 - fields of an Intent
        self.mark("before commit" if state == EXECUTING else "before record")
        with self.mark.page.writing():
            moved = self.book.move_intent(intent, state, now, fleet=10**6, **changes)
        if moved is not None:
            self._acknowledge(moved)
        self.mark.page.act = LET_GO if moved is not None and state == EXECUTING else 0
        self.mark("committed" if state == EXECUTING else "recorded")
        return moved

    def load_open_intents(self) -> list[Intent]:
        return self.book.load_open_intents()

    def load_sends_since(self, at: datetime) -> list[Intent]:
        return self.book.load_sends_since(at)

    def _acknowledge(self, intent: Intent) -> None:
        os.write(self.acked, f"{intent.id} {intent.state} {to_micros(intent.moved_at)}\n".encode())
