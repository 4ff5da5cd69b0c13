"""What runs where something is missing: no `fcntl` (Windows), no RE2 (Alpine), no checkout (a wheel); and a kept demo."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest

from costguard.data import CHECKOUT_PAGES
from costguard.settings import read_settings
from costguard.testing import demo
from tests.conftest import Command

BLOCKED = ("fcntl", "termios", "resource", "pwd", "grp", "tty", "pty", "readline")
"""Standard modules that Windows has not."""
RUN = f"import sys; sys.modules.update(dict.fromkeys({BLOCKED!r})); from costguard.cli import run_cli; sys.exit(run_cli(sys.argv[1:]))"  # noqa: E501
JOB = ("--model", "llama-3.1-8b", "--method", "qlora")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A demo that was kept, of a day: the month takes twelve seconds."""
    folder, patch = tmp_path_factory.mktemp("kept") / "sample", pytest.MonkeyPatch()
    with patch.context() as within:
        within.setattr(demo, "KEPT_LENGTH", timedelta(days=1))
        demo.keep_demo(str(folder))
    return folder


@pytest.mark.parametrize(
    "words", [("quote", *JOB, "--tokens", "50e6"), ("size", *JOB), ("report",), ("gpus",)], ids=lambda words: words[0]
)
def test_reading_commands_need_no_module_that_windows_lacks(kept: Path, words: tuple[str, ...]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *words], cwd=kept, capture_output=True, text=True, check=False, timeout=300
    )
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    assert ran.stdout


def test_without_re2_a_pattern_is_refused_and_nothing_else_is(costguard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = '[[policy]]\nname = "a"\nwhen = \'state == "idle" && name.{}\'\nfor = "45m"\nthen = [{{ do = "notify" }}]\n'
    monkeypatch.setitem(sys.modules, "re2", None)
    Path("costguard.toml").write_text(policy.format('startsWith("train")'))
    assert costguard("policy", "lint").code == 0
    Path("costguard.toml").write_text(policy.format('matches("^train")'))
    costguard("policy", "lint").says("costguard.toml", "matches needs google-re2", "'.[patterns]'", "startsWith")


@pytest.mark.parametrize("kind", ["docs", "iam"])
def test_every_page_is_listed_and_printed_as_it_is(costguard: Command, kind: str) -> None:
    files = [one for one in CHECKOUT_PAGES[kind].glob("*.*") if one.is_file()]
    assert set(costguard(kind).out.split()) == {one.stem.lower() for one in files}
    for one in files:
        assert costguard(kind, one.stem).out == one.read_text()
    costguard(kind, "strat").says("strat", f"costguard {kind}")


def test_a_kept_demo_answers_and_goes_on(kept: Path, costguard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(kept)
    monkeypatch.delenv("COSTGUARD_LEDGER__URL", raising=False)
    settings = read_settings(None)
    assert [one.name for one in settings.policies] == ["idle-gpu", "hung-job"]
    assert tomllib.loads((kept / "costguard.toml").read_text())["providers"] == {"sim": {"seed": demo.KEPT_SEED}}
    before = costguard("report", "--json").data["totals"]
    status = costguard("status", "--json").data
    assert len(status["scopes"]) >= 5
    assert before["expected"] != "0.00"
    assert costguard("policy", "lint").code == 0
    assert costguard("reconcile", "--json").data["schema"] == "costguard.reconcile/1"
    assert json.loads(costguard("plan", "--json").out)["schema"].startswith("costguard.plan/")
    costguard("demo", "--keep", str(kept)).says("already contains something", "--keep")
