"""Failures that scripts can see: a provider that could never be asked, a run that saw too little, a check of no provider."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from costguard.errors import UnreachableError
from costguard.metering.inventory import Partial
from costguard.providers import plugins
from costguard.values.resource import ScopeKey
from tests.cli.acme import Account, Acme, installed, machine, no_key, unreachable
from tests.conftest import Command

Setup = Callable[..., None]
NO_NAME = UnreachableError("no connection: the name acme.example cannot be resolved", provider="two", hint="is DNS up?")


@dataclass
class Nameless(Account):
    """An account that must be asked for its scopes first, as GCP is for its projects, and is not answered."""

    account: str = ""

    def list_scopes(self) -> Sequence[ScopeKey]:
        raise NO_NAME


@pytest.fixture
def setup(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:  # noqa: ARG001 - it empties the folder
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def made(*acmes: Acme) -> None:
        monkeypatch.setattr(plugins, "load_providers", installed(*acmes))
        sections = "".join(f"[providers.{one.name}]\n" for one in acmes)
        (tmp_path / "costguard.toml").write_text(f'[ledger]\nurl = "sqlite:///ledger.db"\n{sections}')

    return made


def test_a_provider_whose_first_call_fails_stands_in_the_scopes_as_failed(costguard: Command, setup: Setup) -> None:
    setup(Acme("one"), Acme("two", [Nameless("two")]), Acme("three", no_key("three")))
    ran = costguard("status", "--json")
    scopes = {scope["provider"]: scope for scope in ran.data["scopes"]}
    assert {name: scope["state"] for name, scope in scopes.items()} == {"one": "complete", "two": "failed", "three": "failed"}
    assert (scopes["two"]["account"], scopes["two"]["scope"], scopes["two"]["last_complete_at"]) == ("", "", None)
    assert "cannot be resolved" in scopes["two"]["why"]
    assert sum("cannot be resolved" in warning for warning in ran.data["warnings"]) == 1, "it is said once"
    assert any("export THREE_KEY" in warning for warning in ran.data["warnings"])
    assert "1 of 3 accounts read" in costguard("status").out
    strict = costguard("status", "--strict")
    assert (strict.code, "2 of 3 scopes were not read completely" in strict.err) == (4, True)


def test_it_stands_there_no_more_once_it_answered(costguard: Command, setup: Setup) -> None:
    setup(Acme("one", [Nameless("one")]))
    costguard("status")
    setup(Acme("one"))
    assert [scope["state"] for scope in costguard("status", "--json", "--strict").data["scopes"]] == ["complete"]


def test_a_strict_run_of_the_watchdog_exits_four_if_one_could_not_be_asked(costguard: Command, setup: Setup) -> None:
    setup(Acme("one"), Acme("two", [broken := Account("two")]))
    assert costguard("watch", "--once", "--strict").code == 0
    broken.says = unreachable("two")
    ran = costguard("watch", "--once", "--strict")
    assert (ran.code, "no connection" in ran.err, "burns" in ran.out) == (4, True, True), "the run itself is whole"
    assert costguard("watch", "--once").code == 0
    broken.says = Partial((machine("two"),), "page 2 was lost")
    ran = costguard("watch", "--once", "--strict")
    assert (ran.code, "page 2 was lost" in ran.err) == (4, True)


@pytest.mark.parametrize("two", [[Nameless("two")], no_key("two")])
def test_a_strict_run_counts_a_provider_that_was_never_asked(costguard: Command, setup: Setup, two: object) -> None:
    setup(Acme("one"), Acme("two", two))  # type: ignore[arg-type]  # accounts, or what opening them raises
    assert costguard("watch", "--once", "--strict").code == 4
    ran = costguard("watch", "--once")
    assert (ran.code, "1 of 2" in ran.out or "two is no longer read" in ran.out) == (0, True), ran.out


def test_a_run_that_saw_nothing_exits_one(costguard: Command, setup: Setup) -> None:
    setup(Acme("one", [Account("one", says=unreachable("one"))]), Acme("two", [Nameless("two")]))
    ran = costguard("watch", "--once")
    assert (ran.code, "no provider could be queried" in ran.err) == (1, True), ran
    assert "one/lab/here" in ran.err
    assert "two: its accounts cannot be listed" in ran.err
    assert costguard("watch", "--once", "--strict").code == 4
    assert costguard("--offline", "watch", "--once", "--strict").code == 0, "nobody was to be asked"


def test_settings_without_a_provider_are_no_success(costguard: Command, setup: Setup) -> None:
    setup()
    ran = costguard("watch", "--once")
    assert (ran.code, "no provider is configured" in ran.err, "costguard init" in ran.err) == (1, True, True)
    assert costguard("watch", "--once", "--strict").code == 4
    ran = costguard("doctor", "--json")
    assert (ran.code, ran.data["providers"], "no credentials were found" in ran.err) == (3, [], True)
