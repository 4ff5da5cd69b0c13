"""`costguard run` where something is odd: two machines on one record, closed streams, a ledger that goes away."""

from __future__ import annotations

import json
import os
import shlex
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tests.cli.ran import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def _elsewhere(bench: Bench, **more: object) -> Path:
    """The record of a job whose first attempt was alive on another machine a moment ago."""
    file = bench.folder / "shared.json"
    ran = bench.run(bench.command("--yes", "--record", str(file), "--id-of-job", "d", "--", "true"))
    assert ran.returncode == 0, ran.stderr
    said = json.loads(file.read_text())
    now = datetime.now(UTC).isoformat()
    said["attempts"][0] |= {"host": "another-box", "boot": "b", "state": "open", "status": None, "seen_at": now, **more}
    file.write_text(json.dumps(said))
    return file


WATCHED = """
import sys
from costguard.services.run_jobs import record_store
record_store.REMOTE_WATCH_S, record_store.REMOTE_LOOK_S = float(sys.argv[1]), 0.1
from costguard.cli import run_cli
sys.exit(run_cli(["run", *sys.argv[2:]]))
"""
"""The command, with another patience for attempts on other machines."""


def test_a_job_that_lives_on_another_machine_is_not_begun_here(bench: Bench) -> None:
    file = _elsewhere(bench)
    command = [sys.executable, "-c", WATCHED, "30", "--yes", "--record", str(file), "--", "touch", "ran"]
    with bench.start(command) as process:
        assert process.stderr is not None
        assert "was alive on another-box recently" in process.stderr.readline()
        said = json.loads(file.read_text())
        said["attempts"][0]["seen_at"] = datetime.now(UTC).isoformat()
        file.write_text(json.dumps(said))
        told = process.stderr.read()
        assert (process.wait(30), "attempt 1 runs on another-box now" in told) == (3, True), told
    assert not (bench.folder / "ran").exists()


def test_a_job_that_is_silent_on_another_machine_goes_on_here(bench: Bench) -> None:
    file = _elsewhere(bench)
    ran = bench.run([sys.executable, "-c", WATCHED, "0.3", "--yes", "--record", str(file), "--", "true"])
    assert ran.returncode == 0, ran.stderr
    assert [one["state"] for one in json.loads(file.read_text())["attempts"]] == ["lost", "ended"]


def test_what_another_machine_writes_into_the_record_stays_in_it(bench: Bench) -> None:
    file = bench.folder / "shared.json"
    writes = f"""
import json, pathlib
file = pathlib.Path({str(file)!r})
said = json.loads(file.read_text())
said["attempts"].append(said["attempts"][0] | {{"id": "d.1-theirs", "host": "another-box", "state": "ended", "status": 0}})
file.write_text(json.dumps(said))
"""
    ran = bench.run(bench.command("--yes", "--record", str(file), "--id-of-job", "d", "--", sys.executable, "-c", writes))
    assert ran.returncode == 0, ran.stderr
    found = {one["id"]: one["state"] for one in json.loads(file.read_text())["attempts"]}
    assert (len(found), found["d.1-theirs"], set(found.values())) == (2, "ended", {"ended"})


@pytest.mark.sampled(4)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_stay_closed_and_no_file_of_ours_takes_their_number(bench: Bench, closed: str) -> None:
    counts = "import os; os._exit(40 + sum(os.path.exists(f'/proc/self/fd/{number}') for number in range(3)))"
    command = shlex.join(bench.command("--yes", "--id-of-job", "d", "--", sys.executable, "-S", "-c", counts))
    ran = bench.run(["sh", "-c", f"exec {command} {closed}"])
    assert ran.returncode == 43 - closed.count("&-"), ran.stderr
    assert [one["status"] for one in bench.record("d")] == [ran.returncode]


def test_an_end_that_the_ledger_did_not_take_is_settled_as_the_end_it_was(bench: Bench) -> None:
    breaks = f"mv {bench.folder}/ledger.db {bench.folder}/kept.db; mkdir {bench.folder}/ledger.db; exit 7"
    stated = ("--rate", "3600", "--max-usd", "50", "--yes", "--id-of-job", "d")
    first = bench.run(bench.command(*stated, "--", "sh", "-c", breaks))
    assert (first.returncode, "hold and lease stay until" in first.stderr) == (7, True), first.stderr
    (bench.folder / "ledger.db").rmdir()
    (bench.folder / "kept.db").rename(bench.folder / "ledger.db")
    again = bench.run(bench.command(*stated, "--", "true"))
    assert again.returncode == 0, again.stderr
    assert [(one["state"], one["status"]) for one in bench.record("d")] == [("ended", 7), ("ended", 0)]
    assert [how for _, _, how, _ in bench.holds()] == ["committed", "committed"]


@pytest.mark.parametrize("odd", ["fifo", "folder"])
def test_a_record_that_is_no_plain_file_is_refused_at_once(bench: Bench, odd: str) -> None:
    file = bench.folder / odd
    os.mkfifo(file) if odd == "fifo" else file.mkdir()
    ran = bench.run(bench.command("--yes", "--record", str(file), "--", "true"))
    assert (ran.returncode, "is not a plain file" in ran.stderr) == (2, True), ran.stderr


def test_what_a_run_came_to_where_nobody_lists_the_machine_stays_in_its_budget(bench: Bench) -> None:
    (bench.folder / "costguard.toml").write_text('[[budget]]\nname = "lab"\ncap = "7 USD"\nperiod = "month"\n')
    stated = ("--rate", "7200", "--max-usd", "5", "--yes")
    first = bench.run(bench.command(*stated, "--result", "r.json", "--", "sleep", "1.1"))
    assert "$7.00 of $7.00 left" in first.stderr
    spent = Decimal(json.loads((bench.folder / "r.json").read_text())["actual"]["money"])
    assert spent >= 4
    again = bench.run(bench.command(*stated, "--", "touch", "ran"))
    assert (again.returncode, f"${7 - spent:.2f} of $7.00 left" in again.stderr) == (3, True), again.stderr
    status = bench.run([sys.executable, "-m", "costguard", "status", "--json"])
    (lab,) = json.loads(status.stdout)["budgets"]
    assert (lab["spent"]["low"], Decimal(lab["spent"]["high"])) == ("0.00", spent)
