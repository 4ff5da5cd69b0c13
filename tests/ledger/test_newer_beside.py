"""A newer costguard upgrades the ledger beside a process that has it open: that process writes no more, and nothing is lost."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import text

from costguard.errors import LedgerError, OlderLedgerError
from costguard.guard.policy import Rails
from costguard.ledger.db import maintenance
from costguard.ledger.db.connection import begin_write, open_engine
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.db.schema import EARLIER_REVISIONS, HEAD_REVISION
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.services.guarding.act.send_action import send_action
from tests.ledger.fleet import CEILINGS, RULES, machine, poll, rows
from tests.services.deeds import MIN, START, World, intent

NEWER = "9008"


def set_revision(url: str, revision: str) -> None:
    """Write the schema's revision as a migration of another process does."""
    engine = open_engine(url)
    try:
        with begin_write(engine) as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :to"), {"to": revision})
    finally:
        engine.dispose()


def downgrade(url: str) -> None:
    """Take the mark of a newer version away again, past every check."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
            file.execute("UPDATE alembic_version SET version_num = ?", (HEAD_REVISION,))
        return
    import psycopg

    with psycopg.connect(url.replace("+psycopg", "")) as server:
        server.execute("UPDATE alembic_version SET version_num = %s", (HEAD_REVISION,))


def test_a_poll_is_refused_after_a_newer_version_upgraded_the_ledger(url: str) -> None:
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as book:
        book.record_polls([poll(0, machine())])
        before = rows(url)
        set_revision(url, NEWER)
        with pytest.raises(LedgerError, match=f"newer costguard.*{NEWER}.*{HEAD_REVISION}") as caught:
            book.record_polls([poll(5, machine(), machine("i-2"))])
        assert "upgrade costguard" in str(caught.value)
        downgrade(url)
        assert rows(url) == before
        assert maintenance.check_ledger(url) == []
        book.record_polls([poll(6, machine(), machine("i-2"))])
    assert len(rows(url)["resource"]) == 2
    assert maintenance.check_ledger(url) == []


def test_a_reader_that_is_open_answers_on(url: str) -> None:
    open_engine(url).dispose()
    with LedgerReader(url) as reader:
        set_revision(url, NEWER)
        with reader.snapshot() as ask:
            assert ask("SELECT version_num FROM alembic_version", ()) == [(NEWER,)]
    with pytest.raises(LedgerError, match="newer costguard"):
        LedgerReader(url)


def test_nothing_is_sent_to_a_provider_whose_intent_cannot_be_recorded(url: str) -> None:
    world = World()
    with GuardStore(url, rails=Rails()) as book:
        epoch = book.acquire_leader_lease("me", START, 2 * MIN)
        one = intent(epoch=epoch)
        assert book.plan_intent(one)
        set_revision(url, NEWER)
        acted = send_action(one, world.hands, book, world, world.still, seconds=world.seconds)
        assert (acted.sent, world.asked) == (False, [])
        assert "newer costguard" in acted.broken


def test_a_ledger_that_was_put_back_to_an_older_one_is_not_written_either(url: str) -> None:
    engine = open_engine(url)
    try:
        set_revision(url, EARLIER_REVISIONS[-1])
        with pytest.raises(OlderLedgerError, match="costguard db import"), begin_write(engine):
            pass
    finally:
        engine.dispose()
