"""`config/costguard.toml` is generated from the settings and every provider's manifest: all of it there, all of it valid."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costguard.data import EXAMPLES
from costguard.guard.policy import Rails
from costguard.providers.plugins import load_providers
from costguard.settings import SECTIONS, check_settings, guard, notify, policies
from costguard.settings import notify as reports
from costguard.settings import policies as steps
from costguard.settings.budgets import BUDGET_KEYS, MATCH_KEYS
from costguard.settings.example import FIELD_EXAMPLES, render_settings_file
from costguard.settings.sections import list_fields, list_sections
from costguard.values.provider import ABILITIES, check_provider_table

EXAMPLE = Path(__file__).parents[2] / "config" / "costguard.toml"
NAMES = ("aws", "gcp", "lambda", "runpod", "sim", "vast")


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
    sections = list_sections()
    nested = {tuple(name.split(".")) for name in set(sections) - set(SECTIONS)}
    stated = {(section, one.name) for section, make in sections.items() for one in list_fields(make)} - nested
    assert set(FIELD_EXAMPLES) == stated
    table = switched_on(generated())
    assert {section: set(table[section]) for section in SECTIONS} == {
        section: {key for where, key in stated | nested if where == section} for section in SECTIONS
    }
    for outer, inner in nested:
        assert set(table[outer][inner]) == {key for where, key in stated if where == f"{outer}.{inner}"}
    assert set(table["budget"][0]) == set(BUDGET_KEYS)
    text = generated()
    assert all(key in text for key in MATCH_KEYS)


def test_every_setting_of_the_guard_stands_in_it() -> None:
    table = switched_on(generated())
    (policy,), (route,) = table["policy"], table["notify"]["route"]
    assert set(policy) == set(policies.POLICY_KEYS)
    assert {key for step in policy["then"] for key in step} == set(steps.STEP_KEYS)
    assert {key for hook in table["hook"] for key in hook} == set(guard.HOOK_KEYS)
    assert {key: set(inner) for key, inner in table["rails"].items() if key != "first_seen"} == {
        key: set(inner) for key, inner in {**guard.RAIL_FIELDS, "caps": guard.CAP_FIELDS}.items()
    }
    assert set(route) == set(notify.ROUTE_KEYS)
    assert set(table["notify"]) == {"route", "console_is_delivery", *notify.SECRET_FIELDS}
    assert set(table["report"][0]) == set(reports.REPORT_KEYS)
    assert set(route["match"]) == set(notify.ROUTE_MATCH_KEYS)


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
        assert set(table["providers"][name]) == {setting.name for setting in settings}
        check_provider_table(table["providers"][name], settings, name)


def test_every_line_explains_or_sets_something_and_none_is_long() -> None:
    assert all(len(line) <= 128 for line in generated().splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_names_only_abilities_there_are(name: str) -> None:
    assert set(load_providers().found[name].manifest.abilities) <= set(ABILITIES)
