"""Intents in the ledger, on both databases: they move forward, one winner a move, and what was done stays written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from costguard.errors import InputError
from costguard.guard.action_intents import (
    CANCELLED,
    DONE,
    EXECUTING,
    FAILED,
    GRACE,
    PLANNED,
    READY,
    SEND_WITHIN,
    TRANSITIONS,
    UNCONFIRMED,
    VERIFYING,
)
from costguard.guard.run_facts import ConfirmedAct
from costguard.ledger.db.connection import begin_write, open_engine
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.intents import load_open_intents
from costguard.ledger.guard.store import GuardStore
from tests.ledger.acts import DAY, FLEET, HOUR, MINUTE, NOON, SECOND, WIDE, intent, life, planned


@pytest.fixture
def book(url: str) -> Iterator[GuardStore]:
    with GuardStore(url, rails=WIDE) as opened:
        assert opened.acquire_leader_lease("a", NOON - HOUR, 6 * HOUR) == 1
        yield opened


def test_an_intent_comes_back_as_it_was(url: str, book: GuardStore) -> None:
    whole = intent(
        life=life(started_at=None),
        why="idle; 'quoted' \u00e9",
        lose=("swap", "the pod's own volume"),
        irreversible=True,
        act="terminate",
        state=PLANNED,
    )
    assert book.plan_intent(whole)
    assert book.load_open_intents() == [whole]
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        assert load_open_intents(ask) == [whole]


def test_of_one_life_and_act_one_intent_is_open(book: GuardStore) -> None:
    first = planned(book)
    assert not book.plan_intent(intent(id="again"))
    assert not book.plan_intent(intent(act="terminate"))  # the id is used
    assert book.plan_intent(intent(id="other act", act="terminate"))
    assert book.plan_intent(intent(id="other life", life=life(started_at=NOON)))
    assert book.move_intent(first, CANCELLED, NOON, outcome="leased")
    assert book.plan_intent(intent(id="again"))


def test_an_intent_of_a_turn_that_was_lost_is_not_planned(book: GuardStore) -> None:
    assert not book.plan_intent(intent(epoch=0))
    assert not book.plan_intent(intent(epoch=2))
    assert not book.plan_intent(intent(moved_at=NOON + DAY))


def test_an_intent_goes_its_way_and_its_history_tells_it(book: GuardStore) -> None:
    one = planned(book, state=PLANNED)
    graced = book.move_intent(one, GRACE, NOON + MINUTE)
    assert graced
    ready = book.move_intent(graced, READY, NOON + 5 * MINUTE, evidence='{"fresh":1}')
    assert ready
    sent = book.move_intent(ready, EXECUTING, NOON + 5 * MINUTE, fleet=FLEET, run="r1", sends=9)
    assert sent
    assert (sent.sends, sent.sent_at, sent.expires_at) == (1, NOON + 5 * MINUTE, NOON + 5 * MINUTE + SEND_WITHIN)
    taken = book.move_intent(sent, VERIFYING, NOON + 5 * MINUTE + SECOND)
    assert taken
    assert (taken.sends, taken.expires_at) == (1, None)
    assert book.load_open_intents() == [taken]
    done = book.move_intent(taken, DONE, NOON + 7 * MINUTE, outcome="seen stopped")
    assert done
    assert book.load_open_intents() == []
    assert book.load_sends_since(NOON) == book.load_intents_since(NOON + 7 * MINUTE) == [done]
    assert book.load_sends_since(NOON + 6 * MINUTE) == []
    told = [(move.old, move.new, move.run, move.why) for move in book.load_intent_history(one.id)]
    why = "idle since 11:00"
    assert told == [
        ("", PLANNED, "", why),
        (PLANNED, GRACE, "", why),
        (GRACE, READY, "", why),
        (READY, EXECUTING, "r1", why),
        (EXECUTING, VERIFYING, "", why),
        (VERIFYING, DONE, "", "seen stopped"),
    ]
    sent_at, took = NOON + 5 * MINUTE, 2 * MINUTE
    (reaction,) = book.load_reactions(NOON)
    assert reaction == ConfirmedAct(intent_id=one.id, provider="aws", act="stop", sent_at=sent_at, confirmed_at=sent_at + took)
    assert reaction.took == took
    assert book.load_reactions(NOON + HOUR) == []


def test_a_request_may_not_go_out_for_longer_than_thirty_seconds(book: GuardStore) -> None:
    long = book.move_intent(planned(book), EXECUTING, NOON, fleet=FLEET, expires_at=NOON + HOUR)
    short = book.move_intent(planned(book, "i-2"), EXECUTING, NOON, fleet=FLEET, expires_at=NOON + SECOND)
    assert long
    assert short
    assert (long.expires_at, short.expires_at) == (NOON + SEND_WITHIN, NOON + SECOND)


@pytest.mark.parametrize("old", [READY, EXECUTING, VERIFYING, UNCONFIRMED, DONE, CANCELLED, FAILED])
def test_no_move_that_is_none_is_made(book: GuardStore, old: str) -> None:
    one = planned(book)
    for state in {READY: (), DONE: (EXECUTING, DONE), CANCELLED: (CANCELLED,), EXECUTING: (EXECUTING,)}.get(
        old, (EXECUTING, old)
    ):
        moved = book.move_intent(one, state, NOON + MINUTE, fleet=FLEET)
        assert moved
        one = moved
    assert one.state == old
    for new in set(TRANSITIONS) - set(TRANSITIONS[old]):
        with pytest.raises(InputError, match=f"cannot go from {old} to {new}"):
            book.move_intent(one, new, NOON + 2 * MINUTE)


def test_who_read_an_older_state_moves_nothing(book: GuardStore) -> None:
    one = planned(book)
    sent = book.move_intent(one, EXECUTING, NOON, fleet=FLEET)
    assert sent
    assert book.move_intent(one, EXECUTING, NOON, fleet=FLEET) is None
    assert book.move_intent(one, CANCELLED, NOON) is None
    back = book.move_intent(sent, READY, NOON, outcome="nothing was sent")
    assert back
    again = book.move_intent(back, EXECUTING, NOON, fleet=FLEET)
    assert again
    assert book.move_intent(sent, VERIFYING, NOON) is None  # the same state at the same moment, and another send
    assert book.load_open_intents() == [again]
    assert len(book.load_intent_history(one.id)) == 4


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("state = 'done'", "moves forward only"),
        ("state = 'executing'", "each send of an intent counts"),
        ("sends = sends + 1", "each send of an intent counts"),
        ("act = 'terminate'", "intent is written once"),
        ("life = '-/-'", "intent is written once"),
    ],
)
def test_the_database_itself_lets_an_intent_only_go_forward(url: str, book: GuardStore, change: str, told: str) -> None:
    planned(book)
    engine = open_engine(url)
    with pytest.raises(DatabaseError, match=told), begin_write(engine) as connection:
        connection.execute(text(f"UPDATE intent SET {change}"))  # noqa: S608 - written above
    engine.dispose()


def test_the_database_itself_keeps_what_is_settled_and_what_was_moved(url: str, book: GuardStore) -> None:
    book.move_intent(planned(book), CANCELLED, NOON, outcome="leased")
    engine = open_engine(url)
    for statement, told in (
        ("UPDATE intent SET outcome = 'done'", "a settled intent does not change"),
        ("UPDATE intent_event SET why = ''", "intent_event is written once"),
        ("DELETE FROM intent_event", "keeps every row"),
        ("DELETE FROM intent", "keeps every row"),
    ):
        with pytest.raises(DatabaseError, match=told), begin_write(engine) as connection:
            connection.execute(text(statement))
    engine.dispose()


@pytest.mark.parametrize(
    "change", [{"state": EXECUTING, "sends": 1}, {"state": DONE}, {"sends": 1}], ids=["sent", "done", "counted"]
)
def test_the_database_itself_takes_no_intent_that_was_sent_before_it_was_written(
    book: GuardStore, change: dict[str, Any]
) -> None:
    with pytest.raises(DatabaseError, match="written before anything is sent"):
        book.plan_intent(intent(**change))
