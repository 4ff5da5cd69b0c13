"""The migrations make the schema that the tables describe, whole or not at all, and keep a copy of what was."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, event, inspect, text

from costguard.errors import LedgerError
from costguard.ledger.db import connection as opening
from costguard.ledger.db import reader, schema, triggers
from costguard.ledger.db.address import parse_ledger_address
from costguard.ledger.db.connection import open_engine, upgrade_schema
from costguard.ledger.db.maintenance import check_ledger
from costguard.ledger.db.new_ledger import create_ledger
from costguard.ledger.db.schema import MIGRATIONS_FOLDER, REVISIONS, generate_views, migrate_schema
from costguard.ledger.db.schema_check import describe_new_schema, describe_schema
from costguard.ledger.tables import load_metadata
from scripts import new_migration
from tests.ledger.entries import begin, scalar

METADATA = load_metadata()
HEAD, NEXT = REVISIONS[-1], f"{int(REVISIONS[-1]) + 1:04}"
SECOND = f'''"""A column more."""

from alembic import op

revision = "{NEXT}"
down_revision = "{HEAD}"


def upgrade() -> None:
    op.execute("ALTER TABLE scope ADD COLUMN note TEXT NOT NULL DEFAULT ''")
    op.execute("UPDATE scope SET note = 'from ' || provider")
    op.execute("CREATE TABLE extra (id BIGINT PRIMARY KEY)")
'''  # noqa: S608 - our own revisions


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    found = open_engine(url)
    yield found
    found.dispose()


def test_the_folder_holds_the_revisions_that_this_version_knows() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS_FOLDER))
    scripts = ScriptDirectory.from_config(config)
    assert tuple(s.revision for s in reversed(list(scripts.walk_revisions()))) == REVISIONS
    assert scripts.get_heads() == [schema.HEAD_REVISION]


def test_migrations_and_tables_agree(engine: Engine) -> None:
    """As far as Alembic sees: tables, columns, types, what may be missing, keys, indexes, and what is unique."""
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, METADATA) == []


def test_a_ledger_that_is_migrated_has_the_schema_of_a_new_one(engine: Engine, url: str) -> None:
    """Alembic sees no CHECK, trigger or WHERE of a partial index: all of the schema is compared."""
    with engine.connect() as connection:
        there = describe_schema(connection)
    assert there == describe_new_schema(parse_ledger_address(url))
    kinds = {"table", "column", "check", "constraint", "reference", "index", "trigger", "view"}
    assert kinds <= {key.partition(" ")[0] for key in there}


ALTERED = {
    "DROP INDEX span_long": "the index span_long is missing",
    "DROP VIEW v_holds": "the view v_holds is missing: costguard db upgrade restores it",
    "ALTER TABLE agent DROP COLUMN version": "the column agent.version is missing",
    "DROP INDEX span_open_once; CREATE UNIQUE INDEX span_open_once ON span (resource_id, charge, part) WHERE end_us > 0": (
        "the index span_open_once is not as this version makes it"
    ),
    "DROP VIEW v_daily; CREATE VIEW v_daily AS SELECT 1 AS day": "the view v_daily is not as this version makes it",
}


@pytest.mark.parametrize("statements", ALTERED)
def test_a_schema_that_somebody_altered_is_found(engine: Engine, url: str, statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements.split("; "):
            connection.execute(text(statement))
    assert [said for said in check_ledger(url) if said.startswith(ALTERED[statements])]


@contextmanager
def failing(engine: Engine, after: int) -> Iterator[list[str]]:
    """Every statement that changes something counts, and the one after `after` of them is the last thing that happens."""
    seen: list[str] = []

    def stop(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:  # noqa: ANN401 - an event's own
        if statement.split(maxsplit=1)[0].upper() not in ("SELECT", "BEGIN"):
            seen.append(statement)
            if len(seen) > after:
                raise KeyboardInterrupt

    event.listen(engine, "before_cursor_execute", stop)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", stop)


def there(engine: Engine) -> dict[str, list[str]]:
    """Tables, views and guards by name."""
    with engine.connect() as connection:
        inspected = inspect(connection)
        up = sorted(name for name, _ in connection.exec_driver_sql(triggers.LIST_TRIGGERS[connection.dialect.name]))
        return {"tables": sorted(inspected.get_table_names()), "views": sorted(inspected.get_view_names()), "guards": up}


def blank(url: str) -> Engine:
    """A database without anything, opened as a ledger is."""
    where = parse_ledger_address(url)
    if where.path is None:
        return opening._create_server_engine(where, 1)
    with closing(sqlite3.connect(where.path)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
    return opening._create_file_engine(where, 1)


@contextmanager
def begun(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection, connection.execution_options(begin="BEGIN IMMEDIATE").begin():
        yield connection


@pytest.mark.sampled(2)
def test_a_first_start_that_stops_anywhere_leaves_nothing(url: str) -> None:
    engine = blank(url)
    nothing = there(engine)
    total = 0
    for after in range(1000):
        with failing(engine, after) as seen:
            try:
                with begun(engine) as connection:
                    create_ledger(connection)
            except KeyboardInterrupt:
                assert there(engine) == nothing == {"tables": [], "views": [], "guards": []}, seen[-1]
            else:
                total = len(seen)
                break
    assert total > 40
    assert there(engine) == {
        "tables": sorted((*METADATA.tables, "alembic_version")),
        "views": sorted(name for name, _ in generate_views(engine.dialect.name)),
        "guards": sorted(triggers.list_trigger_names(engine.dialect.name)),
    }
    engine.dispose()


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A version that has a revision more."""
    folder = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS_FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / f"{NEXT}_more.py").write_text(SECOND)
    monkeypatch.setattr(schema, "MIGRATIONS_FOLDER", folder)
    for module in (schema, reader):
        monkeypatch.setattr(module, "REVISIONS", (*REVISIONS, NEXT))
    for module in (schema, reader, opening):
        monkeypatch.setattr(module, "HEAD_REVISION", NEXT)


def older(url: str) -> dict[str, list[str]]:
    """A ledger of this version with something in it."""
    engine = open_engine(url)
    begin(engine)
    seen = there(engine)
    engine.dispose()
    return seen


@pytest.fixture
def old(url: str) -> dict[str, list[str]]:
    """What the older ledger at `url` has. It is made before `newer` comes."""
    return older(url)


def test_an_older_ledger_is_brought_up_with_all_it_holds(url: str, old: dict[str, list[str]], newer: None) -> None:  # noqa: ARG001 - see there
    done = upgrade_schema(url)
    assert done.before == HEAD
    engine = open_engine(url)
    assert scalar(engine, "SELECT note FROM scope") == "from aws"
    assert scalar(engine, "SELECT version_num FROM alembic_version") == NEXT
    assert there(engine) == old | {"tables": sorted((*old["tables"], "extra"))}
    engine.dispose()
    if done.copy is None:
        assert url.startswith("postgresql")
        return
    assert done.copy.name.startswith(f"ledger.db.before-{NEXT}-20")
    assert done.copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(done.copy)) as copy:
        assert copy.execute("SELECT version_num FROM alembic_version").fetchall() == [(HEAD,)]
        assert copy.execute("SELECT provider FROM scope").fetchall() == [("aws",)]


@pytest.mark.sampled(2)
def test_an_upgrade_that_stops_anywhere_leaves_the_older_ledger(url: str, old: dict[str, list[str]], newer: None) -> None:  # noqa: ARG001 - see there
    where = parse_ledger_address(url)
    engine = opening._create_server_engine(where, 1) if where.path is None else opening._create_file_engine(where, 1)
    total = 0
    for after in range(1000):
        with failing(engine, after) as seen:
            try:
                with begun(engine) as connection:
                    migrate_schema(connection)
            except KeyboardInterrupt:
                assert there(engine) == old, seen[-1]
                assert scalar(engine, "SELECT provider FROM scope") == "aws"
                assert scalar(engine, "SELECT version_num FROM alembic_version") == HEAD
            else:
                total = len(seen)
                break
    assert total > 45
    assert scalar(engine, "SELECT note FROM scope") == "from aws"
    engine.dispose()


def test_a_copy_that_cannot_be_made_stops_the_upgrade(
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    older(sqlite_url)
    request.getfixturevalue("newer")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(opening, "copy_ledger", full)
    with pytest.raises(LedgerError, match="No space left"):
        upgrade_schema(sqlite_url)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(HEAD,)]


def test_upgrade_puts_up_guards_and_views_that_somebody_took_down(engine: Engine, url: str) -> None:
    before = there(engine)
    on = " ON span" if engine.dialect.name == "postgresql" else ""
    with engine.begin() as connection:
        connection.execute(text(f"DROP TRIGGER costguard_span_stays{on}"))
        connection.execute(text("DROP VIEW v_daily"))
    assert there(engine) != before
    upgrade_schema(url)
    assert there(engine) == before


def test_a_migration_is_written_from_what_changed_and_leaves_the_tables_of_others_alone(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE agent DROP COLUMN version"))
        connection.execute(text("CREATE TABLE procrastinate_jobs (id BIGINT PRIMARY KEY)"))
    engine.dispose()
    shutil.copytree(MIGRATIONS_FOLDER, tmp_path / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(new_migration, "MIGRATIONS_FOLDER", tmp_path / "migrations")
    new_migration.write_migration(url, "Name the version of an agent")
    (written,) = (tmp_path / "migrations" / "versions").glob(f"{NEXT}_*.py")
    said = written.read_text()
    assert f'down_revision = "{HEAD}"' in said
    assert "op.add_column('agent', sa.Column('version', sa.Text(), nullable=False))" in said
    assert "procrastinate" not in said
    assert said.count("op.") == 1


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
