"""Which schema a ledger has, and the way to this version's.

The stored revision is read by one plain query, and Alembic (0.9 s to import) only where there is something to do. All
migrations between two versions, with the guards and views, are one transaction on both databases: an upgrade that fails in the
middle leaves the ledger as it was.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.ledger.db import triggers
from costguard.ledger.db.views import views

if TYPE_CHECKING:  # a type and no more: whoever only reads a ledger does not pay for importing it
    from sqlalchemy import Connection

REVISIONS = ("0001", "0002", "0003", "0004")
"""Every revision, oldest first. The last one is what this version reads and writes."""

HEAD = REVISIONS[-1]
APPLICATION_ID = 0x43474C44
"""Marks a SQLite file as a ledger: "CGLD" in ASCII."""

FOLDER = Path(__file__).parent / "migrations"
_one_at_a_time = threading.Lock()  # Alembic keeps its running environment in a module


def migrate(connection: Connection) -> None:
    """Bring the schema behind `connection` to HEAD, within the transaction it is in."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    dialect = connection.dialect.name
    _lower(connection, dialect)
    with _one_at_a_time:
        command.upgrade(config, "head")
    _raise(connection, dialect)
    if dialect == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")


def renew(connection: Connection) -> None:
    """Put guards and views up anew, whatever somebody did to them."""
    _lower(connection, connection.dialect.name)
    _raise(connection, connection.dialect.name)


def _lower(connection: Connection, dialect: str) -> None:
    """Take guards and views down: they look at columns that may be about to change."""
    for name, table in connection.exec_driver_sql(triggers.THERE[dialect]).all():
        connection.exec_driver_sql(triggers.lowered(dialect, name, table))
    for name, _ in reversed(list(views(dialect))):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def _raise(connection: Connection, dialect: str) -> None:
    for statement in triggers.raised(dialect):
        connection.exec_driver_sql(statement)
    for name, query in views(dialect):
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {query}")
