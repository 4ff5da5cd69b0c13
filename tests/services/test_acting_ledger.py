"""Acting over the real ledger: what it commits, what it refuses, and that nothing is sent then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from costguard.guard.action_intents import DONE, EXECUTING, READY, VERIFYING, Intent
from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from costguard.metering.observation import Observation
from costguard.services.guarding.act.send_action import ActionResult, confirm_action, send_action, settle_action
from costguard.services.poll.ports import Intents
from costguard.values.provider import ActionResponse
from costguard.values.resource import ResourceKey
from tests.services.deeds import KEY, LIFE, MIN, START, World, intent, machine


class Elsewhere:
    """Where every machine runs."""

    def look_up(self, key: ResourceKey) -> Observation:
        return machine(key=key)


@dataclass
class Desk:
    """The world with a ledger on disk, and the turn taken."""

    world: World
    book: GuardStore
    epoch: int

    @property
    def intents(self) -> Intents:
        """The book as acting sees it; it promises more than the port: `run` and `fleet`."""
        return cast("Intents", self.book)

    def act(self, one: Intent, epoch: int | None = None) -> ActionResult:
        world = self.world
        return send_action(one, world.hands, self.intents, world, world.still, epoch=epoch, seconds=world.seconds)

    def confirm(self, one: Intent) -> ActionResult:
        now = self.world.now()
        return confirm_action(one, self.world.seen, self.intents, self.world.still, absences=0, asked_at=now, now=now)

    def next_run(self, by: timedelta) -> None:
        """`by` goes by, and the turn is renewed."""
        self.world.goes_by(by)
        assert self.book.acquire_leader_lease("me", self.world.now(), 2 * MIN) == self.epoch


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with GuardStore(f"sqlite:///{tmp_path / 'ledger.db'}", rails=Rails()) as book:
        epoch = book.acquire_leader_lease("me", START, 2 * MIN)
        assert epoch is not None
        yield Desk(World(), book, epoch)


def planned(desk: Desk, **changes: object) -> Intent:
    one = intent(epoch=desk.epoch, **changes)
    assert desk.book.plan_intent(one)
    return one


def test_each_state_is_written_before_what_it_allows(desk: Desk) -> None:
    one = planned(desk)
    seen: list[str] = []

    def obeys(world: World) -> ActionResponse:
        seen.append(desk.book.load_open_intents()[0].state)
        return world.stop_it()

    desk.world.obeys = obeys
    acted = desk.act(one)
    assert (seen, acted.sent) == ([EXECUTING], True)
    assert desk.book.load_open_intents() == [acted.intent]
    desk.next_run(MIN)
    assert desk.confirm(acted.intent).intent.state == DONE
    assert [moved.new for moved in desk.book.load_intent_history("one")] == [READY, EXECUTING, VERIFYING, DONE]


def test_a_second_machine_waits_for_the_rails_and_its_intent_stays_ready(desk: Desk) -> None:
    desk.act(planned(desk))
    other = planned(desk, id="two", life=LIFE._replace(key=KEY._replace(id="i-other")))
    world = desk.world
    acted = send_action(
        other, replace(world.hands, inspector=Elsewhere()), desk.intents, world, world.still, seconds=world.seconds
    )
    assert (acted.sent, len(world.asked), acted.intent.state) == (False, 1, READY)
    assert acted.held


def test_a_watchdog_that_lost_its_turn_sends_nothing(desk: Desk) -> None:
    one = planned(desk)
    desk.world.goes_by(3 * MIN)
    theirs = desk.book.acquire_leader_lease("another", desk.world.now(), 2 * MIN)
    assert theirs == desk.epoch + 1
    acted = desk.act(one)
    assert (acted.sent, acted.held != "", desk.world.asked) == (False, True, [])
    assert desk.act(one, epoch=theirs).sent


def test_a_watchdog_that_slept_before_the_send_leaves_the_row_of_the_one_that_took_over(desk: Desk) -> None:
    one = planned(desk)

    def takes_over(world: World) -> None:
        world.goes_by(3 * MIN)
        world.at = {}
        theirs = desk.book.acquire_leader_lease("another", world.now(), 2 * MIN)
        left = desk.book.load_open_intents()[0]
        ready = settle_action(left, world.hands, desk.intents, world, world.still).intent
        assert ready.state == READY
        assert desk.act(ready, epoch=theirs).sent

    desk.world.at = {"still 2": takes_over}
    acted = desk.act(one)
    assert not acted.sent
    assert len(desk.world.asked) == 1
    assert [row.state for row in desk.book.load_open_intents()] == [VERIFYING]
