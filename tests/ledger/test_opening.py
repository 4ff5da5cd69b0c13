"""Opening a ledger: made where there is none, kept away from where it is not ours, and unharmed whatever goes wrong."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from costguard.data import MARKET
from costguard.errors import InputError, LedgerError
from costguard.ledger.db.address import parse_ledger_address
from costguard.ledger.db.connection import begin_write, open_engine, upgrade_schema
from costguard.ledger.db.reader import LedgerReader, identify_file
from costguard.ledger.db.session import wrap_driver
from costguard.system.atomic_file import hold_file_lock
from tests.ledger.entries import begin, scalar

SOON_S = 0.05
COUNT_UP = text("UPDATE ledger_state SET revision = revision + 1")


def made(url: str) -> str:
    """The ledger's own id, once there is one at `url`."""
    with opened(url) as engine:
        found = scalar(engine, "SELECT ledger_id FROM ledger_state")
    assert isinstance(found, str)
    return found


@contextmanager
def opened(url: str, **options: Any) -> Iterator[Engine]:  # noqa: ANN401 - as they are
    engine = open_engine(url, **options)
    try:
        yield engine
    finally:
        engine.dispose()


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def refusal(url: str, **options: Any) -> LedgerError:  # noqa: ANN401 - as they are
    """What opening `url` fails with: exit code 1, in a few lines that name the ledger and say what to do."""
    with pytest.raises(LedgerError) as caught:
        open_engine(url, **options).dispose()
    error = caught.value
    assert error.exit_code == 1
    assert error.field
    assert error.hint
    assert len(str(error).splitlines()) <= 3
    return error


def test_what_one_wrote_the_next_one_reads(url: str) -> None:
    first = made(url)
    with opened(url) as engine, begin_write(engine) as connection:
        connection.execute(COUNT_UP)
    with opened(url) as engine:
        assert scalar(engine, "SELECT revision FROM ledger_state") == 1
    assert made(url) == first


def test_writers_in_threads_take_turns(url: str) -> None:
    def count_up() -> None:
        with opened(url) as engine:
            for _ in range(10):
                with begin_write(engine) as connection:
                    (seen,) = connection.execute(text("SELECT revision FROM ledger_state")).one()
                    connection.execute(text("UPDATE ledger_state SET revision = :next"), {"next": seen + 1})

    made(url)
    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with opened(url) as engine:
        assert scalar(engine, "SELECT revision FROM ledger_state") == 40


def test_processes_that_start_together_make_one_ledger(url: str) -> None:
    script = (
        "import sys; from costguard.ledger.db.connection import open_engine; e = open_engine(sys.argv[1]);"
        "c = e.connect(); print(c.exec_driver_sql('SELECT ledger_id FROM ledger_state').scalar()); c.close(); e.dispose()"
    )
    command = [sys.executable, "-W", "error", "-c", script, url]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {process.communicate()[0].strip() for process in started}
    assert [process.returncode for process in started] == [0, 0, 0]
    assert said == {made(url)}


def test_a_busy_writer_is_waited_for_and_then_named(url: str) -> None:
    with opened(url) as engine, opened(url, patience_s=SOON_S) as other, begin_write(engine) as connection:
        connection.execute(COUNT_UP)
        with pytest.raises(LedgerError, match=r"another costguard is writing|lock timeout"), begin_write(other):
            pytest.fail("two writers at once")
    with opened(url) as engine:
        assert scalar(engine, "SELECT revision FROM ledger_state") == 1


def test_a_ledger_of_a_newer_version_is_refused_and_kept(url: str) -> None:
    with opened(url) as engine, begin_write(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9007'"))
    error = refusal(url)
    assert "newer costguard (its schema is 9007" in str(error)
    assert "upgrade" in str(error)
    with pytest.raises(LedgerError, match="newer costguard"):
        upgrade_schema(url)


def test_opening_what_is_there_imports_no_alembic(sqlite_url: str) -> None:
    made(sqlite_url)
    script = (
        "import sys; from costguard.ledger.db.connection import *; open_engine(sys.argv[1]); print('alembic' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", script, sqlite_url], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


# A file.


def test_the_file_and_its_folders_are_for_this_user_only(tmp_path: Path) -> None:
    file = tmp_path / "new" / "deep" / "ledger.db"
    made(f"sqlite:///{file}")
    assert (file.parent.parent.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o700, 0o700)
    assert {path.name: path.stat().st_mode & 0o777 for path in file.parent.iterdir()} == {
        "ledger.db": 0o600,
        "ledger.db.lock": 0o600,
    }


def test_every_connection_writes_through_to_the_disk(sqlite_url: str) -> None:
    with opened(sqlite_url) as engine, engine.connect(), engine.connect() as second:
        for pragma, wanted in (("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1), ("recursive_triggers", 1)):
            assert second.exec_driver_sql(f"PRAGMA {pragma}").scalar_one() == wanted
        assert second.exec_driver_sql("PRAGMA busy_timeout").scalar_one() == 30_000


def test_a_sql_tool_that_holds_the_ledger_is_waited_for_and_then_named(sqlite_url: str) -> None:
    made(sqlite_url)
    with (
        closing(sqlite3.connect(file_of(sqlite_url), isolation_level=None)) as tool,
        opened(sqlite_url, patience_s=SOON_S) as engine,
    ):
        tool.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="locked by another program"), begin_write(engine):
            pytest.fail("two writers at once")


def test_a_ledger_that_is_being_made_is_waited_for(sqlite_url: str) -> None:
    with hold_file_lock(parse_ledger_address(sqlite_url).make_sibling_path(".lock"), patience_s=1):
        assert "another costguard is writing" in str(refusal(sqlite_url, patience_s=SOON_S))
    assert not file_of(sqlite_url).exists()


def test_what_a_killed_start_left_is_cleared_away(sqlite_url: str) -> None:
    for suffix in (".new", ".new-wal", ".new-shm", ".new-journal"):
        parse_ledger_address(sqlite_url).make_sibling_path(suffix).write_bytes(b"half a ledger")
    made(sqlite_url)
    assert sorted(path.name for path in file_of(sqlite_url).parent.iterdir()) == ["ledger.db", "ledger.db.lock"]


def _text(file: Path) -> None:
    file.write_text("provider,account\n" * 400)


def _another_program(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE span (id INTEGER)")


def _market(file: Path) -> None:
    shutil.copy(MARKET, file)


def _empty(file: Path) -> None:
    file.touch()


def _cut(size: int) -> Any:  # noqa: ANN401 - one of these
    def cut(file: Path) -> None:
        made(f"sqlite:///{file}")
        os.truncate(file, size)

    return cut


def _without_tables(file: Path) -> None:
    made(f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE alembic_version")


def _without_a_version(file: Path) -> None:
    made(f"sqlite:///{file}")
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("DELETE FROM alembic_version")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_cut(1000), "is damaged"),
        (_text, "is not a ledger: it is not a SQLite file"),
        (_another_program, "not a costguard ledger"),
        (_market, "not a costguard ledger"),
        (_empty, "is not a ledger: it is empty or truncated"),
        (_cut(0), "is not a ledger: it is empty or truncated"),
        (_cut(50), "is not a ledger: it is empty or truncated"),
        (_cut(4096), "is damaged"),
        (_cut(40960), "is damaged"),
        (_cut(77777), "is damaged"),
        (_without_tables, "lacks its tables"),
        (_without_a_version, "is damaged: its version is missing"),
    ],
    ids=lambda case: getattr(case, "__name__", None),
)
def test_what_is_no_sound_ledger_is_refused_and_left_as_it_is(sqlite_url: str, spoil: Any, words: str) -> None:  # noqa: ANN401 - above
    file = file_of(sqlite_url)
    spoil(file)
    before = file.read_bytes()
    assert words in str(refusal(sqlite_url))
    assert file.read_bytes() == before
    assert not [path for path in file.parent.iterdir() if path.name.endswith((".new", "-journal"))]


def test_damage_is_found_before_a_log_that_was_left_behind_is_written_on(sqlite_url: str) -> None:
    file = file_of(sqlite_url)
    with opened(sqlite_url) as engine:
        begin(engine)
        shutil.copy(f"{file}-wal", f"{file}-kept")
    shutil.move(f"{file}-kept", f"{file}-wal")
    with file.open("r+b") as damaged:
        damaged.seek(20 * 4096)
        damaged.write(b"\xff" * 10 * 4096)
    assert "is damaged" in str(refusal(sqlite_url))


def test_two_names_of_one_file_are_one_ledger(tmp_path: Path) -> None:
    first = made(f"sqlite:///{tmp_path}/ledger.db")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link.db").symlink_to(tmp_path / "ledger.db")
    assert made(f"sqlite:///{tmp_path}/other/link.db") == first
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["link.db"]


@pytest.fixture
def ordinary() -> Iterator[Path]:
    """A folder of an ordinary user, and this process as that user: root may write everywhere."""
    folder = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    if root:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o700)
        shutil.rmtree(folder)


def test_a_read_only_ledger_is_said(ordinary: Path) -> None:
    made(f"sqlite:///{ordinary}/ledger.db")
    (ordinary / "ledger.db").chmod(0o400)
    assert "may not write it" in str(refusal(f"sqlite:///{ordinary}/ledger.db"))
    (ordinary / "ledger.db").chmod(0o600)
    made(f"sqlite:///{ordinary}/ledger.db")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    ran = mount and subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False)
    if not ran or ran.returncode:
        pytest.skip("a small disk can only be mounted by root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def _fill(folder: Path, spare: int = 0) -> Path:
    """Leave `spare` bytes of the disk free."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            file.truncate(max(0, file.tell() - spare))
    return filler


@pytest.mark.parametrize("spare", [0, 4096, 40_000, 100_000])
def test_on_a_full_disk_no_half_ledger_is_made(small_disk: Path, spare: int) -> None:
    filler = _fill(small_disk, spare)
    error = refusal(f"sqlite:///{small_disk}/ledger.db")
    assert "full" in str(error) or "No space left" in str(error)
    assert {path.name for path in small_disk.iterdir()} <= {"filler", "ledger.db.lock"}
    filler.unlink()
    made(f"sqlite:///{small_disk}/ledger.db")


@pytest.mark.parametrize("spare", [0, 8192, 30_000])
def test_on_a_full_disk_a_write_fails_whole_and_the_ledger_goes_on(small_disk: Path, spare: int) -> None:
    url = f"sqlite:///{small_disk}/ledger.db"
    with opened(url) as engine:
        begin(engine)
        filler = _fill(small_disk, spare)
        rows = [{"id": n, "provider": "aws", "account": "1" * 200, "name": str(n)} for n in range(2, 2000)]
        with pytest.raises(LedgerError, match=r"full|No space left") as caught, begin_write(engine) as connection:
            connection.execute(
                text("INSERT INTO scope (id, provider, account, name) VALUES (:id, :provider, :account, :name)"), rows
            )
        assert "nothing was written" in str(caught.value)
        assert scalar(engine, "SELECT count(*) FROM scope") == 1
        filler.unlink()
        with begin_write(engine) as connection:
            connection.execute(COUNT_UP)
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
    assert identify_file(parse_ledger_address(url))


# An address.


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "ledger.db", "sqlite://", "sqlite:///", "sqlite:///:memory:", "mysql://u:geheim@host/db"),
        *("postgresql+asyncpg://u:geheim@host/db", "postgresql://u:geheim@host", "postgresql://u:geheim@host:port/db"),
        *("u:geheim@host/db", "sqlite:///a\0b"),
    ],
)
def test_what_names_no_ledger_is_a_slip_of_the_pen(wrong: str) -> None:
    with pytest.raises(InputError) as caught:
        open_engine(wrong)
    assert caught.value.exit_code == 2
    assert "sqlite:///PATH" in str(caught.value)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql://ada:geheim@db.example:5433/costs?sslmode=require",
            "postgresql://ada@db.example:5433/costs?sslmode=require",
        ),
        ("postgresql+psycopg://ada@/costs?host=/run/pg&password=geheim", "postgresql://ada@/costs?host=/run/pg"),
        ("postgresql:///costs", "postgresql:///costs"),
        ("postgresql:///costs?host=/tmp", "postgresql:///costs?host=/tmp"),
        ("postgresql://[::1]:5433/costs", "postgresql://[::1]:5433/costs"),
    ],
)
def test_a_server_is_shown_without_its_password(url: str, shown: str) -> None:
    assert parse_ledger_address(url).shown == shown
    assert parse_ledger_address(url).sqlalchemy_url.startswith("postgresql+psycopg://")


@pytest.mark.parametrize(
    "url", ["postgresql:///costs", "postgresql:///costs?host=/tmp", "postgresql:///costs?host=%2Ftmp&port=5"]
)
def test_an_address_of_a_socket_reaches_the_server_as_it_was_written(url: str) -> None:
    assert parse_ledger_address(url).conninfo == url
    assert parse_ledger_address(url.replace("postgresql:", "postgresql+psycopg:")).conninfo == url


def test_a_server_is_reached_through_its_socket(postgres_url: str) -> None:
    rest = postgres_url.partition("@")[2]
    with opened(f"postgresql://{rest}&user=postgres") as engine:
        assert scalar(engine, "SELECT count(*) FROM span") == 0
    with LedgerReader(f"postgresql://{rest}&user=postgres") as reader, reader.snapshot() as ask:
        assert ask("SELECT count(*) FROM span", ()) == [(0,)]


# A server.


@pytest.mark.parametrize("url", ["postgresql://ada:geheim@127.0.0.1:1/costs", "postgresql://ada:geheim@/costs?host=/nowhere"])
def test_a_server_that_does_not_answer_is_named(url: str) -> None:
    pytest.importorskip("psycopg")
    error = refusal(url)
    assert "connection to server" in str(error)
    assert "geheim" not in str(error)
    assert error.__cause__ is None


def test_a_wrong_password_is_said_and_not_repeated(postgres_server: str, postgres_url: str) -> None:
    import psycopg

    with psycopg.connect(postgres_server, autocommit=True) as connection:
        (rules,) = connection.execute("SELECT pg_read_file(current_setting('hba_file'))").fetchone() or ("",)
        if "trust" not in rules:
            pytest.skip("the server is not ours to give rules to")
        connection.execute("DROP ROLE IF EXISTS stranger")
        connection.execute("CREATE ROLE stranger LOGIN PASSWORD 'richtig'")
        file = (connection.execute("SHOW hba_file").fetchone() or ("",))[0]
        Path(file).write_text(f"local all stranger scram-sha-256\nhost all stranger all scram-sha-256\n{rules}")
        connection.execute("SELECT pg_reload_conf()")
    url = postgres_url.replace("//postgres:@", f"//stranger:{quote('ge heim')}@")
    until = 200
    while until:  # the server reads its rules again when it comes to it
        try:
            error = refusal(url)
        except pytest.fail.Exception:  # pragma: no cover - it had not yet
            until -= 1
        else:
            break
    assert 'password authentication failed for user "stranger"' in str(error)
    assert "heim" not in str(error)


def test_a_database_of_another_program_is_left_alone(postgres_url: str) -> None:
    import psycopg

    with psycopg.connect(parse_ledger_address(postgres_url).conninfo) as connection:
        connection.execute("CREATE TABLE span (id bigint)")
    assert "database of another program" in str(refusal(postgres_url))
    with psycopg.connect(parse_ledger_address(postgres_url).conninfo) as connection:
        connection.execute("DROP TABLE span; CREATE TABLE alembic_version (version_num text)")
    assert "database of another program" in str(refusal(postgres_url))


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
