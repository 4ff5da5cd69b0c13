"""Reads a CSV or Parquet file as a header and rows, without loading the whole file.

The pages of a Parquet file are unpacked in a child process of limited memory (`parquet_pages.py`): a file of 31 KB can unpack
to 3 GB.
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any

from costguard.errors import CostguardError, InputError, shorten, to_one_line
from costguard.files.lines import LineReader
from costguard.files.parquet_pages import ENVIRONMENT, MEMORY_BYTES

LONGEST_CELL = 2**20
"""Characters. Tags of a resource come to some thousand."""
LONGEST_ROW = 2**24
"""Characters, over all lines that its quoted cells reach over."""
MOST_COLUMNS = 10_000
"""A CUR with a column for each of its 500 tags has some 700."""
DELIMITERS = (",", ";", "\t")
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
        from pyarrow import compute, ipc
    except ImportError:
        hint = "in a clone of costguard: pip install '.[parquet]', or export CSV"
        raise CostguardError("a Parquet file needs pyarrow, which is not installed", field=name, hint=hint) from None
    rows = _list_parquet_rows(pa, compute, ipc, name, file)
    _, header = next(rows)
    return FileTable(name=name, header=_check_header(header, name), rows=rows, word="row")


def _list_parquet_rows(pa: Any, compute: Any, ipc: Any, name: str, file: IO[bytes]) -> Iterator[NumberedRow]:  # noqa: ANN401 - no types
    """Yield the header as row 0, and the rows."""
    number, where = 0, name
    with _unpack_pages(file) as child:
        try:
            stream = ipc.open_stream(child.stdout)
            yield 0, stream.schema.names
            for batch in stream:
                where = f"{name}, after row {number}"
                columns = [_convert_column(pa, compute, column).to_pylist() for column in batch.columns]
                for cells in zip(*columns, strict=True):
                    number += 1
                    yield number, cells
            where = f"{name}, after row {number}"
            broken = _explain_end(child)
        except (pa.ArrowException, OSError, ValueError, OverflowError) as odd:
            broken = _explain_end(child) or str(odd)
        if broken:
            what = f"cannot be read as Parquet: {shorten(to_one_line(broken), 120)}"
            raise InputError(what, field=where, hint="it is cut short or damaged: download it again, or export CSV")


@contextmanager
def _unpack_pages(file: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the process that writes the rows of `file` to its standard output as an Arrow stream; it ends with the block."""
    with TemporaryFile() as copy:
        try:
            descriptor = file.fileno()
        except io.UnsupportedOperation:  # an object of a bucket
            shutil.copyfileobj(file, copy)
            copy.flush()
            descriptor = copy.fileno()
        words = (sys.executable, "-I", "-m", "costguard.files.parquet_pages")
        child = subprocess.Popen(words, stdin=descriptor, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)  # noqa: S603 - our own words
    with child:
        try:
            yield child
        finally:
            child.kill()


def _explain_end(child: subprocess.Popen[bytes]) -> str:
    """Return why the process did not write all rows; "" if it did, or was still at work."""
    _, error_output = child.communicate()
    if child.returncode < 0 or b"MemoryError" in error_output:
        return f"it takes more than {MEMORY_BYTES >> 20} MiB to unpack"
    return error_output.decode(errors="replace").strip().rpartition("\n")[2] if child.returncode else ""


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
