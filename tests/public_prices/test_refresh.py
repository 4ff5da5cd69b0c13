"""`prices refresh --public`: what came is used and named, what is absurd is not, and what failed keeps its old rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from costguard_public.gpuhunt import WRONG, source

from costguard.data import MARKET
from costguard.ledger.market import MarketReader
from costguard.providers import plugins
from costguard.quoting.offer import Offer, OfferListing, OfferSelection
from costguard.services.quote.public_prices import KnownPrices, describe_absurdity, merge_listings
from costguard.values.money import Rate
from tests import shop
from tests.cli.acme import Account, Acme
from tests.cli.test_status_polls import Setup, setup
from tests.conftest import Command, Ran
from tests.fakes.server import serving
from tests.public_prices.feeds import (
    PRICING,
    YESTERDAY,
    Feeds,
    capture,
    cyclenerd_pages,
    gpuhunt_pages,
    pack,
    skypilot_pages,
)

__all__ = ["setup"]

TODAY = datetime.now(UTC).date()
NAMES = ("gpuhunt", "skypilot", "cyclenerd")
AWS_ZIP = f"/v3/aws/{YESTERDAY:%Y%m%d}-42/catalog.zip"
HEAD = capture("gpuhunt_aws.csv").splitlines()[0] + b"\n"


@dataclass
class Market:
    """The command over feeds on this machine, without any configured provider."""

    feeds: Feeds
    run: Command
    cache: Path

    def refresh(self, *flags: str) -> Ran:
        return self.run("prices", "refresh", "--json", *flags)

    def rows(self, provider: str) -> dict[tuple[str, str, str], Offer]:
        with MarketReader(self.cache / "market.sqlite") as market:
            offers = market.list_offers(OfferSelection(providers=(provider,)))
            return {(o.instance_type, o.region, o.tier): o for o in offers}


@pytest.fixture
def market(costguard: Command, tmp_path: Path) -> Iterator[Market]:
    feeds = Feeds({**gpuhunt_pages(), **skypilot_pages(), **cyclenerd_pages()})
    with serving(feeds) as url:
        tables = "".join(f'[prices.sources.{name}]\nendpoint = "{url}"\n' for name in NAMES)
        only = ", ".join(f'"{name}"' for name in NAMES)
        (tmp_path / "costguard.toml").write_text(f"[prices]\nonly = [{only}]\n{tables}")
        yield Market(feeds, costguard, tmp_path / "cache" / "costguard")


def sources(ran: Ran) -> dict[str, dict[str, Any]]:
    return {one["source"]: one for one in ran.data["sources"]}


def test_without_a_configured_provider_public_sources_are_asked(market: Market) -> None:
    ran = market.refresh()
    assert ran.code == 0, ran.err
    found = sources(ran)
    assert found["gpuhunt"]["state"] == "ok"
    assert found["gpuhunt"]["providers"] == {
        "aws": 6,
        "azure": 3,
        "cloudrift": 1,
        "gcp": 4,
        "lambda": 3,
        "nebius": 1,
        "oci": 1,
        "runpod": 3,
        "verda": 2,
    }
    assert (found["gpuhunt"]["oldest"], found["gpuhunt"]["newest"]) == (YESTERDAY.isoformat(), YESTERDAY.isoformat())
    assert found["gpuhunt"]["remarks"] == [f"gcp: left out: 1 row {WRONG}"]
    assert found["cyclenerd"]["state"] == "unneeded"
    assert found["skypilot"]["providers"] == {"hyperstack": 2}
    assert ran.data["asked"] is None
    assert {one["provider"]: one["from"] for one in ran.data["providers"]}["aws"] == "public and snapshot"
    assert market.rows("aws")["p5.48xlarge", "us-east-1", "on-demand"].observed_on == YESTERDAY
    assert market.rows("hyperstack")["n3-A100x1", "CANADA-1", "on-demand"].observed_to == TODAY


def test_the_refreshed_market_is_used_and_old_rows_keep_their_day(market: Market) -> None:
    with MarketReader(MARKET) as shipped:
        before = {(o.instance_type, o.region, o.tier) for o in shipped.list_offers(OfferSelection(providers=("gcp",)))}
    market.refresh()
    rows = market.rows("gcp")
    assert rows["a2-highgpu-1g", "us-central1", "on-demand"].observed_on == YESTERDAY
    assert rows["a3-highgpu-8g", "us-central1", "on-demand"].observed_on < YESTERDAY  # the catalogue's is left out
    assert ("a3-highgpu-8g", "us-central1", "on-demand") in before
    assert market.run("prices", "--json").data["market"]["path"].endswith("market.sqlite")


def test_for_people_there_is_a_row_a_source_and_a_next_step(market: Market) -> None:
    ran = market.run("prices", "refresh")
    assert ran.code == 0
    lines = ran.out.splitlines()
    row = next(line for line in lines if line.startswith("gpuhunt "))
    assert " ok " in row
    assert YESTERDAY.isoformat() in row
    assert "gpuhunt: gcp: left out: 1 row" in ran.out
    assert lines[-1] == "next: costguard quote --gpu H100 --count 8 --hours 12"


def test_a_second_refresh_asks_nobody_within_the_hour(market: Market) -> None:
    market.refresh()
    asked = len(market.feeds.asked)
    assert market.refresh().code == 0
    repeated = market.feeds.asked[asked:]
    assert {one.path for one in repeated} <= {f"/catalogs/v8/{cloud}/vms.csv" for cloud in ("hyperstack",)}


BROKEN: dict[str, tuple[Callable[[Feeds], object], str]] = {
    "a web page": (lambda f: f.fault("/v3/", "html", status=200), "expected a day and a run"),
    "a page in place of the zip": (lambda f: f.fault("catalog.zip", "html", status=200), "a web page"),
    "half a zip": (lambda f: f.fault("catalog.zip", "truncated"), "not a valid zip"),
    "a connection that breaks": (lambda f: f.fault("catalog.zip", "short", times=60), "in the middle of its answer"),
    "no answer": (lambda f: f.fault("/v3/", "reset", times=60), "without an answer"),
    "asked too often": (lambda f: f.fault("/v3/", "status", status=429, headers={"Retry-After": "900"}), "429"),
    "a failure": (lambda f: f.fault("/v3/", "status", status=503, headers={"Retry-After": "900"}), "503"),
    "a key": (lambda f: f.fault("/v3/", "status", status=403), "may need a key now"),
    "a redirect": (lambda f: f.fault("/v3/", "redirect"), "a redirect"),
    "packed without end": (lambda f: f.fault("catalog.zip", "bomb"), "more than"),
}


SLOW = "a connection that breaks"
"""Tried again and again with pauses: some 15 s."""


@pytest.mark.parametrize("broken", [pytest.param(one, marks=pytest.mark.proof) if one == SLOW else one for one in BROKEN])
def test_one_source_that_fails_is_named_and_fall_backs_and_old_rows_are_used(market: Market, broken: str) -> None:
    spoil, said = BROKEN[broken]
    spoil(market.feeds)
    ran = market.refresh()
    assert ran.code == 0, ran.err
    found = sources(ran)
    assert found["gpuhunt"]["state"] == "failed"
    assert said in found["gpuhunt"]["failed"]
    assert any(said in warning for warning in ran.data["warnings"])
    assert found["cyclenerd"]["providers"] == {"gcp": 6}
    assert set(found["skypilot"]["providers"]) >= {"aws", "runpod", "hyperstack", "verda"}
    with MarketReader(MARKET) as shipped:
        before = {(o.instance_type, o.region, o.tier): o for o in shipped.list_offers(OfferSelection(providers=("azure",)))}
    assert market.rows("azure") == before
    assert market.refresh("--strict").code == 4


def test_one_cloud_of_a_catalogue_that_fails_is_named_and_its_fall_back_asked(market: Market) -> None:
    market.feeds.pages[AWS_ZIP] = pack("aws.csv", HEAD + b"a," * 2**22)
    ran = market.refresh()
    found = sources(ran)
    assert found["gpuhunt"]["state"] == "partly"
    assert "would unpack to" in found["gpuhunt"]["incomplete"][0]
    assert found["skypilot"]["providers"] == {"aws": 2, "hyperstack": 2}
    assert market.refresh("--strict").code == 4


def test_nothing_at_all_changes_nothing(market: Market) -> None:
    market.feeds.pages.clear()
    ran = market.refresh()
    assert ran.code == 3
    assert "nothing was changed" in ran.err
    assert not (market.cache / "market.sqlite").exists()


def edit_aws(market: Market, edit: Callable[[bytes], bytes]) -> None:
    market.feeds.pages[AWS_ZIP] = pack("aws.csv", edit(capture("gpuhunt_aws.csv")))


def test_a_few_absurd_prices_are_left_out_and_named(market: Market) -> None:
    edit_aws(market, lambda text: text.replace(b"us-east-1,0.8048", b"us-east-1,0.02"))
    found = sources(market.refresh())["gpuhunt"]
    assert (found["state"], found["providers"]["aws"]) == ("ok", 5)
    (remark,) = [one for one in found["remarks"] if "implausible" in one]
    assert remark.startswith(
        "aws: 1 rows with an implausible price left out, such as aws g6.xlarge in us-east-1 at $0.0200 (known: $0."
    )
    assert market.rows("aws")["g6.xlarge", "us-east-1", "on-demand"].rate != shop.offer("aws", "L4", "0.02").rate


def test_a_source_with_many_absurd_prices_is_refused_whole(market: Market) -> None:
    for slug in ("aws", "azure", "gcp", "lambdalabs", "runpod"):
        path = f"/v3/{slug}/{YESTERDAY:%Y%m%d}-42/catalog.zip"
        lines = [line.split(",") for line in capture(f"gpuhunt_{slug}.csv").decode().splitlines()]
        cheap = "\n".join(",".join([*one[:2], one[2] if one[2] == "price" else "0.001", *one[3:]]) for one in lines)
        market.feeds.pages[path] = pack(f"{slug}.csv", cheap.encode())
    ran = market.refresh()
    found = sources(ran)["gpuhunt"]
    assert found["failed"].startswith("refused: ")
    assert "the old rows are kept" in found["failed"]
    assert "oci" not in found["providers"]
    assert sources(ran)["cyclenerd"]["providers"] == {"gcp": 6}


def test_a_feed_that_prices_what_is_not_there_only_tells_of_what_is_known(market: Market) -> None:
    there = market.feeds.pages[PRICING]
    market.feeds.pages[PRICING] = there.replace(
        b"        us-central1:\n          hour: 88", b"        moon-north1:\n          hour: 88"
    )
    found = sources(market.refresh("--source", "cyclenerd"))["cyclenerd"]
    assert found["providers"]["gcp"] == 4
    assert "gcp: 2 rows left out: their region is not known to have the GPU" in found["remarks"]
    assert not [key for key in market.rows("gcp") if key[1] == "moon-north1"]


@pytest.mark.parametrize(("days", "state"), [(1, "failed"), (400, "failed"), (0, "ok")])
def test_prices_of_tomorrow_are_refused(market: Market, days: int, state: str) -> None:
    market.feeds.pages = gpuhunt_pages(TODAY + timedelta(days=days))
    found = sources(market.refresh("--source", "gpuhunt"))["gpuhunt"]
    assert found["state"] == state
    assert ("dated in the future" in found["failed"]) == (state == "failed")


def test_millions_of_rows_are_refused_within_bounds(market: Market) -> None:
    head, *_ = capture("skypilot_aws.csv").splitlines()
    market.feeds.pages["/catalogs/v8/aws/vms.csv"] = head + b"\n" + b"a,,,1,1,,1,1,r,z,x\n" * 500_000
    market.feeds.pages["/catalogs/v8/hyperstack/vms.csv"] = head + b"\n" + b"a,,,1,1,,1,1,r,z,x\n" * (40 * 2**20 // 19)
    found = sources(market.refresh("--source", "skypilot"))["skypilot"]
    assert any("aws/vms.csv has more than 250000 rows" in one for one in found["incomplete"])
    assert any("hyperstack" in one and "more than 16777216 bytes" in one for one in found["incomplete"])
    assert found["providers"]["runpod"] == 1


def test_accounts_are_asked_alone_unless_public_is_said_and_their_rows_win(market: Market, setup: Setup) -> None:
    stated = shop.offer("lambda", "H100-PCIe", "3.05", seen=TODAY, name="gpu_1x_h100_pcie")
    settings = Path("costguard.toml").read_text()
    setup(Acme("lambda", [Account("lambda", offers=[stated])]))
    Path("costguard.toml").write_text(f"{settings}[providers.lambda]\n")
    assert market.refresh().data["sources"] is None
    assert market.feeds.asked == []
    ran = market.refresh("--public")
    assert ran.code == 0, ran.err
    assert ran.data["asked"] == [{"provider": "lambda", "offers": 1, "why": "", "unnamed": []}]
    rows = {o.gpu: o for o in market.rows("lambda").values() if o.observed_on >= YESTERDAY}
    assert (rows["H100-PCIe"].rate, rows["H100-PCIe"].source) == (stated.rate, stated.source)
    assert rows["GH200-96GB"].source.startswith("gpuhunt")
    origins = {one["provider"]: one["from"] for one in ran.data["providers"]}
    assert (origins["lambda"], origins["aws"]) == ("live and snapshot", "public and snapshot")


def test_a_source_that_cannot_be_loaded_or_raises_is_named_and_stops_no_other(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd:
        facts = source.facts

        def list_public_offers(self, *_: object) -> object:
            raise RuntimeError("secret")

    installed = plugins.load_price_sources()
    found = {**installed.found, "gpuhunt": Odd()}
    monkeypatch.setattr(
        plugins,
        "load_price_sources",
        lambda: plugins.PriceSourceRegistry(found=found, broken={"skypilot": "ImportError: x"}),  # type: ignore[arg-type]
    )
    del found["skypilot"]
    ran = market.refresh()
    answers = sources(ran)
    assert "RuntimeError" in answers["gpuhunt"]["failed"]
    assert "secret" not in ran.out
    assert "cannot be used" in answers["skypilot"]["failed"]
    assert answers["cyclenerd"]["providers"] == {"gcp": 6}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[prices]\nrefresh = "hourly"', ("prices.refresh", "never, daily")),
        ('[prices]\nonly = ["gpuhant"]', ("prices.only", "gpuhunt")),
        ('[prices]\nsources = ["gpuhunt"]', ("prices.sources", "must be tables")),
        ('[prices.sources.gpuhant]\nendpoint = "https://a.example"', ("prices.sources", "gpuhunt")),
        ('[prices.sources.gpuhunt]\naddress = "https://a.example"', ("address", "endpoint")),
        ('[prices.sources.gpuhunt]\nendpoint = "ftp://a.example"', ("is not an address",)),
        ('[prices.sources.gpuhunt]\nendpoint = "https://user@a.example"', ("is not an address",)),
        ('[prices.sources.gpuhunt]\nendpoint = "http://a.example"', ("plain http",)),
    ],
)
def test_settings_that_cannot_be_used_are_refused(costguard: Command, tmp_path: Path, text: str, said: tuple[str, ...]) -> None:
    (tmp_path / "costguard.toml").write_text(text)
    costguard("prices", "refresh").says(*said)


def known(*offers: Offer) -> KnownPrices:
    return KnownPrices(offers)


def judge(offer: Offer, prices: KnownPrices) -> str:
    found = prices.find_range(offer)
    return describe_absurdity(offer, found) if found else "nothing to compare with"


def test_a_price_is_compared_with_the_machine_then_the_provider_then_everybody() -> None:
    prices = known(shop.offer("aws", "T4", "0.5", name="g4dn.xlarge"), shop.offer("gcp", "L4", "1"))
    assert judge(shop.offer("aws", "T4", "0.026", name="g4dn.xlarge"), prices) == ""
    assert judge(shop.offer("aws", "T4", "0.024", name="g4dn.xlarge"), prices) == "known: $0.50 a GPU-hour"
    assert judge(shop.offer("aws", "T4", "11", name="other"), prices) == "known: $0.50 a GPU-hour"
    assert judge(shop.offer("vast", "L4", "0.01"), prices) == "known: $1.00 a GPU-hour"
    assert judge(shop.offer("vast", "H100-SXM", "0.01"), prices) == "nothing to compare with"
    assert judge(shop.offer("aws", "T4", None), prices) == ""


def test_prices_that_creep_are_held_against_the_shipped_ones() -> None:
    shipped, crept = shop.offer("aws", "T4", "0.5"), shop.offer("aws", "T4", "5")
    new = shop.offer("gcp", "L4", "1")
    prices = KnownPrices([shipped], [crept, new])
    assert judge(shop.offer("aws", "T4", "50"), prices) == "known: $0.50 a GPU-hour"
    assert judge(shop.offer("gcp", "L4", "50"), prices) == "known: $1.00 a GPU-hour"


def test_a_price_per_gpu_and_one_per_machine_are_told_apart() -> None:
    prices = known(shop.offer("oci", "H100-SXM", "80", count=8, name="BM"))
    assert "the price of one GPU" in judge(shop.offer("oci", "H100-SXM", "10", count=8, name="BM"), prices)
    assert "the price of a machine taken for" in judge(shop.offer("oci", "H100-SXM", "640", count=8, name="BM"), prices)
    assert judge(shop.offer("oci", "H100-SXM", "40", count=8, name="BM"), prices) == ""
    spot = known(shop.offer("oci", "H100-SXM", "80", count=8, name="BM", tier="spot"))
    assert judge(shop.offer("oci", "H100-SXM", "10", count=8, name="BM", tier="spot"), spot) == ""


def test_of_two_sources_the_first_counts_in_its_regions_and_the_second_adds_the_rest() -> None:
    own = {"aws": OfferListing(offers=(shop.offer("aws", "T4", "1", region="us"), shop.offer("aws", "L4", "2")))}
    other = OfferListing(
        offers=(
            shop.offer("aws", "T4", "3", region="us", name="x"),
            shop.offer("aws", "T4", "4", region="eu"),
            shop.offer("aws", "L4", "5", region="eu"),
            shop.offer("aws", "T4", "6", region="us", tier="spot"),
        )
    )
    merged = merge_listings([own, {"aws": other, "gcp": other}])
    assert [o.rate.format(0) for o in merged["aws"].offers if o.rate] == ["1", "2", "4", "6"]
    assert merged["gcp"] == other
    failed = OfferListing(offers=(), why="lost")
    assert merge_listings([{"aws": failed}, {"aws": other}])["aws"] == other
    assert merge_listings([own, {"aws": failed}]) == own


def test_a_poisoned_answer_takes_nothing_out_of_a_hold_and_is_named_everywhere(market: Market, setup: Setup) -> None:
    with MarketReader(MARKET) as shipped:
        machine = OfferSelection(providers=("runpod",), gpus=("RTX-4090",), tiers=("secure",), gpu_counts=(1,))
        (known,) = shipped.list_offers(machine)
    account = Account("runpod")
    setup(Acme("runpod", [account]))
    Path("costguard.toml").write_text('[providers.runpod]\n[ledger]\nurl = "sqlite:///ledger.db"\n')
    rental = ("--gpu", "RTX-4090", "--hours", "1000", "--provider", "runpod", "--tier", "secure", "--json")
    before = market.run("admit", *rental, "--name", "one").data["usd"]
    for usd in ("0.03", "0.002", "0.0001"):
        account.offers = [replace(known, rate=Rate.parse(usd), observed_on=TODAY, source="runpod")]
        assert market.refresh().code == 0
    held = market.run("admit", *rental, "--name", "two")
    assert float(held.data["usd"]) >= float(before)
    others = (market.run(*words, "--json") for words in (("quote", *rental[:-1]), ("offers", *rental[:2]), ("prices",)))
    for ran in (held, *others):
        assert "7,400 times below $0.74" in ran.out + ran.err
