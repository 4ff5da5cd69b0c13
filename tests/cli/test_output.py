"""`--output FILE`: whole or not at all, for every format, and never over another file unless that is asked for."""

from __future__ import annotations

import errno
import gzip
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.cli import output
from costguard.errors import CostguardError, InputError, LedgerError
from costguard.services.report import ledger_answers
from tests.cli.recorded import POLICY
from tests.conftest import Command, Ran
from tests.ledger.fleet import machine, poll
from tests.ledger.test_items import recorded

FORMATS = ("table", "json", "csv", "markdown", "html", "focus", "beancount")


@pytest.fixture
def report(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`costguard report` of a day of one machine."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    began = datetime(2026, 11, 1, tzinfo=UTC)
    recorded(url, *(poll(minutes, machine(started_at=began)) for minutes in (125, 127, 129))).close()
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", url)
    monkeypatch.setattr(ledger_answers, "get_now", lambda: began + timedelta(minutes=9))
    folder = tmp_path / "out"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*flags: str) -> Ran:
        return costguard("report", "--month", "2026-11", *flags)

    return run


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_written_as_it_is_printed(report: Command, name: str) -> None:
    printed = report("--format", name)
    ran = report("--format", name, "--output", "answer")
    assert (printed.code, ran.code, ran.out) == (0, 0, ""), ran.err
    assert Path("answer").read_text() == printed.out
    assert stat.S_IMODE(Path("answer").stat().st_mode) == 0o600
    assert [path.name for path in Path().iterdir()] == ["answer"]


@pytest.mark.parametrize(
    ("file", "named"),
    [("a.html", "html"), ("a.JSON", "json"), ("a.csv", "csv"), ("a.md", "markdown"), ("a.beancount", "beancount")],
)
def test_the_ending_of_a_file_says_its_format_where_no_flag_does(report: Command, file: str, named: str) -> None:
    assert report("--output", file).code == 0
    assert Path(file).read_text() == report("--format", named).out


@pytest.mark.parametrize(("file", "flags"), [("a.csv.gz", ()), ("a.json.GZ", ()), ("a.gz", ()), ("a.txt.gz", ("--json",))])
def test_a_file_that_ends_in_gz_is_packed(report: Command, file: str, flags: tuple[str, ...]) -> None:
    assert report("--output", file, *flags).code == 0
    packed = Path(file).read_bytes()
    named = {"a.csv.gz": ("--csv",), "a.gz": ()}.get(file, ("--json",))
    assert gzip.decompress(packed).decode() == report(*named).out
    assert report("--output", file, *flags, "--force").code == 0
    assert Path(file).read_bytes() == packed, "the same answer is the same file"


READING = {
    "quote": ("--gpu", "H100", "--count", "8", "--hours", "12"), "size": ("--model", "llama-2-7b"),
    "offers": ("--gpu", "H100"), "prices": (), "breakeven": ("--gpu", "A100-80GB", "--price", "15000"),
    "calibrate": ("--show",), "status": (), "reconcile": ("--month", "2026-10"), "plan": (),
    "simulate": ("--from", "2026-11-01T00:00", "--to", "2026-11-01T01:00"), "policy": ("lint",), "doctor": (),
    "providers": (), "audit": ("verify",),
}  # fmt: skip
TIMES = re.compile(r'"[a-z_]*(?:at|hours|from|to|start|end|age|days)": [^,}\]]+|\d{4}-\d\d-\d\dT[0-9:.]+Z?')
"""What two answers of the same question may differ in: when it was asked."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", READING)
def test_every_command_that_reads_answers_into_a_file_as_well(report: Command, costguard: Command, name: str) -> None:
    assert report("--format", "focus", "--output", "sound.csv").code == 0
    Path("costguard.toml").write_text(POLICY)
    words = ("--offline", name, *READING[name])
    printed = costguard(*words, "--json")
    ran = costguard(*words, "--output", "answer.json")
    assert (ran.code, ran.out, printed.code in (0, 3)) == (printed.code, "", True), ran.err
    assert TIMES.sub("", Path("answer.json").read_text()) == TIMES.sub("", printed.out)
    costguard(*words, "--output", "answer.json").says("already exists", "--force")
    costguard(*words, "--force").says("--output FILE")
    assert costguard(*words, "--csv", "-o", "answer.json", "--force").code == printed.code


def test_a_file_that_cannot_be_written_stops_a_bill_from_being_taken_in(report: Command, costguard: Command) -> None:
    assert report("--format", "focus", "--output", "own.csv").code == 0
    words = ("reconcile", "--month", "2026-11", "--provider", "aws", "--file", "own.csv")
    costguard(*words, "-o", "nowhere/a.json").says("no such folder:")
    costguard(*words, "-o", "a.parquet").says("needs charges", "costguard report")
    costguard(*words, "--format", "focus").says("needs charges", "costguard report")
    again = costguard(*words, "--json")
    assert [one["added"] for one in again.data["imports"]] == [1], "nothing had been"


def test_a_file_that_is_there_is_kept_unless_force_is_said(report: Command) -> None:
    Path("answer").write_text("mine")
    report("--output", "answer").says("already exists", "--force")
    assert Path("answer").read_text() == "mine"
    assert report("--json", "--output", "answer", "--force").code == 0
    assert Path("answer").read_text().startswith("{")


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("target", ["elsewhere", "mine"])
def test_a_link_is_never_replaced_nor_followed(report: Command, target: str, force: tuple[str, ...]) -> None:
    Path("mine").write_text("mine")
    Path("answer").symlink_to(target)
    report("--output", "answer", *force).says("a link to another file", f"the link's target, {target}", "omit --output")
    assert (Path("answer").readlink(), Path("mine").read_text()) == (Path(target), "mine")
    assert sorted(path.name for path in Path().iterdir()) == ["answer", "mine"]


def broken(error: Exception) -> Iterator[str]:
    yield "half of it"
    raise error


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), CostguardError, "No space left on device"),
        (LedgerError("was taken away"), LedgerError, "was taken away"),
    ],
)
def test_what_breaks_off_leaves_everything_as_it_was(
    tmp_path: Path, error: Exception, kind: type[Exception], said: str, *, there: bool
) -> None:
    target = tmp_path / "answer"
    if there:
        target.write_text("mine")
    with pytest.raises(kind, match=said):
        output.write_target(broken(error), target, force=True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == ([("answer", "mine")] if there else [])


def test_a_file_that_comes_meanwhile_is_kept(tmp_path: Path) -> None:
    target = output.resolve_target(str(tmp_path / "answer"), force=False)

    def slow() -> Iterator[str]:
        yield "ours"
        target.write_text("theirs")

    with pytest.raises(InputError, match="already exists"):
        output.write_target(slow(), target, force=False)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("answer", "theirs")]


WRITER = """
import sys
from pathlib import Path
from costguard.cli import output
def pieces():
    yield "half of it"
    print("begun", flush=True)
    sys.stdin.read()
output.write_target(pieces(), Path(sys.argv[1]), force=True)
"""


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """A process that is amid writing the file answer."""
    started = list[subprocess.Popen[str]]()

    def begin() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WRITER, str(tmp_path / "answer")]
        one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(one)
        assert one.stdout is not None
        assert one.stdout.readline() == "begun\n"
        return one

    yield begin
    for one in started:
        one.kill()
        one.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")
def test_what_a_killed_process_left_is_removed_by_the_next_and_what_others_write_is_not(
    tmp_path: Path, begun: Callable[[], subprocess.Popen[str]]
) -> None:
    dead, others = begun(), [".answer.abcdefgh", ".answer.original.unfinished", ".answers.abcdefgh.unfinished-costguard"]
    dead.kill()
    dead.wait()
    (left,) = tmp_path.iterdir()
    output.write_target(["mine"], tmp_path / "answer", force=False)
    assert left.exists(), "it may just have begun"
    living = begun()
    (lives,) = set(tmp_path.glob(".answer.*")) - {left}
    for path in (left, lives, *(tmp_path / name for name in others)):
        path.touch()
        os.utime(path, (1, 1))
    (tmp_path / ".answer.aaaaaaaa.unfinished-costguard").symlink_to(tmp_path / "answer")
    output.write_target(["newer"], tmp_path / "answer", force=True)
    assert (left.exists(), lives.exists()) == (False, True)
    assert all((tmp_path / name).exists() for name in others)
    assert (tmp_path / "answer").read_text() == "newer"
    living.communicate("")
    assert (living.returncode, (tmp_path / "answer").read_text(), lives.exists()) == (0, "half of it", False)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of files")
def test_a_file_that_the_system_cuts_short_is_not_left_behind(tmp_path: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        with pytest.raises(CostguardError, match=r"cannot be written: File too large"):
            output.write_target(("x" * 1000 for _ in range(100)), tmp_path / "answer", force=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
