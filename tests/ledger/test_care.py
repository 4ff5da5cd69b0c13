"""A check finds what does not add up, and a backup is the ledger as it was."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, insert, text

from costguard.errors import InputError, LedgerError
from costguard.ledger.db import maintenance, triggers
from costguard.ledger.db.connection import begin_write, open_engine
from costguard.ledger.tables import load_metadata
from costguard.metering.span import GAP, compute_amounts
from tests.ledger.entries import T0_US, add, begin, open_span, roll_up, scalar, span

METADATA = load_metadata()
CORRECTION = METADATA.tables["correction"]


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """A sound ledger: two closed spans, one of them corrected, an empty one, and an open one."""
    found = open_engine(url)
    begin(found)
    first, second = span(), span(4.123, after=3)
    with begin_write(found) as connection:
        add(connection, 1, first)
        add(connection, 2, second)
        add(connection, 3, span(0, after=7.5))
        add(connection, 4, open_span(after=8))
        _correct(connection, 1, 2, replace(second, presence=GAP))
        roll_up(connection, first, replace(second, presence=GAP))
    yield found
    found.dispose()


def _correct(connection: Connection, number: int, span_id: int, counts_as: object, *, wrong: int = 0) -> None:
    low, expected, high = compute_amounts(counts_as, 0, T0_US + 10**12)  # type: ignore[arg-type]  # a span
    money = {"low": low, "expected": expected, "high": high + wrong}
    said = {"id": number, "span_id": span_id, "at_us": T0_US, "presence": GAP, "reason": "nobody looked"}
    connection.execute(insert(CORRECTION), [said | money])


def spoil(engine: Engine, *statements: str) -> None:
    """What a person with a SQL tool could do, who takes the guards down first."""
    with begin_write(engine) as connection:
        for name, table in connection.exec_driver_sql(triggers.LIST_TRIGGERS[connection.dialect.name]).all():
            connection.exec_driver_sql(triggers.format_drop_trigger(connection.dialect.name, name, table))
        for statement in statements:
            connection.execute(text(statement))
        for statement in triggers.generate_trigger_statements(connection.dialect.name):
            connection.exec_driver_sql(statement)


def test_a_sound_ledger_has_no_findings(engine: Engine, url: str) -> None:  # noqa: ARG001 - it is at the url
    assert maintenance.check_ledger(url) == []


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["UPDATE span SET high = high + 1 WHERE id = 1"], ["span 1 says", "comes to 3703703673 / 3703703673 / 3703703673"]),
        (
            ["UPDATE span SET price_high = price_high + 3600 WHERE id = 1"],
            ["span 1 says", "the roll-up of 2026-11-20, compute"],
        ),
        (["UPDATE span SET end_us = end_us + 60000000 WHERE id = 1"], ["spans 1 and 2 of aws i-1 (compute) overlap"]),
        (
            ["UPDATE span SET start_us = anchor_us WHERE id = 4", "UPDATE span SET anchor_us = 0, start_us = 0 WHERE id = 4"],
            ["overlap"],
        ),
        (["UPDATE correction SET expected = expected - 1"], ["correction 1 says"]),
        (["UPDATE span SET unit = 'Parsecs' WHERE id = 1"], ["span 1 is invalid: meter.unit unknown value 'Parsecs'"]),
        (["UPDATE correction SET presence = 'edge'"], ["correction 1 says", "the roll-up of 2026-11-21"]),
        (["DELETE FROM correction"], ["the roll-up of 2026-11-21"]),
        (
            ["UPDATE daily SET high = high + 1 WHERE day = 20777"],
            ["the roll-up of 2026-11-20, compute of attribution 1 in USD says"],
        ),
        (["UPDATE daily SET us = us - 1 WHERE day = 20778"], ["the roll-up of 2026-11-21"]),
        (["DELETE FROM daily WHERE day = 20777"], ["says 0 / 0 / 0 / 0 and its spans add up to"]),
        (["UPDATE daily SET day = 20776 WHERE day = 20777"], ["2026-11-19", "2026-11-20"]),
        (
            ["INSERT INTO coverage SELECT 2, 1, 'failed', 'x', start_us, start_us, 1 FROM coverage"],
            ["coverage 2 of aws/123/us-east-1 starts before the one before it ends"],
        ),
    ],
    ids=lambda case: case[0][:60] if isinstance(case, list) else None,
)
def test_what_does_not_add_up_is_found(engine: Engine, url: str, statements: list[str], words: list[str]) -> None:
    spoil(engine, *statements)
    findings = maintenance.check_ledger(url)
    for word in words:
        assert any(word in finding for finding in findings), findings


def test_a_guard_that_is_down_is_found_and_upgrade_puts_it_up(engine: Engine, url: str) -> None:
    on = " ON span" if engine.dialect.name == "postgresql" else ""
    with begin_write(engine) as connection:
        connection.execute(text(f"DROP TRIGGER costguard_span_closes_once{on}"))
    assert maintenance.check_ledger(url) == [
        "the guard costguard_span_closes_once is missing: costguard db upgrade restores it"
    ]
    maintenance.upgrade_ledger(url)
    assert maintenance.check_ledger(url) == []


def test_more_spans_than_a_page_are_all_checked(engine: Engine, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PAGE_ROWS", 1)
    assert maintenance.check_ledger(url) == []
    spoil(engine, "UPDATE span SET high = high + 1 WHERE id = 2")
    (says,) = maintenance.check_ledger(url)
    assert says.startswith("span 2 says")


def test_a_row_that_names_nothing_is_found(sqlite_url: str) -> None:
    open_engine(sqlite_url).dispose()
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as tool:
        tool.execute("INSERT INTO coverage VALUES (1, 9, 'complete', '', 0, 0, 1)")
    assert maintenance.check_ledger(sqlite_url) == ["row 1 of coverage names a row of scope that does not exist"]


def test_a_damaged_page_is_found(sqlite_url: str) -> None:
    engine = open_engine(sqlite_url)
    begin(engine)
    page = scalar(engine, "SELECT rootpage FROM sqlite_master WHERE name = 'span_by_line'")
    engine.dispose()
    with Path(sqlite_url.removeprefix("sqlite:///")).open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    assert any("the file is damaged" in finding for finding in maintenance.check_ledger(sqlite_url))


def test_without_a_ledger_there_is_nothing_to_check_or_copy(sqlite_url: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no ledger here yet"):
        maintenance.check_ledger(sqlite_url)
    with pytest.raises(InputError, match="there is no ledger here yet"):
        maintenance.backup_ledger(sqlite_url, tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


def test_a_backup_is_the_ledger_as_it_was_and_opens_as_one(sqlite_url: str, tmp_path: Path) -> None:
    engine = open_engine(sqlite_url)
    begin(engine)
    target = tmp_path / "copy.db"
    with begin_write(engine) as connection:
        add(connection, 1, span())
        roll_up(connection, span())
        size = maintenance.backup_ledger(sqlite_url, target)  # while somebody writes: what was committed
    assert size == target.stat().st_size
    assert target.stat().st_mode & 0o777 == 0o600
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("copy.db-")]
    assert scalar(engine, "SELECT count(*) FROM span") == 1
    engine.dispose()
    copy = open_engine(f"sqlite:///{target}")
    assert (scalar(copy, "SELECT count(*) FROM span"), scalar(copy, "SELECT count(*) FROM resource")) == (0, 1)
    copy.dispose()
    assert maintenance.check_ledger(f"sqlite:///{target}") == []


def test_a_backup_never_overwrites(sqlite_url: str, tmp_path: Path) -> None:
    open_engine(sqlite_url).dispose()
    target = tmp_path / "letter.txt"
    target.write_text("dear")
    with pytest.raises(InputError, match="exists already"):
        maintenance.backup_ledger(sqlite_url, target)
    with pytest.raises(InputError, match="exists already"):
        maintenance.backup_ledger(sqlite_url, tmp_path)
    assert target.read_text() == "dear"


def test_a_backup_that_finds_no_room_names_the_copy_and_not_the_ledger(sqlite_url: str, tmp_path: Path) -> None:
    open_engine(sqlite_url).dispose()
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, usual[1]))
    try:
        with pytest.raises(LedgerError, match="cannot be written") as refused:
            maintenance.backup_ledger(sqlite_url, tmp_path / "copy.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert refused.value.field == str(tmp_path / "copy.db")
    assert not list(tmp_path.glob("*copy.db*"))


def test_a_backup_of_a_server_is_its_own_tools_work(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        maintenance.backup_ledger("postgresql://ada:geheim@host/costs", tmp_path / "copy")
    assert "pg_dump --format=custom" in str(caught.value)
    assert "geheim" not in str(caught.value)
