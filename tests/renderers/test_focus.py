"""FOCUS exports: a golden file of each version, identities in exact decimals, what the standard says of each charge."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import timedelta
from decimal import Context, Decimal
from pathlib import Path

import pytest

from costguard.errors import UnknownNameError
from costguard.metering.charge_item import ChargeItem
from costguard.metering.meter import ADDRESS_CHARGE, GB, GB_MONTH_730, PriceRange
from costguard.renderers import focus
from costguard.reporting.focus.columns import VERSIONS
from costguard.values.resource import ResourceKey
from costguard.views.document import Document
from tests.books import money
from tests.cells import parse_json
from tests.charges import ADA, START, charges, disk, item
from tests.reporting.focus_rules.validator import check_focus_file

GOLDEN = Path(__file__).parent.parent / "golden"
EXACT = Context(prec=80)
POD = replace(
    ADA, provider="runpod", account="u-1", region="EU-RO-1", tier="community", instance_type="", gpu="RTX-4090", gpu_count=1
)
HELD = ResourceKey("runpod", "u-1", "EU-RO-1", "pod-1")
UNKNOWN = PriceRange(0, 345_000_000, 690_000_000, known=False)
ITEMS = (
    item(),
    item("12.31", hours="0.125", attribution=replace(ADA, tier="spot"), start=START + timedelta(hours=5)),
    disk(),
    item("0.015", usd="0.005", charge=ADDRESS_CHARGE, attribution=replace(ADA, kind="address", gpu=""), name="", tags=()),
    item("0.02", usd="0.02", hours="1", charge="traffic", unit=GB, us=0),
    item(
        "0.345", low="0", high="0.69", price=UNKNOWN, hours="1", key=HELD, attribution=POD, name="=1+1", tags=(("Größe", ""),)
    ),
    disk(unit=GB_MONTH_730, key=HELD, attribution=POD, part="volume", corrected=True),
)


def text(*items: ChargeItem, version: str | None = None) -> str:
    options = {} if version is None else {"focus_version": version}
    return "".join(focus.render(Document(data={}, items=charges(items)), **options))


def rows(*items: ChargeItem, version: str | None = None) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text(*items, version=version)), strict=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_export_is_the_sample_to_the_letter(version: str, request: pytest.FixtureRequest) -> None:
    sample = GOLDEN / f"focus-{version}.csv"
    printed = text(*ITEMS, version=version)
    if request.config.getoption("--write-golden"):
        sample.write_text(printed)
    assert printed == sample.read_text()


def test_the_newest_version_is_written_where_none_is_stated() -> None:
    assert text(*ITEMS) == text(*ITEMS, version="1.4")


def test_a_version_that_does_not_exist_is_refused_before_anything_is_written() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown version '1\.5'"):
        focus.render(Document(data={}, items=charges(ITEMS)), focus_version="1.5")


def test_an_empty_period_is_a_header_alone() -> None:
    assert (len(text().splitlines()), rows()) == (1, [])


@pytest.mark.parametrize("usd", ["2.49", "32.7726", "0.000000001", "34000"])
@pytest.mark.parametrize("pico", [1, 333_333_333_333, 27_777_777_778, 10**12, 23_999_722_222_222])
def test_costs_are_price_times_quantity_in_exact_decimals(usd: str, pico: int) -> None:
    (row,) = rows(item(usd=usd, quantity_pico=pico))
    for cost, price in (("ListCost", "ListUnitPrice"), ("ContractedCost", "ContractedUnitPrice")):
        assert Decimal(row[cost]) == EXACT.multiply(Decimal(row[price]), Decimal(row["PricingQuantity"]))
        assert "E" not in row[cost].upper()


def test_spot_is_dynamic_and_its_disk_is_not() -> None:
    spot = replace(ADA, tier="spot")
    found = rows(item(attribution=spot), disk(attribution=spot), item())
    assert [(row["PricingCategory"], row["ServiceCategory"]) for row in found] == [
        ("Dynamic", "Compute"),
        ("Standard", "Storage"),
        ("Standard", "Compute"),
    ]


def test_providers_are_spelt_alike_wherever_they_are_named() -> None:
    for version in VERSIONS:
        for row in rows(*ITEMS, version=version):
            names = {row[name] for name in row if name.endswith(("ProviderName", "PublisherName", "InvoiceIssuerName"))}
            assert len(names) == 1
            assert ("ServiceProviderName" in row, "ProviderName" in row) == (version > "1.2", version < "1.4")


def test_what_is_unsure_is_in_columns_of_our_own_after_those_of_focus() -> None:
    found = rows(*ITEMS)[5]
    names = list(found)
    assert [name for name in names if name.startswith("x_")] == names[-15:]
    assert (found["x_CostLow"], found["BilledCost"], found["x_CostHigh"], found["x_PriceKnown"]) == (
        "0",
        "0.345",
        "0.69",
        "false",
    )


def test_what_is_unpriced_has_no_amount_and_says_why() -> None:
    why = "unpriced: nobody states a price"
    nothing = PriceRange(0, 0, 690_000_000, known=False)
    (found,) = rows(replace(ITEMS[5], price=nothing, money=money("0", "0", "0.69"), source=why))
    empty = [name for name in found if name.endswith(("Cost", "UnitPrice"))]
    assert {found[name] for name in empty} == {""}
    assert {"BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "ListUnitPrice"} <= set(empty)
    assert (found["x_PriceSource"], found["x_CostHigh"], found["x_PriceKnown"]) == (why, "0.69", "false")


def test_a_tag_without_value_is_true_and_details_have_their_own_types() -> None:
    found = rows(*ITEMS)
    assert json.loads(found[5]["Tags"]) == {"Größe": True}
    assert json.loads(found[0]["SkuPriceDetails"]) == {
        "InstanceType": "p5.48xlarge",
        "GpuCount": 8,
        "x_GpuModel": "H100-SXM",
        "x_Tier": "on-demand",
    }


def test_periods_are_whole_seconds_and_never_empty() -> None:
    late = item(
        start=START + timedelta(seconds=1, microseconds=400_000), end=START + timedelta(seconds=1, microseconds=900_000)
    )
    (row,) = rows(late)
    assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == ("2026-11-02T00:00:01Z", "2026-11-02T00:00:02Z")


def test_what_ran_until_midnight_is_billed_in_the_month_that_it_ends() -> None:
    (row,) = rows(item(start=START.replace(day=30, hour=21)))
    assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")


def test_an_unknown_provider_is_called_what_the_ledger_calls_it() -> None:
    (row,) = rows(item(attribution=replace(ADA, provider="acme")))
    assert (row["ServiceProviderName"], row["ServiceName"]) == ("acme", "acme Instances")


@pytest.mark.parametrize("word", ["unknown", "N/A", "na", "-", "None", " "])
def test_a_region_that_a_provider_has_only_a_word_for_is_null(word: str) -> None:
    (row,) = rows(item(attribution=replace(ADA, region=word)))
    assert (row["RegionId"], row["RegionName"]) == ("", "")
    assert check_focus_file(list(row), [(2, list(row.values()))], parse_json).findings == ()


def test_parts_of_an_id_cannot_be_mistaken_for_others() -> None:
    one, other = replace(ADA, instance_type="a|8xH100-SXM", gpu="", gpu_count=0), replace(ADA, instance_type="a")
    found = rows(item(attribution=one), item(attribution=other))
    assert found[0]["SkuPriceId"] != found[1]["SkuPriceId"]


def test_rows_are_written_as_they_come() -> None:
    given = iter([item() for _ in range(2500)])
    pieces = focus.render(Document(data={}, items=charges(given)))
    next(pieces)
    next(pieces)
    assert sum(1 for _ in given) == 1500
