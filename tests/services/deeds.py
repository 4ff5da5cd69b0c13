"""A machine in a cloud, people who wish things, and a ledger in memory, with a moment before and after each step of an act."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from costguard.errors import LedgerError
from costguard.guard.action_intents import DONE, EXECUTING, OPEN_STATES, READY, Intent, require_transition
from costguard.guard.policy import STOP
from costguard.metering.observation import Handling, Observation
from costguard.services.guarding.act.send_action import ActionPorts, ActionResult, confirm_action, send_action, settle_action
from costguard.values.provider import ACCEPTED, ALREADY, ActionResponse
from costguard.values.resource import ENDED, RUNNING, STOPPED, Incarnation, ResourceKey

START = datetime(2026, 11, 6, 19, 5, tzinfo=UTC)
BEGAN = START - timedelta(hours=9)
KEY = ResourceKey("aws", "1111", "us-east-1", "i-0abc")
LIFE = Incarnation(KEY, BEGAN, BEGAN)
S, MIN = timedelta(seconds=1), timedelta(minutes=1)


def machine(**changes: Any) -> Observation:  # noqa: ANN401 - any field of it
    """One that runs since the morning."""
    handling = Handling(stops=True, terminates=True)
    return replace(Observation(key=KEY, state=RUNNING, created_at=BEGAN, started_at=BEGAN, handling=handling), **changes)


def intent(**changes: Any) -> Intent:  # noqa: ANN401 - any field of it
    """A stop of it that is due."""
    plain = Intent(
        id="one",
        life=LIFE,
        act=STOP,
        policy="idle-gpu",
        rule="idle",
        why="idle for 45 min",
        evidence="{}",
        state=READY,
        created_at=START,
        moved_at=START,
    )
    return replace(plain, **changes)


@dataclass
class Memory:
    """Intents in memory. `full`: from the n-th move on it cannot be written. `closed`: the rails have no room."""

    rows: dict[str, Intent] = field(default_factory=dict)
    moves: list[tuple[str, str]] = field(default_factory=list)
    closed: bool = False
    full: int = 10**9
    meet: Callable[[str], None] = lambda _point: None

    def plan_intent(self, intent: Intent) -> bool:
        if any(one.life == intent.life and one.act == intent.act for one in self.load_open_intents()):
            return False
        self.rows[intent.id] = intent
        return True

    def move_intent(
        self,
        intent: Intent,
        state: str,
        now: datetime,
        unsent: Intent | None = None,
        **changes: Any,  # noqa: ANN401
    ) -> Intent | None:
        self.meet(f"before {state}")
        if len(self.moves) >= self.full:
            raise LedgerError("cannot be written: the disk is full", field="ledger.db")
        if self.rows[intent.id] != intent or (state == EXECUTING and self.closed):
            return None
        require_transition(intent.state, state)
        self.moves.append((intent.state, state))
        if state != EXECUTING:
            changes = {"expires_at": None, **changes}
        if unsent is not None:
            changes |= {"sends": intent.sends - 1, "sent_at": unsent.sent_at}
        self.rows[intent.id] = replace(intent, state=state, moved_at=now, **changes)
        self.meet(f"after {state}")
        return self.rows[intent.id]

    def load_open_intents(self) -> list[Intent]:
        return [one for one in self.rows.values() if one.state in OPEN_STATES]

    def load_sends_since(self, at: datetime) -> list[Intent]:
        return [one for one in self.rows.values() if one.sent_at and one.sent_at >= at]


@dataclass
class World:
    """All of it. `obeys`: what becomes of a request; `wish`: why it should be kept; `points`: steps as they were passed.

    `at`: what happens when a step is passed for the n-th time, "look 2" for example.
    """

    seen: Observation | None = field(default_factory=machine)
    wish: str = ""
    obeys: Callable[[World], ActionResponse] = lambda world: world.stop_it()
    answers_look: Callable[[World], Observation | None] = lambda world: world.seen
    at: dict[str, Callable[[World], None]] = field(default_factory=dict)
    ledger: Memory = field(default_factory=Memory)
    now_: datetime = START
    up_s: float = 100.0
    points: list[str] = field(default_factory=list)
    asked: list[tuple[str, ResourceKey, frozenset[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger.meet = self.meet

    def now(self) -> datetime:
        return self.now_

    def seconds(self) -> float:
        return self.up_s

    def goes_by(self, by: timedelta) -> None:
        self.now_ += by
        self.up_s += by.total_seconds()

    def meet(self, point: str) -> None:
        self.points.append(point)
        change = self.at.get(point) or self.at.get(f"{point} {self.points.count(point)}")
        if change:
            change(self)

    def look_up(self, key: ResourceKey) -> Observation | None:
        assert key == KEY
        self.meet("look")
        answer = self.answers_look(self)
        self.meet("looked")
        return answer

    def still(self, seen: Observation) -> str:
        self.meet("still")
        never = ("costguard", "never") in seen.labels
        return self.wish or ("it is protected by a label" if never else "")

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        self.asked.append(("stop", key, lose))
        return self.obeys(self)

    def terminate(self, key: ResourceKey) -> ActionResponse:
        self.asked.append(("terminate", key, frozenset()))
        return self.obeys(self)

    def stop_it(self) -> ActionResponse:
        """It obeys."""
        assert self.seen is not None
        already = self.seen.state != RUNNING
        self.seen = replace(self.seen, state=STOPPED, stopped_at=self.now_)
        return ActionResponse(said=ALREADY if already else ACCEPTED)

    def end_it(self) -> ActionResponse:
        """It is gone."""
        assert self.seen is not None
        self.seen = replace(self.seen, state=ENDED)
        return ActionResponse(said=ACCEPTED)

    def restart(self) -> None:
        """Somebody starts it anew."""
        assert self.seen is not None
        self.seen = replace(self.seen, state=RUNNING, started_at=self.now_, stopped_at=None)

    @property
    def hands(self) -> ActionPorts:
        return ActionPorts(inspector=self, stopper=self, terminator=self)

    def act(self, one: Intent | None = None, hands: ActionPorts | None = None) -> ActionResult:
        """Do it, having recorded it."""
        one = one or intent()
        self.ledger.rows.setdefault(one.id, one)
        return send_action(one, hands or self.hands, self.ledger, self, self.still, seconds=self.seconds)

    def confirm(self, absences: int = 0) -> ActionResult:
        """Move what is in doubt by a listing of this instant."""
        one = self.ledger.rows["one"]
        return confirm_action(one, self.seen, self.ledger, self.still, absences=absences, asked_at=self.now_, now=self.now_)

    def settle(self, hands: ActionPorts | None = None) -> ActionResult:
        """As the next process does."""
        return settle_action(self.ledger.rows["one"], hands or self.hands, self.ledger, self, self.still)

    def run(self, most: timedelta = 12 * MIN) -> list[ActionResult]:
        """Once a minute: confirm, and send again where it is due; until it is done."""
        until = self.now_ + most
        all_: list[ActionResult] = []
        while self.now_ < until and self.ledger.rows["one"].state != DONE:
            self.goes_by(MIN)
            all_.append(self.confirm())
            if all_[-1].again:
                all_.append(self.act(self.ledger.rows["one"]))
        return all_
