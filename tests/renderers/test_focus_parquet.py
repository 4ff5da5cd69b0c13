"""FOCUS as Parquet: the same cells as the CSV, with types, in groups of rows."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from costguard.errors import CostguardError
from costguard.files.table import read_parquet_table
from costguard.renderers import focus_parquet
from costguard.views.document import Document
from tests.cells import format_cell
from tests.charges import charges, item
from tests.renderers.test_focus import ITEMS, rows

parquet = pytest.importorskip("pyarrow.parquet", reason="pip install '.[parquet]' brings pyarrow")


def written(folder: Path, *items: object) -> Path:
    path = folder / "export.parquet"
    path.write_bytes(b"".join(focus_parquet.render(Document(data={}, items=charges(items)))))  # type: ignore[arg-type]  # charge items
    return path


def test_parquet_holds_the_cells_of_the_csv(tmp_path: Path) -> None:
    with written(tmp_path, *ITEMS).open("rb") as raw:
        packed = read_parquet_table("export.parquet", raw)
        found = [dict(zip(packed.header, map(format_cell, cells), strict=True)) for _, cells in packed.rows]
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
    with pytest.raises(CostguardError, match=r"\.\[parquet\]"):
        focus_parquet.render(Document(data={}, items=charges(ITEMS)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([("a", "b"), ("c", None)], '{"a": "b", "c": null}'),
        ([{"key": "a", "value": "b"}], '[{"key": "a", "value": "b"}]'),
        ([1, 2], "[1, 2]"),
        (["ab"], '["ab"]'),
        ({"at": datetime(2026, 11, 2, tzinfo=UTC), "cost": Decimal("1.50")}, '{"at": "2026-11-02T00:00:00Z", "cost": "1.5"}'),
    ],
)
def test_a_nested_cell_of_anybodys_file_is_json(value: object, text: str) -> None:
    """A map is an object; a list is none, whatever it holds."""
    assert format_cell(value) == text
