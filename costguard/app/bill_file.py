"""A bill in a file, record by record: CSV or JSON, packed by gzip or not, or Parquet. Whatever is wrong is named with its line.

Nothing is read whole but JSON that is one document, of which there are no large ones: a file of 2 GB passes through a few MB of
memory. What a record means is the providers' business: see `core.bill_files`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import IO, cast

from costguard.core.bill_files import Record
from costguard.errors import InputError, one_line, shortened

LONGEST_LINE = 4 * 2**20
"""Characters: a row of an export has some thousand, with all its tags."""
LARGEST_DOCUMENT = 64 * 2**20
"""Characters of JSON that is one document: a month of 1,000 pods by the hour is half of that."""
LARGEST_UNPACKED = 64 * 2**30
"""Bytes that a packed file may unpack to: a small file can hold a huge one."""
MOST_FILES = 10_000
DEEPEST = 4
"""Levels of pages within pages."""

ENDINGS = (".csv", ".csv.gz", ".json", ".json.gz", ".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".parquet")
DELIMITERS = (",", ";", "\t")
GZIP, PARQUET, ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
"""What a file may begin with, and how it is written then."""

Place = tuple[str, Record]
"""(file and line, record)."""


def records(path: Path) -> Iterator[Place]:
    """The records of a file, or of every bill file in a folder, one after another. InputError names the file and line."""
    for one in files(path):
        yield from _file(one)


def files(path: Path) -> list[Path]:
    """The file itself, or those of a folder, sorted."""
    if not path.is_dir():
        return [path]
    found = sorted(one for one in path.rglob("*") if one.name.lower().endswith(ENDINGS) and one.is_file())
    if not found:
        raise InputError("is a folder without bill files", field=str(path), hint=f"they end in {', '.join(ENDINGS)}")
    if len(found) > MOST_FILES:
        raise InputError(
            f"holds {len(found)} files, more than {MOST_FILES}", field=str(path), hint="name a folder of one month"
        )
    return found


def _file(path: Path) -> Iterator[Place]:
    with _opened(path) as raw:
        if not _regular(raw):
            raise InputError("is no plain file", field=str(path), hint="write it to a file first")
        if raw.peek(4)[:4] == PARQUET:
            yield from _parquet(path)
            return
        packed = raw.peek(2)[:2] == GZIP
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if packed else raw
        lines = _Lines(path, io.BufferedReader(_Counted(stream, path)))
        first = lines.begin()
        if first.lstrip()[:1] in ("{", "["):
            yield from _json(lines, first)
        else:
            yield from _csv(lines, first)


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    try:
        with path.open("rb") as raw:
            yield raw
    except OSError as broken:
        if broken.filename is None and not isinstance(broken, FileNotFoundError | PermissionError | IsADirectoryError):
            raise InputError(f"cannot be read: {broken.strerror or broken}", field=str(path)) from None
        raise InputError(f"cannot be opened: {broken.strerror}", field=str(path), hint="name a file or a folder") from None


def _regular(raw: io.BufferedReader) -> bool:
    return stat.S_ISREG(os.fstat(raw.fileno()).st_mode)


class _Counted(io.RawIOBase):
    """A stream that breaks off after LARGEST_UNPACKED bytes."""

    def __init__(self, inner: IO[bytes], path: Path) -> None:
        self._inner, self._path, self._left = inner, path, LARGEST_UNPACKED

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the base takes any buffer
        data = self._inner.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise InputError(f"unpacks to more than {LARGEST_UNPACKED >> 30} GiB", field=str(self._path))
        buffer[: len(data)] = data
        return len(data)


class _Lines:
    """The lines of a text file, counted, each of them bounded."""

    def __init__(self, path: Path, raw: io.BufferedReader) -> None:
        self.path, self.number, self._raw = path, 0, raw
        self._text: io.TextIOWrapper | None = None

    def begin(self) -> str:
        """The first line that is not blank. InputError for what is no text."""
        with self._told():
            head = self._raw.peek(4096)[:4096]
        if not head:
            raise InputError("is empty", field=str(self.path), hint="export it again")
        encoding = next((name for mark, name in MARKS if head.startswith(mark)), "utf-8")
        if head.startswith(ZIP):
            raise InputError("is a zip archive", field=str(self.path), hint="unpack it, and name the file or folder in it")
        if b"\0" in head and encoding != "utf-16":
            hint = "a CSV, JSON or Parquet file is wanted; UTF-16 without a mark at its beginning is not read: save it as UTF-8"
            raise InputError("is no text", field=str(self.path), hint=hint)
        self._text = io.TextIOWrapper(self._raw, encoding, newline="")
        for line in self:
            if line.strip():
                return line
        raise InputError("holds nothing but blank lines", field=str(self.path), hint="export it again")

    def __iter__(self) -> Iterator[str]:
        assert self._text is not None  # noqa: S101 - for the type checker: begun before
        while True:
            with self._told():
                line = self._text.readline(LONGEST_LINE)
            if not line:
                return
            self.number += 1
            if len(line) >= LONGEST_LINE:
                raise InputError(
                    f"is longer than {LONGEST_LINE >> 20} million characters", field=self.here, hint="is it a bill?"
                )
            if "\0" in line:
                raise InputError("holds a zero byte, which no text has", field=self.here, hint="export it again")
            yield line

    def rest(self, first: str) -> str:
        """All from `first` on, in one text that is not too large."""
        parts, size = [first], len(first)
        for line in self:
            parts.append(line)
            size += len(line)
            if size > LARGEST_DOCUMENT:
                hint = "write one object a line (JSON lines), or CSV: those are read line by line"
                raise InputError(
                    f"is one JSON document of more than {LARGEST_DOCUMENT >> 20} MB", field=str(self.path), hint=hint
                )
        return "".join(parts)

    @property
    def here(self) -> str:
        """`bill.csv, line 7`."""
        return f"{self.path}, line {self.number}"

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What is wrong with the bytes, as an InputError that names the line after which it was found."""
        try:
            yield
        except UnicodeDecodeError as odd:
            hint = f"save it as UTF-8, e.g. iconv -f latin1 -t utf-8 {shortened(self.path.name, 60)}"
            raise InputError(
                f"is not {odd.encoding.upper()}", field=f"{self.path}, after line {self.number}", hint=hint
            ) from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as broken:
            what = "is cut short" if isinstance(broken, EOFError) else f"is damaged ({one_line(str(broken))})"
            hint = "copy or download it again"
            raise InputError(what, field=f"{self.path}, after line {self.number}", hint=hint) from None


def _csv(lines: _Lines, first: str) -> Iterator[Place]:
    """Rows by the names of their columns. Every row must have as many cells as the header."""
    delimiter = max(DELIMITERS, key=first.count)

    def every() -> Iterator[str]:
        yield first
        yield from lines

    reader = csv.reader(every(), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader)]
        if len(header) < 2 or len(set(header)) != len(header):  # noqa: PLR2004 - one column is no table
            hint = "a CSV file begins with the names of its columns, each once"
            raise InputError("is no header of a table", field=lines.here, hint=hint)
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                hint = "is a text in it not quoted, or a decimal comma not turned into a point?"
                raise InputError(f"has {len(row)} cells, and the header {len(header)}", field=lines.here, hint=hint)
            yield lines.here, dict(zip(header, row, strict=True))
    except csv.Error as odd:
        raise InputError(f"is no CSV: {one_line(str(odd))}", field=lines.here, hint="export it again") from None


def _json(lines: _Lines, first: str) -> Iterator[Place]:
    """The objects of JSON lines, or of one document: a list of them, or an object with a list of them, page within page."""
    alone = _parsed(first)
    if alone is None:
        document = _parsed(lines.rest(first))
        if document is None:
            raise InputError("is no JSON", field=str(lines.path), hint="is it cut short? export it again")
        yield from _inner(document, f"{lines.path}, item", DEEPEST)
        return
    yield from _inner(alone, lines.here, DEEPEST)
    for line in lines:
        if line.strip():
            found = _parsed(line)
            if found is None:
                raise InputError("is no JSON", field=lines.here, hint="is the file cut short? export it again")
            yield from _inner(found, lines.here, DEEPEST)


def _parsed(text: str) -> object | None:
    """`text` as JSON with exact numbers; None where it is none. A lone null is nothing either."""
    try:
        found: object = json.loads(text, parse_float=Decimal, parse_constant=lambda _: None)
    except (ValueError, RecursionError, ArithmeticError):
        return None
    return found


def _inner(value: object, here: str, deep: int) -> Iterator[Place]:
    """`value` as records: itself, or those of the one list of objects in it."""
    if isinstance(value, list):
        for number, one in enumerate(value, 1):
            yield from _inner(one, f"{here} {number}", deep)
        return
    if not isinstance(value, Mapping):
        shown = shortened(repr(value), 40)
        raise InputError(f"is no object with keys and values: {shown}", field=here, hint="is it a bill?")
    lists = [inner for inner in value.values() if isinstance(inner, list) and all(isinstance(one, Mapping) for one in inner)]
    wrapped = deep > 0 and len(lists) == 1 and not _amounts(value)
    if wrapped:
        yield from (place for place in _inner(lists[0], here, deep - 1))
    elif deep > 0 and len(lists) > 1 and not _amounts(value):
        raise InputError("holds several lists: which is the bill?", field=here, hint="keep the one that holds its lines")
    else:
        yield here, value


def _amounts(value: Mapping[object, object]) -> bool:
    """Whether an object states money itself, and is no page around others that do."""
    return any("amount" in str(key).lower() or "cost" in str(key).lower() for key in value)


def _parquet(path: Path) -> Iterator[Place]:
    try:
        from pyarrow import ArrowException, parquet  # type: ignore[import-not-found,unused-ignore]  # an extra that few have
    except ImportError:
        raise InputError("a Parquet file needs pyarrow", field=str(path), hint="pip install pyarrow, or export CSV") from None
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=4096):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}, row {number}", row
    except (ArrowException, OSError) as broken:
        told = shortened(one_line(str(broken)), 120)
        raise InputError(f"cannot be read as Parquet: {told}", field=f"{path}, after row {number}") from None
