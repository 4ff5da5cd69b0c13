"""Bills in files: every kind is read, what is wrong is named with file and line, and nothing goes in by halves."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from costguard.files.lines import LONGEST_LINE
from costguard.ledger.bills.staging import StagedStatement
from costguard.ledger.spans.writer import LedgerWriter
from costguard.services.poll.bill_files import list_installed_kinds, open_bill
from costguard.values.instant import to_micros
from tests.conftest import Command, Ran
from tests.inputs.test_hostile_strings import acts
from tests.ledger.fleet import RULES, asked
from tests.ledger.test_import import restore
from tests.notifiers.hostile import CORPUS

START = datetime(2026, 10, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def row(number: int = 0, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any column
    """An hour of a machine, as FOCUS 1.2 has it."""
    return {
        "BillingAccountId": "999988887777",
        "SubAccountId": "111122223333",
        "ProviderName": "AWS",
        "BillingCurrency": "USD",
        "BillingPeriodEnd": "2026-11-01T00:00:00Z",
        "ChargePeriodStart": (START + number * HOUR).isoformat(),
        "ChargePeriodEnd": (START + (number + 1) * HOUR).isoformat(),
        "ChargeCategory": "Usage",
        "ServiceCategory": "Compute",
        "BilledCost": "1.0060000000",
        "EffectiveCost": "1.0060000000",
        "ResourceId": f"arn:aws:ec2:us-east-1:111122223333:instance/i-{number % 7}",
        "ChargeDescription": "an hour",
    } | more


def text(rows: Sequence[Mapping[str, Any]], delimiter: str = ",") -> str:
    written = io.StringIO(newline="")
    writer = csv.DictWriter(written, rows[0], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()


ROWS = [row(number) for number in range(20)]
CSV = text(ROWS)
RUNPOD = {
    "records": [
        {
            "startTime": "2026-10-01T00:00:00Z",
            "endTime": "2026-10-01T01:00:00Z",
            "podId": "k3v9",
            "totalAmount": 0.7,
            "gpuAmount": 0.69,
            "diskAmount": 0.01,
        }
    ],
    "metadata": {"query": {}},
}
VAST = {
    "success": True,
    "results": [
        {
            "start": to_micros(START) // 10**6,
            "end": to_micros(START) // 10**6 + 3600,
            "type": "instance",
            "source": "instance-24815377",
            "amount": 0.4,
            "items": [
                {"type": "gpu", "amount": 0.389, "start": to_micros(START) // 10**6, "end": to_micros(START) // 10**6 + 3600}
            ],
        }
    ],
}
INVOICES = [
    {
        "type": "charge",
        "description": "Instance 123 GPU charge: hours * $/hr",
        "timestamp": to_micros(START) // 10**6 + 36_000,
        "quantity": "10.000",
        "rate": "0.1000",
        "amount": "1.000",
        "instance_id": 123,
    },
    {"type": "payment", "description": "card", "timestamp": to_micros(START) // 10**6, "amount": "-25"},
]
CUR = {
    "identity/LineItemId": "x", "bill/PayerAccountId": "999988887777", "bill/BillingPeriodEndDate": "2026-11-01T00:00:00Z",
    "lineItem/UsageAccountId": "111122223333", "lineItem/LineItemType": "Usage",
    "lineItem/UsageStartDate": "2026-10-01T00:00:00Z", "lineItem/UsageEndDate": "2026-10-01T01:00:00Z",
    "lineItem/UsageType": "USW2-BoxUsage:p5.48xlarge", "lineItem/UnblendedCost": "98.32", "lineItem/CurrencyCode": "USD",
    "lineItem/ResourceId": "i-0abc", "reservation/EffectiveCost": "", "savingsPlan/SavingsPlanEffectiveCost": "",
}  # fmt: skip
CUR_2 = {
    name.replace("/", "_").replace("lineItem", "line_item").replace("UsageStart", "usage_start"): v for name, v in CUR.items()
}


@pytest.fixture
def lab(costguard: Command, tmp_path: Path) -> Callable[..., Ran]:
    """`costguard reconcile --file` of what is written, in a folder with a ledger."""
    with LedgerWriter(f"sqlite:///{tmp_path}/ledger.db", rules=RULES, ceilings={}):
        pass
    (tmp_path / "costguard.toml").write_text('[ledger]\nurl = "sqlite:///ledger.db"\n')

    def run(data: bytes | str, *words: str, name: str = "bill.csv") -> Ran:
        (tmp_path / name).write_bytes(data.encode() if isinstance(data, str) else data)
        return costguard("reconcile", "--month", "2026-10", "--file", name, *words)

    return run


def lines(folder: Path) -> list[Any]:
    sql = "SELECT provider, account, external_id, charge, nano, currency FROM bill_line WHERE replaced_us IS NULL ORDER BY id"
    return asked(f"sqlite:///{folder}/ledger.db", lambda ask: [tuple(one) for one in ask(sql, ())])


KINDS: Mapping[str, tuple[bytes | str, tuple[str, ...], Any]] = {
    "bill.csv": (text([row()]), (), ("aws", "111122223333", "i-0", "compute", 1_006_000_000, "USD")),
    "marked.csv": (text([row()]).encode("utf-8-sig"), (), ("aws", "111122223333", "i-0", "compute", 1_006_000_000, "USD")),
    "wide.csv": (text([row()]).encode("utf-16"), (), ("aws", "111122223333", "i-0", "compute", 1_006_000_000, "USD")),
    "semicolons.csv": (text([row()], ";"), (), ("aws", "111122223333", "i-0", "compute", 1_006_000_000, "USD")),
    "bill.csv.gz": (gzip.compress(text([row()]).encode()), (), ("aws", "111122223333", "i-0", "compute", 1_006_000_000, "USD")),
    "bill.jsonl": (json.dumps(row()) + "\n", (), ("aws", "111122223333", "i-0", "compute", 1_006_000_000, "USD")),
    "list.json": (json.dumps([row()], indent=1), (), ("aws", "111122223333", "i-0", "compute", 1_006_000_000, "USD")),
    "focus14.csv": (
        text([{("ServiceProviderName" if k == "ProviderName" else k): v for k, v in row().items()}]),
        (),
        ("aws", "111122223333", "i-0", "compute", 1_006_000_000, "USD"),
    ),
    "google.json": (
        json.dumps(row(ProviderName="Google Cloud", ResourceId="//compute.googleapis.com/projects/1/instances/123")),
        (),
        ("gcp", "111122223333", "123", "compute", 1_006_000_000, "USD"),
    ),
    "nameless.csv": (
        text([row(ProviderName="")]),
        ("--provider", "aws"),
        ("aws", "111122223333", "i-0", "compute", 1_006_000_000, "USD"),
    ),
    "runpod.json": (json.dumps(RUNPOD), ("--account", "main"), ("runpod", "main", "k3v9", "compute", 690_000_000, "USD")),
    "vast.json": (json.dumps(VAST, indent=2), ("--account", "7"), ("vast", "7", "24815377", "compute", 389_000_000, "USD")),
    "invoices.json": (json.dumps({"invoices": INVOICES}), ("--account", "7"), ("vast", "7", "123", "compute", 10**9, "USD")),
    "invoices.csv": (text(INVOICES[:1]), ("--account", "7"), ("vast", "7", "123", "compute", 10**9, "USD")),
    "cur.csv": (text([CUR]), (), ("aws", "111122223333", "i-0abc", "compute", 98_320_000_000, "USD")),
    "cur2.csv": (text([CUR_2]), (), ("aws", "111122223333", "i-0abc", "compute", 98_320_000_000, "USD")),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_bill_is_known_and_read(lab: Callable[..., Ran], tmp_path: Path, name: str) -> None:
    data, words, expected = KINDS[name]
    ran = lab(data, *words, "--json", name=name)
    assert ran.code in (0, 3), ran.err
    assert lines(tmp_path)[0] == expected
    again = lab(data, *words, "--json", name=name)
    assert [(one["added"], one["replaced"]) for one in again.data["imports"]] == [(0, 0)]


def test_a_parquet_export_is_read_where_pyarrow_is(lab: Callable[..., Ran], tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    stated = row() | {"EffectiveCost": 1.006, "ChargePeriodStart": START, "ChargePeriodEnd": START + HOUR, "Tags": None}
    held = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist([stated]), held)
    ran = lab(held.getvalue(), "--json", name="bill.parquet")
    assert lines(tmp_path) == [("aws", "111122223333", "i-0", "compute", 1_006_000_000, "USD")], ran.err
    lab(held.getvalue()[:-40], name="cut.parquet").says("cut.parquet", "Parquet")


def test_a_folder_is_one_bill_and_files_are_several(lab: Callable[..., Ran], costguard: Command, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for name, part in {"a": ROWS[:10], "b": [*ROWS[10:], ROWS[0]]}.items():
        (tmp_path / "parts" / f"{name}.csv").write_text(text(part))
    ran = costguard("reconcile", "--month", "2026-10", "--file", "parts", "--json")
    (one,) = ran.data["imports"]
    assert (one["lines"], one["source"]) == (20, "parts (FOCUS)")
    assert max(nano for *_, nano, _ in lines(tmp_path)) == 2_012_000_000, "an hour that two parts hold is their sum"
    whole = lab(CSV, "--json")
    assert whole.data["imports"][0]["replaced"] == 1


def test_a_cur_counts_what_a_savings_plan_covers_at_what_it_cost(lab: Callable[..., Ran], tmp_path: Path) -> None:
    covered = CUR | {"lineItem/LineItemType": "SavingsPlanCoveredUsage", "savingsPlan/SavingsPlanEffectiveCost": "60"}
    negation = CUR | {"lineItem/LineItemType": "SavingsPlanNegation", "lineItem/UnblendedCost": "-98.32"}
    tax = CUR | {"lineItem/LineItemType": "Tax", "lineItem/UnblendedCost": "9", "lineItem/ResourceId": ""}
    lab(text([covered, negation, tax]), "--json")
    assert [(charge, nano) for _, _, _, charge, nano, _ in lines(tmp_path)] == [
        ("compute", 60 * 10**9),
        ("other", 0),
        ("tax", 9 * 10**9),
    ]


def test_a_bill_delivered_anew_withdraws_what_it_lacks_where_it_is_said_to_be_whole(
    lab: Callable[..., Ran], tmp_path: Path
) -> None:
    """An hour that a savings plan came to cover has another name: beside the old line it would be billed twice."""
    standard, covered = {"PricingCategory": "Standard"}, {"PricingCategory": "Committed", "EffectiveCost": "0.6"}
    lab(text([row() | standard, row(1) | standard]), "--json")
    anew = text([row() | standard, row(1) | covered])
    kept = lab(anew, "--json")
    assert sum(nano for *_, nano, _ in lines(tmp_path)) == 2_612_000_000
    (note,) = kept.data["notes"]
    assert note == (
        "aws: bill.csv (FOCUS) does not contain, of the same bill in the ledger, 1 line, which was kept: "
        "if it is the complete bill, add --whole to remove them"
    )
    ran = lab(anew, "--json", "--whole")
    assert (ran.data["imports"][0]["withdrawn"], ran.data["notes"]) == (1, [])
    assert [nano for *_, nano, _ in lines(tmp_path)] == [1_006_000_000, 600_000_000]
    assert lab(anew, "--json", "--whole").data["imports"][0]["withdrawn"] == 0


def broken(number: int, **more: Any) -> str:  # noqa: ANN401 - any column
    """The bill with one row that is wrong."""
    return text([*ROWS[:number], row(number) | more, *ROWS[number + 1 :]])


def without(column: str) -> str:
    return text([{k: v for k, v in one.items() if k != column} for one in ROWS])


BAD: Mapping[str, tuple[bytes | str, tuple[str, ...]]] = {
    "empty": (b"", ("bill.csv: is empty",)),
    "blank": ("\n\n  \n", ("only blank lines",)),
    "header only": (text([row()]).splitlines()[0] + "\n", ("has a header and no rows",)),
    "no header": ("hello\nworld\n", ("line 1: the header of the table has fewer than two columns, or a name twice",)),
    "another table": ("a,b\n1,2\n", ("is not a bill that can be read: it has a, b", "FOCUS")),
    "no period": (without("ChargePeriodStart"), ("lacks the columns ChargePeriodStart",)),
    "no cost": (
        text([{k: v for k, v in row().items() if "Cost" not in k}]),
        ("lacks the columns EffectiveCost or BilledCost",),
    ),
    "decimal comma": (broken(7, EffectiveCost="1,006"), ("is an amount with a comma", "decimal point")),
    "bare comma": (CSV.replace("1.0060000000", "1,006"), ("line 2: has 15 cells, and the header 13", "quote texts")),
    "no amount": (broken(3, EffectiveCost="lots"), ("line 5: EffectiveCost is not an amount", "lots")),
    "too much": (broken(3, EffectiveCost="1e30"), ("line 5: EffectiveCost is not an amount",)),
    "no instant": (broken(3, ChargePeriodStart="yesterday"), ("line 5: ChargePeriodStart is not a time",)),
    "ends first": (broken(3, ChargePeriodEnd="2020-01-01T00:00:00Z"), ("line 5:", "ends before it starts")),
    "no currency": (broken(3, BillingCurrency="credits"), ("line 5: currency must be",)),
    "a cell more": (CSV + "a,b\n", ("line 22: has 2 cells",)),
    "latin-1": (broken(3, ChargeDescription="gelöscht").encode("latin-1"), ("is not UTF-8", "iconv")),
    "utf-16 without its mark": (CSV.encode("utf-16-le"), ("is not text", "UTF-16")),
    "binary": (bytes(range(256)) * 40, ("is not text",)),
    "a zip": (b"PK\x03\x04" + bytes(60), ("is a zip archive", "unpack")),
    "cut gzip": (gzip.compress(CSV.encode())[:-40], ("is cut short", "download it again")),
    "damaged gzip": (gzip.compress(CSV.encode())[:60] + b"xxxx" + gzip.compress(CSV.encode())[64:], ("bill.csv, after line",)),
    "open quote": (CSV + '"', ("line 22: is not valid CSV",)),
    "endless line": ("a,b\n" + "x" * (LONGEST_LINE + 5), ("line 2: is longer than",)),
    "cut JSON": (json.dumps([row()])[:-9], ("is not JSON", "cut short")),
    "cut lines": (json.dumps(row()) + "\n" + json.dumps(row(1))[:-5], ("line 2: is not JSON",)),
    "numbers": ("[1, 2, 3]", ("is not an object with keys and values: 1",)),
    "nested": ("[" * 100_000, ("is not JSON",)),
    "two lists": (json.dumps({"a": [{"x": 1}], "b": [{"x": 1}]}), ("contains several lists",)),
    "nobody's": (json.dumps(RUNPOD), ("does not name its account of runpod", "--account")),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named_and_nothing_is_taken_in(lab: Callable[..., Ran], tmp_path: Path, name: str) -> None:
    data, said = BAD[name]
    lab(data).says("bill.csv", *said)
    assert lines(tmp_path) == []


@pytest.mark.parametrize("gone", [{}, {"podId": None}])
def test_money_of_a_pod_that_is_not_named_is_refused_and_not_left_out(
    lab: Callable[..., Ran], tmp_path: Path, gone: dict[str, None]
) -> None:
    named = {"startTime": "2026-10-01T00:00:00Z", "endTime": "2026-10-01T01:00:00Z", "podId": "k3v9", "gpuAmount": 0.69}
    nameless = {key: value for key, value in named.items() if key != "podId"} | gone
    lab(json.dumps({"records": [named, nameless]}), "--account", "main").says("item 2: record has amounts", "podId")
    assert lines(tmp_path) == []


def test_one_bad_file_keeps_the_good_one_out(lab: Callable[..., Ran], costguard: Command, tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text(CSV)
    lab(broken(19, EffectiveCost="?"), "--file", "good.csv").says("bill.csv, line 21")
    assert lines(tmp_path) == []
    costguard("reconcile", "--file", "gone.csv").says("gone.csv")


def test_a_bill_is_not_read_into_a_ledger_of_before(costguard: Command, tmp_path: Path) -> None:
    restore(f"sqlite:///{tmp_path}/ledger.db", "0016")
    (tmp_path / "costguard.toml").write_text('[ledger]\nurl = "sqlite:///ledger.db"\n')
    (tmp_path / "bill.csv").write_text(CSV)
    ran = costguard("reconcile", "--month", "2026-10", "--file", "bill.csv")
    assert (ran.code, "costguard db import" in ran.err) == (1, True)


def test_hostile_strings_are_shown_without_any_effect(lab: Callable[..., Ran], tmp_path: Path) -> None:
    some = CORPUS[::4]
    rows = [
        row(number, ResourceId=text_, ChargeDescription=text_, SubAccountId=text_, RegionId=text_)
        for number, text_ in enumerate(one.replace("\0", "") for one in some)
    ]
    data = json.dumps(rows)
    for form in ("", "--csv"):
        ran = lab(data, *filter(None, (form,)), name="bill.json")
        assert ran.code == 3, ran.err[:500]
        assert acts(ran.out + ran.err) == set(), form
    assert len(lines(tmp_path)) > len(some) // 2
    hostile = "=cmd| C calc!A0 \x1b[31m\u202e.csv"
    ran = lab(data, name=hostile)
    assert acts(ran.out + ran.err) == set()


def many(path: Path, count: int) -> None:
    """A bill of `count` rows."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, row())
        writer.writeheader()
        for number in range(count):
            writer.writerow(row(number % 700, ResourceId=f"i-{number // 700}", ChargeDescription="x" * 400))


@pytest.mark.proof
def test_a_large_bill_passes_through_little_memory(tmp_path: Path) -> None:
    """2 MB here; what is held does not grow with the file: twice as many lines take no more."""
    peaks = []
    for count in (1_500, 3_000):
        path = tmp_path / f"{count}.csv"
        many(path, count)
        kinds = list_installed_kinds("", "", lambda _: ())
        tracemalloc.start()
        with StagedStatement() as staged:
            staged.add(open_bill(path, kinds, datetime.now(UTC)).parts)
            assert staged.compute_extent("aws")[0] == count
            for _ in staged.iterate_batches("aws"):
                pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 6 * 2**20
    assert peaks[1] < 1.2 * peaks[0] + 2**20
