"""Reads one or several files as records, which are objects with keys: rows of CSV or Parquet, or JSON objects.

Only JSON that is a single document is read as a whole; its size is limited. A file of 2 GB needs only a few MB of memory. The
providers interpret the records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from glob import glob
from io import BufferedReader
from pathlib import Path

from costguard.errors import InputError, shorten
from costguard.files.lines import LineReader, is_parquet, open_file
from costguard.files.table import FileTable, looks_like_json, read_csv_table, read_parquet_table
from costguard.providers.context import BillFilePiece

LARGEST_DOCUMENT = 64 * 2**20
"""Characters of JSON that is one document: a month of 1,000 pods by the hour is half of that."""
MOST_FILES = 10_000
DEEPEST = 4
"""Levels of pages within pages."""

ENDINGS = (".csv", ".csv.gz", ".json", ".json.gz", ".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".parquet")
MANIFEST = "manifest.json"
"""How the name of a file ends that clouds put beside their exports, and that says which files these are."""

LocatedRecord = tuple[str, Mapping[str, object]]
"""(file and line, record)."""


def read_records(pieces: Iterable[BillFilePiece], pages: list[Mapping[str, object]] | None = None) -> Iterator[LocatedRecord]:
    """Yield the records of the files one after another; raise InputError that names the file and line.

    `pages`: gets the other keys of each JSON object that is a page of records, before its records.
    """
    for one in pieces:
        with one.opened() as raw:
            yield from _read_file(one.name, raw, [] if pages is None else pages)


def list_pieces(path: Path) -> list[BillFilePiece]:
    """Return the file, or the bill files in a folder, sorted; raise InputError if there are none."""
    return [
        _build_piece(one)
        for one in ([path] if not path.is_dir() else _check_file_count(filter(is_bill_file, _list_files(path)), str(path)))
    ]


def find_pieces(where: str) -> list[BillFilePiece]:
    """Return the files of a path, as `list_pieces`, or all files that match a pattern (`/exports/**/*.csv.gz`)."""
    path = Path(where).expanduser()
    if path.exists() or not any(sign in where for sign in "*?["):
        return list_pieces(path)
    paths = (Path(one) for one in glob(str(path), recursive=True))  # noqa: PTH207 - the pattern may be absolute
    return [_build_piece(one) for one in _check_file_count((one for one in paths if one.is_file()), where)]


def is_bill_file(name: Path | str) -> bool:
    """Return whether a file of this name may be part of a bill."""
    return str(name).lower().endswith(ENDINGS) and not str(name).lower().endswith(MANIFEST)


def _list_files(path: Path) -> Iterator[Path]:
    return (one for one in path.rglob("*") if one.is_file())


def _check_file_count(paths: Iterable[Path], where: str) -> list[Path]:
    every = sorted(paths)
    if not every:
        raise InputError("contains no bill file", field=where, hint=f"they end in {', '.join(ENDINGS)}")
    if len(every) > MOST_FILES:
        raise InputError(f"holds {len(every)} files, more than {MOST_FILES}", field=where, hint="name a folder of one month")
    return every


def _build_piece(path: Path) -> BillFilePiece:
    try:
        made_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, OverflowError, ValueError):
        raise InputError(
            "cannot be opened: no such file, or not allowed", field=str(path), hint="name a file or folder"
        ) from None
    return BillFilePiece(name=str(path), opened=partial(open_file, path), made_at=made_at)


def _read_file(name: str, raw: BufferedReader, pages: list[Mapping[str, object]]) -> Iterator[LocatedRecord]:
    if is_parquet(raw):
        yield from _read_rows(read_parquet_table(name, raw))
        return
    lines = LineReader(name, raw)
    first = lines.begin()
    yield from (
        _read_json_records(lines, first, pages)
        if looks_like_json(first)
        else _read_rows(read_csv_table(lines, first), at=lines.here)
    )


def _read_rows(table: FileTable, at: str = "") -> Iterator[LocatedRecord]:
    """Yield the rows as records by column name.

    `at`: position of the header, for errors. Raise InputError for a row that does not have as many cells as the header.
    """
    header = [name.strip() for name in table.header]
    if len(header) < 2 or len(set(header)) != len(header):  # noqa: PLR2004 - one column is no table
        hint = "a table starts with its column names, each once"
        raise InputError(
            "the header of the table has fewer than two columns, or a name twice", field=at or table.name, hint=hint
        )
    for number, row in table.rows:
        if len(row) != len(header):
            hint = "quote texts that contain a comma, and write decimal points"
            raise InputError(f"has {len(row)} cells, and the header {len(header)}", field=table.here(number), hint=hint)
        if row == table.header:
            hint = "if the file contains two tables, split it, put the parts in a folder and name the folder"
            raise InputError("repeats the header", field=table.here(number), hint=hint)
        yield table.here(number), dict(zip(header, row, strict=True))


def _read_json_records(lines: LineReader, first: str, pages: list[Mapping[str, object]]) -> Iterator[LocatedRecord]:
    """Yield the objects of JSON lines, or of one document: a list of objects, or an object with such a list, also nested."""
    alone = parse_json(first)
    if alone is None:
        document = parse_json(_read_rest(lines, first))
        if document is None:
            raise InputError("is not JSON", field=lines.name, hint="it may be cut short: export it again")
        yield from _list_inner_records(document, lines.name, DEEPEST, pages)
        return
    yield from _list_inner_records(alone, lines.here, DEEPEST, pages)
    for line in lines:
        if line.strip():
            record = parse_json(line)
            if record is None:
                raise InputError("is not JSON", field=lines.here, hint="the file may be cut short: export it again")
            yield from _list_inner_records(record, lines.here, DEEPEST, pages)


def _read_rest(lines: LineReader, first: str) -> str:
    """Return `first` and all further lines as one text; raise InputError if it is longer than LARGEST_DOCUMENT."""
    parts, size = [first], len(first)
    for line in lines:
        parts.append(line)
        size += len(line)
        if size > LARGEST_DOCUMENT:
            hint = "write one object a line (JSON lines), or CSV: those are read line by line"
            what = f"is one JSON document of more than {LARGEST_DOCUMENT >> 20} MB"
            raise InputError(what, field=lines.name, hint=hint)
    return "".join(parts)


def parse_json(text: str) -> object | None:
    """Return `text` as JSON with exact numbers; None if it is not JSON, or if it is null."""
    try:
        value: object = json.loads(text, parse_float=_parse_number, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return value


def _parse_number(text: str) -> Decimal | str:
    """Return the number, or its text if it is too large for a Decimal: the column that needs it refuses it by name."""
    try:
        return Decimal(text)
    except ArithmeticError:
        return text


def _list_inner_records(value: object, position: str, deep: int, pages: list[Mapping[str, object]]) -> Iterator[LocatedRecord]:
    """Yield `value` as one record, or the records of the single list of objects in it, whose other keys go to `pages`."""
    if isinstance(value, list):
        for number, one in enumerate(value, 1):
            yield from _list_inner_records(one, f"{position}, item {number}", deep, pages)
        return
    if not isinstance(value, Mapping):
        shown = shorten(repr(value), 40)
        raise InputError(f"is not an object with keys and values: {shown}", field=position, hint="check that it is a bill")
    lists = [inner for inner in value.values() if isinstance(inner, list) and all(isinstance(one, Mapping) for one in inner)]
    wrapped = deep > 0 and len(lists) == 1 and not _has_amounts(value)
    if wrapped:
        pages.append({str(key): inner for key, inner in value.items() if inner is not lists[0]})
        yield from _list_inner_records(lists[0], position, deep - 1, pages)
    elif deep > 0 and len(lists) > 1 and not _has_amounts(value):
        raise InputError("contains several lists of lines", field=position, hint="keep only the list of the bill's lines")
    else:
        yield position, value


def _has_amounts(value: Mapping[object, object]) -> bool:
    """Return whether an object states amounts itself, so that it is a record and not a page of records."""
    return any("amount" in str(key).lower() or "cost" in str(key).lower() for key in value)
