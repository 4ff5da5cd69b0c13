"""A connection that the driver lost stays lost: its ledger is not another one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from costguard.ledger.db.session import wrap_driver


def open_file(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path)
    file.execute("CREATE TABLE name (it TEXT)")
    file.execute("INSERT INTO name VALUES (?)", (path.name,))
    file.commit()
    return file


def test_a_lost_connection_is_not_replaced_by_that_of_another_ledger(tmp_path: Path) -> None:
    first, second = open_file(tmp_path / "first"), open_file(tmp_path / "second")
    connection = wrap_driver("sqlite", first)
    assert connection.execute(text("SELECT it FROM name")).scalar_one() == "first"
    other = wrap_driver("sqlite", second)
    first.close()
    for _ in range(2):
        with pytest.raises((SQLAlchemyError, sqlite3.Error)):
            connection.execute(text("SELECT it FROM name")).scalar_one()
    assert other.execute(text("SELECT it FROM name")).scalar_one() == "second"
    second.close()
