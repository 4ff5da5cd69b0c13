"""Ledgers that older versions made are brought up whole: their money is unchanged, the guard works, and no death harms them."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from costguard.data import ShippedFacts
from costguard.guard.action_intents import EXECUTING, READY
from costguard.ledger.db import maintenance
from costguard.ledger.db.address import parse_ledger_address
from costguard.ledger.db.connection import upgrade_schema
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.db.schema import HEAD_REVISION
from costguard.ledger.guard.audit_check import check_audit
from costguard.ledger.guard.audit_log import iterate_entries
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.books import SpendingReader
from costguard.values.calendar import Period
from tests.ledger.acts import FLEET, HOUR, WIDE, intent, planned, wish
from tests.processes import BESIDE

GOLDEN = Path(__file__).parent / "golden"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
GUARDED = ("0001-guard", "0002", "0003", "0004")
"""The old ledgers that hold wishes, intents and a run."""
MONTH = Period(start=datetime(2026, 11, 1, tzinfo=UTC), end=datetime(2026, 12, 1, tzinfo=UTC))
SPENT = {
    ("ben", "compute"): (4_024_000_000, 4_024_000_000, 32_879_433_333),
    ("ben", "storage"): (125_740_741, 444_444_444, 444_444_444),
    ("ada", "compute"): (129_454_666_667, 2_949_600_000_000, 2_949_600_000_000),
    ("ada", "storage"): (73_148_148, 1_666_666_667, 1_666_666_667),
}
"""What the code of those commits answers for November at NOON, in nano-dollars, but for one high end.

Ben's machine was off when it was last listed, hours before, and may have run since (decision 0014, "meanwhile").
"""


@pytest.fixture(params=["0001", "0001-guard", "0002", "0003", "0004"])
def old(request: pytest.FixtureRequest, url: str) -> str:
    """The name of an old ledger, which now lies at `url`."""
    restore(url, request.param)
    return str(request.param)


def restore(url: str, name: str) -> None:
    """Put the golden ledger `name` at `url`."""
    where = parse_ledger_address(url)
    if where.path is not None:
        with closing(sqlite3.connect(where.path)) as file:
            file.executescript((GOLDEN / f"{name}.sqlite.sql").read_text())
        return
    import psycopg

    with psycopg.connect(where.conninfo, autocommit=True) as server:
        server.execute((GOLDEN / f"{name}.postgresql.sql").read_text().encode())


def spent(url: str) -> dict[tuple[str, str], tuple[int, int, int]]:
    """What the month came to, by owner and charge."""
    with SpendingReader(url, rules=ShippedFacts().get_billing_rules()) as books:
        return {
            (one.attribution.owner, one.charge): (one.money.low.nano, one.money.expected.nano, one.money.high.nano)
            for one in books.load_spending(MONTH, NOON)
        }


def rows(url: str, table: str, order: str) -> list[Any]:
    """Every row of a table, whatever its schema's version."""
    where = parse_ledger_address(url)
    if where.path is not None:
        with closing(sqlite3.connect(where.path)) as file:
            return file.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall()  # noqa: S608 - our own names
    import psycopg

    with psycopg.connect(where.conninfo) as server:
        return server.execute(f"SELECT * FROM {table} ORDER BY {order}".encode()).fetchall()  # noqa: S608 - our own names


KEPT = {"daily": "day, attribution_id, charge"} | dict.fromkeys(
    ("span", "correction", "ledger_state", "scope", "coverage", "resource", "attribution", "observation"), "id"
)
"""Table -> the order of its rows."""


def test_an_old_ledger_is_brought_up_with_its_money_unchanged(url: str, old: str) -> None:
    before = {table: rows(url, table, order) for table, order in KEPT.items()}
    assert before["span"]
    done = upgrade_schema(url)
    assert (done.before, done.after) == (old[:4], HEAD_REVISION)
    assert {table: rows(url, table, order) for table, order in KEPT.items()} == before
    assert maintenance.check_ledger(url) == []
    assert spent(url) == SPENT
    if done.copy is not None:
        assert done.copy.name.startswith(f"ledger.db.before-{HEAD_REVISION}-")
        with closing(sqlite3.connect(done.copy)) as copy:
            assert copy.execute("SELECT version_num FROM alembic_version").fetchall() == [(old[:4],)]
            there = copy.execute("SELECT count(*) FROM sqlite_master WHERE name = 'wish'").fetchone()
            assert there == (int(old in GUARDED),)


def test_the_guard_works_in_a_ledger_that_was_brought_up(url: str, old: str) -> None:
    with GuardStore(url, rails=WIDE) as book:
        assert len(book.load_open_intents()) == (1 if old in GUARDED else 0)
        book.add_override(wish("new"))
        assert book.acquire_leader_lease("two", NOON + 3 * HOUR, HOUR) == (2 if old in GUARDED else 1)
        epoch = 2 if old in GUARDED else 1
        one = planned(book, "i-9", epoch=epoch, created_at=NOON + 3 * HOUR, moved_at=NOON + 3 * HOUR)
        assert book.move_intent(one, EXECUTING, NOON + 3 * HOUR, fleet=FLEET)
    assert maintenance.check_ledger(url) == []


def test_what_stood_there_before_the_audit_is_told_of_in_its_first_rows(url: str, old: str) -> None:
    upgrade_schema(url)
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        kinds = [row.kind for row in iterate_entries(ask)]
        assert check_audit(ask)[1] == []
    adopted = ["adopted"] * 5 + ["settings"] if old in GUARDED else []
    assert kinds == ["began", *adopted]


def die_in_an_upgrade(url: str, after: int) -> None:
    """Open the ledger, and die by SIGKILL right after the statement number `after` that an engine executes."""
    seen: list[int] = []

    def die(*_: object) -> None:
        seen.append(1)
        if len(seen) > after:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "after_cursor_execute", die)
    upgrade_schema(url)


@pytest.mark.sampled(4)
def test_an_upgrade_that_is_killed_anywhere_is_made_good_by_the_next(url: str, old: str) -> None:
    deaths = 0
    spans = rows(url, "span", "id")
    for after in (3, 30, 60, 10_000):
        process = BESIDE.Process(target=die_in_an_upgrade, args=(url, after))
        process.start()
        process.join(timeout=120)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        deaths += 1
        assert rows(url, "alembic_version", "version_num") == [(old[:4],)]
        assert rows(url, "span", "id") == spans
    assert deaths == 3
    assert rows(url, "alembic_version", "version_num") == [(HEAD_REVISION,)]
    assert rows(url, "span", "id") == spans
    assert maintenance.check_ledger(url) == []
    with GuardStore(url, rails=WIDE) as book:
        now = NOON + timedelta(hours=3)
        epoch = book.acquire_leader_lease("two", now, HOUR)
        assert epoch
        assert book.plan_intent(intent("i-9", state=READY, epoch=epoch, created_at=now, moved_at=now))
