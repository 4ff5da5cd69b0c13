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
from costguard.ledger.db.views import generate_views

if TYPE_CHECKING:  # a type and no more: whoever only reads a ledger does not pay for importing it
    from sqlalchemy import Connection

REVISIONS = ("0001", "0002", "0003", "0004")
"""Every revision, oldest first. The last one is what this version reads and writes."""

HEAD_REVISION = REVISIONS[-1]
APPLICATION_ID = 0x43474C44
"""Marks a SQLite file as a ledger: "CGLD" in ASCII."""

MIGRATIONS_FOLDER = Path(__file__).parent / "migrations"
_migration_lock = threading.Lock()  # Alembic keeps its running environment in a module


def migrate_schema(connection: Connection) -> None:
    """Bring the schema behind `connection` to HEAD, within the transaction it is in."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    dialect = connection.dialect.name
    _drop_triggers_and_views(connection, dialect)
    with _migration_lock:
        command.upgrade(config, "head")
    _create_triggers_and_views(connection, dialect)
    if dialect == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")


def renew_triggers_and_views(connection: Connection) -> None:
    """Put guards and views up anew, whatever somebody did to them."""
    _drop_triggers_and_views(connection, connection.dialect.name)
    _create_triggers_and_views(connection, connection.dialect.name)


def _drop_triggers_and_views(connection: Connection, dialect: str) -> None:
    """Take guards and views down: they look at columns that may be about to change."""
    for name, table in connection.exec_driver_sql(triggers.LIST_TRIGGERS[dialect]).all():
        connection.exec_driver_sql(triggers.format_drop_trigger(dialect, name, table))
    for name, _ in reversed(list(generate_views(dialect))):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def _create_triggers_and_views(connection: Connection, dialect: str) -> None:
    for statement in triggers.generate_trigger_statements(dialect):
        connection.exec_driver_sql(statement)
    for name, query in generate_views(dialect):
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {query}")
