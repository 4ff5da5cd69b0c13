"""`config/costguard.toml` is generated from the settings and every provider's manifest: all of it there, all of it valid."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from costguard.data import EXAMPLES
from costguard.guard.policy import Rails
from costguard.providers.plugins import load_providers
from costguard.settings import SECTIONS, check_settings
from costguard.settings.budgets import MATCH_KEYS, BudgetTable
from costguard.settings.example import render_settings_file
from costguard.settings.guard import ActsTable, BreakerTable, CapsTable, HookTable, RailsTable, StartsTable
from costguard.settings.local import LocalTable
from costguard.settings.model import list_keys
from costguard.settings.notify import NotifyTable, ReportTable, RouteMatchTable, RouteTable
from costguard.settings.policies import PolicyTable, StepTable
from costguard.settings.sections import OidcSettings
from costguard.values.provider import ABILITIES, check_provider_table

EXAMPLE = Path(__file__).parents[2] / "config" / "costguard.toml"
NAMES = ("aws", "azure", "coreweave", "gcp", "lambda", "local", "runpod", "scaleway", "sim", "vast")


def generated() -> str:
    installed = load_providers()
    assert installed.broken == {}
    return render_settings_file([installed.found[name].manifest for name in NAMES])


def switched_on(text: str) -> dict[str, Any]:
    """What the file says with every `#key` switched on."""
    return tomllib.loads(re.sub(r"^#(?! )", "", text, flags=re.MULTILINE))


def test_the_example_is_what_the_settings_are(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--write-golden"):
        EXAMPLE.parent.mkdir(exist_ok=True)
        EXAMPLE.write_text(generated())
    assert EXAMPLE.read_text() == generated(), "make golden writes it anew"


def test_as_it_stands_it_loads_and_changes_nothing() -> None:
    settings = check_settings(EXAMPLE.read_text(), "example")
    assert (settings.budgets, settings.providers, settings.quote.market) == ((), {}, None)


def test_every_setting_stands_in_it() -> None:
    table = switched_on(generated())
    assert {section: set(table[section]) for section in SECTIONS} == {
        section: set(list_keys(model)) for section, model in SECTIONS.items()
    }
    assert set(table["web"]["oidc"]) == set(list_keys(OidcSettings))
    assert set(table["budget"][0]) == set(list_keys(BudgetTable))
    text = generated()
    assert all(key in text for key in MATCH_KEYS)


def test_every_setting_of_the_guard_stands_in_it() -> None:
    table = switched_on(generated())
    (policy,), (route,) = table["policy"], table["notify"]["route"]
    assert set(policy) == set(list_keys(PolicyTable))
    assert {key for step in policy["then"] for key in step} == set(list_keys(StepTable))
    assert {key for hook in table["hook"] for key in hook} == set(list_keys(HookTable))
    inner: dict[str, type[BaseModel]] = {"acts": ActsTable, "caps": CapsTable, "starts": StartsTable, "breaker": BreakerTable}
    assert set(table["rails"]) == set(list_keys(RailsTable)) == {*inner, "first_seen"}
    assert {key: set(table["rails"][key]) for key in inner} == {key: set(list_keys(model)) for key, model in inner.items()}
    assert set(route) == set(list_keys(RouteTable))
    assert set(table["notify"]) == set(list_keys(NotifyTable))
    assert set(table["report"][0]) == set(list_keys(ReportTable))
    assert set(route["match"]) == set(list_keys(RouteMatchTable))


def test_what_it_says_the_rails_are_they_are() -> None:
    text = re.sub(r"^#(?! )", "", generated(), flags=re.MULTILINE)
    rails = check_settings(text, "example").rails
    assert rails is not None
    assert rails.caps is not None, "the example states a limit"
    assert (rails.caps.acts_per_run, rails.caps.acts_per_10m, rails.caps.irreversible_per_h) == (99,) * 3
    assert replace(rails, caps=None) == Rails()


@pytest.mark.parametrize("name", ["solo", "lab", "company"])
def test_an_example_that_users_copy_is_taken_as_it_stands(name: str) -> None:
    file = EXAMPLES / f"{name}.toml"
    settings = check_settings(file.read_text(), file.name)
    assert settings.policies
    assert settings.routes


def test_with_all_of_it_switched_on_it_is_taken() -> None:
    table = switched_on(generated())
    check_settings(re.sub(r"^#(?! )", "", generated(), flags=re.MULTILINE), "example")
    for name, one in load_providers().found.items():
        settings = one.manifest.settings
        costs = LocalTable.model_fields if name == "local" else {}
        own = {key: value for key, value in table["providers"][name].items() if key not in costs}
        assert set(own) == {setting.name for setting in settings}
        check_provider_table(own, settings, name)


def test_every_line_explains_or_sets_something_and_none_is_long() -> None:
    assert all(len(line) <= 128 for line in generated().splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_names_only_abilities_there_are(name: str) -> None:
    assert set(load_providers().found[name].manifest.abilities) <= set(ABILITIES)
