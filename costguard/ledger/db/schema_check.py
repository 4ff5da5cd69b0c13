"""Compare a ledger's schema with that of an empty ledger made from the classes of `ledger.tables`.

Everything counts: columns, keys, CHECKs, indexes with their WHERE, triggers, views. The empty ledger is in memory for SQLite;
on PostgreSQL it is a schema of its own, in a transaction that is rolled back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from sqlalchemy import Connection, create_engine, inspect
from sqlalchemy.exc import ProgrammingError

from costguard.ledger.db import triggers
from costguard.ledger.db.address import LedgerAddress
from costguard.ledger.db.new_ledger import create_ledger
from costguard.ledger.tables import load_metadata

RESTORED = ("trigger", "view", "function")
"""What `costguard db upgrade` makes anew."""

_OTHERS = {
    "sqlite": "SELECT type || ' ' || name, sql FROM sqlite_master WHERE type <> 'table' AND sql IS NOT NULL",
    "postgresql": """
SELECT 'index ' || indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()
UNION ALL SELECT 'trigger ' || t.tgname, pg_get_triggerdef(t.oid)
FROM pg_trigger AS t JOIN pg_class AS r ON r.oid = t.tgrelid
WHERE NOT t.tgisinternal AND r.relnamespace = current_schema()::regnamespace
UNION ALL SELECT 'function ' || proname, pg_get_functiondef(oid) FROM pg_proc
WHERE pronamespace = current_schema()::regnamespace
UNION ALL SELECT 'view ' || viewname, definition FROM pg_views WHERE schemaname = current_schema()
""",
}
"""Dialect -> the query for (kind and name, definition) of what the inspector does not tell whole."""


def check_schema(connection: Connection, where: LedgerAddress) -> Iterator[str]:
    """Yield what is missing or differs in the schema of `connection`, a sentence each.

    What somebody added (an index, a view) is no fault. Where this user may not make a schema on the server, only the triggers
    are looked for.
    """
    stored, expected = describe_schema(connection), describe_new_schema(where)
    if expected is None:
        expected = {
            key: stored.get(key, "") for key in (f"trigger {name}" for name in triggers.list_trigger_names("postgresql"))
        }
    for key, definition in expected.items():
        kind, _, name = key.partition(" ")
        what = f"the {'guard' if kind == 'trigger' else kind} {name}"
        remedy = ": costguard db upgrade restores it" if kind in RESTORED else ""
        if key not in stored:
            yield f"{what} is missing{remedy}"
        elif stored[key] != definition:
            yield f"{what} is not as this version makes it{remedy}"


def describe_new_schema(where: LedgerAddress) -> dict[str, str] | None:
    """Return the schema of an empty ledger on the database of `where`, which is left as it was.

    None if this user may not make one on the server.
    """
    address, name = "sqlite://" if where.path else where.sqlalchemy_url, f"costguard_check_{os.getpid()}"
    engine = create_engine(address, hide_parameters=True)
    try:
        with engine.connect() as connection:  # rolled back when it closes
            if where.path is None:
                connection.exec_driver_sql(f"CREATE SCHEMA {name}")
                connection.exec_driver_sql(f"SET LOCAL search_path TO {name}")
            create_ledger(connection)
            return describe_schema(connection)
    except ProgrammingError:
        return None
    finally:
        engine.dispose()


def describe_schema(connection: Connection) -> dict[str, str]:
    """Return ("column span.end_us" or "view v_daily") -> definition, of all that belongs to the ledger's tables."""
    schema, dialect = dict(_describe_tables(connection)), connection.dialect.name
    for key, definition in connection.exec_driver_sql(_OTHERS[dialect]):
        schema[key] = " ".join(definition.split())
    if dialect == "postgresql":
        own = f"{connection.exec_driver_sql('SELECT current_schema()').scalar_one()}."
        schema = {key: definition.replace(own, "") for key, definition in schema.items()}
    return schema


def _describe_tables(connection: Connection) -> Iterator[tuple[str, str]]:
    inspector = inspect(connection)
    tables = set(inspector.get_table_names())
    for name in (table for table in load_metadata().tables if table in tables):
        options = inspector.get_table_options(name)
        keys = inspector.get_pk_constraint(name)["constrained_columns"]
        yield f"table {name}", f"{keys} {sorted(options.items())}"
        for column in inspector.get_columns(name):
            yield f"column {name}.{column['name']}", f"{column['type']} {column['nullable']} {column['default']}"
        for check in inspector.get_check_constraints(name):
            yield f"check {name}.{check['name']}", " ".join(check["sqltext"].split())
        for unique in inspector.get_unique_constraints(name):
            yield f"constraint {name}.{unique['name']}", str(unique["column_names"])
        for key in inspector.get_foreign_keys(name):
            yield (
                f"reference {name}.{','.join(key['constrained_columns'])}",
                f"{key['referred_table']} {key['referred_columns']}",
            )
