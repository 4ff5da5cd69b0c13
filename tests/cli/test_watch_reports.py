"""Reports from a watchdog that is a process of its own: sent without anybody doing anything, also after SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.reports.store import ReportStore
from costguard.reporting.schedule import list_due_reports
from costguard.settings import check_settings
from tests import warm
from tests.smtp import PASSWORD, Post, post_office

HOURS = timedelta(hours=30)
LONGEST_S = 300
SETTINGS = """
[ledger]
url = "{url}"
[notify]
mail = "env:MAIL_URL"
[[report]]
every = "day"
at = "00:00"
to = ["lead@lab.org"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Settings, and a ledger that has known them for thirty hours."""
    text = SETTINGS.format(url=f"sqlite:///{tmp_path}/ledger.db")
    (tmp_path / "costguard.toml").write_text(text)
    with ReportStore(f"sqlite:///{tmp_path}/ledger.db") as book:
        book.record_schedules(check_settings(text, "costguard.toml").reports, datetime.now(UTC) - HOURS)
    return tmp_path


@pytest.fixture
def post() -> Iterator[Post]:
    with post_office(Post()) as made:
        yield made


def environ(folder: Path, post: Post) -> dict[str, str]:
    homes = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_DATA_HOME": str(folder / "data")}
    return {**os.environ, **homes, "MAIL_URL": post.url}


def watch(folder: Path, post: Post, *flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "costguard", "--offline", "watch", *flags],  # no provider is configured
        cwd=folder, env=environ(folder, post), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def until(true: Callable[[], object], process: subprocess.Popen[str]) -> None:
    pause = threading.Event()
    for _ in range(LONGEST_S * 20):
        if true():
            return
        assert process.poll() is None, process.communicate()[0]
        pause.wait(0.05)
    process.kill()
    raise AssertionError(process.communicate()[0])


def due(folder: Path) -> int:
    """How many reports are due: of one day that has ended, or of two."""
    [report] = check_settings((folder / "costguard.toml").read_text(), "costguard.toml").reports
    now = datetime.now(UTC)
    return len(list_due_reports(report, now - HOURS, now, UTC))


def rested(folder: Path) -> None:
    """The turn of one that was killed has run out, which takes minutes that nobody wants to wait for."""
    with GuardStore(f"sqlite:///{folder}/ledger.db", rails=Rails()) as book:
        turn = book.load_leader_lease()
        assert turn is not None
        book.release_leader_lease(turn.epoch)


def ended(process: subprocess.Popen[str]) -> str:
    """What it said; it went well, and showed no secret."""
    said, _ = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0, said
    assert PASSWORD not in said
    return said


def test_one_that_a_timer_runs_sends_what_is_due_and_a_dry_run_nothing(folder: Path, post: Post) -> None:
    def run(*flags: str) -> None:
        (ran,) = warm.run(("--offline", "watch", "--once", *flags), cwd=folder, environs=[environ(folder, post)])
        assert (ran.returncode, PASSWORD.encode() in ran.stdout + ran.stderr) == (0, False), ran.stderr

    run("--dry-run")
    assert post.letters == []
    expected = due(folder)
    run()
    assert len(post.letters) == expected
    assert {whom for whom, _ in post.read} == {("lead@lab.org",)}
    assert PASSWORD.encode() not in (folder / "ledger.db").read_bytes()


@pytest.mark.proof
def test_after_a_kill_between_sending_and_recording_it_is_sent_again_and_then_no_more(folder: Path, post: Post) -> None:
    expected, post.silent = due(folder), threading.Event()
    ran = watch(folder, post, "--once")
    until(lambda: len(post.letters) == expected, ran)
    ran.kill()  # the server has them, and nobody else knows
    ran.communicate()
    post.silent.set()
    rested(folder)
    for _ in range(2):
        ended(watch(folder, post, "--once"))
    assert len(post.letters) == 2 * expected
    assert len({letter["Subject"] for _, letter in post.read}) == expected


@pytest.mark.proof
def test_one_that_goes_on_sends_them_by_itself_and_takes_no_settings_that_it_cannot_send_by(folder: Path, post: Post) -> None:
    expected = due(folder)
    ran = watch(folder, post)
    until(lambda: len(post.letters) == expected, ran)
    text = (folder / "costguard.toml").read_text()
    (folder / "costguard.toml").write_text(f'{text}format = "htlm"\n')
    ran.send_signal(signal.SIGHUP)
    ran.send_signal(signal.SIGTERM)
    said = ended(ran)
    assert "report_put_out" in said
    assert "reload_refused" in said
    refused = watch(folder, post, "--once")
    said, _ = refused.communicate(timeout=LONGEST_S)
    assert refused.returncode == 2
    assert said.startswith("error: report day.format: unknown format 'htlm'\nhint: did you mean html?")
