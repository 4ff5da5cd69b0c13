"""Bill files are read whole: all records of each vendor become lines, or what is left out and what is missing is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from costguard.errors import InputError
from costguard.services.poll.bill_files import list_installed_kinds, open_bill
from tests.cli.test_reconcile_files import CUR, INVOICES, lab, lines, row, text
from tests.conftest import Command, Ran

__all__ = ["lab"]  # a fixture
T = int(datetime(2026, 10, 16, tzinfo=UTC).timestamp())


def hours(*records: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each record in three buckets of an hour."""
    every = ({"startTime": f"2026-10-16T{h:02}:00:00Z", "endTime": f"2026-10-16T{h + 1:02}:00:00Z"} for h in range(3))
    return [{**when, **record} for when in every for record in records]


def answer(*records: Mapping[str, Any], **query: Any) -> dict[str, Any]:  # noqa: ANN401 - any filter
    """What `GET /v2/billing/...` answers."""
    rows = hours(*records)
    totals = {"totalAmount": sum(one["totalAmount"] for one in rows)}
    return {"records": rows, "metadata": {"query": query, "recordCount": len(rows), "totals": totals}}


POD = {"podId": "k3v9", "totalAmount": 0.7, "gpuAmount": 0.69, "cpuAmount": 0, "diskAmount": 0.01}
SERVERLESS = {"totalAmount": 0.3, "gpuAmount": 0.2, "cpuAmount": 0, "diskAmount": 0.04, "feeAmount": 0.06}
CLUSTER = {"clusterId": "c", "totalAmount": 9.0, "gpuAmount": 8.0, "diskAmount": 0.4, "networkingAmount": 0.6}
ACCOUNT = {
    "podGpuAmount": 0.69,
    "podCpuAmount": 0,
    "podDiskAmount": 0.01,
    "storageStandardAmount": 0.02,
    "serverlessGpuAmount": 0.4,
    "serverlessDiskAmount": 0.08,
    "serverlessFeeAmount": 0.12,
    "endpointAmount": 0.05,
    "storageHighPerformanceAmount": 0,
    "clusterGpuAmount": 8.0,
    "clusterDiskAmount": 0.4,
    "clusterNetworkingAmount": 0.6,
}
ANSWERS: Mapping[str, tuple[dict[str, Any], str]] = {
    "pods": (answer(POD), "2.1"),
    "volumes": (
        answer({"networkVolumeId": "v", "totalAmount": 0.02, "standardAmount": 0.02, "highPerformanceAmount": 0}),
        "0.06",
    ),
    "serverless": (answer({"serverlessId": "a", **SERVERLESS}, {"serverlessId": "b", **SERVERLESS}), "1.8"),
    "clusters": (answer(CLUSTER), "27"),
    "endpoints": (answer({"totalAmount": 0.05}), "0.15"),
    "the whole account": (answer({"totalAmount": 10.38, **ACCOUNT}), "31.14"),
}


def read(ran: Ran) -> dict[str, Any]:
    assert ran.code in (0, 3), ran.err
    (one,) = ran.data["files"]
    return dict(one)


def amount(folder: Path) -> float:
    return round(float(sum(int(nano) for *_, nano, _ in lines(folder))) / 10**9, 6)


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_of_runpod_comes_to_its_own_total(lab: Callable[..., Ran], tmp_path: Path, name: str) -> None:
    document, total = ANSWERS[name]
    one = read(lab(json.dumps(document), "--account", "main", "--json", name="b.json"))
    assert amount(tmp_path) == float(total)
    assert float(one["amount"]["USD"]) == float(one["own_total"]["USD"]) == float(total)
    assert (one["records"], one["left_out"]) == (len(document["records"]), {})
    again = lab(json.dumps(document), "--account", "main", "--json", name="b.json")
    assert [(one["added"], one["replaced"]) for one in again.data["imports"]] == [(0, 0)]


def test_serverless_by_endpoint_is_the_line_that_the_account_states_for_all(lab: Callable[..., Ran], tmp_path: Path) -> None:
    lab(json.dumps(ANSWERS["serverless"][0]), "--account", "main", name="b.json")
    ids = {line[2] for line in lines(tmp_path)}
    assert ids == {""}
    filtered = answer({"serverlessId": "a", **SERVERLESS}, serverlessId="a")
    lab(json.dumps(filtered), "--account", "main", name="b.json").says("metadata.query.serverlessId is of one resource")


@pytest.mark.parametrize("key", ["podId", "gpuTypeId", "endpointId"])
def test_buckets_of_v1_and_runpodctl_are_hours_or_days_by_their_times(
    lab: Callable[..., Ran], tmp_path: Path, key: str
) -> None:
    every = [{"time": f"2026-10-16T{h:02}:00:00Z", "amount": 0.7, key: "k", "timeBilledMs": 3_600_000} for h in range(3)]
    read(lab(json.dumps(every), "--account", "main", "--json", name="b.json"))
    assert amount(tmp_path) == 2.1
    daily = [{"time": "2026-10-17T00:00:00Z", "amount": 16.8, key: "k", "timeBilledMs": 86_400_000}]
    assert read(lab(json.dumps(daily), "--account", "main", "--json", name="d.json"))["amount"] == {"USD": "16.80"}


def test_a_bucket_of_v1_that_bills_more_than_a_day_is_refused(lab: Callable[..., Ran], tmp_path: Path) -> None:
    week = [{"time": "2026-10-12T00:00:00Z", "amount": 90, "podId": "k", "timeBilledMs": 6 * 86_400_000}]
    lab(json.dumps(week), "--account", "main", name="b.json").says("timeBilledMs is more than its bucket of 24 h", "bucketSize")
    assert lines(tmp_path) == []


def charge(total: float, *items: tuple[str, float | None], number: int = 1) -> dict[str, Any]:
    when = {"start": T, "end": T + 3600}
    parts: list[dict[str, Any]] = [{"type": kind, "amount": part, **when, "items": []} for kind, part in items]
    return {**when, "type": "instance", "source": f"instance-{number}", "amount": total, "items": parts}


def page(*results: Mapping[str, Any], total: int | None = None, after: str | None = None) -> str:
    return json.dumps(
        {"success": True, "count": len(results), "total": total or len(results), "next_token": after, "results": results}
    )


def test_what_the_items_of_a_charge_lack_is_a_line(lab: Callable[..., Ran], tmp_path: Path) -> None:
    one = read(lab(page(charge(5, ("gpu", 4)), charge(1, ("gpu", 1), number=2)), "--account", "7", "--json", name="b.json"))
    assert one["own_total"] == one["amount"] == {"USD": "6.00"}
    assert [(charge, nano) for _, _, _, charge, nano, _ in lines(tmp_path)] == [
        ("compute", 4 * 10**9),
        ("other", 10**9),
        ("compute", 10**9),
    ]


BAD: Mapping[str, tuple[str, Sequence[str]]] = {
    "more pages": (page(charge(5, ("gpu", 5)), after="eyJ2"), ("next_token", "there are more pages", "after_token")),
    "too few": (page(charge(5, ("gpu", 5)), total=14), ("total is 14, and 1 records are there",)),
    "no amount": (page(charge(5, ("gpu", None))), ("item 1: amount of the charge or of an item is missing",)),
    "cut short": (json.dumps({**ANSWERS["pods"][0], "records": ANSWERS["pods"][0]["records"][:2]}), ("recordCount states 3",)),
    "a new amount": (json.dumps(answer({**CLUSTER, "totalAmount": 10.0})), ("totalAmount is 1.0 more than its parts",)),
}


@pytest.mark.parametrize("name", BAD)
def test_half_a_bill_is_named_and_nothing_is_taken_in(lab: Callable[..., Ran], tmp_path: Path, name: str) -> None:
    data, said = BAD[name]
    lab(data, "--account", "main", name="b.json").says("b.json", *said)
    assert lines(tmp_path) == []


@pytest.mark.usefixtures("lab")
def test_all_pages_of_a_folder_are_one_bill(costguard: Command, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/1.json").write_text(page(charge(5, ("gpu", 5)), total=2, after="eyJ2"))
    (tmp_path / "pages/2.json").write_text(page(charge(1, ("gpu", 1), number=2), total=2))
    ran = costguard("reconcile", "--month", "2026-10", "--file", "pages", "--account", "7", "--json")
    assert read(ran)["records"] == 2
    assert amount(tmp_path) == 6


def test_payments_are_left_out_and_counted(lab: Callable[..., Ran]) -> None:
    ran = lab(json.dumps({"invoices": INVOICES}), "--account", "7", "--json", name="b.json")
    assert read(ran)["left_out"] == {"payments and credits": 1}
    assert any("left out 1 payments and credits" in note for note in ran.data["notes"])


USAGE = """Instance ID,Instance type,Start,End,Hours,Amount
7c1f,gpu_1x_a10,2026-10-16 08:00:00,2026-10-16 10:00:00,2,$2.58
,Filesystem data,2026-10-16,2026-10-23,,$0.40
,Sales tax,2026-10-16,2026-10-23,,$0.27
,Service credit,2026-10-16,2026-10-23,,-1.00
"""


def test_a_table_of_lambdas_usage_is_read_by_the_names_of_its_columns(lab: Callable[..., Ran], tmp_path: Path) -> None:
    assert read(lab(USAGE, "--account", "default", "--json"))["amount"] == {"USD": "2.25"}
    assert [(provider, resource, charge, nano) for provider, _, resource, charge, nano, _ in lines(tmp_path)] == [
        ("lambda", "7c1f", "compute", 2_580_000_000),
        ("lambda", "", "storage", 400_000_000),
        ("lambda", "", "tax", 270_000_000),
        ("lambda", "", "credit", -1_000_000_000),
    ]
    lab(USAGE.replace("2026-10-16 10:00:00", "later"), "--account", "default").says("line 2: End is not a time")
    lab(USAGE.replace("$2.58", "2,58"), "--account", "default").says("line 2: has 7 cells")


def test_totals_of_the_account_beside_its_pods_are_set_aside_with_the_difference(lab: Callable[..., Ran]) -> None:
    lab(json.dumps(ANSWERS["pods"][0]), "--account", "main", name="b.json")
    ran = lab(json.dumps(ANSWERS["the whole account"][0]), "--account", "main", "--json", name="a.json")
    (note,) = (note for note in ran.data["notes"] if "account totals" in note)
    assert "repeat the same time and were ignored: 29.04 more than its billing API" in note


def test_what_was_invoiced_stands_beside_what_is_amortised_with_a_total(lab: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text(text([row(1, EffectiveCost="2", BilledCost="0")]))
    ran = lab(text([row(EffectiveCost="0.6", BilledCost="1")]), "--file", "b.csv", "--json")
    first, second = ran.data["files"]
    assert (first["amount"], first["invoiced"]) == ({"USD": "0.60"}, {"USD": "1.00"})
    assert (second["amount"], second["invoiced"]) == ({"USD": "2.00"}, {"USD": "0.00"})
    table = lab(text([row(EffectiveCost="0.6", BilledCost="1")]), "--file", "b.csv").out
    total = next(line for line in table.splitlines() if line.startswith("total"))
    assert total.split()[1:5] == ["2", "-", "$2.60", "$1.00"]


def test_a_cur_states_what_was_invoiced_before_a_savings_plan_covers_it(lab: Callable[..., Ran]) -> None:
    covered = CUR | {"lineItem/LineItemType": "SavingsPlanCoveredUsage", "savingsPlan/SavingsPlanEffectiveCost": "60"}
    negation = CUR | {"lineItem/LineItemType": "SavingsPlanNegation", "lineItem/UnblendedCost": "-98.32"}
    one = read(lab(text([covered, negation]), "--json"))
    assert (one["amount"], one["invoiced"]) == ({"USD": "60.00"}, {"USD": "0.00"})


@pytest.mark.parametrize("credited", ["[]", "", "NULL", None])
def test_a_row_of_the_focus_view_without_credits_is_one_line_of_its_project(
    lab: Callable[..., Ran], tmp_path: Path, credited: str | None
) -> None:
    google: dict[str, Any] = {
        "ProviderName": "Google Cloud",
        "SubAccountId": "999988887777",
        "x_Project": '{"id": "acme", "number": "42"}',
    }
    lab(text([row(**google, x_Credits=credited)]))
    assert [(provider, account) for provider, account, *_ in lines(tmp_path)] == [("gcp", "acme")]


def test_a_total_below_zero_is_said(lab: Callable[..., Ran]) -> None:
    ran = lab(text([row(ChargeCategory="Credit", EffectiveCost="-3", BilledCost="-3")]), "--json")
    assert any("its total is negative, -$3.00" in note for note in ran.data["notes"])


DRAFT: dict[str, Any] = {"InvoiceId": ""}
INVOICE: dict[str, Any] = {"InvoiceId": "1234"}


@pytest.mark.parametrize("words", [(), ("--whole",)])
def test_a_draft_that_was_copied_late_does_not_replace_what_was_invoiced(
    lab: Callable[..., Ran], tmp_path: Path, words: tuple[str, ...]
) -> None:
    lab(text([row(**DRAFT), row(1, **DRAFT)]), *words)
    invoiced = lab(text([row(EffectiveCost="2", **INVOICE), row(2, **INVOICE)]), "--json", "--whole")
    assert invoiced.data["imports"][0]["withdrawn"] == 1
    known = lines(tmp_path)
    draft = lab(text([row(**DRAFT), row(1, **DRAFT), row(3, **DRAFT)]), "--json", *words)
    (one,) = draft.data["imports"]
    assert (one["added"], one["replaced"], one["withdrawn"], one["outdated"]) == (0, 0, 0, 3)
    assert lines(tmp_path) == known
    corrected = lab(text([row(EffectiveCost="3", **INVOICE), row(2, **INVOICE)]), "--json", *words)
    assert corrected.data["imports"][0]["replaced"] == 1


def test_a_row_that_is_invoiced_before_its_month_closes_makes_no_draft_of_the_others(
    lab: Callable[..., Ran], tmp_path: Path
) -> None:
    purchase = row(ChargeCategory="Purchase", ResourceId="", **INVOICE)
    lab(text([purchase, row(1, **DRAFT)]))
    piece = lab(text([row(1, **DRAFT), row(2, **DRAFT)]), "--json")
    assert (piece.data["imports"][0]["added"], len(lines(tmp_path))) == (1, 3)


def test_a_bill_of_two_currencies_or_of_somebody_else_is_refused_with_its_line(lab: Callable[..., Ran], tmp_path: Path) -> None:
    lab(text([row(), row(1), row(2, BillingCurrency="EUR")])).says("line 4: is in EUR, and the lines of its bill", "in USD")
    assert lines(tmp_path) == []
    (tmp_path / "own.csv").write_text(text([row(), row(1, SubAccountId="444455556666")]))
    own = open_bill(tmp_path / "own.csv", list_installed_kinds("", "", lambda _: ["111122223333"]), datetime.now(UTC))
    assert len(list(own.parts)) == 2, "one account of the ledger is enough: an organisation has others"
    other = open_bill(tmp_path / "own.csv", list_installed_kinds("", "", lambda _: ["777788889999"]), datetime.now(UTC))
    with pytest.raises(InputError, match="line 2: is of account '111122223333' of aws, and no line is of an account"):
        list(other.parts)
