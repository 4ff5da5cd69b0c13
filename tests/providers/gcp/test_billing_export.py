"""Google's standard and detailed export: what each row becomes, and which rows are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from costguard_gcp.billing_export import EXPORT_FORMAT

from costguard.bills.bill_files import BillFileFacts, BillTally
from costguard.bills.bill_line import BillLine
from costguard.errors import InputError

VM = "//compute.googleapis.com/projects/42/zones/us-central1-a/instances/1234567"
NOW = datetime(2026, 12, 20, tzinfo=UTC)


def row(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - any column
    return {
        "billing_account_id": "01A2B3-C4D5E6-F7A8B9",
        "service": {"id": "6F81-5844-456A", "description": "Compute Engine"},
        "sku": {"id": "A1", "description": "A2 Instance Core running in Americas"},
        "usage_start_time": "2026-11-16 08:00:00 UTC",
        "usage_end_time": "2026-11-16 09:00:00 UTC",
        "project": {"id": "acme", "number": "42"},
        "location": {"region": "us-central1", "zone": "us-central1-a"},
        "export_time": "2026-12-18 12:00:00 UTC",
        "cost": 1.5,
        "currency": "USD",
        "currency_conversion_rate": 1.0,
        "credits": [],
        "invoice": {"month": "202611"},
        "cost_type": "regular",
        "adjustment_info": None,
        "resource": {"name": "train", "global_name": VM},
    } | more


def read(record: Mapping[str, Any], tally: BillTally | None = None) -> list[tuple[BillLine, Decimal]]:
    assert EXPORT_FORMAT.known(record)
    return list(EXPORT_FORMAT.read(record, BillFileFacts(account="", as_of=NOW, tally=tally or BillTally())))


def test_credits_are_lines_by_type_beside_the_cost_before_them() -> None:
    credits_ = [{"type": "SUSTAINED_USAGE_DISCOUNT", "amount": -0.3}, {"type": "PROMOTION", "amount": -0.1}]
    tally = BillTally()
    lines = read(row(credits=credits_), tally)
    assert [(line.charge, amount) for line, amount in lines] == [
        ("compute", Decimal("1.5")),
        ("credit", Decimal("-0.3")),
        ("credit", Decimal("-0.1")),
    ]
    assert len({line.id for line, _ in lines}) == 3
    assert tally.invoiced == {"USD": Decimal("1.1")}


def test_a_tax_row_belongs_to_the_billing_account_and_a_correction_to_the_later_invoice() -> None:
    ((tax, _),) = read(row(cost_type="tax", project=None, resource=None, sku={"id": "T", "description": "Tax"}))
    assert (tax.charge, tax.account, tax.resource_id) == ("tax", "01A2B3-C4D5E6-F7A8B9", "")
    october = {"usage_start_time": "2026-10-02 08:00:00 UTC", "usage_end_time": "2026-10-02 09:00:00 UTC"}
    info = {"id": "a1", "mode": "PARTIAL_CORRECTION", "type": "USAGE_CORRECTION", "description": "outage"}
    ((fixed, amount),) = read(row(cost=-1.5, cost_type="adjustment", adjustment_info=info, **october))
    ((usual, _),) = read(row(invoice={"month": "202610"}, **october))
    assert (fixed.charge, fixed.resource_id, amount) == ("compute", "1234567", Decimal("-1.5"))
    assert fixed.bill.endswith("2026-11-01T07:00:00Z")
    assert usual.bill.endswith("2026-10-01T07:00:00Z")
    assert "outage" in fixed.description


@pytest.mark.parametrize(
    ("wall", "utc"),
    [
        ("2026-11-01 00:00:00 America/Los_Angeles", "2026-11-01T07:00:00+00:00"),
        ("2026-11-02 00:00:00 US/Pacific", "2026-11-02T08:00:00+00:00"),
        ("2026-11-01T00:00:00-07:00", "2026-11-01T07:00:00+00:00"),
        ("2026-11-01 07:00:00 UTC", "2026-11-01T07:00:00+00:00"),
    ],
)
def test_a_time_on_the_clock_of_los_angeles_is_the_instant(wall: str, utc: str) -> None:
    ((line, _),) = read(row(usage_start_time=wall, usage_end_time="2026-11-03 08:00:00 UTC"))
    assert line.start.isoformat() == utc


def test_columns_of_a_csv_are_the_fields_of_a_struct() -> None:
    info = {"id": "", "mode": "", "type": "", "description": ""}
    nested = row(adjustment_info=info, credits=[{"type": "PROMOTION", "amount": "-0.1"}])
    for sign in ".", "_":
        flat = dict[str, Any]()
        for name, value in nested.items():
            flat |= {f"{name}{sign}{inner}": its for inner, its in value.items()} if isinstance(value, dict) else {name: value}
        assert read(flat | {"credits": json.dumps(nested["credits"])}) == read(nested)
    texts = {name: json.dumps(value) if isinstance(value, dict | list) else str(value) for name, value in nested.items()}
    assert read(texts) == read(nested)


def test_euros_become_dollars_at_the_rate_of_their_row() -> None:
    tally = BillTally()
    ((line, amount),) = read(row(cost="0.92", currency="EUR", currency_conversion_rate="0.92"), tally)
    assert (line.amount.currency, amount) == ("USD", Decimal(1))
    assert tally.invoiced == {"EUR": Decimal("0.92")}
    ((line, _),) = read(row(cost="0.92", currency="EUR", currency_conversion_rate=None))
    assert line.amount.currency == "EUR"


def test_the_standard_export_names_no_machine_and_is_another_statement() -> None:
    record = {name: value for name, value in row().items() if name != "resource"}
    ((line, _),) = read(record)
    assert (line.statement, line.resource_id, line.charge) == ("standard export", "", "compute")


def test_a_row_written_before_its_month_closed_is_estimated_however_late_the_file_was_copied() -> None:
    ((draft, _),) = read(row(export_time="2026-11-20 12:00:00 UTC"))
    ((closed, _),) = read(row())
    assert (draft.estimated, closed.estimated) == (True, False)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"cost": "lots"}, "cost"),
        ({"invoice": {"month": "2026-11"}}, "invoice.month"),
        ({"usage_start_time": "soon"}, "usage_start_time"),
        ({"credits": [{"type": "PROMOTION"}]}, "credits.amount"),
        ({"credits": "all of it"}, "credits"),
        ({"credits.amount": -0.1}, "credits"),
        ({"currency": "EUR", "currency_conversion_rate": 0}, "currency_conversion_rate"),
    ],
)
def test_a_row_that_is_wrong_names_the_field(more: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        read(row() | more)
    assert refused.value.field == field
