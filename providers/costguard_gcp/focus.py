"""Google's FOCUS export (a BigQuery table, exported to files) as bill lines."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from costguard.core.billed import Billed
from costguard.core.focus_rows import Export, bill_lines
from costguard.core.period import Period
from costguard.errors import InputError

NAMES = ("*.csv", "*.csv.gz", "*.json", "*.json.gz", "*.jsonl", "*.jsonl.gz", "*.ndjson", "*.ndjson.gz")
NONE = "no bill: name a FOCUS export of BigQuery in [providers.gcp] focus_export"
FIELD = "providers.gcp.focus_export"


def exported(stated: str, period: Period, as_of: datetime) -> Billed:
    """The lines of `period` in the file or folder `stated`; InputError where there is no such thing."""
    if not stated:
        return Billed(lines=(), why=NONE)
    files = _files(Path(stated).expanduser())
    export = Export(provider="gcp", source="FOCUS export", as_of=as_of, resource=number_of, tags=_tags)
    return bill_lines(_rows(files), period, export)


def number_of(stated: str) -> str:
    """The last part of `//compute.googleapis.com/projects/1/zones/us-central1-a/instances/123`, which is the ledger's id."""
    return stated.rsplit("/", 1)[-1]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    files = sorted({one for name in NAMES for one in path.glob(name)}) if path.is_dir() else []
    if not files:
        hint = "a csv or json file (may be .gz) of a FOCUS table, or a folder of them"
        raise InputError(f"holds no export: {path}", field=FIELD, hint=hint)
    return files


def _rows(files: list[Path]) -> Iterator[Mapping[str, object]]:
    for path in files:
        try:
            with _opened(path) as packed:
                yield from _csv(packed) if ".csv" in path.suffixes else _json(packed)
        except (OSError, EOFError, UnicodeDecodeError, csv.Error, msgspec.DecodeError) as broken:
            hint = "export the table again"
            raise InputError(f"cannot be read ({type(broken).__name__})", field=str(path), hint=hint) from None


def _opened(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _csv(packed: BinaryIO) -> Iterator[Mapping[str, object]]:
    with io.TextIOWrapper(packed, "utf-8-sig", newline="") as text:
        yield from csv.DictReader(text)


def _json(packed: BinaryIO) -> Iterator[Mapping[str, object]]:
    """One object a line, as BigQuery exports them, or one array of objects."""
    for line in packed:
        text = line.strip()
        if not text:
            continue
        if text[:1] == b"[":
            yield from msgspec.json.decode(text + packed.read(), type=list[dict[str, object]])
            return
        yield msgspec.json.decode(text, type=dict[str, object])


def _tags(text: str) -> object:
    """The column Tags, where it is text: an object, or BigQuery's list of keys and values."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if isinstance(found, list):
        return {str(one["key"]): one.get("value") for one in found if isinstance(one, dict) and "key" in one}
    return found
