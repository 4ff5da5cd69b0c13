"""`costguard doctor`: every account looked at, what is wrong named with its fix, and one that hangs hiding no other."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import pytest

from costguard.ledger.db.maintenance import has_wal_fix
from costguard.providers import plugins
from costguard.services.watch_loop import setup as flow
from costguard.values.provider import HealthCheck
from tests.cli.acme import BAD_CHECKS, GOOD_CHECKS, Account, Acme, installed, no_key
from tests.cli.test_status_polls import Setup, setup
from tests.conftest import Command

__all__ = ["setup"]


def outcomes(ran_data: dict[str, object]) -> dict[str, list[str]]:
    providers = ran_data["providers"]
    assert isinstance(providers, list)
    return {one["provider"]: [check["outcome"] for check in one["checks"]] for one in providers}


def test_what_is_bad_is_named_with_its_fix_and_is_exit_3(costguard: Command, setup: Setup) -> None:
    setup(Acme("one", [Account("one", checks=BAD_CHECKS)]), Acme("two"))
    ran = costguard("doctor")
    assert ran.code == 3
    assert "Fix: export ACME_KEY=..." in ran.out
    assert "error: bad: one: reachable" in ran.err
    assert outcomes(costguard("doctor", "--json").data)["two"] == ["good", "good", "unsure"]


def test_one_that_raises_shows_no_word_of_its_own(costguard: Command, setup: Setup) -> None:
    setup(Acme("one", [Account("one", checks=KeyError("sk-secret"))]), Acme("two"))
    ran = costguard("doctor", "--json")
    assert (ran.code, "sk-secret" in ran.out + ran.err) == (3, False)
    assert outcomes(ran.data) == {"one": ["bad"], "two": ["good", "good", "unsure"]}


def test_one_that_hangs_is_a_finding_and_hides_no_other() -> None:
    let_go = threading.Event()

    class Hung(Account):
        def examine(self) -> Sequence[HealthCheck]:
            let_go.wait(30)
            return ()

    found = flow.examine_accounts([("one", Hung("one")), ("two", Account("two"))], limit_s=0.3)
    let_go.set()
    assert (found[0].provider, found[0].checks[0].told) == ("one", "no answer within 0.3 s")
    assert found[1].checks == GOOD_CHECKS


def test_where_none_is_configured_those_with_credentials_are_examined(
    costguard: Command, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup()
    monkeypatch.setattr(plugins, "load_providers", installed(Acme("one"), Acme("two", no_key("two"))))
    ran = costguard("doctor", "--json")
    assert ran.code == 0
    assert list(outcomes(ran.data)) == ["one"]
    assert ran.data["notes"] == ["No provider is configured; credentials were found for: one. Run costguard init."]


def test_offline_nothing_is_asked(costguard: Command, setup: Setup) -> None:
    setup(Acme("one", [Account("one", checks=RuntimeError("asked"))]))
    assert outcomes(costguard("--offline", "doctor", "--json").data) == {"one": ["good", "skipped"]}


def test_one_account_that_is_configured_twice_is_refused(costguard: Command, setup: Setup) -> None:
    setup(Acme("one", [Account("one", who="u7"), Account("one", who="u7", account="home")]))
    costguard("doctor").says("'lab' and 'home' of one", "u7")
    setup(Acme("one", [Account("one"), Account("one")]))
    costguard("doctor").says("one/lab/here")


def test_every_form_is_printed(costguard: Command, setup: Setup) -> None:
    setup(Acme("one"))
    for form in ((), ("--csv",), ("--markdown",)):
        assert "ACME_KEY, which ends in ...wxyz" in costguard("doctor", *form).out


@pytest.mark.parametrize(
    ("version", "mended"),
    [
        ("3.40.1", False), ("3.44.5", False), ("3.44.6", True), ("3.45.0", False), ("3.50.6", False), ("3.50.7", True),
        ("3.51.2", False), ("3.51.3", True), ("3.52.0", True), ("4.0", True),
    ],
)  # fmt: skip
def test_it_is_known_which_sqlite_has_the_fault(version: str, *, mended: bool) -> None:
    assert has_wal_fix(version) is mended


def test_the_matrix_names_what_each_can_and_what_is_broken(costguard: Command, setup: Setup) -> None:
    setup(Acme("one"), bad="ImportError: no")
    ran = costguard("providers", "--json")
    assert ran.code == 0
    (one,) = ran.data["providers"]
    assert (one["name"], one["configured"], one["sdk"], sorted(one["abilities"])) == ("one", True, "none", ["list", "offers"])
    assert ran.data["broken"] == [{"name": "bad", "why": "ImportError: no"}]
    assert "its coffee machine" in costguard("providers").out


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"HTTPS_PROXY": "http://me:hunter2@proxy:1"}, "not used by costguard: HTTPS_PROXY"),
        ({"https_proxy": "http://p:1", "ALL_PROXY": "http://p:1"}, "costguard: ALL_PROXY, https_proxy"),
        ({"NO_PROXY": "localhost"}, ""),
        ({"HTTPS_PROXY": "http://p:1", "COSTGUARD_NETWORK__PROXY": "http://p:1"}, ""),
        ({"no_proxy": "lab", "COSTGUARD_NETWORK__PROXY": "http://p:1"}, "costguard: no_proxy"),
    ],
)
def test_a_proxy_of_the_environment_that_is_not_used_is_named(
    costguard: Command, setup: Setup, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], said: str
) -> None:
    setup(Acme("one"))
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    ran = costguard("doctor")
    assert (said in ran.out) if said else ("not used by costguard" not in ran.out)
    assert "hunter2" not in ran.out + ran.err
