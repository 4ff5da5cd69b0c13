"""Where AWS's exports stand: in a folder, by a pattern, in a bucket. How they are read, `test_focus_exports` tries."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from costguard_aws import cost_exports
from costguard_aws.cost_exports import FocusExport
from costguard_aws.session import AwsSession

from costguard.errors import InputError, ProviderError
from costguard.values.calendar import Period
from tests.bills.test_focus_rows import ROW
from tests.contract.rig import BILLS
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


def ids(where: object, session: AwsSession | None = None) -> list[str]:
    """Of the resources that have lines there."""
    return sorted(line.resource_id for line in FocusExport(str(where), BILLS, CLOCK, session).fetch_bill_lines(DAY).lines)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[tuple[AwsSession, Services]]:
    services = Services()
    with services.session(tmp_path) as made:
        yield made, services


def test_a_folder_is_read_whole_packed_and_plain_and_without_its_manifests(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.csv").write_bytes(text("i-1", "i-2"))
    (tmp_path / "deep" / "b.csv.gz").write_bytes(gzip.compress(text("i-3")))
    (tmp_path / "lab-Manifest.json").write_text('{"dataFiles": ["s3://bills/a.csv"]}')
    assert ids(tmp_path) == ["i-1", "i-2", "i-3"]


def test_a_pattern_chooses_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + text("i-1"))
    (tmp_path / "b.csv").write_bytes(text("i-2"))
    assert ids(tmp_path / "a*.csv") == ["i-1"]
    assert ids(tmp_path / "**" / "b.csv") == ["i-2"]
    (tmp_path / "c[1].csv").write_bytes(text("i-3"))
    assert ids(tmp_path / "c[1].csv") == ["i-3"], "a name that is there is no pattern"


def test_no_file_is_an_error_and_no_empty_bill(tmp_path: Path) -> None:
    for where in (tmp_path, tmp_path / "*.csv", tmp_path / "gone.csv"):
        with pytest.raises(InputError):
            ids(where)


def test_one_broken_file_keeps_all_of_the_bill_out(tmp_path: Path) -> None:
    """What the others state of a line that the broken one has a part in is too little, and would replace what was whole."""
    (tmp_path / "a.csv").write_bytes(text("i-1"))
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(text("i-1"))[:-20])
    with pytest.raises(InputError, match=r"b\.csv\.gz, after line .*: is cut short"):
        ids(tmp_path)


def test_a_bucket_is_read_by_pages(session: tuple[AwsSession, Services]) -> None:
    made, services = session
    for n in range(3):
        services.s3.objects["bills", f"focus/data/{n}.csv.gz"] = gzip.compress(text(f"i-{n}"))
    services.s3.objects["bills", "focus/manifest.json"] = b"{}"
    services.s3.objects["bills", "other/9.csv"] = text("i-9")
    services.s3.page = 2
    assert ids("s3://bills/focus/", made) == ["i-0", "i-1", "i-2"]
    with pytest.raises(InputError, match="has no export file"):
        ids("s3://bills/nothing/", made)


def test_an_object_that_cannot_be_had_keeps_all_of_the_bill_out(
    session: tuple[AwsSession, Services], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, services = session
    services.s3.objects = {("bills", "a.csv"): text("i-1"), ("bills", "b.csv"): text("i-2")}
    services.fault("GET /bills/b.csv", "status", status=404)
    with pytest.raises(ProviderError):
        ids("s3://bills/", made)
    monkeypatch.setattr(cost_exports, "MOST_OBJECT", 100)
    with pytest.raises(InputError, match=r"s3://bills/a\.csv: has .* too many") as refused:
        ids("s3://bills/", made)
    assert "aws s3 sync" in str(refused.value)


def test_a_bucket_that_cannot_be_listed_is_an_error(session: tuple[AwsSession, Services]) -> None:
    made, services = session
    services.fault("GET", "status", status=403, body=b"<Error><Code>AccessDenied</Code></Error>")
    with pytest.raises(ProviderError, match="AccessDenied"):
        ids("s3://bills/", made)
