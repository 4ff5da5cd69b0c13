"""Many at once on one book, on both databases: one mover wins, the rails hold, and a death in the middle leaves whole deeds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import event

from costguard.guard.action_intents import EXECUTING, READY, Intent
from costguard.guard.policy import Rails
from costguard.ledger.db.connection import open_engine
from costguard.ledger.guard.store import GuardStore
from tests.ledger.acts import FLEET, HOUR, MINUTE, NOON, WIDE, intent, planned
from tests.processes import BESIDE

MOVERS = 50
ROUNDS = 15


@pytest.fixture
def book(url: str) -> Iterator[GuardStore]:
    with GuardStore(url, rails=WIDE) as opened:
        assert opened.acquire_leader_lease("a", NOON, HOUR) == 1
        yield opened


TENTH = Rails(acts_per_10m=3, fleet_share_10m=Fraction(10, 100), fleet_share_day=Fraction(20, 100), acts_least_day=1)


def at_once(url: str, intents: list[Intent], rails: Rails, fleet: int) -> list[str]:
    """The ids of those that were let go, of `intents` that are all moved at once over ten books."""
    books = [GuardStore(url, rails=rails) for _ in range(10)]
    start = Barrier(len(intents))

    def move(number: int) -> str:
        start.wait(timeout=60)
        one = intents[number]
        run = f"run {number}"
        return one.id if books[number % 10].move_intent(one, EXECUTING, NOON, fleet=fleet, run=run) else ""

    with ThreadPoolExecutor(len(intents)) as pool:
        found = list(pool.map(move, range(len(intents))))
    for one in books:
        one.close()
    return [name for name in found if name]


def test_of_fifty_who_move_one_intent_one_wins(url: str, book: GuardStore) -> None:
    one = planned(book)
    assert at_once(url, [one] * MOVERS, WIDE, FLEET) == [one.id]
    assert [move.new for move in book.load_intent_history(one.id)] == [READY, EXECUTING]
    assert [found.sends for found in book.load_open_intents()] == [1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("fleet", "most"), [(FLEET, 3), (25, 2), (3, 1)], ids=["in ten minutes", "a tenth", "at least one"])
def test_rails_hold_under_fifty_who_send_at_once(url: str, book: GuardStore, fleet: int, most: int) -> None:
    intents = [planned(book, f"i-{number}") for number in range(MOVERS)]
    assert len(at_once(url, intents, TENTH, fleet)) == most
    assert sum(found.state == EXECUTING for found in book.load_open_intents()) == most


def test_of_fifty_who_take_the_turn_one_has_it(book: GuardStore) -> None:
    start = Barrier(MOVERS)

    def take(number: int) -> int | None:
        start.wait(timeout=60)
        return book.acquire_leader_lease(f"process {number}", NOON + HOUR, MINUTE)

    with ThreadPoolExecutor(MOVERS) as pool:
        assert [epoch for epoch in pool.map(take, range(MOVERS)) if epoch] == [2]


def move_all(url: str, start: Any, answers: Any) -> None:  # noqa: ANN401 - a Barrier and a Queue of processes beside this one
    """Move each open intent at the same moment as the other process does."""
    with GuardStore(url, rails=WIDE) as book:
        for one in sorted(book.load_open_intents(), key=lambda found: found.id):
            start.wait(timeout=60)
            answers.put((one.id, book.move_intent(one, EXECUTING, NOON, fleet=FLEET, run=one.id) is not None))


def test_of_two_processes_that_move_an_intent_exactly_one_wins(url: str, book: GuardStore) -> None:
    for number in range(ROUNDS):
        planned(book, f"i-{number}")
    start, answers = BESIDE.Barrier(2), BESIDE.Queue()
    processes = [BESIDE.Process(target=move_all, args=(url, start, answers)) for _ in range(2)]
    for process in processes:
        process.start()
    found = [answers.get(timeout=60) for _ in range(2 * ROUNDS)]
    for process in processes:
        process.join(timeout=60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert sorted(found) == sorted((f"stop i-{n}", won) for n in range(ROUNDS) for won in (False, True))


def die_in_a_move(url: str, after: int) -> None:
    """Plan and send one intent, and die by SIGKILL right after the statement number `after`."""
    with GuardStore(url, rails=WIDE) as book:
        seen: list[int] = []

        def die(*_: object) -> None:
            seen.append(1)
            if len(seen) > after:
                os.kill(os.getpid(), signal.SIGKILL)

        event.listen(book._engine, "after_cursor_execute", die)
        one = intent(f"i-{after}")
        book.plan_intent(one)
        book.move_intent(one, EXECUTING, NOON, fleet=FLEET, run=str(after))


def test_a_process_that_dies_between_two_statements_leaves_whole_deeds(url: str, book: GuardStore) -> None:
    left = []
    for after in range(1, 40, 4):
        process = BESIDE.Process(target=die_in_a_move, args=(url, after))
        process.start()
        process.join(timeout=60)
        one = {found.id: found for found in book.load_open_intents()}.get(f"stop i-{after}")
        history = [move.new for move in book.load_intent_history(f"stop i-{after}")]
        assert history == {None: [], READY: [READY], EXECUTING: [READY, EXECUTING]}[one.state if one else None]
        assert (one.sends if one else 0) == history.count(EXECUTING)
        left.append(len(history))
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert left == sorted(left)
    assert set(left) == {0, 1, 2}
    engine = open_engine(url)
    engine.dispose()
    assert planned(book, "afterwards")


def test_of_fifty_acts_on_one_machine_one_is_in_flight(url: str, book: GuardStore) -> None:
    intents = [planned(book, id=f"act {number}", act=f"act {number}") for number in range(MOVERS)]
    assert len(at_once(url, intents, WIDE, FLEET)) == 1
