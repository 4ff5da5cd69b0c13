"""`offers --live` and `prices`: what can be rented now, beside what is shipped, each row with its own age."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costguard.data import MARKET
from costguard.ledger.market import MarketReader
from costguard.quoting.offer import Offer
from tests import shop
from tests.cli.acme import Account, Acme, no_key, unreachable
from tests.cli.test_status_polls import Setup, setup
from tests.conftest import Command

__all__ = ["setup"]

TODAY = datetime.now(UTC).date()


def live(provider: str, gpu: str, usd: str | None, **more: object) -> Offer:
    return replace(shop.offer(provider, gpu, usd, seen=TODAY), source="live", **more)  # type: ignore[arg-type]


def test_live_rows_stand_beside_the_market_in_one_order(costguard: Command, setup: Setup, market: str) -> None:
    setup(Acme("runpod", [Account("runpod", offers=[live("runpod", "H100-SXM", "2.5"), live("runpod", "T4", None)])]))
    ran = costguard("offers", "--live", "--market", market, "--json", "--strict")
    assert ran.code == 0, ran.err
    offers = ran.data["offers"]
    assert len(offers) == len(shop.SHOP) + 2
    prices = [float(o["usd_per_hour"]) for o in offers if o["usd_per_hour"]]
    assert prices == sorted(prices)
    assert [o["gpu"] for o in offers if o["live"]] == ["H100-SXM", "T4"]
    row = next(line for line in costguard("offers", "--live", "--market", market).out.splitlines() if " 2.5000 " in line)
    assert row.endswith("live")


def test_a_host_is_shown_and_chosen_by_its_reliability(costguard: Command, setup: Setup, tmp_path: Path) -> None:
    hosts = [
        live("vast", "T4", "0.10", reliability=0.91, verified=False, region="DE"),
        live("vast", "T4", "0.11", reliability=0.998, verified=True, region="SE"),
        live("vast", "T4", "0.12"),
    ]
    setup(Acme("vast", [Account("vast", offers=hosts)]))
    path = shop.market(tmp_path, [shop.offer("vast", "T4", "0.09"), shop.offer("aws", "T4", "0.5")])
    flags = ("offers", "--live", "--market", path)
    rows = costguard(*flags).out.splitlines()
    hosts_shown = [row.split("live")[1].strip() for row in rows if " 0.1" in row]
    assert hosts_shown == ["91.0%, not verified", "99.8%, verified", "-"]
    chosen = costguard(*flags, "--min-reliability", "0.98", "--json").data["offers"]
    assert [(o["provider"], o["reliability"]) for o in chosen] == [("vast", 0.998), ("aws", None)]  # a cloud has no hosts
    costguard("offers", "--min-reliability", "0.98").says("--min-reliability: is of live offers", "write --live too")
    costguard(*flags, "--min-reliability", "98").says("--min-reliability")


def test_one_that_cannot_be_asked_is_a_warning_and_with_strict_exit_4(costguard: Command, setup: Setup, market: str) -> None:
    setup(
        Acme("one", [Account("one", offers=[live("one", "T4", "1")])]),
        Acme("two", [Account("two", offers=unreachable("two"))]),
        Acme("three", no_key("three")),
        Acme("four", [Account("four", offers=[live("four", "T4", "2")], partly="page 2 was lost")]),
    )
    ran = costguard("offers", "--live", "--market", market, "--json")
    assert ran.code == 0
    assert {o["provider"] for o in ran.data["offers"] if o["live"]} == {"one", "four"}
    said = " ".join(ran.data["warnings"])
    assert all(words in said for words in ("two: no connection", "three: there is no key", "page 2 was lost"))
    assert "three: three:" not in said
    assert costguard("offers", "--live", "--market", market, "--strict").code == 4


def test_offline_or_without_providers_the_market_is_shown_and_said(costguard: Command, setup: Setup, market: str) -> None:
    setup()
    ran = costguard("offers", "--live", "--market", market, "--json")
    assert (ran.code, len(ran.data["offers"])) == (0, len(shop.SHOP))
    assert "no provider is configured" in ran.data["warnings"][0]
    setup(Acme("one", [Account("one", offers=RuntimeError("asked"))]))
    ran = costguard("--offline", "offers", "--live", "--market", market, "--json")
    assert (ran.code, ran.data["warnings"]) == (0, ["some offers are missing: live offers: offline: no provider was queried"])
    assert costguard("--offline", "offers", "--live", "--strict", "--market", market).code == 4


def test_a_refresh_is_used_afterwards_and_replaces_only_what_was_listed(costguard: Command, setup: Setup) -> None:
    with MarketReader(MARKET) as shipped:
        before = {p["provider"]: p["offers"] for p in shipped.summarize_providers()}
    setup(Acme("vast", [Account("vast", offers=[live("vast", "RTX-4090", "0.15")])]))
    assert costguard("prices", "--json").data["market"]["path"] == str(MARKET)
    ran = costguard("prices", "refresh", "--json", "--strict")
    assert ran.code == 0, ran.err
    assert ran.data["asked"] == [{"provider": "vast", "offers": 1, "why": "", "unnamed": []}]
    after = {p["provider"]: p["offers"] for p in ran.data["providers"]}
    assert {k: v for k, v in after.items() if k != "vast"} == {k: v for k, v in before.items() if k != "vast"}
    vast = costguard("offers", "--provider", "vast", "--top", "0", "--json").data["offers"]
    (cheap,) = [o for o in vast if (o["gpu"], o["tier"]) == ("RTX-4090", "on-demand")]
    assert (cheap["usd_per_hour"], cheap["observed_at"], cheap["source"]) == ("0.1500", TODAY.isoformat(), "live")
    assert any(o["observed_at"] < TODAY.isoformat() for o in vast)


def test_a_refresh_from_which_nothing_came_changes_nothing(costguard: Command, setup: Setup) -> None:
    setup(Acme("one", [Account("one", offers=unreachable("one"))]))
    assert costguard("prices", "refresh").code == 3
    assert costguard("prices", "--json").data["market"]["path"] == str(MARKET)


def test_a_refresh_needs_the_network_and_somebody_to_ask(costguard: Command, setup: Setup) -> None:
    setup(Acme("one"))
    costguard("--offline", "prices", "refresh").says("--offline")
    costguard("prices", "refresh", "--provider", "two").says("two is not configured")
    setup()
    costguard("--offline", "prices", "refresh").says("--offline")  # nobody configured: public sources (tests/public_prices)
    costguard("prices", "refrsh").says("refrsh", "refresh")


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0 and then nothing", b"x" * 5000])
def test_a_damaged_cache_is_not_used(costguard: Command, setup: Setup, tmp_path: Path, content: bytes) -> None:
    setup()
    kept = tmp_path / "cache" / "costguard" / "market.sqlite"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(content)
    assert costguard("prices", "--json").data["market"]["path"] == str(MARKET)
    assert costguard("offers", "--top", "1").code == 0
