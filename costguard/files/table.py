"""Reads a CSV or Parquet file as a header and rows, without loading the whole file, and converts cells to text.

Cells have the text form that FOCUS uses in CSV. The module also parses JSON within a cell.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import IO, Any

from costguard.errors import CostguardError, InputError, shorten, to_one_line
from costguard.files.lines import LineReader

LONGEST_CELL = 2**20
"""Characters. Tags of a resource come to some thousand."""
LONGEST_ROW = 2**24
"""Characters, over all lines that its quoted cells reach over."""
MOST_COLUMNS = 10_000
"""A CUR with a column for each of its 500 tags has some 700."""
DELIMITERS = (",", ";", "\t")
PARQUET_BATCH_ROWS = 4096
"""Rows of Parquet that are unpacked at once."""

NumberedRow = tuple[int, Sequence[object]]
"""The line that a row ends on (of Parquet: its number, from 1), and its cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTable:
    """A table in a file.

    `header`: the column names as written. `rows`: the cells of each row, text in CSV and values in Parquet; blank lines are
    skipped. `name`: the file's name in messages. `word`: what a row's number counts ("line" or "row").
    """

    name: str
    header: Sequence[str]
    rows: Iterator[NumberedRow]
    word: str = "line"

    def here(self, number: int) -> str:
        """Return a position: `bill.csv, line 7`."""
        return f"{self.name}, {self.word} {number}"


def looks_like_json(first: str) -> bool:
    """Return whether a text whose first line is `first` is a JSON object or list rather than a table."""
    return first.lstrip()[:1] in ("{", "[")


def read_csv_table(lines: LineReader, first: str, delimiters: Sequence[str] = DELIMITERS) -> FileTable:
    """Return the table with header `first` and the rest of `lines` as rows.

    The separator is the most frequent of `delimiters` in the header.
    """
    rows = _list_csv_rows(lines, first, max(delimiters, key=first.count))
    _, header = next(rows)
    return FileTable(name=lines.name, header=_check_header(header, lines.here), rows=rows)


def _check_header(header: Iterable[object], position: str) -> list[str]:
    """Return the column names; raise InputError if there are more than MOST_COLUMNS."""
    names = [str(name) for name in header]
    if len(names) > MOST_COLUMNS:
        raise InputError(f"has {len(names)} columns, more than {MOST_COLUMNS}", field=position, hint="check that it is a bill")
    return names


def _list_csv_rows(lines: LineReader, first: str, delimiter: str) -> Iterator[NumberedRow]:
    read = len(first)

    def every() -> Iterator[str]:
        nonlocal read
        yield first
        for line in lines:
            read += len(line)
            if read > LONGEST_ROW:
                what = f"is in a row, or among blank lines, of more than {LONGEST_ROW >> 20} million characters"
                raise InputError(what, field=lines.here, hint="a quote may be missing: export it again")
            yield line

    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(every(), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if cells:
                read = 0
                yield lines.number, cells
    except csv.Error as odd:
        hint = "a quote may be missing: export it again"
        raise InputError(f"is not valid CSV: {to_one_line(str(odd))}", field=lines.here, hint=hint) from None


def read_parquet_table(name: str, file: IO[bytes]) -> FileTable:
    """Return the table in an open file; raise CostguardError if pyarrow is not installed."""
    try:
        import pyarrow as pa
        from pyarrow import compute, parquet
    except ImportError:
        hint = "in a clone of costguard: pip install '.[parquet]', or export CSV"
        raise CostguardError("a Parquet file needs pyarrow, which is not installed", field=name, hint=hint) from None
    try:
        parquet_file = parquet.ParquetFile(file)
    except (pa.ArrowException, OSError, ValueError) as broken:
        raise _build_parquet_error(name, broken) from None
    rows = _list_parquet_rows(pa, compute, name, parquet_file)
    return FileTable(name=name, header=_check_header(parquet_file.schema_arrow.names, name), rows=rows, word="row")


def _list_parquet_rows(pa: Any, compute: Any, name: str, parquet_file: Any) -> Iterator[NumberedRow]:  # noqa: ANN401 - no types
    number = 0
    batches = parquet_file.iter_batches(batch_size=PARQUET_BATCH_ROWS)
    while True:
        try:
            batch = next(batches, None)
            columns = [] if batch is None else [_convert_column(pa, compute, column).to_pylist() for column in batch.columns]
        except (pa.ArrowException, OSError, ValueError, OverflowError) as odd:
            raise _build_parquet_error(f"{name}, after row {number}", odd) from None
        if batch is None:
            return
        for cells in zip(*columns, strict=True):
            number += 1
            yield number, cells


def _convert_column(pa: Any, compute: Any, column: Any) -> Any:  # noqa: ANN401 - no types
    """Return a column in types that Python supports: bytes as text, instants in UTC, nanoseconds cut to microseconds."""
    its, types, kind = column.type, pa.types, None
    if types.is_binary(its) or types.is_large_binary(its):
        kind = pa.string()
    elif types.is_timestamp(its):
        kind = pa.timestamp("us", tz="UTC" if its.tz else None)
    elif types.is_duration(its):
        kind = pa.duration("us")
    elif types.is_time64(its):
        kind = pa.time64("us")
    return column if kind is None else column.cast(options=compute.CastOptions(kind, allow_time_truncate=True))


def _build_parquet_error(where: str, broken: Exception) -> InputError:
    what = f"cannot be read as Parquet: {shorten(to_one_line(str(broken)), 120)}"
    return InputError(what, field=where, hint="it is cut short or damaged: download it again")


def format_cell(value: object) -> str:
    """Return a Parquet cell in the text form that FOCUS uses in CSV; text is unchanged, null is ""."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, datetime):
        at = value.astimezone(UTC) if value.tzinfo else value
        return f"{at:%Y-%m-%dT%H:%M:%S}{f'.{at:%f}' * bool(at.microsecond)}{'Z' * bool(value.tzinfo)}"
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, float):
        return format_cell(Decimal(repr(value)))
    if isinstance(value, list) and all(isinstance(one, tuple) for one in value):  # a map: pairs
        value = dict(value)
    return json.dumps(value, default=format_cell) if isinstance(value, dict | list | bool) else str(value)


def parse_json(text: str) -> object:
    """Return the value of a JSON text; raise InputError if it is invalid or an object has a key twice."""
    try:
        return json.loads(text, object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as wrong:
        raise InputError(str(wrong).split(":")[0]) from None


def _reject_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key appears twice")
    return table


def _reject_constant(word: str) -> object:
    raise ValueError(f"{word} is not a number of JSON")
