"""FOCUS as Parquet: the same cells as the CSV, with types, in groups of rows."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from costguard.core.document import Document
from costguard.errors import CostguardError
from costguard.reports import focus_parquet
from costguard.settings.focus_files import opened
from tests.charges import item
from tests.reports.test_focus import ITEMS, rows

parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'gpu-costguard[parquet]' brings pyarrow")


def written(folder: Path, *items: object) -> Path:
    path = folder / "export.parquet"
    path.write_bytes(b"".join(focus_parquet.render(Document(data={}, items=items))))  # type: ignore[arg-type]  # charge items
    return path


def test_parquet_holds_the_cells_of_the_csv(tmp_path: Path) -> None:
    with opened(written(tmp_path, *ITEMS)) as (header, lines):
        found = [dict(zip(header, cells, strict=True)) for _, cells in lines]
    expected = [{**row, "ResourceName": row["ResourceName"].removeprefix("'")} for row in rows(*ITEMS)]
    assert found == expected


def test_decimals_stay_decimals_and_instants_stay_instants(tmp_path: Path) -> None:
    table = parquet.read_table(written(tmp_path, *ITEMS))
    assert table["BilledCost"][0].as_py() == Decimal("295.44")
    assert table["ChargePeriodStart"][0].as_py() == datetime(2026, 11, 2, tzinfo=UTC)
    assert (table["x_PriceKnown"][0].as_py(), table["ChargeClass"][0].as_py()) == (True, None)


def test_rows_come_in_groups_that_are_written_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(focus_parquet, "GROUP", 10)
    path = written(tmp_path, *(item() for _ in range(25)))
    assert parquet.ParquetFile(path).metadata.num_row_groups == 3
    assert parquet.read_table(path).num_rows == 25


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CostguardError, match=r"gpu-costguard\[parquet\]"):
        focus_parquet.render(Document(data={}, items=ITEMS))
