"""The whole schema of an empty ledger, as the database itself tells it, is the one in `golden/schema`.

Alembic sees no CHECK, no trigger and no WHERE of a partial index: this sees them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine

from costguard.ledger.db.connection import open_engine

FOLDER = Path(__file__).parent / "golden" / "schema"

SQLITE = "SELECT type || ' ' || name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name"
POSTGRESQL = """
SELECT 'column ' || table_name || '.' || column_name,
    concat_ws(' ', ordinal_position, data_type, is_nullable, column_default)
FROM information_schema.columns WHERE table_schema = current_schema()
UNION ALL SELECT 'constraint ' || r.relname || '.' || c.conname, pg_get_constraintdef(c.oid)
FROM pg_constraint AS c JOIN pg_class AS r ON r.oid = c.conrelid
WHERE c.connamespace = current_schema()::regnamespace AND c.contype <> 'n'
UNION ALL SELECT 'index ' || indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()
UNION ALL SELECT 'trigger ' || r.relname || '.' || t.tgname, pg_get_triggerdef(t.oid)
FROM pg_trigger AS t JOIN pg_class AS r ON r.oid = t.tgrelid
WHERE NOT t.tgisinternal AND r.relnamespace = current_schema()::regnamespace
UNION ALL SELECT 'function ' || proname, pg_get_functiondef(oid) FROM pg_proc
WHERE pronamespace = current_schema()::regnamespace
UNION ALL SELECT 'view ' || viewname, definition FROM pg_views WHERE schemaname = current_schema()
ORDER BY 1
"""


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    found = open_engine(url)
    yield found
    found.dispose()


def dump_schema(connection: Connection) -> str:
    """Everything that the database knows of its schema, sorted, without the schema's own name."""
    server = connection.dialect.name == "postgresql"
    rows = connection.exec_driver_sql(POSTGRESQL if server else SQLITE).all()
    text = "\n".join(f"{name}: {' '.join(sql.split())}" for name, sql in rows) + "\n"
    if server:
        own = connection.exec_driver_sql("SELECT current_schema()").scalar_one()
        text = text.replace(f"{own}.", "")
    return text


def test_the_schema_is_what_it_was(engine: Engine, request: pytest.FixtureRequest) -> None:
    with engine.connect() as connection:
        found = dump_schema(connection)
    file = FOLDER / f"{engine.dialect.name}.txt"
    if request.config.getoption("--write-golden"):
        file.write_text(found)
    assert found == file.read_text()
