"""Ledgers of before come over by `costguard db import`: the same figures, and the guard goes on as the old one."""

from __future__ import annotations

import gzip
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import time_machine

from costguard.errors import InputError, LedgerError, OlderLedgerError
from costguard.guard.policy import Rails
from costguard.ledger.db import ledger_import, maintenance
from costguard.ledger.db.address import parse_ledger_address
from costguard.ledger.db.connection import begin_write, open_engine
from costguard.ledger.db.ledger_import import import_ledger
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.tables import load_metadata
from costguard.services.guarding.audit import locate_rollback_marker
from costguard.system.atomic_file import hold_file_lock
from tests.conftest import Command
from tests.ledger.interrupted_guard import ACT_ROUND, INTERRUPTED, SETTINGS, Watched, watch_rounds

OLD = Path(__file__).parent / "old"
NAMES = ("0014", "0016", "0016-guard")
ASKED_AT = dict.fromkeys(NAMES, datetime(2026, 11, 21, 12, 5, tzinfo=UTC)) | {
    "0016-guard": datetime(2026, 11, 20, 17, 1, tzinfo=UTC)
}
ARMED = """
[[policy]]
name = "idle-gpu"
arm = "stop"
match = { gpu = true }
when = 'state == "idle"'
for = "45m"
then = [{ do = "notify" }, { after = "15m", do = "stop" }]
"""
ANSWERS = ("report", "db check", "audit verify", "policy explain", "plan")


def restore(url: str, name: str) -> str:
    """Put the old ledger `name` at `url`, and return the URL."""
    where = parse_ledger_address(url)
    if where.path is not None:
        with closing(sqlite3.connect(where.path)) as file:
            file.executescript(gzip.decompress((OLD / f"{name}.sqlite.sql.gz").read_bytes()).decode())
        where.path.chmod(0o600)
        return url
    import psycopg

    with psycopg.connect(where.conninfo, autocommit=True) as server:
        server.execute(gzip.decompress((OLD / f"{name}.postgresql.sql.gz").read_bytes()))
    return url


@pytest.fixture
def old_file(tmp_path: Path) -> Callable[[str], str]:
    """Restores an old ledger as a file, beside the new one."""
    folder = tmp_path / "old"
    folder.mkdir()
    return lambda name: restore(f"sqlite:///{folder}/ledger.db", name)


def load_rows(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of each table of this version that is copied, whatever the schema of the ledger."""
    where, found = parse_ledger_address(url), dict[str, list[tuple[Any, ...]]]()
    for table in load_metadata().sorted_tables:
        if table.name in (*ledger_import.LEFT_OUT, *ledger_import.ADDED_TABLES):
            continue
        names = [column.name for column in table.columns if column.name not in ledger_import.ADDED_COLUMNS.get(table.name, ())]
        sql = f"SELECT {', '.join(names)} FROM {table.name} ORDER BY {', '.join(key.name for key in table.primary_key)}"  # noqa: S608 - our own names
        if where.path is not None:
            with closing(sqlite3.connect(where.path)) as file:
                found[table.name] = file.execute(sql).fetchall()
        else:
            import psycopg

            with psycopg.connect(where.conninfo) as server:
                found[table.name] = server.execute(sql.encode()).fetchall()
        found[table.name].sort(key=repr)  # texts are ordered differently by each database
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", ["sqlite", "postgres"])
def test_every_row_comes_over_and_the_new_ledger_is_sound(
    name: str, target: str, old_file: Callable[[str], str], request: pytest.FixtureRequest
) -> None:
    source, url = old_file(name), request.getfixturevalue(f"{target}_url")
    before = load_rows(source)
    done = import_ledger(source, url)
    assert load_rows(source) == load_rows(url) == before
    assert done.rows == {table: len(rows) for table, rows in before.items() if rows}
    assert maintenance.check_ledger(url) == []
    with GuardStore(url, rails=Rails()) as book:
        assert book.load_open_intents()
        assert book.acquire_leader_lease("another", datetime.now(UTC), timedelta(minutes=1))


def test_a_ledger_on_a_server_comes_over_to_another_one(postgres_url: str, sqlite_url: str) -> None:
    import psycopg

    restore(postgres_url, "0016")
    before = load_rows(postgres_url)
    parts = urlsplit(postgres_url)
    other = urlunsplit(parts._replace(path=f"{parts.path}_new"))
    with psycopg.connect(parse_ledger_address(postgres_url).conninfo, autocommit=True) as server:
        name = f"{parts.path[1:]}_new"
        server.execute(f"CREATE DATABASE {name}".encode())
        try:
            import_ledger(postgres_url, other)
            assert load_rows(other) == load_rows(postgres_url) == before
            assert maintenance.check_ledger(other) == []
            with begin_write(engine := open_engine(other)) as connection:
                numbered = connection.exec_driver_sql(
                    "INSERT INTO scope (provider, account, name) VALUES ('a', 'b', 'c') RETURNING id"
                )
                assert numbered.scalar_one() == max(row[0] for row in before["scope"]) + 1
            engine.dispose()
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
    import_ledger(postgres_url, sqlite_url)
    assert load_rows(sqlite_url) == before


UNCHANGED = "_if_unchanged"


def drop_new_keys(said: Any, then: Any) -> Any:  # noqa: ANN401 - JSON
    """What `said` has of the keys of `then`, at any depth: answers gain keys and notes, and none goes or changes.

    A forecast was what is now "if what runs goes on".
    """
    if isinstance(said, dict) and isinstance(then, dict):
        said |= {key.removesuffix(UNCHANGED): value for key, value in said.items() if key.endswith(UNCHANGED)}
        return {key: drop_new_keys(value, then[key]) for key, value in said.items() if key in then}
    if isinstance(said, list) and isinstance(then, list) and len(said) == len(then):
        return [drop_new_keys(*pair) for pair in zip(said, then, strict=True)]
    if isinstance(said, list) and isinstance(then, list) and all(isinstance(one, str) for one in (*said, *then)):
        return [one for one in said if one in then]  # notes, such as what is not counted
    return said


@pytest.mark.parametrize("name", NAMES)
def test_commands_answer_what_the_old_version_answered(
    name: str, url: str, *, old_file: Callable[[str], str], costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "costguard.toml").write_text(SETTINGS if name == "0016-guard" else ARMED)
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", url)
    monkeypatch.setenv("TZ", "UTC")
    source = parse_ledger_address(old_file(name)).path
    assert costguard("db", "import", str(source)).code == 0
    compared = 0
    for answer in ANSWERS:
        frozen = OLD / f"{name}.{answer.replace(' ', '-')}.json"
        if not frozen.exists():  # a plan needs runs of the guard
            continue
        words = [*answer.split(), *(["idle-gpu"] if answer == "policy explain" else [])]
        with time_machine.travel(ASKED_AT[name], tick=False):
            said = costguard(*words, "--json").data
        then = json.loads(frozen.read_text())
        assert drop_new_keys(said, then) | {"ledger": ""} == then | {"ledger": ""}, answer
        compared += 1
    assert compared == (5 if name == "0016-guard" else 4)


def test_the_next_runs_act_hold_and_tell_as_those_of_the_old_ledger(
    old_file: Callable[[str], str], url: str, tmp_path: Path
) -> None:
    """The guard was interrupted in the grace of a stop; its machine is stopped when that was promised, nobody is told twice."""
    unbroken = f"sqlite:///{tmp_path}/unbroken.db"
    begun = watch_rounds(unbroken, 0, INTERRUPTED)
    assert begun == Watched(acts=[], messages=begun.messages, intents=[("i-train", "grace", 0)])
    went_on = watch_rounds(unbroken, INTERRUPTED, ACT_ROUND + 4)
    import_ledger(old_file("0016-guard"), url)
    assert watch_rounds(url, INTERRUPTED, ACT_ROUND + 4) == went_on
    assert went_on.acts == [(ACT_ROUND, "stop", "train", True)]
    assert maintenance.check_ledger(url) == []


IMPORTING = """
import sys
from costguard.ledger.db.ledger_import import import_ledger
print("ready", flush=True)
sys.stdin.readline()
import_ledger(sys.argv[1], sys.argv[2])
"""
KILLS = 12


@pytest.mark.proof
def test_an_import_that_is_killed_is_whole_or_was_never_there(old_file: Callable[[str], str], url: str) -> None:
    """SIGKILL at moments spread over the time that an import takes; the next one finishes it, or finds it done."""
    source = old_file("0016")
    before, took_s, ends = load_rows(source), 0.0, set[str]()
    for number in range(KILLS + 1):
        delete_ledger(url)
        words = [sys.executable, "-c", IMPORTING, source, url]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdout.readline()
            began = time.monotonic()
            child.stdin.write(b"\n")
            child.stdin.flush()
            if number == 0:  # this one measures
                assert child.wait() == 0
                took_s = time.monotonic() - began
                continue
            time.sleep(took_s * number / KILLS)
            child.kill()
        try:
            import_ledger(source, url)
            ends.add("again")
        except InputError as error:
            assert "is not empty" in error.what  # noqa: PT017 - either end is right
            ends.add("done")
        assert load_rows(url) == load_rows(source) == before
        assert maintenance.check_ledger(url) == []
    assert "again" in ends


def delete_ledger(url: str) -> None:
    """Remove the file of a ledger with its siblings, or all that a database holds."""
    where = parse_ledger_address(url)
    if where.path is not None:
        for file in where.path.parent.glob(f"{where.path.name}*"):
            file.unlink()
        return
    import psycopg

    with psycopg.connect(where.conninfo, autocommit=True) as server:
        server.execute("DROP SCHEMA public CASCADE")
        server.execute("CREATE SCHEMA public")


def test_a_ledger_of_before_is_refused_with_the_command_to_run(old_file: Callable[[str], str], url: str) -> None:
    source = restore(url, "0014") if url.startswith("postgres") else old_file("0014")
    says = r"(?s)older costguard \(its schema is 0014\).*costguard db import"
    for opening in (LedgerReader, open_engine):
        with pytest.raises(OlderLedgerError, match=says):
            opening(source)


def edit(url: str, *statements: str) -> None:
    """As somebody with a SQL tool, who takes the triggers down."""
    with closing(sqlite3.connect(parse_ledger_address(url).path or "")) as file:
        for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            file.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            file.execute(statement)
        file.commit()


def is_absent(url: str) -> bool:
    """Whether no file of the ledger is there."""
    path = parse_ledger_address(url).path
    return path is not None and [one.name for one in path.parent.glob(f"{path.name}*") if one.suffix != ".lock"] == []


REFUSED = {
    "UPDATE wish SET value = 'terminate' WHERE what = 'arm'": "does not verify: wish arm0 differs from row",
    "UPDATE audit SET body = '{}' WHERE seq = 3": "has an audit log that does not verify: row 3 was changed",
    "DROP TABLE notice_state": "is incomplete: it lacks the table notice_state",
    "ALTER TABLE agent DROP COLUMN version": "is incomplete: it lacks the columns version of agent",
    "DELETE FROM scope WHERE id = 1": "is damaged: row .* names a row of scope that does not exist",
    "UPDATE turn SET holder = 'box:1', until_us = 1000000 * (strftime('%s') + 600)": "box:1 guards by it until",
    "INSERT INTO duty VALUES ('watchdog', 'w', 0, 0, 'box:2', 1000000 * (strftime('%s') + 600), 0)": "box:2 polls into it",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_a_source_that_cannot_be_trusted_is_refused_and_nothing_is_written(
    statement: str, old_file: Callable[[str], str], sqlite_url: str
) -> None:
    source = old_file("0016")
    edit(source, statement)
    before = parse_ledger_address(source).path.read_bytes()  # type: ignore[union-attr]  # a file
    with pytest.raises(LedgerError, match=REFUSED[statement]):
        import_ledger(source, sqlite_url)
    assert is_absent(sqlite_url)
    assert parse_ledger_address(source).path.read_bytes() == before  # type: ignore[union-attr]  # a file


def test_one_that_is_cut_off_or_no_ledger_is_refused(old_file: Callable[[str], str], sqlite_url: str, tmp_path: Path) -> None:
    path = parse_ledger_address(old_file("0016")).path
    assert path is not None
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LedgerError, match=r"damaged|not a"):
        import_ledger(f"sqlite:///{path}", sqlite_url)
    (tmp_path / "note.txt").write_text("no ledger" * 200)
    with pytest.raises(LedgerError, match="is not a ledger"):
        import_ledger(f"sqlite:///{tmp_path}/note.txt", sqlite_url)
    with pytest.raises(InputError, match="there is no ledger"):
        import_ledger(f"sqlite:///{tmp_path}/nothing.db", sqlite_url)
    assert is_absent(sqlite_url)


def test_one_that_somebody_writes_to_is_refused(old_file: Callable[[str], str], sqlite_url: str) -> None:
    source = old_file("0016")
    lock = parse_ledger_address(source).make_sibling_path(".lock")
    with hold_file_lock(lock, patience_s=0), pytest.raises(LedgerError, match="another costguard is writing"):
        import_ledger(source, sqlite_url)
    assert is_absent(sqlite_url)


def test_the_target_may_be_an_empty_ledger_and_no_other(old_file: Callable[[str], str], url: str) -> None:
    source = old_file("0016")
    open_engine(url).dispose()
    import_ledger(source, url)
    assert load_rows(url) == load_rows(source)
    with pytest.raises(InputError, match=r"is not empty: .* has \d+ rows"):
        import_ledger(source, url)
    assert load_rows(url) == load_rows(source)
    assert maintenance.check_ledger(url) == []
    with pytest.raises(InputError, match="is \\[ledger\\] url itself"):
        import_ledger(url, url)


@contextmanager
def failing_after(pages: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The disk is full once so many pages of rows were read."""
    read = ledger_import._page_rows
    seen = list[int]()

    def fail(*words: Any) -> Iterator[Any]:  # noqa: ANN401 - as that takes and gives them
        for page in read(*words):
            seen.append(1)
            if len(seen) > pages:
                raise OSError(28, "No space left on device")
            yield page

    with monkeypatch.context() as patched:
        patched.setattr(ledger_import, "_page_rows", fail)
        yield


@pytest.mark.parametrize("there", [False, True], ids=["nothing there", "an empty ledger there"])
def test_an_import_that_fails_leaves_what_was_there(
    there: bool,  # noqa: FBT001 - a case
    old_file: Callable[[str], str],
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = old_file("0016")
    if there:
        open_engine(url).dispose()
    before = load_rows(url) if there else None
    for pages in (0, 5, 20):
        with failing_after(pages, monkeypatch), pytest.raises(LedgerError, match="No space left"):
            import_ledger(source, url)
        if there:
            assert load_rows(url) == before
            assert maintenance.check_ledger(url) == []
        elif url.startswith("sqlite"):
            assert is_absent(url)
        else:
            with pytest.raises(InputError, match="there is no ledger here yet"):
                LedgerReader(url)
    import_ledger(source, url)
    assert load_rows(url) == load_rows(source)


def test_a_restored_copy_is_doubted_in_its_new_place_too(
    old_file: Callable[[str], str], costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = old_file("0016")
    marker = locate_rollback_marker(source)
    noted = {"schema": "costguard.seen/1", "ledger": load_rows(source)["ledger_state"][0][1], "seq": 999, "hash": "ab" * 32}
    marker.path.write_text(json.dumps(noted))
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", f"sqlite:///{tmp_path}/new.db")
    assert costguard("db", "import", source).code == 0
    assert "older than the one used last" in locate_rollback_marker(f"sqlite:///{tmp_path}/new.db").describe_doubt()
