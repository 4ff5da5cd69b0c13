"""The market file, written and read for real."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costguard.data import ShippedFacts
from costguard.errors import InputError, UnknownNameError
from costguard.ledger.market import SCHEMA_VERSION, MarketReader, write_market
from costguard.quoting.offer import Offer, OfferSelection
from costguard.quoting.price_drift import get_vintage, judge_vintage
from costguard.values.money import Rate
from tests.campaign import examples

EVERYTHING = OfferSelection()
TODAY = date(2026, 11, 21)
JUDGE = partial(judge_vintage, drift=ShippedFacts().get_price_drift(), today=TODAY)
H100 = Offer(
    provider="lambda",
    region="global",
    instance_type="gpu_8x_h100_sxm5",
    gpu="H100-SXM",
    gpu_count=8,
    tier="on-demand",
    rate=Rate.parse("31.92"),
    observed_on=date(2026, 10, 10),
    source="a test",
    vcpus=208,
    ram_gb=1800,
    disk_gb=22528,
    note="a note",
)
AWS = replace(H100, provider="aws", region="us-east-1", instance_type="p5.48xlarge", rate=Rate.parse("55.04"))
AWS_WEST = replace(AWS, region="us-west-2", rate=Rate.parse("50"), observed_on=date(2026, 8, 1))
AWS_SPOT = replace(AWS, tier="spot", rate=Rate.parse("20.5"), pricing="dynamic")
ODD = replace(H100, provider="vast", instance_type="H100-SXM x1", gpu_count=1, rate=None, vcpus=None, ram_gb=None, disk_gb=None)
T4 = replace(AWS, instance_type="g4dn.xlarge", gpu="T4", gpu_count=1, rate=Rate.parse("0.526"))
OFFERS = (H100, AWS, AWS_WEST, AWS_SPOT, ODD, T4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "market.sqlite"
    write_market(file, OFFERS, {"built_from": "a test"})
    return file


@pytest.fixture
def market(path: Path) -> Iterator[MarketReader]:
    with MarketReader(path) as opened:
        yield opened


def test_every_offer_comes_back_as_it_was(market: MarketReader) -> None:
    assert set(market.list_offers(EVERYTHING)) == set(OFFERS)


def test_fresh_old_and_unranked_prices_of_a_lot_each_have_a_best(tmp_path: Path) -> None:
    ages = {"fresh": 2, "fresh too": 9, "old": 90, "older": 300, "unranked": 400}
    rates = {"fresh": "30", "fresh too": "29", "old": "20", "older": "19.9", "unranked": "1"}
    offers = [
        replace(AWS_SPOT, region=name, rate=Rate.parse(rates[name]), observed_on=TODAY - timedelta(days=days))
        for name, days in ages.items()
    ]
    write_market(tmp_path / "m.sqlite", offers)
    with MarketReader(tmp_path / "m.sqlite") as market:
        found = market.find_best("H100-SXM", 8, EVERYTHING, JUDGE)
        assert {o.region for o in found} == {"fresh too", "old", "unranked"}  # 19.9 rose more in 300 days than 20 in 90
        some = replace(EVERYTHING, regions=("fresh", "older"))
        assert {o.region for o in market.find_best("H100-SXM", 8, some, JUDGE)} == {"fresh", "older"}
        late = replace(EVERYTHING, observed_since=TODAY - timedelta(days=5))
        assert {o.region for o in market.find_best("H100-SXM", 8, late, JUDGE)} == {"fresh"}


def test_a_placeholder_hides_no_price(tmp_path: Path) -> None:
    real = replace(H100, provider="runpod", tier="secure", gpu_count=1, rate=Rate.parse("3"))
    none = replace(real, region="elsewhere", rate=Rate.parse("0.5"))
    write_market(tmp_path / "m.sqlite", [real, none])
    with MarketReader(tmp_path / "m.sqlite") as market:
        assert set(market.find_best("H100-SXM", 1, EVERYTHING, JUDGE)) == {real, none}


def test_an_undated_copy_and_a_stated_drift_come_back(tmp_path: Path) -> None:
    bid = replace(AWS_SPOT, provider="vast", drift="bid", observed_to=date(2026, 10, 20))
    write_market(tmp_path / "m.sqlite", [bid])
    with MarketReader(tmp_path / "m.sqlite") as market:
        assert list(market.list_offers(EVERYTHING)) == market.find_best("H100-SXM", 8, EVERYTHING, JUDGE) == [bid]


def test_an_order_nobody_knows_is_refused(market: MarketReader) -> None:
    with pytest.raises(UnknownNameError, match="sort"):
        market.list_offers(EVERYTHING, "nano_usd_per_hour; DROP TABLE offers")


FEW = st.sampled_from
PICKS = st.none() | st.lists(FEW(["a", "b", "c"]), max_size=2).map(tuple)
ANY_OFFER = st.builds(
    Offer,
    provider=FEW("abc"),
    region=FEW("abc"),
    instance_type=FEW("xyz"),
    gpu=FEW("abc"),
    gpu_count=FEW([1, 8]),
    tier=FEW(["on-demand", "spot"]),
    rate=st.none() | st.builds(Rate, nano_per_hour=FEW([1, 2, 10**18])),
    observed_on=st.dates(),
    source=FEW(["s", "t"]),
)
ANY_SELECTION = st.builds(OfferSelection, providers=PICKS, regions=PICKS, gpus=PICKS, tiers=st.none() | st.just(("spot",)))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(offers=st.lists(ANY_OFFER, max_size=12), selection=ANY_SELECTION)
def test_the_file_answers_as_the_plain_list_would(tmp_path: Path, offers: list[Offer], selection: OfferSelection) -> None:
    write_market(tmp_path / "any.sqlite", offers)
    chosen = [o for o in offers if _selected(o, selection)]
    with MarketReader(tmp_path / "any.sqlite") as market:
        assert sorted(map(repr, market.list_offers(selection))) == sorted(map(repr, chosen))
        assert market.list_classes(selection) == sorted({(o.gpu, o.gpu_count) for o in chosen})
        for gpu, gpu_count in market.list_classes(selection):
            lots: dict[tuple[object, ...], float] = {}
            for o in chosen:
                if o.rate and (o.gpu, o.gpu_count) == (gpu, gpu_count):
                    lots[_get_lot(o)] = min(_expect(o), lots.get(_get_lot(o), math.inf))
            best = {_get_lot(o): _expect(o) for o in market.find_best(gpu, gpu_count, selection, JUDGE)}
            assert best == lots


def _get_lot(offer: Offer) -> tuple[object, ...]:
    judged = JUDGE(get_vintage(offer))
    return (offer.provider, offer.tier, "unranked" if judged.unranked else judged.fresh)


def _expect(offer: Offer) -> float:
    assert offer.rate
    return offer.rate.nano_per_hour * JUDGE(get_vintage(offer)).factor.expected


def _selected(offer: Offer, selection: OfferSelection) -> bool:
    pairs = [(offer.provider, selection.providers), (offer.region, selection.regions), (offer.gpu, selection.gpus)]
    return all(allowed is None or value in allowed for value, allowed in [*pairs, (offer.tier, selection.tiers)])


def test_the_same_offers_in_any_order_make_the_same_bytes(tmp_path: Path) -> None:
    write_market(tmp_path / "a", OFFERS)
    write_market(tmp_path / "b", reversed(OFFERS))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_file_says_what_it_holds(market: MarketReader, path: Path) -> None:
    assert market.describe_file() == {
        "path": str(path),
        "offers": 6,
        "unpriced": 1,
        "providers": ["aws", "lambda", "vast"],
        "oldest": "2026-08-01",
        "newest": "2026-10-10",
        "built_from": "a test",
    }


def test_a_market_is_replaced_in_one_step_and_leaves_no_other_file(path: Path) -> None:
    write_market(path, [T4])
    with MarketReader(path) as market:
        assert list(market.list_offers(EVERYTHING)) == [T4]
    assert [file.name for file in path.parent.iterdir()] == ["market.sqlite"]


def _wrong_version(path: Path) -> None:
    write_market(path, OFFERS)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")


def _other_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE offers (x)")


def _cut_off(path: Path) -> None:
    write_market(path, [replace(T4, region=f"r{n}") for n in range(2000)])
    path.write_bytes(path.read_bytes()[:20_000])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda _: None, "does not exist"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.write_text("provider,gpu\n" * 99), "cannot be read"),
        (lambda path: path.write_bytes(b""), "is not a market file"),
        (_other_database, "is not a market file"),
        (_wrong_version, f"has format {SCHEMA_VERSION + 1}, not {SCHEMA_VERSION}"),
        (_cut_off, "cannot be read"),
    ],
    ids=["missing", "folder", "text", "empty", "other database", "other version", "cut off"],
)
def test_a_file_that_is_no_market_is_named_and_what_to_do(tmp_path: Path, spoil: Callable[[Path], object], said: str) -> None:
    spoil(tmp_path / "market.sqlite")
    with pytest.raises(InputError) as refused, MarketReader(tmp_path / "market.sqlite") as market:
        list(market.list_offers(EVERYTHING))
    assert said in str(refused.value)
    assert str(tmp_path / "market.sqlite") in str(refused.value)
    assert "hint:" in str(refused.value)


def test_reading_the_market_imports_little() -> None:
    heavy = "{'json', 'csv', 'logging', 'typer', 'rich', 'sqlalchemy'}"
    seen = f"import sys; import costguard.ledger.market; print({heavy} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", seen], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "set()"
