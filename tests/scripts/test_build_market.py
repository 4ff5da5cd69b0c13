"""The rules of the price snapshot, on small snapshots; and the shipped one against its sources and against sense."""

from __future__ import annotations

import csv
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

import costguard
from costguard.ledger.market import MarketReader
from costguard.quoting.offer import Offer, OfferSelection
from costguard.values.gpu import read_gpus
from costguard.values.money import Rate
from scripts.build_market import HISTORY, MARKET, PRICES, Built, build, days

TODAY = date(2026, 11, 21)
ROW = {
    "provider": "acme",
    "gpu": "H100",
    "gpu_count": "1",
    "vram_gb": "80",
    "region": "global",
    "tier": "secure",
    "usd_per_hour": "3.49",
    "observed_on": "2026-10-07",
    "source": "a test",
}
COLUMNS = (*ROW, "vcpus", "ram_gb", "disk_gb", "instance_type")


def built(folder: Path, *rows: dict[str, str]) -> Built:
    with (folder / "prices.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows({**ROW, **row} for row in rows)
    return build([folder / "prices.csv"])


def rates(made: Built) -> list[Rate | None]:
    return [offer.rate for offer in made.offers]


def test_the_newest_observation_wins_and_nothing_is_averaged(tmp_path: Path) -> None:
    raised = {"usd_per_hour": "3.99", "observed_on": "2026-10-10"}
    made = built(tmp_path, raised, {})
    assert rates(made) == [Rate.parse("3.99")]
    assert made.superseded == {"older": 1}


def test_a_newer_price_keeps_what_an_older_row_knew_of_the_machine(tmp_path: Path) -> None:
    made = built(tmp_path, {"vcpus": "20", "ram_gb": "125"}, {"observed_on": "2026-11-09"})
    assert [(offer.vcpus, offer.ram_gb, offer.disk_gb) for offer in made.offers] == [(20, 125, None)]


def test_of_one_day_the_cheapest_is_kept(tmp_path: Path) -> None:
    made = built(tmp_path, {"usd_per_hour": "3"}, {"usd_per_hour": "2"}, {"usd_per_hour": ""})
    assert rates(made) == [Rate.parse("2")]
    assert made.superseded == {"of the same day and dearer": 2}


def test_a_regions_price_gives_way_to_a_newer_one_for_every_region(tmp_path: Path) -> None:
    made = built(
        tmp_path,
        {"region": "us", "usd_per_hour": "1"},
        {"region": "eu", "observed_on": "2026-10-20"},
        {"observed_on": "2026-10-10"},
    )
    assert [(offer.region, offer.observed_on.day) for offer in made.offers] == [("eu", 20), ("global", 10)]
    assert made.superseded == {"a newer price holds in every region": 1}


HISTORY_COLUMNS = (
    "provider",
    "gpu",
    "gpu_count",
    "tier",
    "region",
    "usd_per_hour",
    "observed_on",
    "source",
    "instance_type",
    "collector",
)


def test_a_history_tells_of_machines_that_no_snapshot_has_and_of_its_newest_day(tmp_path: Path) -> None:
    rows = [
        ("azure", "T4", "1", "on-demand", "eastus", "0.5", "2026-05-01", "h", "NC4as", "k"),
        ("azure", "T4", "1", "on-demand", "eastus", "0.52601234567891", "2026-06-18", "h", "NC4as", "k"),
        ("azure", "T4", "1", "on-demand", "cheapest", "0.4", "2026-06-18", "h", "", "k"),
        ("gcp", "T4", "1", "on-demand", "nowhere", "0.4", "2026-06-18", "h", "n1", "c"),
        ("vast", "T4", "1", "on-demand", "US", "0.1", "2026-06-18", "h", "", "h"),
        ("acme", "H100-SXM", "1", "secure", "global", "9", "2026-06-18", "h", "", "h"),
    ]
    with (tmp_path / "history.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([HISTORY_COLUMNS, *rows])
    built(tmp_path, {})
    made = build([tmp_path / "prices.csv"], tmp_path / "history.csv")
    assert [(o.provider, o.observed_on.isoformat(), o.rate) for o in made.offers] == [
        ("acme", "2026-10-07", Rate.parse("3.49")),
        ("azure", "2026-06-18", Rate.parse("0.526012346")),
    ]


def test_spot_that_costs_as_much_as_on_demand_is_no_offer(tmp_path: Path) -> None:
    made = built(tmp_path, {"tier": "spot", "source": "a feed (spot equals on-demand)"})
    assert made.offers == ()
    assert made.dropped == {"spot price equals on-demand: the product is being removed": 1}


@pytest.mark.parametrize("price", ["0", "", "-1", "n/a", "NaN", "0.001", "5000"])
def test_a_price_that_cannot_be_true_is_unknown(tmp_path: Path, price: str) -> None:
    assert rates(built(tmp_path, {"usd_per_hour": price})) == [None]


def test_a_price_of_one_gpu_of_eight_becomes_that_of_the_machine(tmp_path: Path) -> None:
    feed = {"provider": "lambda", "gpu": "V100", "vram_gb": "16", "tier": "on-demand", "region": "global"}
    one = {**feed, "usd_per_hour": "0.79", "source": "a feed (per GPU; sold as 8x)"}
    typed = {**feed, "gpu_count": "8", "usd_per_hour": "6.40", "vcpus": "88", "region": "all 17 listed regions"}
    made = built(tmp_path, one, {**typed, "observed_on": "2026 (undated)", "source": "a catalogue gpu_8x_v100_n"})
    assert [(o.instance_type, o.gpu_count, o.rate, o.vcpus) for o in made.offers] == [
        ("gpu_8x_v100_n", 8, Rate.parse("6.32"), 88)
    ]


@pytest.mark.parametrize(
    ("row", "canonical"),
    [
        (("aws", "V100-32GB", "32", "p3dn.24xlarge"), "V100-32GB"),
        (("aws", "RTX PRO 6000", "96", "g7e.2xlarge"), "RTX-PRO-6000-Blackwell-Server"),
        (("gcp", "RTX PRO 6000", "96", "g4-standard-48"), "RTX-PRO-6000-Blackwell-Server"),
        (("runpod", "RTX PRO 6000 WS", "96", ""), "RTX-PRO-6000-Blackwell"),
        (("lambda", "A100-40GB", "40", "gpu_1x_a100"), "A100-40GB-PCIe"),
        (("lambda", "A100-40GB", "40", "gpu_1x_a100_sxm4"), "A100-40GB-SXM"),
        (("azure", "A100-80GB-PCIe", "80", "Standard_NC24ads_A100_v4"), "A100-80GB-PCIe"),
        (("vast", "V100", "32", ""), "V100-32GB"),
    ],
)
def test_a_gpu_is_named_as_its_machine_says(tmp_path: Path, row: tuple[str, ...], canonical: str) -> None:
    stated = dict(zip(("provider", "gpu", "vram_gb", "instance_type"), row, strict=True)) | {"tier": "on-demand"}
    assert {offer.gpu for offer in built(tmp_path, stated).offers} == {canonical}


def test_what_is_sold_by_the_gpu_is_offered_as_machines_too(tmp_path: Path) -> None:
    stated = {"gpu_count": "8", "usd_per_hour": "30"}
    made = built(tmp_path, {"provider": "runpod"}, {"provider": "runpod", **stated})
    assert [(o.gpu_count, o.rate) for o in made.offers] == [
        (1, Rate.parse("3.49")),
        (8, Rate.parse("30")),
        (2, Rate.parse("6.98")),
        (4, Rate.parse("13.96")),
    ]
    assert made.offers[2].note == "2 times the price of one GPU"


def test_prices_made_by_hosts_and_spot_prices_age_fast(tmp_path: Path) -> None:
    made = built(tmp_path, {}, {"provider": "vast", "tier": "on-demand"}, {"provider": "aws", "tier": "spot"})
    assert {offer.provider: offer.pricing for offer in made.offers} == {
        "acme": "standard",
        "vast": "dynamic",
        "aws": "dynamic",
    }


@pytest.mark.parametrize(
    ("text", "source", "first", "last"),
    [
        ("2026-10-10", "a feed", "2026-10-10", None),
        ("2026-04", "a feed", "2026-04-01", "2026-04-30"),
        ("2025-12", "a feed", "2025-12-01", "2025-12-31"),
        ("2026-01", "a copy (undated copy: 2026-01 to 2026-05); median of 2 zones", "2026-01-01", "2026-05-31"),
        ("2025-08", "a copy (undated copy: 2025-08 or later)", "2025-08-01", "9999-12-31"),
        ("2026-04", "a copy (GPU part; undated copy: no later than 2026-04) + another", "2025-08-01", "2026-04-30"),
        ("2026-08", "AWS spot feed; fetched 2026-08-06 or 2026-08-10", "2026-08-06", "2026-08-10"),
        ("2026 (undated)", "a copy", "2026-01-01", "9999-12-31"),
    ],
)
def test_an_unsure_day_is_read_as_its_first_and_its_last(text: str, source: str, first: str, last: str | None) -> None:
    assert days(text, source) == (date.fromisoformat(first), date.fromisoformat(last) if last else None)


def test_a_copy_is_no_younger_than_the_collection(tmp_path: Path) -> None:
    undated = {"observed_on": "2025-08", "gpu": "T4", "vram_gb": "16", "source": "a copy (undated copy: 2025-08 or later)"}
    made = built(tmp_path, undated, {})
    assert {offer.gpu: offer.observed_to for offer in made.offers} == {"T4": date(2026, 10, 7), "H100-SXM": None}


@pytest.fixture(scope="module")
def shipped() -> list[Offer]:
    with MarketReader(MARKET) as market:
        return list(market.list_offers(OfferSelection()))


@pytest.mark.skipif(not (PRICES.is_dir() and HISTORY.is_file()), reason=f"the price snapshots are not at {PRICES}")
def test_the_shipped_market_is_what_its_sources_say(shipped: list[Offer]) -> None:
    assert set(shipped) == set(build(sorted(PRICES.glob("*.csv")), HISTORY).offers)


def test_every_shipped_gpu_is_in_the_catalogue(shipped: list[Offer]) -> None:
    with (Path(costguard.__file__).parent / "data" / "gpus.csv").open(encoding="utf-8", newline="") as file:
        assert {offer.gpu for offer in shipped} <= set(read_gpus(csv.DictReader(file)))


def test_every_shipped_price_of_a_gpu_is_of_this_world(shipped: list[Offer]) -> None:
    odd = [o for o in shipped if o.rate and not Decimal("0.03") <= Decimal(o.rate.format()) / o.gpu_count <= 40]
    assert odd == []


def test_a_spot_price_is_never_above_the_same_machine_on_demand(shipped: list[Offer]) -> None:
    listed = {(o.provider, o.region, o.instance_type): o.rate for o in shipped if o.tier == "on-demand" and o.rate}
    spot = [(o, listed.get((o.provider, o.region, o.instance_type))) for o in shipped if o.tier == "spot" and o.rate]
    assert [o for o, rate in spot if rate and o.rate and rate.nano_per_hour < o.rate.nano_per_hour] == []


def test_no_shipped_price_is_from_the_future(shipped: list[Offer]) -> None:
    assert max(offer.observed_on for offer in shipped) <= TODAY


def test_a_machine_with_more_of_the_same_gpu_costs_more(shipped: list[Offer]) -> None:
    kinds = {(o.provider, o.region, o.gpu, o.tier) for o in shipped if o.tier == "on-demand"}
    for kind in kinds:
        same = [o for o in shipped if (o.provider, o.region, o.gpu, o.tier) == kind and o.rate]
        least = {
            count: min(o.rate.nano_per_hour for o in same if o.rate and o.gpu_count == count)
            for count in {o.gpu_count for o in same}
        }
        ordered = [least[count] for count in sorted(least)]
        assert ordered == sorted(ordered), kind
