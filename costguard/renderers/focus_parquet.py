"""`--format focus --output FILE.parquet`: the same FOCUS export with typed columns (decimals, instants).

It needs pyarrow, which the extra `parquet` installs. Rows are written in groups to limit memory.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import islice
from typing import Any

from costguard.errors import CostguardError
from costguard.renderers.focus import format_json_object
from costguard.reporting.focus.columns import DECIMAL_KIND, NEWEST_VERSION, TIME_KIND, get_columns
from costguard.reporting.focus.rows import CUSTOM_COLUMNS, RowValue, build_rows, list_header
from costguard.views.document import Document

NEEDS = "items"
OPTIONS = ("focus_version",)

GROUP = 10_000
"""Rows of a group: some 60 MB in memory."""
DIGITS, PLACES = 38, 21
"""A price has nine decimals and a quantity twelve, so their product has 21; 128 bits hold 38 digits."""


def render(document: Document, *, focus_version: str | None = None) -> Iterator[bytes]:
    """Yield the file in pieces; raise CostguardError if pyarrow is not installed."""
    version = focus_version or NEWEST_VERSION
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        hint = "in a clone of costguard: pip install '.[parquet]', or name a file that ends in .csv"
        raise CostguardError("Parquet needs pyarrow, which is not installed", field="--output", hint=hint) from None
    schema = pa.schema([(name, _choose_type(pa, name, version)) for name in list_header(version)])
    return _write_pieces(pa, pq, schema, build_rows(document.items))


class _PieceBuffer(io.RawIOBase):
    """A buffer whose written content is removed piece by piece; a Parquet file is written sequentially."""

    def __init__(self) -> None:
        super().__init__()
        self._held, self._written = list[bytes](), 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the bytes written so far, including those removed."""
        return self._written

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        """Keep `data` until `taken` removes it; return its length in bytes."""
        self._held.append(bytes(data))
        self._written += len(self._held[-1])
        return len(self._held[-1])

    def taken(self) -> bytes:
        """Return and remove all data written since the last call."""
        data, self._held = b"".join(self._held), []
        return data


def _write_pieces(pa: Any, pq: Any, schema: Any, rows: Iterator[dict[str, RowValue]]) -> Iterator[bytes]:  # noqa: ANN401 - no types
    out = _PieceBuffer()
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        while any((packed := _build_columns(schema.names, islice(rows, GROUP))).values()):
            writer.write_table(pa.table(packed, schema=schema))
            yield out.taken()
    yield out.taken()


def _build_columns(names: list[str], rows: Iterator[dict[str, RowValue]]) -> dict[str, list[object]]:
    """Return `rows` by column."""
    columns: dict[str, list[object]] = {name: [] for name in names}
    for each in rows:
        for name, column in columns.items():
            column.append(_convert_cell(each[name]))
    return columns


def _choose_type(pa: Any, name: str, version: str) -> Any:  # noqa: ANN401 - same
    column = get_columns(version).get(name)
    if column and column.kind == TIME_KIND:
        return pa.timestamp("us", tz="UTC")
    if (column and column.kind == DECIMAL_KIND) or CUSTOM_COLUMNS.get(name) is Decimal:
        return pa.decimal128(DIGITS, PLACES)
    return pa.bool_() if CUSTOM_COLUMNS.get(name) is bool else pa.string()


def _convert_cell(value: RowValue) -> object:
    return format_json_object(value) if isinstance(value, Mapping) else value
