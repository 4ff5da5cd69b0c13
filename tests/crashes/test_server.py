"""PostgreSQL ends our connection in the middle of a transaction: the error is clear, and once more leaves the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from sqlalchemy import Executable

from costguard.errors import LedgerError
from costguard.ledger.db import maintenance
from costguard.ledger.db.connection import WriteConnection, WriterLock
from costguard.ledger.db.session import SqlSession
from tests.crashes.story import make_story, open_ledger, record_rest
from tests.ledger.fleet import rows

MOMENTS = (
    "INSERT INTO coverage",
    "INSERT INTO observation",
    "INSERT INTO span",
    "UPDATE span",
    "INSERT INTO daily",
    "UPDATE coverage",
    "UPDATE account_state",
    "COMMIT",
)
"""What is about to be done when the server's process ends; each comes up in a transaction of LOT listings."""
CUTS, LOT, SEED = 20, 150, 4


@contextmanager
def cut_before(moment: str, url: str) -> Iterator[None]:
    """End the server's process behind every connection to the ledger's database before `moment`, once."""
    plain, cut = WriteConnection.begin_transaction, list[str]()

    def end(what: str) -> None:
        if cut or not what.startswith(moment):
            return
        cut.append(what)
        server, database = urlunsplit(urlsplit(url.replace("+psycopg", ""))._replace(path="/postgres")), urlsplit(url).path[1:]
        with psycopg.connect(server, autocommit=True) as other:
            ended = other.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", [database]
            )
            assert ended.fetchall()

    @contextmanager
    def transaction(pen: WriteConnection, *lock: WriterLock, **bounds: Any) -> Iterator[SqlSession]:  # noqa: ANN401 - whatever it takes
        with plain(pen, *lock, **bounds) as (ask, tell):

            def told(statement: Executable, rows: list[dict[str, Any]] | None = None) -> int:
                end(str(statement))
                return tell(statement, rows)

            yield ask, told
            end("COMMIT")

    with patch.object(WriteConnection, "begin_transaction", transaction):
        yield
    assert cut, f"nothing came to {moment}"


@pytest.mark.proof
def test_a_lost_server_is_said_clearly_and_once_more_leaves_the_same_rows(postgres_url: str, tmp_path: Path) -> None:
    story = make_story(SEED, polls=500, size=120)
    polls = [story.poll(number) for number in range(len(story.entries))]
    with open_ledger(postgres_url) as ledger:
        ledger.record_polls(polls[:7])  # so that there is coverage to move on
        for number in range(CUTS):
            lot, before = polls[7 + number * LOT : 7 + (number + 1) * LOT], rows(postgres_url)
            with cut_before(MOMENTS[number % len(MOMENTS)], postgres_url), pytest.raises(LedgerError) as told:
                ledger.record_polls(lot)
            said, _, hint = str(told.value).partition("\nhint: ")
            assert "the ledger's server" in said
            assert hint
            assert rows(postgres_url) == before
            ledger.record_polls(lot)
        ledger.record_polls(polls[7 + CUTS * LOT :])
    calm = f"sqlite:///{tmp_path}/calm.db"
    open_ledger(calm).close()
    record_rest(calm, story)
    assert rows(postgres_url) == rows(calm)
    assert maintenance.check_ledger(postgres_url) == []
