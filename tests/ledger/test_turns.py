"""Whose turn it is: one at a time, by an epoch that only rises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from costguard.errors import InputError
from costguard.ledger.db.connection import begin_write, open_engine
from costguard.ledger.guard.store import GuardStore
from tests.ledger.acts import DAY, HOUR, MINUTE, NOON, SECOND, WIDE


@pytest.fixture
def book(url: str) -> Iterator[GuardStore]:
    with GuardStore(url, rails=WIDE) as opened:
        yield opened


def test_one_has_the_turn_until_it_runs_out(book: GuardStore) -> None:
    assert book.load_leader_lease() is None
    assert book.acquire_leader_lease("a", NOON, MINUTE) == 1
    assert book.acquire_leader_lease("b", NOON + MINUTE - SECOND, MINUTE) is None
    assert book.acquire_leader_lease("b", NOON + MINUTE, MINUTE) == 2
    assert book.acquire_leader_lease("a", NOON + MINUTE, MINUTE) is None


def test_renewing_keeps_the_epoch_and_counts_the_rounds(book: GuardStore) -> None:
    for minute in range(3):
        assert book.acquire_leader_lease("a", NOON + minute * MINUTE, 3 * MINUTE) == 1
    assert book.acquire_leader_lease("a", NOON + HOUR, MINUTE) == 1  # it had run out, and nobody took it
    turn = book.load_leader_lease()
    assert turn
    assert (turn.epoch, turn.rounds, turn.holder, turn.until) == (1, 4, "a", NOON + HOUR + MINUTE)


def test_a_turn_that_is_given_back_is_taken_at_once_with_a_new_epoch(book: GuardStore) -> None:
    assert book.acquire_leader_lease("a", NOON, HOUR) == 1
    book.release_leader_lease(1)
    assert book.acquire_leader_lease("b", NOON, HOUR) == 2
    book.release_leader_lease(1)
    assert book.acquire_leader_lease("a", NOON, HOUR) is None
    book.release_leader_lease(2)
    assert book.acquire_leader_lease("b", NOON, HOUR) == 3


def test_a_turn_from_a_clock_that_was_wrong_keeps_nobody_out(book: GuardStore) -> None:
    assert book.acquire_leader_lease("a", NOON + 1000 * DAY, MINUTE) == 1
    assert book.acquire_leader_lease("b", NOON, MINUTE) == 2


def test_a_turn_needs_a_name_and_an_end(book: GuardStore) -> None:
    with pytest.raises(InputError, match="holder"):
        book.acquire_leader_lease("", NOON, MINUTE)
    for lasts in (0 * MINUTE, DAY):
        with pytest.raises(InputError, match="cannot last"):
            book.acquire_leader_lease("a", NOON, lasts)


def test_the_database_itself_lets_no_epoch_fall(url: str, book: GuardStore) -> None:
    book.acquire_leader_lease("a", NOON, MINUTE)
    book.acquire_leader_lease("b", NOON + HOUR, MINUTE)
    engine = open_engine(url)
    for statement, told in (("UPDATE turn SET epoch = 1", "never falls"), ("DELETE FROM turn", "keeps every row")):
        with pytest.raises(DatabaseError, match=told), begin_write(engine) as connection:
            connection.execute(text(statement))
    engine.dispose()
