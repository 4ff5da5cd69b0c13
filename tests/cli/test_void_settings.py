"""Lint, doctor and watch name what can never take effect: values that no machine has, and caps in a foreign currency."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costguard.services.guarding import void_settings
from costguard.settings import read_settings
from costguard.values.resource import ResourceKey, ScopeKey
from tests.books import live
from tests.conftest import Command

POLICY = """[[policy]]\nname = "one"\nwhen = '{}'\nthen = [{{ do = "notify" }}]\nfor = "25m"\n"""
BUDGET = '[[budget]]\nname = "all"\ncap = "10 {}"\n'
VOID = (
    (POLICY.format('provider == "AWS"'), 'policy one: no provider is "AWS": write "aws"'),
    (POLICY.format('provider != "Aws" && state == "idle"'), 'policy one: no provider is "Aws": write "aws"'),
    (POLICY.format('provider in ["gcp", "run-pod"]'), 'policy one: no provider is "run-pod": write "runpod"'),
    (POLICY.format('provider.startsWith("AW")'), 'policy one: no provider fits provider.startsWith("AW"): '),
    (POLICY.format('power.contains("Run")'), 'policy one: no power fits power.contains("Run"): '),
    (BUDGET.format("USD") + 'match = { providers = ["Lambda"] }\n', 'budget all: no provider is "Lambda": write "lambda"'),
    (
        BUDGET.format("EUR"),
        (
            "budget all: its cap is in EUR and charges are in USD, so it can never act; write the cap in the currency of the "
            'charges, or what a dollar is worth: [display] rates = ["1 USD = 0.92 EUR on 2026-11-01 (ECB)"]'
        ),
    ),
)
DOUBTFUL = (
    (POLICY.format('region == "US-EAST-1"'), 'policy one: no region is "US-EAST-1": write "us-east-1"'),
    (
        BUDGET.format("USD") + 'match = { regions = ["us-east1"] }\n',
        'budget all: no region or zone is "us-east1": write "us-east-1"',
    ),
    (
        '[[notify.route]]\nto = ["console"]\nmatch = { topics = ["budgets:*"] }\n',
        'route console: no topic fits topic.startsWith("budgets"): ',
    ),
    ('[defaults]\ntimezone = "EST"\n', "defaults.timezone: EST is always UTC-5, "),
)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("text", "says", "code"), [*((*one, 3) for one in VOID), *((*one, 0) for one in DOUBTFUL)])
def test_what_never_takes_effect_is_named_with_what_to_write(costguard: Command, text: str, says: str, code: int) -> None:
    Path("costguard.toml").write_text(f"{text}[providers.aws]\n")
    linted = costguard("policy", "lint", "--json")
    assert linted.code == code, linted.err
    assert any(one.startswith(says) for one in linted.data["remarks"]), linted.data["remarks"]
    checks = costguard("doctor", "--offline", "--json").data["ledger"]["checks"]
    outcome = "bad" if code else "unsure"
    assert [one for one in checks if one["outcome"] == outcome and one["told"].startswith(says)], checks


def test_values_that_machines_have_are_not_named(costguard: Command) -> None:
    fine = POLICY.format('provider == "aws" && region in ["us-east-1", "eu-central-1"] && name == "AWS" && owner != "alice"')
    Path("costguard.toml").write_text(
        f'{fine}{BUDGET.format("USD")}match = {{ providers = ["aws"] }}\n[providers.aws]\n'
        '[[notify.route]]\nto = ["console"]\nmatch = { topics = ["budget:all", "policy:*", "rail:breaker", "waste"] }\n'
    )
    linted = costguard("policy", "lint", "--json")
    assert linted.code == 0
    assert [one for one in linted.data["remarks"] if ": no " in one] == []


def test_a_condition_on_the_region_of_zones_is_named_and_a_match_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    matched = 'match = { regions = ["us-central1"] }\n'
    condition = POLICY.format('region == "us-central1"')
    Path("costguard.toml").write_text(f"{condition}{BUDGET.format('USD')}{matched}[providers.gcp]\n")
    machine = live("1", scope=ScopeKey("gcp", "lab", "lab"))
    observation = replace(machine.observation, key=ResourceKey("gcp", "lab", "us-central1-a", "1"))
    monkeypatch.setattr(void_settings, "_load_seen", lambda _: ([replace(machine, observation=observation)], set()))
    says = [one.says for one in void_settings.list_void_settings(read_settings(None)) if ": no " in one.says]
    cure = 'its zones are; write region.startsWith("us-central1-")'
    assert says == [f'policy one: no region is "us-central1": {cure}']


def test_watch_logs_them(costguard: Command) -> None:
    Path("costguard.toml").write_text(BUDGET.format("EUR"))
    ran = costguard("--json-log", "watch", "--once")
    assert '"setting_without_effect"' in ran.err
    assert "it can never act" in ran.err


def test_explain_prints_the_next_times_of_a_schedule(costguard: Command) -> None:
    off = 'schedule = { timezone = "Asia/Tokyo", off = ["fri 24:00-08:00"] }\n'
    Path("costguard.toml").write_text(f'[[policy]]\nname = "one"\n{off}then = [{{ do = "notify" }}]\n')
    (times,) = [one for one in costguard("policy", "explain", "--json").data["policies"][0]["told"] if one.startswith("next")]
    changes = [(change.split()[0], change.split()[1], change.split()[3]) for change in times.partition(": ")[2].split(", ")]
    assert sorted({*changes}) == [("off", "Sat", "00:00"), ("on", "Sat", "08:00")]
    assert len(changes) == 3
