"""The three catalogues: what of their formats becomes an offer, and what is left out by name."""

from __future__ import annotations

import io
import zipfile
from datetime import date, timedelta

import pytest
from costguard_public import catalogue, cyclenerd, gpuhunt, rows, skypilot

from costguard.data import ShippedFacts
from costguard.errors import InvalidAnswerError
from costguard.quoting.offer import Offer, OfferListing
from costguard.values.gpu import GpuNames
from tests.public_prices.feeds import (
    PRICING,
    YESTERDAY,
    MemoryFetcher,
    capture,
    cyclenerd_pages,
    gpuhunt_pages,
    pack,
    skypilot_pages,
)

GPUS = GpuNames(ShippedFacts().get_gpus())
ZIP = f"/v3/aws/{YESTERDAY:%Y%m%d}-42/catalog.zip"
HEAD = capture("gpuhunt_aws.csv").splitlines()[0] + b"\n"


def brief(listing: OfferListing) -> set[tuple[str, str, str, int, str, str]]:
    return {(o.instance_type, o.region, o.gpu, o.gpu_count, o.tier, o.rate.format() if o.rate else "") for o in listing.offers}


def aws_with(row: str) -> OfferListing:
    """Gpuhunt's AWS with one row more."""
    pages = gpuhunt_pages()
    pages[ZIP] = pack("aws.csv", capture("gpuhunt_aws.csv") + row.encode() + b"\n")
    return gpuhunt.source.list_offers_of(MemoryFetcher(pages), GPUS, ["aws"])["aws"]


def test_gpuhunt_prices_whole_machines_on_the_day_of_the_version() -> None:
    listings = gpuhunt.source.list_public_offers(MemoryFetcher(gpuhunt_pages(date(2026, 8, 18))), GPUS)
    assert set(listings) == set(gpuhunt.source.facts.providers)
    assert {o.observed_on for one in listings.values() for o in one.offers} == {date(2026, 8, 18)}
    assert brief(listings["aws"]) == {
        ("p5.48xlarge", "us-east-1", "H100-SXM", 8, "on-demand", "55.0400"),
        ("p5.48xlarge", "us-east-1", "H100-SXM", 8, "spot", "21.5000"),
        ("p5.48xlarge", "eu-north-1", "H100-SXM", 8, "on-demand", "55.0400"),
        ("g6.xlarge", "us-east-1", "L4", 1, "on-demand", "0.8048"),
        ("g6.xlarge", "us-east-1", "L4", 1, "spot", "0.3100"),
        ("g5.xlarge", "us-east-1", "A10G", 1, "on-demand", "1.0060"),
    }
    offer = next(o for o in listings["aws"].offers if o.instance_type == "g6.xlarge")
    assert (offer.vcpus, offer.ram_gb, offer.source) == (4, 16, "gpuhunt catalogue v3 aws 20260818-42")


def test_the_form_of_a_gpu_comes_from_the_machine_where_the_catalogue_says_less() -> None:
    listings = gpuhunt.source.list_public_offers(MemoryFetcher(gpuhunt_pages()), GPUS)
    gpus = {o.instance_type: o.gpu for one in listings.values() for o in one.offers}
    assert gpus["gpu_1x_h100_pcie"] == "H100-PCIe"
    assert gpus["gpu_8x_h100_sxm5"] == "H100-SXM"
    assert gpus["Standard_NC24ads_A100_v4"] == "A100-80GB-PCIe"
    assert gpus["Standard_NC40ads_H100_v5"] == "H100-NVL"
    assert gpus["NVIDIA H100 PCIe"] == "H100-PCIe"
    assert gpus["1RTXPRO6000.30V"] == "RTX-PRO-6000-Blackwell"


def test_gcp_stands_by_region_without_reservations_edge_machines_odd_n1_and_wrong_a3() -> None:
    listing = gpuhunt.source.list_offers_of(MemoryFetcher(gpuhunt_pages()), GPUS, ["gcp"])["gcp"]
    assert brief(listing) == {
        ("a2-highgpu-1g", "us-central1", "A100-40GB-SXM", 1, "on-demand", "3.6734"),
        ("a2-highgpu-1g", "us-central1", "A100-40GB-SXM", 1, "spot", "1.4694"),
        ("a3-highgpu-8g", "us-central1", "H100-SXM", 8, "spot", "35.4000"),
        ("n1-standard-4", "us-central1", "T4", 1, "on-demand", "0.5400"),
    }
    assert listing.left_out == f"1 row {gpuhunt.WRONG}"
    assert listing.why == ""


def test_runpod_stands_by_data_centre_and_country_and_without_clusters() -> None:
    listing = gpuhunt.source.list_offers_of(MemoryFetcher(gpuhunt_pages()), GPUS, ["runpod"])["runpod"]
    assert {(o.region, o.tier, o.gpu) for o in listing.offers} == {
        ("EU-RO-1", "secure", "H100-PCIe"),
        ("EU-RO-1", "spot", "H100-PCIe"),
        ("SE", "community", "RTX-4090"),
    }


@pytest.mark.parametrize(
    ("price", "why"),
    [
        ("0", rows.NO_PRICE),
        ("-3.5", rows.NO_PRICE),
        ("nan", rows.NO_PRICE),
        ("", rows.NO_PRICE),
        ("1e9", rows.TOO_DEAR),
        ("100.01", rows.TOO_DEAR),
        ("€1.20", rows.OTHER_CURRENCY),
        ("1.20 EUR", rows.OTHER_CURRENCY),
    ],
)
def test_a_row_without_a_true_price_is_left_out_and_counted(price: str, why: str) -> None:
    listing = aws_with(f"g6.2xlarge,us-east-1,{price},8,32.0,nvidia,1,L4,24.0,False,,,x86,{{}}")
    assert (len(listing.offers), listing.left_out, listing.why) == (6, f"1 row {why}", "")


def test_a_gpu_nobody_knows_is_named_and_its_rows_are_left_out() -> None:
    listing = aws_with("p9.48xlarge,us-east-1,90,8,32.0,nvidia,8,Z900,512.0,False,,,x86,{}")
    assert (len(listing.offers), listing.unnamed) == (6, ("Z900",))


@pytest.mark.parametrize("row", ["g6f.large,us-east-1,0.2,2,8.0,nvidia,0.125,L4,3.0,False,,,x86,{}", "short,row", ","])
def test_shares_of_a_gpu_and_rows_that_are_cut_are_no_offers(row: str) -> None:
    assert len(aws_with(row).offers) == 6


@pytest.mark.parametrize("text", [b"", b"<html>", b"latest", b"20261399-1", b"2026-11-01", b"../../etc-1", b"\xff\xfe"])
def test_a_version_that_names_no_day_is_refused(text: bytes) -> None:
    pages = gpuhunt_pages() | {"/v3/aws/version": text}
    found = gpuhunt.source.list_public_offers(MemoryFetcher(pages), GPUS)
    assert (found["aws"].offers, "expected a day and a run" in found["aws"].why) == ((), True)
    assert found["azure"].offers
    with pytest.raises(InvalidAnswerError, match="expected a day and a run"):
        gpuhunt.source.list_offers_of(MemoryFetcher(pages), GPUS, ["aws"])


def pack_many(files: int) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for number in range(files):
            file.writestr(str(number), b"")
    return packed.getvalue()


def bomb() -> bytes:
    return pack("aws.csv", HEAD + b"a," * 2**22)


BROKEN_ZIPS = {
    "a web page": (b"<!DOCTYPE html><title>Blocked</title>", "a web page"),
    "half a zip": (pack("aws.csv", capture("gpuhunt_aws.csv"))[:200], "not a valid zip"),
    "a damaged zip": (pack("aws.csv", HEAD * 9).replace(b"PK\x01\x02", b"PK\x09\x02"), "not a valid zip"),
    "nothing": (b"", "not a valid zip"),
    "half an end": (pack("aws.csv", HEAD)[:-1], "not a valid zip"),
    "a comment behind the end": (pack("aws.csv", HEAD)[:-2] + b"\x01\x00x", "not a valid zip"),
    "thousands of files": (pack_many(2000), "list of files has"),
    "another file": (pack("gcp.csv", HEAD), "holds no aws.csv"),
    "a bomb": (bomb(), "would unpack to"),
    "too large": (pack("aws.csv", HEAD + bytes(range(256)) * 2**17 + b"x" * 2**10), "would unpack to"),
    "other columns": (pack("aws.csv", b"a,b\n1,2\n"), "lacks the columns"),
    "no text": (pack("aws.csv", b"\xff\xfe\x00\x01"), "not text in UTF-8"),
    "too many columns": (pack("aws.csv", HEAD.rstrip() + b",x" * 100 + b"\n"), "more than 100 columns"),
    "too many rows": (
        pack("aws.csv", HEAD + b"".join(b"%d,\n" % i for i in range(catalogue.MOST_ROWS + 2))),
        "more than 250000",
    ),
}


@pytest.mark.parametrize("broken", BROKEN_ZIPS)
def test_a_catalogue_that_is_broken_or_a_bomb_is_refused_and_the_other_clouds_are_used(broken: str) -> None:
    body, said = BROKEN_ZIPS[broken]
    found = gpuhunt.source.list_public_offers(MemoryFetcher(gpuhunt_pages() | {ZIP: body}), GPUS)
    assert found["aws"].offers == ()
    assert said in found["aws"].why
    assert all(found[name].offers for name in found if name != "aws")


def test_a_size_that_a_zip_understates_is_not_believed() -> None:
    content = b"x" * 2000
    packed = bytearray(pack("aws.csv", content, method=0))
    for at in (22, packed.index(b"PK\x01\x02") + 24):  # the unpacked size, in the entry and in the directory
        packed[at : at + 4] = (10).to_bytes(4, "little")
    try:
        read = catalogue.unpack_file(bytes(packed), "aws.csv", "gpuhunt")
    except InvalidAnswerError:
        return
    assert len(read) == 10  # some versions of Python read what is stated, others refuse


def test_skypilot_takes_the_cheapest_zone_and_the_day_that_the_bucket_states() -> None:
    fetch = MemoryFetcher(skypilot_pages(), as_of=date(2026, 11, 1))
    listing = skypilot.source.list_offers_of(fetch, GPUS, ["aws"])["aws"]
    assert brief(listing) == {
        ("p5.48xlarge", "us-east-1", "H100-SXM", 8, "on-demand", "55.0400"),
        ("p5.48xlarge", "us-east-1", "H100-SXM", 8, "spot", "22.7000"),
    }
    assert {(o.observed_on, o.observed_to) for o in listing.offers} == {(date(2026, 11, 1), None)}
    assert fetch.asked == ["/catalogs/v8/aws/vms.csv"]


def test_an_undated_copy_is_dated_from_the_first_possible_day_to_today() -> None:
    listing = skypilot.source.list_offers_of(MemoryFetcher(skypilot_pages()), GPUS, ["hyperstack"])["hyperstack"]
    offers: tuple[Offer, ...] = listing.offers
    assert {(o.observed_on, o.observed_to) for o in offers} == {(skypilot.FIRST_DAY, YESTERDAY)}
    assert {(o.gpu, o.gpu_count) for o in offers} == {("A100-80GB-PCIe", 1), ("H100-PCIe", 8)}


def test_cyclenerd_states_machines_by_region_and_its_own_day() -> None:
    listing = cyclenerd.source.list_public_offers(MemoryFetcher(cyclenerd_pages(date(2026, 11, 12))), GPUS)["gcp"]
    assert brief(listing) == {
        ("a2-highgpu-1g", "us-central1", "A100-40GB-SXM", 1, "on-demand", "3.6734"),
        ("a2-highgpu-1g", "us-central1", "A100-40GB-SXM", 1, "spot", "1.4694"),
        ("a3-highgpu-8g", "us-central1", "H100-SXM", 8, "on-demand", "88.4900"),
        ("a3-highgpu-8g", "us-central1", "H100-SXM", 8, "spot", "35.3957"),
        ("g2-standard-24", "us-central1", "L4", 2, "on-demand", "2.0015"),
        ("g2-standard-24", "us-central1", "L4", 2, "spot", "0.8000"),
    }
    assert {o.observed_on for o in listing.offers} == {date(2026, 11, 12)}


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ((b"  timestamp: ", b"  stamp: "), "states no time"),
        ((b"  instance:", b"  instances:"), "has no compute.instance"),
        ((b"---", b"<html>"), "is a web page"),
        ((b"---", b"\xff"), "not text in UTF-8"),
    ],
)
def test_a_pricing_file_of_another_shape_is_refused(edit: tuple[bytes, bytes], said: str) -> None:
    pages = {PRICING: cyclenerd_pages()[PRICING].replace(*edit)}
    with pytest.raises(InvalidAnswerError, match=said):
        cyclenerd.source.list_public_offers(MemoryFetcher(pages), GPUS)


def test_a_pricing_file_that_is_cut_short_or_endless_is_refused() -> None:
    whole = cyclenerd_pages()[PRICING]
    for body, said in ((whole[: whole.index(b"  license:")], "cut short"), (whole + b"x:\n" * 500_001, "more than 500000")):
        with pytest.raises(InvalidAnswerError, match=said):
            cyclenerd.source.list_public_offers(MemoryFetcher({PRICING: body}), GPUS)


def test_no_source_dates_a_price_after_its_own_statement() -> None:
    tomorrow = YESTERDAY + timedelta(days=2)
    listing = gpuhunt.source.list_offers_of(MemoryFetcher(gpuhunt_pages(tomorrow)), GPUS, ["aws"])["aws"]
    assert {o.observed_on for o in listing.offers} == {tomorrow}  # the service refuses it: test_refresh
