"""Bill files as clouds and people leave them: every form of one bill is the same bill, and what is no bill is refused."""

from __future__ import annotations

import gzip
import io
import json
import resource
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from costguard.bills.bill_line import BillLine
from costguard.errors import InputError
from costguard.files.lines import MOST_BLANK
from costguard.files.table import MOST_COLUMNS
from costguard.ledger.bills.staging import StagedStatement
from costguard.ledger.bills.store import BillStore, GatheredStatement
from costguard.services.poll.bill_files import BillFileKinds, list_installed_kinds, open_bill
from costguard.values.instant import parse_instant, to_micros
from tests.cli.test_reconcile_files import CSV, CUR, HOUR, INVOICES, ROWS, RUNPOD, START, VAST, row, text
from tests.ledger.fleet import asked

NOW = datetime(2026, 11, 22, tzinfo=UTC)
Bill = Mapping[str, bytes | str] | bytes | str
"""The contents of a file, or of the files of a folder by their names."""


@pytest.fixture
def kinds() -> BillFileKinds:
    return list_installed_kinds("", "main", lambda _: ())


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., dict[BillLine, Decimal]]:
    """The lines of a bill, with their amounts."""

    def lines(bill: Bill, kinds: BillFileKinds) -> dict[BillLine, Decimal]:
        folder = tmp_path / "bill"
        folder.mkdir(exist_ok=True)
        parts = bill if isinstance(bill, Mapping) else {"one.csv": bill}
        for name, data in parts.items():
            (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
        found = dict[BillLine, Decimal]()
        for line, amount in open_bill(folder, kinds, NOW).parts:
            found[line] = found.get(line, Decimal(0)) + amount
        return found

    return lines


def parquet(rows: Sequence[Mapping[str, Any]], **types: Any) -> bytes:  # noqa: ANN401 - of pyarrow
    """`rows` as Parquet; `types`: of columns that have another one than pyarrow sees in them."""
    arrow, written = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    held = io.BytesIO()
    columns = {name: arrow.array([one[name] for one in rows], types.get(name)) for name in rows[0]}
    written.write_table(arrow.table(columns), held)
    return held.getvalue()


def ids(lines: Mapping[BillLine, Decimal]) -> set[tuple[str, Decimal]]:
    return {(line.id, amount) for line, amount in lines.items()}


PERIOD = ("ChargePeriodStart", "ChargePeriodEnd")
FORMS: Mapping[str, Callable[[datetime], str]] = {
    "AWS": lambda at: f"{at:%Y-%m-%dT%H:%M:%S.000Z}",
    "Azure": lambda at: f"{at:%Y-%m-%dT%H:%MZ}",
    "BigQuery": lambda at: f"{at:%Y-%m-%d %H:%M:%S UTC}",
    "an offset": lambda at: f"{at - timedelta(hours=8):%Y-%m-%dT%H:%M:%S-08:00}",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_line_has_one_name_however_its_times_are_written(
    read: Callable[..., dict[BillLine, Decimal]], kinds: BillFileKinds, form: str
) -> None:
    """An export that is taken in twice, once as CSV and once as Parquet or of another tool, would be counted twice."""
    written = [one | {name: FORMS[form](datetime.fromisoformat(one[name])) for name in PERIOD} for one in ROWS]
    assert ids(read(text(written), kinds)) == ids(read(CSV, kinds))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York", "Mars/Base"])
def test_parquet_of_any_unit_and_zone_is_the_same_bill(
    read: Callable[..., dict[BillLine, Decimal]], kinds: BillFileKinds, unit: str, zone: str | None
) -> None:
    arrow = pytest.importorskip("pyarrow")
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    odd = 1 if unit == "ns" else 0
    rows = [one | {name: int(datetime.fromisoformat(one[name]).timestamp()) * per + odd for name in PERIOD} for one in ROWS]
    data = parquet(rows, **dict.fromkeys(PERIOD, arrow.timestamp(unit, tz=zone)))
    assert ids(read({"one.parquet": data}, kinds)) == ids(read({"one.parquet": CSV}, kinds))


def test_a_cur_as_parquet_is_the_cur_as_csv(read: Callable[..., dict[BillLine, Decimal]], kinds: BillFileKinds) -> None:
    typed = {name: datetime.fromisoformat(v) if "Date" in name else v for name, v in CUR.items()}
    assert ids(read({"one.parquet": parquet([typed])}, kinds)) == ids(read({"one.parquet": text([CUR])}, kinds))


def test_parquet_that_python_cannot_hold_is_refused(read: Callable[..., dict[BillLine, Decimal]], kinds: BillFileKinds) -> None:
    arrow = pytest.importorskip("pyarrow")
    for name, value, kind in (
        ("ChargePeriodStart", 2**62, arrow.timestamp("us", tz="UTC")),
        ("ChargePeriodStart", 2**62, arrow.timestamp("ms")),
        ("ChargeDescription", b"a\xffb", arrow.binary()),
    ):
        data = parquet([row() | {name: value}], **{name: kind})
        with pytest.raises(InputError, match=r"one\.parquet, after row 0: cannot be read as Parquet"):
            read({"one.parquet": data}, kinds)


@pytest.mark.parametrize(
    "number", ["1e999999999", "1E-400000", "-1e99999999999999999999", "1e-99999999999999999999", "1" * 4000]
)
def test_an_amount_of_a_huge_exponent_is_refused_with_its_place(
    read: Callable[..., dict[BillLine, Decimal]], kinds: BillFileKinds, number: str
) -> None:
    record = json.dumps([row(EffectiveCost="@")]).replace('"@"', number)
    with pytest.raises(InputError, match=r"one\.json, line 1, item 1: EffectiveCost is not an amount of money"):
        read({"one.json": record}, kinds)
    with pytest.raises(InputError, match=r"one\.csv, line 3: EffectiveCost is not an amount of money"):
        read({"one.csv": text([row(EffectiveCost="0E-999999"), row(EffectiveCost=number)])}, kinds)
    assert parse_instant(Decimal("1e999999999")) is None


def write_pages(column: object) -> bytes:
    """A file of one column, as small as Parquet makes it, whatever it unpacks to."""
    arrow, written, held = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet"), io.BytesIO()
    table = arrow.table({"a": column, "b": arrow.array(range(len(column)))})  # type: ignore[arg-type]  # of pyarrow
    written.write_table(table, held, compression="zstd", dictionary_pagesize_limit=2**30, write_statistics=False)
    return held.getvalue()


def test_parquet_that_unpacks_to_gigabytes_is_refused_in_little_memory(
    read: Callable[..., dict[BillLine, Decimal]], kinds: BillFileKinds
) -> None:
    """10 cells of 100 MB; 1 cell that 20,000 rows refer to; the same in a list. As little as 31 KB."""
    arrow = pytest.importorskip("pyarrow")
    one = arrow.DictionaryArray.from_arrays(arrow.array([0] * 20_000, arrow.int32()), ["x" * 1_000_000])
    listed = arrow.ListArray.from_arrays(arrow.array(range(20_001), arrow.int32()), one)
    for column in (arrow.array(["x" * 100_000_000] * 10), one, listed):
        data, before = write_pages(column), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert len(data) < 300_000
        with pytest.raises(InputError, match=r"one\.parquet.*: cannot be read as Parquet: .* (MiB|within lists)"):
            read({"one.parquet": data}, kinds)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_the_last_bucket_grows_and_is_replaced_not_joined(
    read: Callable[..., dict[BillLine, Decimal]], kinds: BillFileKinds
) -> None:
    """A month that is not closed: at noon the newest row ends at noon, in the evening it reaches until then and costs more."""
    noon = read(text([row(ChargePeriodEnd="2026-10-01T00:20:00Z", EffectiveCost="0.3")]), kinds)
    evening = read(text([row()]), kinds)
    assert {line.id for line in noon} == {line.id for line in evening}
    with StagedStatement() as staged:
        staged.add([*noon.items(), *evening.items()])
        ((one,),) = staged.iterate_batches("aws")
    assert (one["end_us"], one["nano"]) == (to_micros(START + HOUR), 1_306_000_000), (
        "two parts of one line in one file are their sum"
    )


def grown(name: str, hours: int) -> Bill:
    """What a charge that began at START has come to after `hours`, in each way in which a bill says it."""
    end, at = START + hours * HOUR, to_micros(START) // 10**6
    if name == "CUR":
        stated = {"lineItem/UsageEndDate": end.isoformat(), "lineItem/UnblendedCost": str(hours)}
        return text([CUR | stated])
    if name == "FOCUS":
        return text([row(ChargePeriodEnd=end.isoformat(), EffectiveCost=str(hours), BillingPeriodEnd="2026-11-01T00:00:00Z")])
    items = [
        {"type": kind, "amount": hours, "start": at, "end": at + hours * 3600} for kind in ("gpu", "disk")[:: hours % 2 or -1]
    ]
    charge = {"source": "instance-7", "type": "instance", "amount": 2 * hours, "start": at, "end": at + hours * 3600}
    return {"one.json": json.dumps({"success": True, "results": [charge | {"items": items}]})}


@pytest.mark.parametrize("name", ["CUR", "FOCUS", "Vast"])
def test_a_bucket_that_grows_over_three_imports_is_one_line(
    read: Callable[..., dict[BillLine, Decimal]], kinds: BillFileKinds, tmp_path: Path, name: str
) -> None:
    """It has one name however far it reaches, and however its parts are ordered: else each delivery is billed once more."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    for day, hours in enumerate((30, 51, 72)):
        bill = grown(name, hours)
        with StagedStatement() as staged, BillStore(url) as bills:
            staged.add(read(bill, kinds).items(), sums=name != "Vast")
            made = START + (10 + day) * 24 * HOUR
            (done,) = bills.import_statements(
                [GatheredStatement(staged=staged, source="x", stated_at=made)], who="ada", now=NOW
            )
        lines = 2 if name == "Vast" else 1
        assert (done.added, done.replaced) == ((0, lines) if day else (lines, 0))
    sql = "SELECT charge, end_us, nano FROM bill_line WHERE replaced_us IS NULL ORDER BY charge"
    kept = asked(url, lambda ask: [tuple(one) for one in ask(sql, ())])
    whole = (to_micros(START + 72 * HOUR), 72 * 10**9)
    assert kept == ([("compute", *whole), ("storage", *whole)] if name == "Vast" else [("compute", *whole)])


def test_a_correction_in_a_later_bill_is_a_line_beside_the_one_that_it_corrects(
    read: Callable[..., dict[BillLine, Decimal]], kinds: BillFileKinds
) -> None:
    for one, later in (
        (row(), {"BillingPeriodEnd": "2026-12-01T00:00:00Z", "EffectiveCost": "-0.1"}),
        (CUR, {"bill/BillingPeriodEndDate": "2026-12-01T00:00:00Z", "lineItem/UnblendedCost": "-0.1"}),
    ):
        assert len({line.id for line in read(text([one, one | later]), kinds)}) == 2


WRONG: Mapping[str, tuple[Bill, str]] = {
    "two files in one": (CSV + CSV, "one.csv, line 22: repeats the header"),
    "a total at the end": (CSV + "Total" + "," * (len(row()) - 1) + "\n", "one.csv, line 22: names no provider"),
    "nobody's rows": (text([row(ProviderName="")]), "line 2: names no provider"),
    "of others alone": (
        text([row(ProviderName="Oracle")]),
        "has no row of an installed provider: its rows are of Oracle",
    ),
    "FOCUS, then a CUR": ({"a.csv": CSV, "b.csv": text([CUR])}, "b.csv, line 2: lacks the columns ChargePeriodStart, Ch"),
    "a CUR, then FOCUS": ({"a.csv": text([CUR]), "b.csv": CSV}, "b.csv, line 2: is of another format"),
    "Vast, then RunPod": (
        {"a.json": json.dumps(VAST), "b.json": json.dumps(RUNPOD)},
        "b.json, line 1, item 1: is of another format",
    ),
    "a record without its time": (
        json.dumps([INVOICES[0], {"type": "charge", "amount": "1"}]),
        "line 1, item 2: is of another format",
    ),
    "a document of several lines": (json.dumps([VAST, {}], indent=1), "one.csv, item 2: is of another format"),
    "columns without end": (",".join(f"c{n}" for n in range(MOST_COLUMNS + 1)), f"more than {MOST_COLUMNS}"),
    "a row without end": ('"' + ("x" * 900_000 + '","\n') * 20, "is in a row, or among blank lines, of more than 16 million"),
    "blanks without end": (gzip.compress(b"\n" * 2**20), f"begins with {MOST_BLANK + 1} blank lines"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_bill_is_refused_where_it_stands(
    read: Callable[..., dict[BillLine, Decimal]], kinds: BillFileKinds, name: str
) -> None:
    bill, said = WRONG[name]
    with pytest.raises(InputError) as refused:
        read(bill, kinds)
    assert said in f"{refused.value.field}: {refused.value.what}"


def test_a_provider_that_is_named_takes_its_rows_and_nobodys_and_no_others(
    read: Callable[..., dict[BillLine, Decimal]],
) -> None:
    only = list_installed_kinds("aws", "", lambda _: ())
    rows = [row(), row(1, ProviderName=""), row(2, ProviderName="A reseller"), row(3, ProviderName="Google Cloud")]
    assert {(line.provider, line.start) for line in read(text(rows), only)} == {("aws", START + n * HOUR) for n in range(3)}
    assert only.left_out == Counter({"Google Cloud": 1})


def test_an_account_that_the_ledger_does_not_know_beside_others_is_a_slip(read: Callable[..., dict[BillLine, Decimal]]) -> None:
    slip = list_installed_kinds("", "mian", lambda _: ("main", "lab"))
    with pytest.raises(InputError, match="'mian' is not an account of runpod in the ledger") as refused:
        read(json.dumps(RUNPOD), slip)
    assert "did you mean main?" in str(refused.value)
    first = {line.account for line in read(json.dumps(RUNPOD), list_installed_kinds("", "mian", lambda _: ()))}
    assert first == {"mian"}
