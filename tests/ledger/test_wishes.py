"""Wishes in the ledger, on both databases: what is written stays, is lifted once, and no listing touches it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from costguard.errors import InputError
from costguard.guard.overrides import ACCEPT, ARM, FREEZE, Override
from costguard.ledger.db import triggers
from costguard.ledger.db.connection import begin_write, open_engine
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.guard_state import load_open_overrides
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.ledger.tables import load_metadata
from tests.ledger.acts import HOUR, NOON, WIDE, key, life, wish
from tests.ledger.fleet import CEILINGS, RULES, machine, poll

METADATA = load_metadata()
WISH = METADATA.tables["wish"]


@pytest.fixture
def book(url: str) -> Iterator[GuardStore]:
    with GuardStore(url, rails=WIDE) as opened:
        yield opened


def seen_by_a_reader(url: str) -> list[Override]:
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        return load_open_overrides(ask, NOON)


def test_a_wish_comes_back_as_it_was(url: str, book: GuardStore) -> None:
    said = [
        wish("w1", who="Zoë", why="a 'quoted' run; DROP TABLE wish"),
        wish("w2", life=None, until=None),
        wish("w3", what=ARM, key=None, life=None, subject="idle-gpu", value="stop"),
        wish("w4", what=ACCEPT, key=None, life=None, subject="a1b2"),
        wish("w5", life=life("i-2", None), key=key("i-2")),
    ]
    for one in said:
        book.add_override(one)
    assert book.load_open_overrides(NOON) == seen_by_a_reader(url) == said


def test_a_wish_counts_from_when_it_was_made_until_it_runs_out(book: GuardStore) -> None:
    book.add_override(wish())
    moment = timedelta(microseconds=1)
    assert [len(book.load_open_overrides(at)) for at in (NOON - moment, NOON, NOON + HOUR - moment, NOON + HOUR)] == [
        0,
        1,
        1,
        0,
    ]
    assert [one.id for one in book.load_overrides_since(NOON)] == ["w1"]
    assert book.load_overrides_since(NOON + moment) == []


def test_a_wish_made_twice_is_one_and_the_first_stays(book: GuardStore) -> None:
    book.add_override(wish(why="first"))
    book.add_override(wish(why="second"))
    assert [one.why for one in book.load_open_overrides(NOON)] == ["first"]


def test_a_wish_is_lifted_once(book: GuardStore) -> None:
    book.add_override(wish(what=FREEZE, until=None))
    lifted = book.lift_override("w1", who="bob", now=NOON + HOUR)
    assert (lifted.lifted_at, lifted.lifted_by) == (NOON + HOUR, "bob")
    assert book.lift_override("w1", who="eve", now=NOON + 2 * HOUR) == lifted
    assert book.load_open_overrides(NOON + HOUR) == []
    assert book.load_open_overrides(NOON) == [lifted]
    with pytest.raises(InputError, match="not an override in this ledger"):
        book.lift_override("w9", who="bob", now=NOON)
    with pytest.raises(InputError, match="lifted before"):
        book.add_override(replace(lifted, id="w2"))


def test_nothing_that_polls_write_touches_a_lease_or_an_arming(url: str, book: GuardStore) -> None:
    mine = machine("i-1").key
    said = [
        wish("w1", key=mine, life=None),
        wish("w2", what=ARM, key=None, life=None, subject="idle-gpu", value="stop"),
    ]
    for one in said:
        book.add_override(one)
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(0, machine("i-1"))])
        ledger.record_polls([poll(1, machine("i-1", "stopped"))])
        ledger.record_polls([poll(2)])
        ledger.record_polls([poll(90, machine("i-1", owner="eve", labels=(("costguard", "never"),)))])
        ledger.record_polls([poll(91, failed="401")])
    assert book.load_open_overrides(NOON) == said


def test_the_database_itself_lets_a_wish_be_lifted_once_and_nothing_else(url: str, book: GuardStore) -> None:
    book.add_override(wish())
    book.lift_override("w1", who="bob", now=NOON)
    engine = open_engine(url)
    columns = triggers.list_fixed_columns()["wish"]
    assert {*columns, "lifted_us", "lifted_by"} == {column.name for column in WISH.columns}
    with begin_write(engine) as connection:
        for column in columns:
            with pytest.raises(DatabaseError, match="wish is written once"), connection.begin_nested():
                connection.execute(text(f"UPDATE wish SET {column} = {column}"))  # noqa: S608 - our own names
        for change in ("lifted_by = 'eve'", "lifted_us = NULL, lifted_by = NULL"):
            with pytest.raises(DatabaseError, match="a wish is lifted once"), connection.begin_nested():
                connection.execute(text(f"UPDATE wish SET {change}"))  # noqa: S608 - our own names
    engine.dispose()
