"""Files that any command makes are its user's alone, whatever the umask (RELIABILITY 5.3), in places that are not another's."""

from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from costguard.ledger.guard.audit_log import RollbackMarker
from costguard.system.atomic_file import write_file_atomically
from tests.cli.test_calibrate import RUNS
from tests.security.house import NOBODY, ROOT, House, a_house, a_public_place, as_root, open_to_others

OLD = ROOT / "tests" / "ledger" / "old" / "0016.sqlite.sql.gz"
COMMANDS = (
    (("watch", "--once"), 0), (("freeze", "--why", "a test"), 0), (("db", "backup", "copy.db"), 0),
    (("init", "--path", "made.toml"), 0), (("calibrate", "runs.csv", "--calibration", "deep/er/mine.json"), 0),
    (("prices", "refresh"), 0), (("--config", "new.toml", "db", "import", "old.db"), 0),
)  # fmt: skip
MADE = (
    *("ledger.db", "ledger.db.lock", "ledger.db.seen", "copy.db", "made.toml", "deep", "deep/er", "deep/er/mine.json"),
    *("cache", "cache/costguard", "cache/costguard/market.sqlite", "new.db", "new.db.lock"),
)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with a_house(tmp_path, cloud=True) as made:
        yield made


@pytest.mark.proof
def test_every_file_of_every_command_is_its_users_alone_with_no_umask_at_all(house: House) -> None:
    (house.folder / "runs.csv").write_text(RUNS)
    (house.folder / "new.toml").write_text('[ledger]\nurl = "sqlite:///new.db"\n')
    with closing(sqlite3.connect(house.folder / "old.db")) as file:
        file.executescript(gzip.decompress(OLD.read_bytes()).decode())
    mine = {"runs.csv", "new.toml", "costguard.toml", "old.db"}
    (house.folder / "old.db").chmod(0o600)
    for words, code in COMMANDS:
        assert house.run(*words, umask=0) == code, (words, house.said)
    found = open_to_others(house.folder)
    assert {name: mode for name, mode in found.items() if name not in mine} == {}
    there = {str(path.relative_to(house.folder)) for path in house.folder.rglob("*")}
    assert set(MADE) <= there, set(MADE) - there
    assert "runs.csv" in found  # control: what this test wrote itself is seen


def test_the_log_of_a_ledger_that_is_written_to_is_its_users_alone(house: House) -> None:
    """-wal and -shm are there while somebody writes."""
    running = subprocess.Popen(
        [sys.executable, "-m", "costguard", "watch", "--interval", "1s"],
        cwd=house.folder,
        env=house.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        umask=0,
    )
    assert running.stdout
    running.stdout.readline()
    running.kill()
    running.communicate(timeout=300)
    assert (house.folder / "ledger.db-wal").exists()
    assert set(open_to_others(house.folder)) == {"costguard.toml"}


def test_what_is_put_in_place_is_private_by_itself_and_leaves_nothing_else(tmp_path: Path) -> None:
    """Not by the umask alone: whoever calls these from elsewhere gets the same."""
    before = os.umask(0)
    try:
        write_file_atomically(tmp_path / "a" / "b.json", b"1")
        write_file_atomically(tmp_path / "a" / "b.json", b"2")
        (tmp_path / "plain").write_bytes(b"")
    finally:
        os.umask(before)
    assert set(open_to_others(tmp_path)) == {"plain"}  # and so the search finds what is open
    assert (tmp_path / "a" / "b.json").read_bytes() == b"2"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.json"]


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (("calibrate", "runs.csv", "--calibration", "shared/mine.json"), "mine.json"),
        (("init", "--path", "shared/made.toml"), "made.toml"),
    ],
    ids=["calibrate", "init"],
)
def test_a_link_in_the_way_is_not_written_through(house: House, words: tuple[str, ...], target: str) -> None:
    """Whoever may put links where a file is written must not choose another file that is overwritten."""
    (house.folder / "runs.csv").write_text(RUNS)
    shared, victim = house.folder / "shared", house.folder / "diary"
    shared.mkdir()
    victim.write_text("dear diary")
    if words[0] == "init":
        (shared / target).symlink_to(victim)
    for guess in (f"{target}.{os.getpid()}.new", f".{target}.unfinished", f"{target}.new"):
        (shared / guess).symlink_to(victim)
    assert house.run(*words) == (2 if words[0] == "init" else 0), house.said
    assert victim.read_text() == "dear diary"
    if words[0] == "init":  # it extends what is there, and a diary is no settings file
        return
    assert (shared / target).is_file()
    assert not (shared / target).is_symlink()


def test_a_lock_that_is_a_link_is_not_followed(house: House) -> None:
    victim = house.folder / "not there"
    (house.folder / "ledger.db.lock").symlink_to(victim)
    assert house.run("freeze", "--why", "a test") == 1
    assert "ledger.db.lock" in house.said
    assert not victim.exists()


def test_a_backup_never_writes_through_a_link(house: House) -> None:
    assert house.run("freeze", "--why", "a test") == 0
    victim = house.folder / "diary"
    (house.folder / "copy.db").symlink_to(victim)
    assert house.run("db", "backup", "copy.db") == 2
    assert not victim.exists()


# A ledger in a place that is not ours alone


@pytest.fixture
def public() -> Iterator[Path]:
    with a_public_place() as place:
        yield place


def ledger_at(place: Path, house: House) -> str:
    """A real ledger, at `place`."""
    url = f"sqlite:///{place}"
    assert house.run("db", "upgrade", COSTGUARD_LEDGER__URL=url) == 0, house.said
    return url


def test_a_ledger_that_everybody_may_write_is_not_believed(house: House, public: Path) -> None:
    url = ledger_at(public / "ledger.db", house)
    (public / "ledger.db").chmod(0o666)
    for words in (("status",), ("freeze", "--why", "x"), ("watch", "--once"), ("audit", "verify")):
        assert house.run(*words, COSTGUARD_LEDGER__URL=url) == 1
        assert "it is world-writable (its mode is 0666)" in house.said
        assert "chmod" in house.said
    (public / "ledger.db").chmod(0o600)
    assert house.run("status", COSTGUARD_LEDGER__URL=url) == 0, house.said


def test_a_ledger_that_everybody_may_put_another_in_the_place_of_is_not_believed(house: House, public: Path) -> None:
    url = ledger_at(public / "ledger.db", house)
    public.chmod(0o777)
    assert house.run("freeze", "--why", "x", COSTGUARD_LEDGER__URL=url) == 1
    assert "everybody may replace it (" in house.said
    public.chmod(0o1777)  # as /tmp: only its owner can
    assert house.run("freeze", "--why", "x", COSTGUARD_LEDGER__URL=url) == 0, house.said


@as_root
def test_a_ledger_that_another_user_left_in_tmp_is_not_believed(house: House, public: Path) -> None:
    url = ledger_at(public / "ledger.db", house)
    public.chmod(0o1777)
    os.chown(public / "ledger.db", NOBODY, NOBODY)
    assert house.run("watch", "--once", COSTGUARD_LEDGER__URL=url) == 1
    assert "it belongs to another user (nobody)" in house.said


@as_root
@pytest.mark.parametrize("linked", ["file", "folder"])
def test_a_link_that_another_user_left_in_tmp_is_not_followed(house: House, public: Path, linked: str) -> None:
    """Linux would not follow it for us (fs.protected_symlinks); to look up where it leads first must not get around that."""
    own = house.folder / "own"
    own.mkdir()
    public.chmod(0o1777)
    link, name = (public / "ledger.db", "") if linked == "file" else (public / "cg", "/ledger.db")
    link.symlink_to(own / "ledger.db" if linked == "file" else own)
    url = f"sqlite:///{link}{name}"
    assert house.run("freeze", "--why", "x", COSTGUARD_LEDGER__URL=url) == 0, house.said  # control: our own link is followed
    shutil.rmtree(own)
    own.mkdir()
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    assert house.run("freeze", "--why", "x", COSTGUARD_LEDGER__URL=url) == 2
    assert "is a link that another user created in a world-writable folder" in house.said
    assert list(own.iterdir()) == []


@as_root
def test_settings_of_another_user_are_not_taken_from_the_working_folder(house: House, public: Path) -> None:
    """They say whom keys are sent to: whoever leaves a costguard.toml where others work would be sent theirs."""
    assert house.rig is not None
    evil = (house.folder / "costguard.toml").read_text()
    (public / "costguard.toml").write_text(evil)
    public.chmod(0o1777)
    there = House(public, house.environ)
    assert there.run("status") == 0, there.said  # control: ours is taken, and its cloud is asked
    asked = len(house.rig.fake.asked)
    assert asked
    os.chown(public / "costguard.toml", NOBODY, NOBODY)
    assert there.run("status") == 2
    assert "is not loaded from here: it is in a world-writable folder" in there.said
    assert "--config costguard.toml" in there.said
    assert len(house.rig.fake.asked) == asked
    assert there.run("--config", "costguard.toml", "status") == 0, there.said


def test_the_folder_one_works_in_brings_no_code(house: House) -> None:
    """The command `costguard` imports nothing from there, whatever lies there under the name of a library."""
    script = Path(sys.executable).with_name("costguard")
    if not script.exists():
        pytest.skip("costguard is not installed here as a command")
    for name in ("typer", "httpx2", "structlog", "resource", "costguard_runpod", "sqlite3"):
        (house.folder / f"{name}.py").write_text("open('was here', 'w')\n")
    done = subprocess.run(
        [str(script), "status"], cwd=house.folder, env=house.environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not (house.folder / "was here").exists()
    control = subprocess.run(
        [sys.executable, "-c", "import typer"],
        cwd=house.folder,
        env=house.environ,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert control.returncode == 0
    assert (house.folder / "was here").exists()


def test_a_mark_that_is_in_the_way_is_replaced_whole(tmp_path: Path) -> None:
    """What is no mark is none, and not an error."""
    mark = RollbackMarker(f"sqlite:///{tmp_path}/ledger.db", tmp_path / "ledger.db.seen")
    for text in ("", "{", "[]", '{"schema": "costguard.seen/1"}', '{"schema": "costguard.seen/1", "ledger": 1, "seq": "x"}'):
        mark.path.write_text(text)
        assert mark.read_noted_head() is None
        assert mark.describe_doubt() == ""
