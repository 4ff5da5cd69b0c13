"""FOCUS files as lines of text cells: CSV, CSV packed by gzip, and Parquet with pyarrow; never the whole file in memory."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, cast

from costguard.errors import CostguardError, InputError

Line = tuple[int, Sequence[str]]

LONGEST_CELL = 2**20
"""Characters. Tags of a resource come to some thousand."""


@contextmanager
def opened(path: Path) -> Iterator[tuple[list[str], Iterator[Line]]]:
    """The header of a file, and its lines. InputError names the file, and the line where it cannot be read on."""
    if path.is_dir():
        raise InputError("is a folder, not a file", field=str(path), hint="name one file of it")
    try:
        with path.open("rb") as file:
            start = file.read(4)
            file.seek(0)
            if start == b"PAR1":
                yield _parquet(path, file)
                return
            packed = start.startswith(b"\x1f\x8b")
            with io.TextIOWrapper(cast("IO[bytes]", gzip.open(file)) if packed else file, "utf-8-sig", newline="") as text:
                lines = _lines(path, text)
                _, header = next(lines, (1, []))
                if not header:
                    raise InputError("is empty", field=str(path), hint="the first line names the columns")
                if len(header) == 1 and not header[0].isidentifier():
                    hint = "FOCUS is CSV with commas, CSV packed by gzip, or Parquet"
                    raise InputError("has one column only in its first line", field=str(path), hint=hint)
                yield list(header), lines
    except FileNotFoundError:
        raise InputError("there is no such file", field=str(path), hint="costguard focus check FILE") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as broken:
        hint = "it is cut short or damaged: get it anew"
        raise InputError(f"cannot be unpacked: {broken}", field=str(path), hint=hint) from None
    except OSError as wrong:
        raise InputError(f"cannot be read: {wrong.strerror or wrong}", field=str(path), hint="check its rights") from None


def read_json(text: str) -> object:
    """The value of a JSON text; InputError where it is none, or names a key of an object twice."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_refused)
    except (ValueError, RecursionError) as wrong:
        raise InputError(str(wrong).split(":")[0]) from None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands in it twice")
    return found


def _refused(word: str) -> object:
    raise ValueError(f"{word} is no number of JSON")


def _lines(path: Path, text: io.TextIOWrapper) -> Iterator[Line]:
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(text, strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except UnicodeDecodeError as wrong:
        where, hint = f"{path} after line {reader.line_num}", f"byte 0x{wrong.object[wrong.start]:02x}: save it as UTF-8"
        raise InputError("is not UTF-8", field=where, hint=hint) from None
    except csv.Error as wrong:
        where = f"{path} line {reader.line_num}"
        raise InputError(f"is not valid CSV: {wrong}", field=where, hint="check the quotes") from None


def _parquet(path: Path, file: IO[bytes]) -> tuple[list[str], Iterator[Line]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        hint = "pip install 'gpu-costguard[parquet]', or check the CSV"
        raise CostguardError("a Parquet file needs pyarrow, which is not installed", field=str(path), hint=hint) from None
    try:
        found = parquet.ParquetFile(file)
    except (ArrowException, OSError) as broken:
        raise InputError(f"is no sound Parquet file: {broken}", field=str(path), hint="get it anew") from None
    names: list[str] = found.schema_arrow.names
    return names, _rows(found, names)


def _rows(found: Any, names: list[str]) -> Iterator[Line]:  # noqa: ANN401 - pyarrow has no types
    number = 1
    for batch in found.iter_batches(batch_size=4096):
        columns = [batch.column(place).to_pylist() for place in range(len(names))]
        for cells in zip(*columns, strict=True):
            number += 1
            yield number, [_text(cell) for cell in cells]


def _text(value: object) -> str:
    """A cell of Parquet as FOCUS would write it in CSV."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        at = value.astimezone(UTC) if value.tzinfo else value
        return f"{at:%Y-%m-%dT%H:%M:%S}{f'.{at:%f}' * bool(at.microsecond)}{'Z' * bool(value.tzinfo)}"
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, float):
        return _text(Decimal(repr(value)))
    if isinstance(value, list):  # a map: pairs
        value = dict(value)
    return json.dumps(value) if isinstance(value, dict | bool) else str(value)
