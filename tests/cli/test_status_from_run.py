"""`costguard status` answers from the last guard run where that is young enough and read every account; else it asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.guard.run_facts import GuardRun
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard_records import SnapshotRecords
from costguard.metering.inventory import COMPLETE, Complete
from costguard.metering.observation import Handling, Observation
from costguard.metering.spending import ScopeCoverage
from costguard.providers import plugins
from costguard.services.guarding.run_view import VIEW_FACT, decode_run_view, explain_unfit_run
from costguard.services.report import ledger_answers
from costguard.settings import read_settings
from costguard.values.money import Money, PrepaidBalance, Rate
from costguard.values.resource import ScopeKey
from tests.cli.acme import Account, Acme, installed, machine, no_key, unreachable
from tests.conftest import Command

Setup = Callable[..., None]
BUDGET = '[[budget]]\nname = "all"\ncap = "1 USD"\nhard = true\n'
KEPT = Handling(stops=True, protected=("terminate",), terminate_loses=("400 GB of disk",))


@dataclass
class Prepaid(Account):
    """An account that states its balance, with one machine that its provider protects."""

    def fetch_balance(self) -> PrepaidBalance:
        now = datetime.now(UTC)
        rate = Rate.parse("2.5")
        return PrepaidBalance(provider=self.name, account="lab", at=now, amount=Money.parse("100"), burn=rate, why="")


def kept(name: str) -> Observation:
    return replace(machine(name), handling=KEPT)


@pytest.fixture
def setup(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:  # noqa: ARG001 - it empties the folder
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def made(*acmes: Acme, more: str = BUDGET) -> None:
        monkeypatch.setattr(plugins, "load_providers", installed(*acmes))
        sections = "".join(f"[providers.{one.name}]\n" for one in acmes)
        (tmp_path / "costguard.toml").write_text(f'[ledger]\nurl = "sqlite:///ledger.db"\n{sections}{more}')

    return made


@pytest.fixture
def account(costguard: Command, setup: Setup) -> Account:
    """An account that a watchdog has just read."""
    made = Prepaid("acme", says=Complete((kept("acme"),)))
    setup(Acme(accounts=[made]))
    assert costguard("watch", "--once").code == 0
    assert made.asked == 1
    return made


def test_a_status_after_a_run_asks_nobody_and_says_how_old_it_is(costguard: Command, account: Account) -> None:
    ran = costguard("status")
    assert (ran.code, account.asked) == (0, 1)
    assert "As of the guard run " in ran.out
    assert "s ago; costguard status --ask queries the clouds." in ran.out
    assert costguard("status", "--ask").code == 0
    assert account.asked == 2


def test_nothing_is_lost_beside_asking(costguard: Command, account: Account) -> None:
    told = {flags: costguard(*flags).data for flags in (("status", "--json"), ("--offline", "status", "--json"))}
    asked = costguard("status", "--ask", "--json").data
    assert account.asked == 2
    for data in told.values():
        assert data.keys() == asked.keys()
        assert [one.keys() for one in data["scopes"]] == [one.keys() for one in asked["scopes"]]
        assert [one["protected"] for one in data["resources"]] == [True] == [one["protected"] for one in asked["resources"]]
        (budget,), (anew,) = data["budgets"], asked["budgets"]
        assert float(budget["worst_overshoot"]) == pytest.approx(float(anew["worst_overshoot"]), abs=0.1)
        (runway,), (now) = data["runways"], asked["runways"][0]
        assert {k: v for k, v in runway.items() if k in ("provider", "account", "balance", "loses")} == {
            k: v for k, v in now.items() if k in ("provider", "account", "balance", "loses")
        }
        assert data["warnings"] == asked["warnings"]


def test_a_run_older_than_its_interval_is_not_relied_on(
    costguard: Command, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = datetime.now(UTC) + timedelta(seconds=61)
    monkeypatch.setattr(ledger_answers, "get_now", lambda: later)
    ran = costguard("status")
    assert (ran.code, account.asked) == (0, 2)
    assert "The clouds were queried: the last guard run was 1 min" in ran.out
    assert "ago, and one is due every 1 min" in ran.out
    assert costguard("--offline", "status", "--json").data["runways"] is None


def test_a_run_that_could_not_read_an_account_is_not_relied_on(costguard: Command, setup: Setup) -> None:
    one, two = Account("one"), Account("two", says=unreachable("two"))
    setup(Acme("one", [one]), Acme("two", [two]))
    costguard("watch", "--once")
    ran = costguard("status")
    assert "The clouds were queried: the last guard run could not read two/lab/here." in ran.out
    assert (one.asked, two.asked) == (2, 2)


@pytest.mark.usefixtures("account")
def test_a_run_over_an_old_listing_is_not_relied_on() -> None:
    now = datetime.now(UTC)
    url = f"sqlite:///{Path.cwd()}/ledger.db"
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        last = SnapshotRecords(ask).load_last_run()
    assert last is not None
    scope, providers = ScopeKey("acme", "lab", "here"), read_settings(None).providers
    for minutes, doubt in ((1, ""), (3, "the last guard run had no listing of acme/lab/here since ")):
        listed = last.at - timedelta(minutes=minutes)
        seen = ScopeCoverage(scope=scope, outcome=COMPLETE, at=listed, since=listed, last_complete_at=listed)
        assert explain_unfit_run(last, [seen], providers, now).startswith(doubt)
        assert bool(explain_unfit_run(last, [seen], providers, now)) == bool(doubt)


def test_a_provider_that_was_added_after_the_run_is_asked(costguard: Command, account: Account, setup: Setup) -> None:
    setup(Acme(accounts=[account]), Acme("two", [two := Account("two")]))
    ran = costguard("status")
    assert "The clouds were queried: the last guard run did not query two." in ran.out
    assert (account.asked, two.asked) == (2, 1)


def test_offline_a_provider_that_was_never_reached_stands_in_the_scopes(costguard: Command, setup: Setup) -> None:
    setup(Acme("one"))
    costguard("status")
    setup(Acme("one"), Acme("two", no_key("two")))
    ran = costguard("--offline", "status", "--json")
    scopes = {scope["provider"]: scope for scope in ran.data["scopes"]}
    assert {name: scope["state"] for name, scope in scopes.items()} == {"one": "complete", "two": "failed"}
    assert (scopes["two"]["scope"], scopes["two"]["last_complete_at"]) == ("", None)
    assert any("two" in warning and "never reached" in warning for warning in ran.data["warnings"])
    assert "1 of 2 accounts read" in costguard("--offline", "status").out
    assert costguard("--offline", "status", "--strict").code == 4
    costguard("watch", "--once")
    (said,) = (s for s in costguard("--offline", "status", "--json").data["scopes"] if s["provider"] == "two")
    assert "there is no key" in said["why"], "the run knows the reason"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"asked": []}', '{"asked": 1}', "null", '{"asked":[["a","b"]]}'])
def test_what_another_version_stored_counts_as_nothing(text: str) -> None:
    now = datetime(2026, 11, 27, tzinfo=UTC)
    run = GuardRun(id="r", at=now, epoch=1, interval=timedelta(minutes=1), facts=((VIEW_FACT, text),))
    assert decode_run_view(run) is None
    assert explain_unfit_run(run, (), {"acme": {}}, now) == "the last guard run did not record what it saw"
    assert "future" in explain_unfit_run(run, (), {"acme": {}}, now - timedelta(seconds=1))


def test_a_check_says_which_budget_is_over_by_its_exit_code(costguard: Command, account: Account, tmp_path: Path) -> None:
    over = costguard("--offline", "status", "--check", "--line")
    assert (over.code, account.asked, over.out.count("\n")) == (3, 1, 1)
    assert over.out.startswith("over budget:  $2.50/h  $")
    assert "over budget: all: $" in over.err
    toml = tmp_path / "costguard.toml"
    toml.write_text(toml.read_text().replace("1 USD", "9000000 USD"))
    within = costguard("--offline", "status", "--check", "--line")
    assert (within.code, within.out.startswith("$2.50/h  $")) == (0, True)
    assert within.out.endswith("of $9,000,000.00 (0 %)\n")
    toml.write_text(toml.read_text().partition("[[budget]]")[0])
    costguard("status", "--check").says("--check", "no budget", "[[budget]]")
    costguard("status", "--check", "--watch").says("--check", "--watch")
