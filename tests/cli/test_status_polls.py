"""`costguard status` with configured providers: it looks before it answers, and says what it could not see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from costguard.metering.inventory import Complete
from costguard.providers import plugins
from costguard.services.poll import configured_providers, poll_now
from tests.cli.acme import Account, Acme, installed, machine, no_key, unreachable
from tests.conftest import Command

Setup = Callable[..., None]


@pytest.fixture
def setup(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:  # noqa: ARG001 - it empties the folder
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def made(*acmes: Acme, table: str = "", **broken: str) -> None:
        monkeypatch.setattr(plugins, "load_providers", installed(*acmes, **broken))
        sections = "".join(f"[providers.{one.name}]\n{table}\n" for one in acmes)
        (tmp_path / "costguard.toml").write_text(f'[ledger]\nurl = "sqlite:///ledger.db"\n{sections}')

    return made


def test_the_first_status_makes_the_ledger_and_shows_what_runs(costguard: Command, setup: Setup) -> None:
    setup(Acme(accounts=[account := Account("acme")]))
    ran = costguard("status", "--json", "--strict")
    assert ran.code == 0, ran.err
    assert [(r["provider"], r["id"], r["usd_per_hour"]) for r in ran.data["resources"]] == [("acme", "m-1", "2.5000")]
    assert [(s["provider"], s["state"], s["why"]) for s in ran.data["scopes"]] == [("acme", "complete", "")]
    assert (ran.data["warnings"], account.asked) == ([], 1)


def test_how_far_a_hard_cap_could_be_exceeded_is_said_of_what_was_just_listed(costguard: Command, setup: Setup) -> None:
    setup(Acme(accounts=[Account("acme")]))
    with Path("costguard.toml").open("a") as settings:
        settings.write('[[budget]]\nname = "all"\ncap = "1 USD"\nhard = true\n[[budget]]\nname = "soft"\ncap = "1 USD"\n')
    over = {one["name"]: one["worst_overshoot"] for one in costguard("status", "--json").data["budgets"]}
    assert float(over["all"]) > 1  # nobody says that the machine can be stopped, so it runs on to the end of the month
    assert over["soft"] is None
    offline = costguard("--offline", "status", "--json").data["budgets"]
    assert [one["worst_overshoot"] for one in offline] == [None, None]


def test_a_broken_provider_is_named_hides_no_other_and_nothing_is_believed_gone(costguard: Command, setup: Setup) -> None:
    one, two = Account("one"), Account("two")
    setup(Acme("one", [one]), Acme("two", [two]))
    assert costguard("status", "--strict").code == 0
    two.says = unreachable("two")
    ran = costguard("status", "--json")
    assert ran.code == 0
    assert {(r["provider"], r["state"]) for r in ran.data["resources"]} == {("one", "running"), ("two", "running")}
    assert {s["provider"]: s["state"] for s in ran.data["scopes"]} == {"one": "complete", "two": "failed"}
    (said,) = ran.data["warnings"]
    assert said.startswith("two/lab/here could not be queried: no connection")
    strict = costguard("status", "--json", "--strict")
    assert (strict.code, strict.data["burn_usd_per_hour"]) == (4, "5.0000")
    assert "1 of 2 scopes" in strict.err


def test_a_provider_without_its_key_is_said_and_stops_no_other(costguard: Command, setup: Setup) -> None:
    setup(Acme("one"), Acme("two", no_key("two")))
    ran = costguard("status", "--json")
    assert ran.code == 0
    assert [r["provider"] for r in ran.data["resources"]] == ["one"]
    assert any("there is no key" in w and "export TWO_KEY" in w for w in ran.data["warnings"])
    assert costguard("status", "--strict").code == 4


def test_a_plug_in_that_breaks_when_opened_shows_no_word_of_its_own(costguard: Command, setup: Setup) -> None:
    setup(Acme("one"), Acme("two", RuntimeError("sk-secret")))
    ran = costguard("status", "--json")
    assert (ran.code, "sk-secret" in ran.out + ran.err) == (0, False)
    assert any("unexpected RuntimeError" in w for w in ran.data["warnings"])


def test_an_sdk_that_is_missing_is_said_with_what_to_install(
    costguard: Command, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "costguard.services.poll.configured_providers.find_missing_packages",
        lambda manifest: ("boto3",) if manifest.extra else (),
    )
    setup(Acme("one", extra="aws"), Acme("two"))
    ran = costguard("status", "--json")
    assert [r["provider"] for r in ran.data["resources"]] == ["two"]
    assert any("pip install '.[aws]'" in w for w in ran.data["warnings"])


def test_one_account_that_is_configured_twice_is_refused(costguard: Command, setup: Setup) -> None:
    setup(Acme("one", [Account("one", who="u7"), Account("one", who="u7", account="home")]))
    costguard("status").says("account 1 (one) and account 2 (one)", "u7", "remove one of the two")


def test_what_a_listing_could_not_tell_is_said_again(costguard: Command, setup: Setup) -> None:
    setup(Acme("one", [account := Account("one", notes=("m-1 states no price", "m-2 either"))]))
    first, second = (costguard("status", "--json").data["warnings"] for _ in range(2))
    assert (first, second, account.asked) == (second, ["one/lab/here: m-1 states no price", "one/lab/here: m-2 either"], 2)


def test_a_plug_in_that_hangs_when_opened_is_named_and_hides_no_other(
    costguard: Command, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = Event()

    class Hung(Acme):
        def open(self, table: Any, around: Any) -> Any:  # noqa: ANN401
            let_go.wait(30)
            return super().open(table, around)

    monkeypatch.setattr(configured_providers, "OPEN_LIMIT_S", 0.3)
    setup(Acme("one"), Hung("two"))
    ran = costguard("status", "--json")
    let_go.set()
    assert [r["provider"] for r in ran.data["resources"]] == ["one"]
    assert any("it cannot be opened: no answer within 0.3 s" in w for w in ran.data["warnings"])


def test_an_interrupt_is_said_and_has_its_own_code(costguard: Command, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    setup(Acme("one"))
    monkeypatch.setattr(poll_now, "list_sources", interrupted)
    ran = costguard("status")
    assert (ran.code, ran.out, ran.err) == (130, "", "error: interrupted\n")


def test_a_price_that_nobody_states_is_expected_and_bounded_by_the_market(costguard: Command, setup: Setup) -> None:
    setup(Acme("one", [Account("one", says=Complete((replace(machine("one"), prices=()),)))]))
    (found,) = costguard("status", "--json").data["resources"]
    assert found["price"]["step"] == "gpu-median"
    assert 1 < float(found["usd_per_hour"]) < 20
    assert 2 < float(found["usd_per_hour_bounds"]["high"]) < 100


def test_what_no_market_knows_is_unpriced_and_expected_nowhere(costguard: Command, setup: Setup) -> None:
    odd = replace(machine("one"), prices=(), gpu="Z9000", instance_type="z9")
    setup(Acme("one", [Account("one", says=Complete((odd,)))]))
    ran = costguard("status", "--json")
    (found,) = ran.data["resources"]
    assert (found["usd_per_hour"], found["usd_per_hour_interval"], found["price"]["step"]) == (None, None, "unpriced")
    assert (ran.data["burn_usd_per_hour"], ran.data["unpriced"]["usd_per_hour_at_most"]) == ("0.0000", "1000.0000")
    assert ran.data["month_to_date"]["expected"] == "0.00"
