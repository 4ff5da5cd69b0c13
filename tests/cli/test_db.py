"""`costguard db`, end to end."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from costguard.ledger.db.schema import HEAD_REVISION
from tests.conftest import Command


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Where it is without settings."""
    return tmp_path / "data" / "costguard" / "ledger.db"


def test_path_says_where_and_makes_nothing(costguard: Command, ledger: Path) -> None:
    assert costguard("db", "path").out == f"{ledger}\n"
    assert costguard("db", "path", "--json").data == {"schema": "costguard.db/1", "action": "path", "ledger": str(ledger)}
    assert not ledger.parent.exists()


def test_upgrade_makes_a_ledger_once(costguard: Command, ledger: Path) -> None:
    assert costguard("db", "upgrade").out == f"Made {ledger}, schema {HEAD_REVISION}.\n"
    assert ledger.exists()
    assert costguard("db", "upgrade").out == f"{ledger} has schema {HEAD_REVISION}, which is this version's.\n"
    data = costguard("db", "upgrade", "--json").data
    assert (data["before"], data["after"], data["copy"]) == (HEAD_REVISION, HEAD_REVISION, None)


def test_check_prints_what_it_finds_and_exits_1(costguard: Command, ledger: Path) -> None:
    costguard("db", "upgrade")
    with closing(sqlite3.connect(ledger, isolation_level=None)) as tool:
        tool.execute("INSERT INTO coverage VALUES (1, 9, 'complete', '', 0, 0, 1)")
    answer = costguard("db", "check", "--json")
    assert answer.code == 1
    assert answer.data["findings"] == ["row 1 of coverage names a row of scope that does not exist"]
    assert answer.data["sound"] is False
    assert "1 finding" in answer.err
    shown = costguard("db", "check")
    assert "- row 1 of coverage names a row of scope that does not exist." in shown.out
    assert costguard("db", "check", "--csv").out.splitlines()[0] == "finding"


def test_backup_makes_a_copy(costguard: Command, ledger: Path, tmp_path: Path) -> None:
    costguard("db", "upgrade")
    answer = costguard("db", "backup", "copy.db", "--json")
    assert answer.code == 0
    assert answer.data["bytes"] == (tmp_path / "copy.db").stat().st_size > 0
    assert answer.data["ledger"] == str(ledger)
    assert "checked" in costguard("db", "backup", "another.db").out
    costguard("db", "backup", "copy.db").says("copy.db", "exists already", "another file")


def test_what_is_not_a_ledger_is_an_error_and_stays(costguard: Command, tmp_path: Path) -> None:
    (tmp_path / "costguard.toml").write_text('[ledger]\nurl = "sqlite:///letter.txt"\n', encoding="utf-8")
    (tmp_path / "letter.txt").write_text("dear " * 200)
    for action in (["upgrade"], ["check"], ["backup", "copy.db"]):
        answer = costguard("db", *action)
        assert answer.code == 1
        assert answer.out == ""
        assert "letter.txt: is not a ledger: it is not a SQLite file" in answer.err
        answer.is_clean()
    assert (tmp_path / "letter.txt").read_text() == "dear " * 200
    assert not (tmp_path / "copy.db").exists()


@pytest.mark.parametrize("command", [("status",), ("report",), ("db", "check"), ("db", "backup", "copy.db"), ("db", "upgrade")])
def test_a_folder_in_place_of_the_ledger_is_called_one(costguard: Command, ledger: Path, command: tuple[str, ...]) -> None:
    ledger.mkdir(parents=True)
    answer = costguard(*command)
    assert answer.code == 1
    assert f"{ledger}: is a folder, not a ledger" in answer.err
    assert f"name a file in it: sqlite:///{ledger}/ledger.db" in answer.err
