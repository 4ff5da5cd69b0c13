"""`prices history`: what each refresh collected and the snapshot's dates, drawn; and the same in reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from costguard.ledger.price_history import PriceHistoryReader, append_prices
from costguard.quoting.offer import Offer, OfferSelection
from costguard.services.quote.price_history import get_history_file, record_prices
from tests import shop
from tests.cli.acme import Account, Acme
from tests.cli.test_report import recorded, report
from tests.cli.test_status_polls import Setup, setup
from tests.conftest import Command

__all__ = ["recorded", "report", "setup"]

TODAY = datetime.now(UTC).date()
Collect = Callable[..., None]


def h100(usd: str, back: int, **more: object) -> Offer:
    """The price of a RunPod machine so many days ago."""
    seen = TODAY - timedelta(days=back)
    return shop.offer("runpod", "H100-SXM", usd, seen=seen, **{"tier": "secure", **more})  # type: ignore[arg-type]


@pytest.fixture
def collect(costguard: Command) -> Collect:  # noqa: ARG001 - it names the folder
    def collected(*offers: Offer) -> None:
        for offer in sorted(offers, key=lambda one: one.observed_on):
            append_prices(get_history_file(), [offer], offer.observed_on)

    return collected


def tell_row(data: dict[str, Any], **where: object) -> dict[str, Any]:
    (row,) = [one for one in data["series"] if where.items() <= one.items()]
    return dict(row)


FALLING = (h100("4", 60), h100("3", 40), h100("3", 20), h100("2.5", 0))


def test_a_history_is_drawn_with_its_ends_and_extremes(costguard: Command, collect: Collect, market: str) -> None:
    collect(*FALLING, h100("3.2", 50))
    ran = costguard("prices", "history", "--gpu", "H100", "--provider", "runpod", "--market", market, "--json")
    assert ran.code == 0, ran.err
    assert ran.data["schema"] == "costguard.price_history/1"
    row = tell_row(ran.data, tier="secure", gpu_count=1)
    assert row["points"] == [
        {"on": (TODAY - timedelta(days=back)).isoformat(), "usd_per_hour": usd}
        for back, usd in ((60, "4.0000"), (50, "3.2000"), (40, "3.0000"), (0, "2.5000"))
    ]
    assert (row["first_usd_per_hour"], row["last_usd_per_hour"], row["change_share"]) == ("4.0000", "2.5000", -0.375)
    assert (row["lowest_usd_per_hour"], row["highest_usd_per_hour"], row["regions"]) == ("2.5000", "4.0000", ["global"])


def test_the_snapshots_own_dates_are_points_too(costguard: Command, collect: Collect, market: str) -> None:
    collect(h100("2", 0, tier="community"))
    ran = costguard("prices", "history", "--gpu", "H100", "--tier", "community", "--days", "3650", "--market", market, "--json")
    points = tell_row(ran.data, provider="runpod")["points"]
    assert [(one["on"], one["usd_per_hour"]) for one in points] == [
        (shop.FRESH.isoformat(), "2.9900"),
        (TODAY.isoformat(), "2.0000"),
    ]


def test_a_damaged_history_is_a_warning_and_the_snapshot_is_drawn(costguard: Command, market: str) -> None:
    get_history_file().parent.mkdir(parents=True)
    get_history_file().write_bytes(b"no database")
    ran = costguard("prices", "history", "--gpu", "H100", "--days", "3650", "--market", market, "--json")
    assert ran.code == 0
    assert ran.data["series"]
    assert "mv price_history.sqlite" in ran.data["warnings"][-1]


def test_a_refresh_appends_what_it_fetched(costguard: Command, setup: Setup) -> None:
    fetched = replace(h100("2.22", 0, region="moon"), source="live")
    setup(Acme("runpod", [Account("runpod", offers=[fetched])]))
    for _ in range(2):
        assert costguard("prices", "refresh").code == 0
    with PriceHistoryReader(get_history_file()) as history:
        (one,) = history.list_series(OfferSelection(regions=("moon",)))
    assert [(run.seen_on, run.rate.format()) for run in one.runs] == [(TODAY, "2.2200")]


def test_a_history_that_cannot_be_written_does_not_stop_a_refresh(costguard: Command, setup: Setup) -> None:
    setup(Acme("runpod", [Account("runpod", offers=[h100("2.22", 0, region="moon")])]))
    get_history_file().mkdir(parents=True)
    ran = costguard("prices", "refresh", "--json")
    assert ran.code == 0
    assert "not added to the history" in ran.err
    assert costguard("offers", "--provider", "runpod", "--region", "moon", "--json").data["offers"]


def test_a_report_shows_the_prices_of_what_ran(report: Command) -> None:
    before = report("report", "--from", "2026-10-31", "--json").data
    top = before["top"][0]
    assert "Prices of what ran" not in report("report", "--from", "2026-10-31").out
    ran = [one for one in before["top"] if one["gpu"]]
    assert ran, top
    one = ran[0]
    offer = shop.offer(one["provider"], one["gpu"], "2", count=int(one["gpu_count"]), tier=one["tier"])
    for day, usd in ((date(2026, 10, 31), "2"), (date(2026, 11, 1), "1.5")):
        priced = replace(shop.offer(offer.provider, offer.gpu, usd, count=offer.gpu_count, tier=offer.tier), observed_on=day)
        append_prices(get_history_file(), [priced], day)
    told = report("report", "--from", "2026-10-31").out
    assert "Prices of what ran" in told
    row = next(line for line in told[told.index("Prices of what ran") :].splitlines() if offer.gpu in line)
    assert all(word in row for word in ("2.0000", "1.5000", "-25.0%"))
    assert report("report", "--from", "2026-10-31", "--json").data == before
    assert "Prices of what ran" not in report("report", "--day", "2026-10-30").out


def test_a_quote_is_the_same_with_and_without_a_history(costguard: Command, market: str) -> None:
    ask = ("quote", "--gpu", "H100", "--count", "8", "--hours", "12", "--market", market, "--json")
    before = costguard(*ask).data
    for back in range(90, -1, -3):
        assert record_prices([h100(f"{2 + back * 13 % 10 / 10:.2f}", back)], TODAY - timedelta(days=back)) == ()
    assert costguard(*ask).data == before
