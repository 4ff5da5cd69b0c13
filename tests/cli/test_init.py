"""`costguard init`: a file from what is found, that loads, holds no secret, and replaces nothing; `settings explain`."""

from __future__ import annotations

import os
import pty
import re
import stat
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from costguard.errors import InputError
from costguard.providers import plugins
from costguard.settings import check_settings, read_settings
from costguard.settings.first_file import FirstChoices, extend_settings
from tests.cli.acme import Acme, installed, no_key
from tests.conftest import Command
from tests.fakes.server import serving
from tests.providers.runpod.rig import RunpodRig


@pytest.fixture(autouse=True)
def _installed(costguard: Command, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - it empties the folder
    monkeypatch.setattr(plugins, "load_providers", installed(Acme("one"), Acme("two", no_key("two"))))


def test_the_file_loads_with_what_was_found_and_what_was_said(costguard: Command, tmp_path: Path) -> None:
    ran = costguard("init", "--yes", "--budget", "3000", "--zone", "Europe/Berlin", "--json")
    assert ran.code == 0, ran.err
    assert (ran.data["providers"], ran.data["not_found"]) == (["one"], {"two": ["TWO_KEY", "~/.two/key"]})
    assert ran.data["next"] == ["costguard doctor", "costguard status"]
    settings = read_settings(None)
    assert list(settings.providers) == ["one"]
    assert settings.defaults.timezone == ZoneInfo("Europe/Berlin")
    assert [(budget.name, budget.cap.format(2)) for budget in settings.budgets] == [("everything", "3000.00")]
    assert stat.S_IMODE((tmp_path / "costguard.toml").stat().st_mode) == 0o600


def test_without_a_terminal_nothing_is_asked_and_no_budget_made(costguard: Command) -> None:
    assert costguard("init").code == 0
    assert read_settings(None).budgets == ()


def test_a_file_that_exists_is_extended_and_no_line_of_it_changed(costguard: Command, tmp_path: Path) -> None:
    file, mine = tmp_path / "costguard.toml", '# mine\n[watch] # often\ninterval = "2m"\n[[budget]]\nname = "a"\n'
    file.write_text(f'{mine}cap = "5 USD"\nperiod = "day"\n')
    file.chmod(0o640)
    assert costguard("init", "--guard", "--yes", "--budget", "3000", "--claim", "one").code == 0
    settings = read_settings(None)
    assert ([one.name for one in settings.budgets], list(settings.providers)) == (["a"], ["one"])
    assert (settings.watch.claims, settings.watch.interval.total_seconds()) == (("one",), 120)
    assert file.read_text().startswith(mine.replace("often\n", 'often\nclaims = ["one"]\n'))
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    before = file.read_text()
    assert costguard("init", "--guard", "--yes", "--json").data["lines_added"] == 0
    assert file.read_text() == before
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize("text", ["providers = {}\n", "budget = 3\n", "[watch\n"], ids=["inline", "wrong", "broken"])
def test_a_file_that_cannot_be_extended_is_left_as_it_is(costguard: Command, tmp_path: Path, text: str) -> None:
    (tmp_path / "costguard.toml").write_text(text)
    costguard("init", "--yes").says("costguard.toml")
    assert (tmp_path / "costguard.toml").read_text() == text


def test_another_place_is_said_in_what_to_do_next(costguard: Command, tmp_path: Path) -> None:
    ran = costguard("init", "--yes", "--path", "deep/er/mine.toml")
    assert "next: costguard --config deep/er/mine.toml doctor" in ran.out
    assert (tmp_path / "deep/er/mine.toml").is_file()


def test_one_that_needs_a_setting_first_is_not_said_to_lack_credentials(
    costguard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = InputError("names no project", field="providers.two.projects", hint='write projects = ["mine"]')
    monkeypatch.setattr(plugins, "load_providers", installed(Acme("one"), Acme("two", needs)))
    ran = costguard("init", "--yes", "--json")
    said = 'providers.two.projects: names no project; hint: write projects = ["mine"]'
    assert (ran.data["providers"], ran.data["not_found"], ran.data["unready"]) == (["one"], {}, {"two": said})
    assert costguard("doctor").code == 0
    Path("costguard.toml").unlink()
    assert [one["provider"] for one in costguard("doctor", "--json").data["providers"]] == ["one"]


@pytest.mark.parametrize(
    ("providers", "choice", "expected"),
    [
        (("runpod",), {"losses": True}, {"idle-runpod": ("stop", True, ("notify", "stop"))}),
        (("runpod",), {}, {"idle-runpod": ("stop", False, ("notify", "stop"))}),
        (("runpod",), {"idle": "ask", "losses": True}, {"idle-runpod": ("notify", False, ("notify", "ask"))}),
        (("runpod",), {"idle": "tell", "losses": True}, {"idle-runpod": ("notify", False, ("notify",))}),
        (("vast",), {"losses": True}, {"idle-vast": ("stop", False, ("notify", "stop"))}),
        (("lambda",), {}, dict.fromkeys(("idle-gpu", "hung-job"), ("stop", False, ("notify", "stop")))),
    ],
)  # fmt: skip
def test_policies_may_do_what_was_chosen_and_lose_only_what_was_allowed(
    providers: tuple[str, ...], choice: dict[str, Any], expected: dict[str, object]
) -> None:
    text = extend_settings("", {}, FirstChoices(providers=providers, to="console", **choice))
    policies = {one["name"]: one for one in tomllib.loads(text)["policy"]}
    steps = {
        name: (one["arm"], one.get("allow_irreversible", False), tuple(step["do"] for step in one["then"]))
        for name, one in policies.items()
    }
    assert steps == expected
    assert check_settings(text, "x").policies


@pytest.mark.parametrize("flag", ["--to", "--idle", "--claim"])
def test_flags_about_policies_need_guard(costguard: Command, flag: str) -> None:
    costguard("init", "--yes", flag, "tell").says(flag, "--guard")


def test_a_setting_is_explained_and_a_misspelt_one_named(costguard: Command) -> None:
    assert costguard("settings", "explain", "budget.cap").out.split("\n")[2] == '#cap = "3000 USD"'
    assert "web.oidc" in costguard("settings", "explain").out
    assert 'name = "hung-job"' in costguard("settings", "explain", "policy").out
    costguard("settings", "explain", "budget.cup").says("budget.cup", "budget.cap")


def test_every_key_of_the_settings_can_be_explained(costguard: Command) -> None:
    for section in ("quote", "notify.route", "providers.one"):
        keys = dict(line.split(": ", 1) for line in costguard("settings", "explain").out.splitlines()).get(section, "")
        for key in filter(None, keys.split(", ")):
            assert f"#{key} = " in costguard("settings", "explain", f"{section}.{key}").out


def test_a_runpod_key_leads_to_a_guard_that_can_act(tmp_path: Path) -> None:
    """The conversation in a pseudo-terminal: a wrong answer is asked again, nothing is armed, the pods are counted."""
    rig = RunpodRig()
    rig.clock.at = datetime.now(UTC)
    rig.put(3)
    with serving(rig.fake) as base:
        (tmp_path / "costguard.toml").write_text(f'[providers.runpod]\nbase_url = "{base}"\n')
        environ = {"HOME": str(tmp_path), "COSTGUARD_LEDGER__URL": f"sqlite:///{tmp_path}/ledger.db", **rig.environ()}
        out = talk(tmp_path, environ, ["abc", "200", "", "env:NOPE", "console", "stop", "y", "y"], "init")
        assert "3 machines, $5.19/h, $43." in out
        assert "must be an amount of money, not 'abc'" in out
        assert "the variable NOPE is not set" in out
        assert "idle-runpod can act by itself on 3 of 3 running machines." in out
        assert "next: costguard policy arm idle-runpod stop" in out
        assert "62 %" in out or "everything" in out  # the status, with the budget
        assert "not armed; it stays at notify" in talk(tmp_path, environ, ["n"], "policy", "arm", "idle-runpod", "stop")
        assert "is armed for stop until" in talk(tmp_path, environ, ["y"], "policy", "arm", "idle-runpod", "stop")


def talk(folder: Path, environ: dict[str, str], answers: list[str], *words: str) -> str:
    """Run a command in a pseudo-terminal, answering each question as it comes; return what was shown."""
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(folder)
        command = [sys.executable, "-m", "costguard", *words]
        os.execve(sys.executable, command, {**os.environ, **environ})  # noqa: S606 - the command under test
    shown, since = "", 0
    try:
        while True:
            shown += os.read(terminal, 65536).decode(errors="replace")
            if answers and re.search(r"(: |\]:? )$", re.sub(r"\x1b\[2K", "", shown[since:])):
                since = len(shown)
                os.write(terminal, f"{answers.pop(0)}\n".encode())
    except OSError:  # the terminal is closed: it has ended
        pass
    finally:
        os.waitpid(pid, 0)
        os.close(terminal)
    return shown
