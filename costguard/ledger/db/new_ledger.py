"""Create the schema of a new ledger from the classes of `ledger.tables`: no migration runs, and Alembic is not imported."""

from __future__ import annotations

import time
import uuid

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert

from costguard.guard.audit import BEGAN
from costguard.ledger.db.rows import insert_rows
from costguard.ledger.db.schema import APPLICATION_ID, HEAD_REVISION, create_triggers_and_views
from costguard.ledger.db.session import open_sql_session
from costguard.ledger.guard.audit_log import append_entry
from costguard.ledger.tables import load_metadata

FIRST_ROWS = {"ledger_state": 1, "audit": 1}
"""Table -> the rows that it has in a new ledger; all others have none."""
_VERSION = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def create_ledger(connection: Connection) -> None:
    """Create an empty ledger: its schema, the row that names it, and the first row of its audit."""
    from costguard.ledger.tables.spans import LedgerStateRow

    create_tables(connection)
    now_us = time.time_ns() // 1000
    state_row = LedgerStateRow(id=1, ledger_id=str(uuid.uuid4()), created_us=now_us, revision=0)
    ask, tell = open_sql_session(connection)
    insert_rows(tell, [state_row])
    append_entry(ask, tell, BEGAN, now_us, {"ledger": state_row.ledger_id})
    create_triggers_and_views(connection)


def create_tables(connection: Connection) -> None:
    """Create the tables, without rows, triggers and views, and mark the schema as this version's."""
    load_metadata().create_all(connection, checkfirst=False)
    _VERSION.create(connection)
    connection.execute(insert(_VERSION), [{"version_num": HEAD_REVISION}])
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
