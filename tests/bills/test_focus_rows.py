from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.bills import bill_files
from costguard.bills.bill_files import (
    ExportRow,
    FocusSource,
    classify_charge,
    get_arn_tail,
    parse_export_instant,
    parse_focus_lines,
    sum_bill_lines,
)
from costguard.bills.bill_line import BillLine, BillLines
from costguard.errors import InputError
from costguard.values.calendar import Period
from tests.campaign import examples

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY = Period(start=datetime(2026, 11, 20, tzinfo=UTC), end=datetime(2026, 11, 21, tzinfo=UTC))
EXPORT = FocusSource(provider="aws", source="FOCUS export", as_of=datetime(2026, 11, 21, tzinfo=UTC))

ROW: dict[str, object] = {
    "BillingAccountId": "999988887777",
    "SubAccountId": "111122223333",
    "BillingCurrency": "USD",
    "BillingPeriodStart": "2026-11-01T00:00:00Z",
    "BillingPeriodEnd": "2026-12-01T00:00:00Z",
    "ChargePeriodStart": "2026-11-20T12:00:00Z",
    "ChargePeriodEnd": "2026-11-20T13:00:00Z",
    "ChargeCategory": "Usage",
    "ChargeDescription": "$1.006 per On Demand Linux g5.xlarge Instance Hour",
    "BilledCost": "0.0000000000",
    "EffectiveCost": "1.0060000000",
    "ListCost": "1.0060000000",
    "ResourceId": "arn:aws:ec2:us-east-1:111122223333:instance/i-0abc",
    "RegionId": "us-east-1",
    "ServiceCategory": "Compute",
    "SkuPriceId": "ABC.JRTCKXETXF",
    "x_UsageType": "BoxUsage:g5.xlarge",
    "x_Operation": "RunInstances",
    "Tags": {"team": "vision", "project": None},
}


def billed(rows: Iterable[ExportRow], export: FocusSource = EXPORT) -> BillLines:
    """The lines of the day in `rows`."""
    return sum_bill_lines((part for row in rows for part in parse_focus_lines(row, export)), DAY)


def line_of(*rows: ExportRow, export: FocusSource = EXPORT) -> BillLine:
    """The one line that `rows` are."""
    (line,) = billed(rows, export).lines
    return line


def test_a_row_is_a_line_of_what_it_cost_amortised() -> None:
    line = line_of(ROW)
    assert (line.amount.nano, line.charge, line.account, line.region) == (1_006_000_000, "compute", "111122223333", "us-east-1")
    assert (line.resource_id, line.start, line.end) == ("i-0abc", NOON, NOON + timedelta(hours=1))
    assert line.estimated
    assert line.source == "FOCUS export, EffectiveCost"


def test_rows_of_one_thing_are_one_line_and_are_rounded_once() -> None:
    tiny = [{**ROW, "EffectiveCost": "0.0000000004"}] * 5
    assert line_of(*tiny).amount.nano == 2


@pytest.mark.parametrize(
    "column",
    ["ResourceId", "SkuPriceId", "ChargePeriodStart", "SubAccountId", "x_UsageType", "ChargeCategory", "BillingCurrency"],
)
def test_rows_of_different_things_are_different_lines(column: str) -> None:
    odd = {"ChargePeriodStart": "2026-11-20T12:30:00Z", "ChargeCategory": "Credit", "BillingCurrency": "EUR"}
    other = {**ROW, column: odd.get(column, "other")}
    assert len(billed([ROW, other]).lines) == 2


def test_parts_of_an_id_cannot_run_into_each_other() -> None:
    one = {**ROW, "ResourceId": "a|b", "SkuPriceId": "c"}
    two = {**ROW, "ResourceId": "a", "SkuPriceId": "b|c"}
    assert len(billed([one, two]).lines) == 2


def test_only_lines_that_reach_into_the_period_are_given_and_those_whole() -> None:
    before = {**ROW, "ChargePeriodStart": "2026-11-19T23:00:00Z", "ChargePeriodEnd": "2026-11-20T00:00:00Z"}
    month = {**ROW, "ChargePeriodStart": "2026-11-01T00:00:00Z", "ChargePeriodEnd": "2026-12-01T00:00:00Z"}
    assert [line.start.day for line in billed([before, month, ROW]).lines] == [1, 20]


def test_a_line_with_an_invoice_or_of_a_month_long_over_is_final() -> None:
    assert not line_of({**ROW, "InvoiceId": "E-1"}).estimated
    later = FocusSource(provider="aws", source="x", as_of=datetime(2026, 12, 9, tzinfo=UTC))
    assert not line_of(ROW, export=later).estimated


@pytest.mark.parametrize(
    ("column", "odd"),
    [
        ("EffectiveCost", "abc"),
        ("EffectiveCost", "NaN"),
        ("EffectiveCost", "1e900000"),
        ("EffectiveCost", True),
        ("ChargePeriodStart", "yesterday"),
        ("ChargePeriodStart", "2026-11-20T14:00:00Z"),
        ("ChargePeriodEnd", ""),
        ("BillingCurrency", "dollars"),
        ("BillingCurrency", ""),
    ],
)
def test_a_row_that_cannot_be_read_is_refused(column: str, odd: object) -> None:
    with pytest.raises(InputError):
        list(parse_focus_lines({**ROW, column: odd}, EXPORT))


def test_lines_without_end_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bill_files, "MOST_BILL_LINES", 2)
    rows = [{**ROW, "ResourceId": f"i-{number % 4}"} for number in range(6)]
    found = billed(rows)
    assert {(line.resource_id, line.amount.nano) for line in found.lines} == {("i-0", 2_012_000_000), ("i-1", 2_012_000_000)}
    assert found.why.startswith("2 lines beyond 2 were left out")


@pytest.mark.parametrize(
    "form", ["2026-11-20T12:00:00Z", "2026-11-20 12:00:00 UTC", "2026-11-20T12:00:00.000", "2026-11-20T14:00:00+02:00", NOON]
)
def test_every_form_of_time_is_read(form: object) -> None:
    assert parse_export_instant(form) == NOON


@pytest.mark.parametrize(
    ("told", "charge"),
    [
        (("Usage", "BoxUsage:g5.xlarge"), "compute"),
        (("Usage", "USW2-SpotUsage:p5.48xlarge"), "compute"),
        (("Usage", "EBS:VolumeUsage.gp3"), "storage"),
        (("Usage", "EBS:SnapshotUsage"), "storage"),
        (("Usage", "EUC1-PublicIPv4:IdleAddress"), "address"),
        (("Usage", "DataTransfer-Out-Bytes"), "traffic"),
        (("Usage", "", "", "", "", "Virtual Machines", "Compute"), "compute"),
        (("Usage", "", "", "Storage PD Capacity", "", "", "Storage"), "storage"),
        (("Usage", "", "", "", "", "", "Networking"), "traffic"),
        (("Usage", "", "", "", "", "", "Databases"), "other"),
        (("Tax", "BoxUsage"), "tax"),
        (("Credit", "BoxUsage"), "credit"),
        (("Purchase", "CapacityBlock"), "other"),
    ],
)
def test_what_a_row_is_a_charge_for(told: tuple[str, ...], charge: str) -> None:
    assert classify_charge(*told) == charge


def test_an_arn_is_cut_to_the_id_and_other_ids_are_left() -> None:
    assert get_arn_tail("arn:aws:ec2:us-east-1:1:volume/vol-1") == "vol-1"
    assert get_arn_tail("arn:aws:sns:us-east-1:1:topic") == "topic"
    assert (
        get_arn_tail("//compute.googleapis.com/projects/p/zones/z/instances/1")
        == "//compute.googleapis.com/projects/p/zones/z/instances/1"
    )


ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["1e30", "-0", "0001-01-01", "\x00", "9" * 400]),
)


@settings(max_examples=int(os.environ.get("COSTGUARD_FUZZ") or examples(200)), deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(sorted(ROW)), ODD, max_size=4), max_size=4))
def test_whatever_a_row_says_no_amount_is_invented(changes: list[dict[str, object]]) -> None:
    rows = [{**ROW, **change} for change in changes]
    parts = list[tuple[BillLine, Decimal]]()
    for row in rows:
        with suppress(InputError):
            parts += parse_focus_lines(row, EXPORT)
    found = sum_bill_lines(parts, DAY)
    stated = [value for row in rows for value in (row["EffectiveCost"], row["BilledCost"])]
    amounts = {int(_decimal(value).scaleb(9).to_integral_value()) for value in stated if _decimal(value).is_finite()}
    if len(found.lines) == len(rows):
        assert all(line.amount.nano in amounts for line in found.lines)
    assert len(found.lines) <= len(rows)


def _decimal(value: object) -> Decimal:
    try:
        return Decimal(str(value))
    except ArithmeticError:
        return Decimal("NaN")
