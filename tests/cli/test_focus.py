"""`costguard focus check`: what a person or a script gets of a file, sound or not."""

from __future__ import annotations

import csv
import gzip
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from costguard.renderers import focus
from costguard.reporting.focus.columns import VERSIONS
from costguard.services import ledger_answers
from costguard.testing import demo
from costguard.views.document import Document
from tests.charges import charges
from tests.conftest import Command
from tests.renderers.test_focus import ITEMS

GOLDEN = Path(__file__).parent.parent / "golden" / "focus_check.json"


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "export.csv"
    path.write_text("".join(focus.render(Document(data={}, items=charges(ITEMS)))))
    return path


def test_a_sound_file_has_no_finding(costguard: Command, export: Path) -> None:
    ran = costguard("focus", "check", str(export))
    assert (ran.code, "no finding" in ran.out) == (0, True), ran


def test_findings_end_with_three_and_the_json_is_the_sample(
    costguard: Command, export: Path, request: pytest.FixtureRequest
) -> None:
    export.write_text(
        export.read_text().replace("295.44,123456789012", "$295.44,123456789012", 1).replace(",Hours,", ",hours,", 1)
    )
    ran = costguard("focus", "check", "export.csv", "--json")
    assert ran.code == 3, ran.err
    assert "findings" in ran.err
    if request.config.getoption("--write-golden"):
        GOLDEN.write_text(ran.out)
    assert ran.out == GOLDEN.read_text()


def test_warnings_and_rounding_are_shown_and_do_not_fail_a_file(costguard: Command, export: Path) -> None:
    text = export.read_text().replace(",Hours,", ",hours,", 1).replace("295.44,98.48", "295.4400000001,98.48", 1)
    export.write_text(text)
    ran = costguard("focus", "check", "export.csv", "--json")
    assert (ran.code, ran.data["conforms"]) == (0, True), ran.data
    assert ran.data["counts"] == {"error": 0, "warning": 1, "rounding": 1}
    assert {(one["grade"], one["rule"], one["count"]) for one in ran.data["findings"]} == {
        ("warning", "format", 1),
        ("rounding", "rounded", 1),
    }
    assert [one["largest_difference"] for one in ran.data["findings"] if one["grade"] == "rounding"] == ["0.0000000001"]
    assert "1 warning, 1 rounded value." in costguard("focus", "check", "export.csv").out


def test_errors_only_shows_errors_and_counts_the_others(costguard: Command, export: Path) -> None:
    text = export.read_text().replace(",Hours,", ",hours,", 1)
    export.write_text(text)
    ran = costguard("focus", "check", "export.csv", "--errors-only", "--json")
    assert (ran.code, ran.data["findings"], ran.data["counts"]["warning"]) == (0, [], 1)
    export.write_text(text.replace("295.44,123456789012", "$295.44,123456789012", 1))
    ran = costguard("focus", "check", "export.csv", "--errors-only", "--json")
    assert (ran.code, [one["grade"] for one in ran.data["findings"]]) == (3, ["error"])
    assert "1 error among 2 findings" in ran.err


def test_an_instant_of_parquet_has_no_text_form_that_could_be_wrong(costguard: Command, export: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pip install 'gpu-costguard[parquet]' brings pyarrow")
    from pyarrow import parquet

    rows = list(csv.DictReader(export.read_text().splitlines()))
    times = [name for name in rows[0] if name.endswith(("PeriodStart", "PeriodEnd"))]
    read = [
        {
            name: (datetime.fromisoformat(text).replace(tzinfo=None) if name in times else text or None)
            for name, text in row.items()
        }
        for row in rows
    ]
    parquet.write_table(pa.Table.from_pylist(read), export.parent / "export.parquet")
    ran = costguard("focus", "check", "export.parquet", "--json")
    assert (ran.code, ran.data["findings"]) == (0, [])


def test_a_file_may_be_packed_and_may_begin_with_a_mark(costguard: Command, export: Path) -> None:
    (export.parent / "packed.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + export.read_bytes()))
    assert costguard("focus", "check", "packed.csv.gz").code == 0


def test_a_file_is_held_against_the_version_that_is_stated(costguard: Command, export: Path) -> None:
    ran = costguard("focus", "check", export.name, "--focus-version", "1.2", "--json")
    assert ran.code == 3
    assert {"ProviderName", "ServiceProviderName"} <= {finding["column"] for finding in ran.data["findings"]}
    costguard("focus", "check", "export.csv", "--focus-version", "2").says("unknown version '2'")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("is empty",)),
        (b"BilledCost\n\xff\xfe1\n", ("is not UTF-8", "after line 0", "0xff")),
        (b'BilledCost\n"1\n', ("export.csv, line 2: is not valid CSV",)),
        (b"BilledCost\n" + b"1" * 2_000_000, ("is not valid CSV", "field larger")),
        (b"\x1f\x8b\x08\x00broken", ("is cut short",)),
        (b"BilledCost;ListCost\n1;2\n", ("has one column only", "CSV with commas")),
        (b"hello\n", ("is no FOCUS file", "hello")),
        (b"lineItem/UsageAmount,lineItem/UnblendedCost\n1,2\n", ("is no FOCUS file", "Cost and Usage Report")),
        (b"PK\x03\x04 a zip\n", ("is a zip archive", "unpack it")),
        (b'{"BilledCost": 1,\n "ListCost": 2}', ("is JSON", "CSV or Parquet")),
        (b"BilledCost,ListCost\n".ljust(9000, b"1") + b"\xff", ("is not UTF-8", "after line 1", "0xff", "iconv")),
        ("BilledCost,ListCost\n1,1\n".encode("utf-16-le"), ("is not a text", "UTF-16")),
        (gzip.compress(b"BilledCost\n" + b"1\n" * 10000, mtime=0)[:-20], ("is cut short", "after line")),
        (b"PAR1 and no more", ("Parquet",)),
    ],
)
def test_a_file_that_cannot_be_read_says_why(costguard: Command, export: Path, content: bytes, words: tuple[str, ...]) -> None:
    export.write_bytes(content)
    costguard("focus", "check", "export.csv").says("export.csv", *words)


def test_no_file_and_a_folder_are_named(costguard: Command, export: Path) -> None:
    costguard("focus", "check", "nothing.csv").says("there is no such file")
    costguard("focus", "check", str(export.parent)).says("is a folder")
    costguard("focus", "chek", "export.csv").says("ACTION", "check")


def test_a_simulated_fleet_is_exported_without_a_finding_in_every_version_and_to_the_nano(
    costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    demo.play_world(url, seed=41, end=datetime(2026, 11, 3, tzinfo=UTC), days=4, size=10)
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", url)
    monkeypatch.setattr(ledger_answers, "_get_now", lambda: datetime(2026, 11, 3, tzinfo=UTC))
    for month in ("2026-10", "2026-11"):
        expected = costguard("report", "--month", month, "--json").data["totals"]["expected"]
        for version in VERSIONS:
            flags = ("--format", "focus", "--focus-version", version, "--output", str(tmp_path / "f.csv"), "--force")
            assert costguard("report", "--month", month, *flags).code == 0
            assert costguard("focus", "check", str(tmp_path / "f.csv"), "--json").data["findings"] == []
            with (tmp_path / "f.csv").open() as file:
                rows = list(csv.DictReader(file))
            assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal(expected) > 0
            assert {row["BillingPeriodStart"] for row in rows} == {f"{month}-01T00:00:00Z"}
        loader = pytest.importorskip("beancount.loader", reason="pip install 'gpu-costguard[dev]' brings beancount")
        entries, errors, _ = loader.load_string(costguard("report", "--month", month, "--format", "beancount").out)
        postings = [posting for entry in entries for posting in getattr(entry, "postings", ())]
        booked = sum(posting.units.number for posting in postings if posting.account.startswith("Expenses"))
        assert (errors, booked) == ([], Decimal(expected))


def test_an_export_held_against_the_ledger_that_it_came_from_drifts_by_nothing(
    costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    demo.play_world(url, seed=41, end=datetime(2026, 11, 3, tzinfo=UTC), days=4, size=10)
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", url)
    own = str(tmp_path / "own.csv")
    assert costguard("report", "--month", "2026-10", "--zone", "UTC", "--format", "focus", "--output", own).code == 0
    ran = costguard("reconcile", "--month", "2026-10", "--file", own, "--json")
    assert ran.code == 0, ran
    held = {one["provider"]: (one["outcome"], Decimal(one["unexplained"])) for one in ran.data["accounts"]}
    assert len(held) > 2, "each cloud is held by itself, also those that one plug-in speaks for"
    assert set(held.values()) == {("within", Decimal(0))}
    assert {part["cause"] for one in ran.data["accounts"] for part in one["causes"]} <= {"late", "doubt"}
