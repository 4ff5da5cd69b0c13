"""Whatever stands in a record of a bill file, it becomes lines or an InputError, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.bills.bill_files import BillFileFacts, BillFiles, BillFormat
from costguard.bills.bill_line import BillLine
from costguard.errors import InputError
from costguard.providers.context import BillFilePlugin
from costguard.providers.plugins import load_providers

NOW = datetime(2026, 11, 22, tzinfo=UTC)
ABOUT = BillFileFacts(account="main", as_of=NOW)
TIMES = st.sampled_from(
    ["2026-10-01T00:00:00Z", "2026-10-01T01:00:00Z", "2026-10-03", 1_790_000_000, 1.79e9, "1790000000", "", "x", None]
)
ODD: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals()
    | st.text(max_size=12)
    | st.sampled_from(["1.5", "1,5", "-3", "NaN", "1e400"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=6), inner, max_size=2),
    max_leaves=4,
)
KEYS = {
    "runpod": ("startTime", "endTime", "podId", "networkVolumeId", "totalAmount", "gpuAmount", "diskAmount", "standardAmount"),
    "vast": (
        "source",
        "amount",
        "items",
        "type",
        "start",
        "end",
        "description",
        "timestamp",
        "quantity",
        "instance_id",
        "metadata",
    ),
    "aws": (
        "lineItem/UsageStartDate",
        "lineItem/UsageEndDate",
        "lineItem/LineItemType",
        "lineItem/UnblendedCost",
        "lineItem/CurrencyCode",
        "lineItem/ResourceId",
        "lineItem/UsageType",
        "savingsPlan/SavingsPlanEffectiveCost",
    ),
    "gcp": (
        "billing_account_id",
        "usage_start_time",
        "usage_end_time",
        "cost",
        "currency",
        "currency_conversion_rate",
        "credits",
        "project",
        "invoice",
        "cost_type",
        "export_time",
        "sku.description",
        "resource.global_name",
    ),
}


def formats(name: str) -> list[BillFormat]:
    plugin = load_providers().found[name]
    assert isinstance(plugin, BillFilePlugin)
    files = plugin.bill_files
    assert isinstance(files, BillFiles)
    return list(files.formats)


@pytest.mark.parametrize("name", KEYS)
@given(data=st.data())
def test_a_record_becomes_lines_or_is_refused(name: str, data: st.DataObject) -> None:
    record = {
        key: data.draw(TIMES | ODD if "ime" in key or "Date" in key or key in ("start", "end") else ODD, label=key)
        for key in KEYS[name]
    }
    for one in formats(name):
        if not one.known(record):
            continue
        try:
            parts = list(one.read(record, ABOUT))
        except InputError:
            continue
        for line, amount in parts:
            assert isinstance(line, BillLine)
            assert line.provider == name
            assert isinstance(amount, Decimal)
            assert amount.is_finite()


@pytest.mark.parametrize("name", ["aws", "gcp", "runpod", "vast"])
def test_what_a_provider_is_called_in_focus_files_is_its_own(name: str) -> None:
    plugin = load_providers().found[name]
    assert isinstance(plugin, BillFilePlugin)
    others = {
        called.casefold()
        for other, one in load_providers().found.items()
        if other != name and isinstance(one, BillFilePlugin)
        for called in one.bill_files.called
    }
    assert not others & {called.casefold() for called in plugin.bill_files.called}
