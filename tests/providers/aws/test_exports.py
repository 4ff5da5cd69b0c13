from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from costguard_aws import exports
from costguard_aws.exports import FocusExport
from costguard_aws.session import Session

from costguard.core.period import Period
from costguard.errors import InputError, ProviderError
from tests.core.test_focus_rows import ROW
from tests.fakes.server import Hands
from tests.providers.aws.services import Services

DAY = Period(start=datetime(2026, 11, 20, tzinfo=UTC), end=datetime(2026, 11, 21, tzinfo=UTC))
CLOCK = Hands()


def text(*ids: str) -> bytes:
    """An export as AWS writes it: tags are JSON in a cell."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(ROW))
    writer.writeheader()
    for one in ids:
        writer.writerow({**ROW, "ResourceId": one, "Tags": json.dumps({"team": "vision"})})
    return out.getvalue().encode()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[tuple[Session, Services]]:
    services = Services()
    with services.session(tmp_path) as made:
        yield made, services


def test_a_folder_is_read_whole_packed_and_plain(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.csv").write_bytes(text("i-1", "i-2"))
    (tmp_path / "deep" / "b.csv.gz").write_bytes(gzip.compress(text("i-3")))
    (tmp_path / "manifest.json").write_text("{}")
    billed = FocusExport(str(tmp_path), CLOCK).bill_lines(DAY)
    assert sorted(line.resource_id for line in billed.lines) == ["i-1", "i-2", "i-3"]
    assert {line.tags for line in billed.lines} == {(("team", "vision"),)}
    assert billed.why == ""


def test_a_pattern_chooses_files_and_a_byte_order_mark_is_no_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + text("i-1"))
    (tmp_path / "b.csv").write_bytes(text("i-2"))
    assert [line.resource_id for line in FocusExport(str(tmp_path / "a*.csv"), CLOCK).bill_lines(DAY).lines] == ["i-1"]


def test_no_file_is_an_error_and_no_empty_bill(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no FOCUS export"):
        FocusExport(str(tmp_path), CLOCK).bill_lines(DAY)


@pytest.mark.parametrize("broken", [b"\xff\xfe\x00\x01", gzip.compress(text("i-1"), mtime=0)[:-20], b"no gzip"])
def test_a_broken_file_is_named_and_the_others_are_read(tmp_path: Path, broken: bytes) -> None:
    (tmp_path / "a.csv.gz").write_bytes(broken)
    (tmp_path / "b.csv").write_bytes(text("i-2"))
    billed = FocusExport(str(tmp_path), CLOCK).bill_lines(DAY)
    assert [line.resource_id for line in billed.lines if line.resource_id == "i-2"] == ["i-2"]
    assert "a.csv.gz could not be read to its end" in billed.why


def test_a_small_file_that_unpacks_to_a_huge_one_is_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "MOST_BYTES", 10_000)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text(*["i-1"] * 1000)))
    assert "could not be read to its end" in FocusExport(str(tmp_path), CLOCK).bill_lines(DAY).why


def test_parquet_without_pyarrow_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    assert "needs pyarrow" in FocusExport(str(tmp_path), CLOCK).bill_lines(DAY).why


def test_a_bucket_is_read_by_pages(session: tuple[Session, Services]) -> None:
    made, services = session
    for n in range(3):
        services.s3.objects["bills", f"focus/data/{n}.csv.gz"] = gzip.compress(text(f"i-{n}"))
    services.s3.objects["bills", "focus/manifest.json"] = b"{}"
    services.s3.objects["bills", "other/9.csv"] = text("i-9")
    services.s3.page = 2
    billed = FocusExport("s3://bills/focus/", CLOCK, made).bill_lines(DAY)
    assert sorted(line.resource_id for line in billed.lines) == ["i-0", "i-1", "i-2"]
    assert billed.why == ""


def test_an_object_that_cannot_be_had_is_named(session: tuple[Session, Services], monkeypatch: pytest.MonkeyPatch) -> None:
    made, services = session
    services.s3.objects = {("bills", "a.csv"): text("i-1"), ("bills", "b.csv"): text("i-2")}
    services.fault("GET /bills/a.csv", "status", status=404)
    billed = FocusExport("s3://bills/", CLOCK, made).bill_lines(DAY)
    assert [line.resource_id for line in billed.lines] == ["i-2"]
    assert "a.csv could not be read" in billed.why
    monkeypatch.setattr(exports, "MOST_OBJECT", 100)
    assert "copy it with `aws s3 sync` first" in FocusExport("s3://bills/", CLOCK, made).bill_lines(DAY).why


def test_a_bucket_that_cannot_be_listed_is_an_error(session: tuple[Session, Services]) -> None:
    made, services = session
    services.fault("GET", "status", status=403, body=b"<Error><Code>AccessDenied</Code></Error>")
    with pytest.raises(ProviderError, match="AccessDenied"):
        FocusExport("s3://bills/", CLOCK, made).bill_lines(DAY)
