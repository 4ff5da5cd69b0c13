"""`costguard init`: a file from what is found, that loads, holds no secret, and replaces nothing unasked."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from costguard.errors import InputError
from costguard.providers import plugins
from costguard.services.watch_loop import setup
from costguard.settings import read_settings
from tests.cli.acme import Acme, installed, no_key
from tests.conftest import Command


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


def test_what_is_there_is_replaced_only_by_force(costguard: Command, tmp_path: Path) -> None:
    (tmp_path / "costguard.toml").write_text("# mine\n")
    costguard("init", "--yes").says("costguard.toml", "already exists", "--force")
    assert (tmp_path / "costguard.toml").read_text() == "# mine\n"
    assert costguard("init", "--yes", "--force").code == 0
    assert list(read_settings(None).providers) == ["one"]
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


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
    ("name", "answer", "asked", "allowed"),
    [("runpod", True, 1, True), ("runpod", False, 1, False), ("runpod", None, 0, False), ("vast", True, 0, False)],
    ids=["yes", "no", "no terminal", "no pod"],
)
def test_a_stop_that_deletes_a_disk_is_allowed_only_by_a_person_whose_account_has_it(
    name: str, *, answer: bool | None, asked: int, allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "load_providers", installed(Acme(name)))
    questions = list[str]()

    def ask() -> bool:
        questions.append(name)
        return bool(answer)

    path = tmp_path / "costguard.toml"
    setup.answer_init(path=str(path), notices="console", ask_loss=None if answer is None else ask)
    policies = {one["name"]: one for one in tomllib.loads(path.read_text())["policy"]}
    assert len(questions) == asked
    assert policies["idle-runpod"].get("allow_irreversible", False) == allowed
