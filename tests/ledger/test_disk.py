"""The disk below the ledger: file systems that lose data are refused, and a user who may only read reads."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from costguard.errors import LedgerError
from costguard.ledger.db.address import parse_ledger_address
from costguard.ledger.db.connection import open_engine
from costguard.ledger.db.disk import connect_read_only
from costguard.system import file_system
from costguard.system.file_system import FLEETING, LOCAL, SHARED, UNSURE, FileSystem, identify_file_system

READ_ONLY_COMMANDS = (*("report", "--offline status", "db check", "audit verify", "agent list", "web tokens"),)
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
READ_ALL = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")  # the interpreter may lie below root's home


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger that others may read, in a folder with its settings."""
    path = tmp_path / "ledger.db"
    open_engine(f"sqlite:///{path}").dispose()
    (tmp_path / "costguard.toml").write_text('[ledger]\nurl = "sqlite:///ledger.db"\n')
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    path.chmod(0o644)
    return path


def run(ledger: Path, words: str, *before: str, **environ: str) -> tuple[int, str]:
    typed = [*before, sys.executable, "-m", "costguard", *words.split()]
    around = {**os.environ, "HOME": str(ledger.parent), **environ}
    ran = subprocess.run(typed, cwd=ledger.parent, env=around, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv for a second user")
@pytest.mark.parametrize("written", ["", "crashed", "open"])
def test_a_user_who_may_only_read_reads_and_changes_no_file(ledger: Path, written: str) -> None:
    if written == "crashed":  # a writer that was killed leaves its log behind
        script = "import os, sqlite3, sys; f = sqlite3.connect(sys.argv[1]); f.execute('UPDATE ledger_state SET revision = 7');"
        subprocess.run([sys.executable, "-c", f"{script} f.commit(); os._exit(0)", ledger], check=True)
        assert ledger.with_name("ledger.db-wal").stat().st_size
    with closing(sqlite3.connect(ledger)) as writer:
        if written == "open":
            writer.execute("UPDATE ledger_state SET revision = 8")
            writer.commit()
        before = sorted(path.name for path in ledger.parent.iterdir())
        commands = READ_ONLY_COMMANDS if written == "" else READ_ONLY_COMMANDS[:1]
        outcomes = {words: run(ledger, words, *NOBODY, *READ_ALL) for words in commands}
        assert {words: outcome for words, outcome in outcomes.items() if outcome[0]} == {}
        assert sorted(path.name for path in ledger.parent.iterdir()) == before
        code, said = run(ledger, "db upgrade", *NOBODY, *READ_ALL)
    assert code == 1
    assert "let this user write" not in said
    assert "costguard report, --offline status" in said


def test_a_reader_of_a_file_alone_notices_that_it_was_written(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costguard.ledger.db.disk.identify_file_system", lambda _: FileSystem("NFS", SHARED))
    file, check = connect_read_only(parse_ledger_address(f"sqlite:///{ledger}"))
    with closing(file):
        check()
        with closing(sqlite3.connect(ledger)) as writer:
            writer.execute("UPDATE ledger_state SET revision = 9")
            writer.commit()
            with pytest.raises(LedgerError, match="written while it was read"):
                check()
            with pytest.raises(LedgerError, match="has a log"):
                connect_read_only(parse_ledger_address(f"sqlite:///{ledger}"))


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    if not shutil.which("cc") or sys.platform != "linux":
        pytest.skip("there is no C compiler, or this is not Linux")
    made = tmp_path_factory.mktemp("shim") / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, Path(__file__).with_name("network_disk.c")], check=True)
    return str(made)


@pytest.mark.parametrize(
    ("disk", "words", "said"),
    [
        ({"DISK_MAGIC": "0x6969"}, "db upgrade", "it is on NFS"),
        ({"DISK_MAGIC": "0xFF534D42"}, "db upgrade", "it is on CIFS"),
        ({"DISK_MAGIC": "0x0BD00BD0"}, "doctor", "it is on Lustre"),
        ({"DISK_MAGIC": "0x01021997"}, "doctor", "it is on 9p"),
        ({"DISK_MAGIC": "0x794C7630"}, "watch --once", "lost with the container"),
        ({"DISK_LOCK": "37"}, "report", "does not lock files (No locks available)"),
        ({"DISK_LOCK": "71"}, "report", "does not lock files"),
        ({"DISK_FLOCK": "37"}, "db upgrade", "does not lock files (No locks available)"),
        ({"DISK_MAP": "19"}, "report", "does not let processes share memory"),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else None,
)
def test_what_a_file_system_lacks_is_named_with_another_place(
    ledger: Path, shim: str, disk: dict[str, str], words: str, said: str
) -> None:
    code, output = run(ledger, words, LD_PRELOAD=shim, **disk)
    assert code
    assert said in output
    assert "PostgreSQL" in output or "volume" in output
    assert "close the program" not in output


def test_a_ledger_on_a_network_disk_is_read_and_copied(ledger: Path, shim: str) -> None:
    for words in ("report", "db check", "db backup copy.db"):
        assert run(ledger, words, LD_PRELOAD=shim, DISK_MAGIC="0x6969", DISK_LOCK="37", DISK_MAP="19")[0] == 0, words


@pytest.mark.parametrize(
    ("kind", "risk"),
    [
        *((f"fuse.{name}", SHARED) for name in ("sshfs", "gcsfuse", "s3fs", "rclone", "glusterfs", "mount-s3", "juicefs")),
        *((name, LOCAL) for name in ("fuseblk", "fuse.mergerfs", "fuse.gocryptfs")),
        *((name, UNSURE) for name in ("fuse", "fuse.portal", "virtiofs", "fakeowner")),
        ("fuse.fuse-overlayfs", FLEETING),
    ],
)
def test_a_fuse_is_known_by_the_program_behind_it(
    tmp_path: Path, kind: str, risk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path.stat().st_dev
    line = f"36 35 {os.major(device)}:{os.minor(device)} / /data rw,noatime shared:1 - {kind} bucket rw\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: line)
    assert file_system._identify_fuse(tmp_path).risk == risk


def test_the_name_in_the_answer_of_macos_is_read() -> None:
    answer = bytearray(2168)
    answer[72:76] = b"nfs\0"
    assert file_system._read_darwin(bytes(answer)) == FileSystem("nfs", SHARED)
    answer[64:80] = (0x1000).to_bytes(4, sys.byteorder) + bytes(4) + b"apfs\0\0\0\0"
    assert file_system._read_darwin(bytes(answer)) == FileSystem("apfs", LOCAL)


def test_a_folder_that_does_not_exist_yet_is_on_the_disk_above_it(tmp_path: Path) -> None:
    assert identify_file_system(tmp_path / "a" / "ledger.db") == identify_file_system(tmp_path)
