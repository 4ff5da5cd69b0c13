"""FOCUS export files as bill lines: from a folder, by a pattern, or from S3. CSV, CSV packed by gzip, and Parquet with pyarrow.

The setting `focus_export` says where: a path or pattern (`/exports/**/*.csv.gz`), or `s3://bucket/prefix`. AWS writes the
running month anew every day, so what is read replaces what was read before: see core/focus_rows.py for how lines keep their
names.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit

import msgspec

from costguard.core.billed import Billed
from costguard.core.focus_rows import EFFECTIVE, Export, Row, bill_lines
from costguard.core.period import Period
from costguard.errors import InputError, OddAnswerError, ProviderError
from costguard.ports import Clock
from costguard_aws.seam import Aws, ask

MOST_FILES, MOST_PAGES = 1000, 100
MOST_BYTES = 2 * 2**30
"""Of one file once unpacked: a month of 1,000 machines by the hour has about 1 GB."""
MOST_OBJECT = 16 * 2**20
"""Of one object read from S3, as the transport takes no larger body: greater exports are copied first (`aws s3 sync`)."""

KINDS = (".csv", ".csv.gz", ".parquet")
REGION = "us-east-1"


class FocusExport:
    """The export of one account. `where`: a path, a pattern, or an s3:// address (then `aws` and the bucket's `region`)."""

    def __init__(
        self, where: str, clock: Clock, aws: Aws | None = None, *, region: str = REGION, cost: str = EFFECTIVE
    ) -> None:
        self._where, self._clock, self._aws, self._region, self._cost = where, clock, aws, region, cost

    def bill_lines(self, period: Period) -> Billed:
        """The lines of `period`. InputError where there is no such file; `why` names files that could not be read."""
        broken = list[str]()
        export = Export(provider="aws", source="FOCUS export", as_of=self._clock.now(), cost=self._cost, tags=_json)
        billed = bill_lines(self._rows(broken), period, export)
        return Billed(lines=billed.lines, why="; ".join(filter(None, (billed.why, *broken[:5]))))

    def _rows(self, broken: list[str]) -> Iterator[Row]:
        """The rows of every file; a file that breaks is named, and the others are read."""
        for name, opened in self._objects(broken) if self._where.startswith("s3://") else self._local():
            try:
                yield from rows_of(name, opened)
            except (OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError, InputError) as odd:
                told = odd.what if isinstance(odd, InputError) else type(odd).__name__
                broken.append(f"{Path(name).name} could not be read to its end ({told})")

    def _local(self) -> Iterator[tuple[str, IO[bytes] | None]]:
        names = local_files(self._where)
        if not names:
            hint = "a path, a pattern such as /exports/**/*.csv.gz, or s3://bucket/prefix"
            raise InputError(f"there is no FOCUS export at {self._where}", field="focus_export", hint=hint)
        yield from ((name, None) for name in names)

    def _objects(self, broken: list[str]) -> Iterator[tuple[str, IO[bytes] | None]]:
        """The objects under the prefix, one after the other."""
        if self._aws is None:
            raise InputError("an s3:// address needs an AWS account", field="focus_export")
        parts = urlsplit(self._where)
        for key, size in self._listed(self._aws, parts.netloc, parts.path.lstrip("/")):
            if size > MOST_OBJECT:
                broken.append(f"{Path(key).name} has {size} bytes, too many to read from S3: copy it with `aws s3 sync` first")
                continue
            try:
                found = ask(self._aws, "s3", self._region, "get_object", Bucket=parts.netloc, Key=key)
                yield key, io.BytesIO(found["Body"].read())
            except ProviderError as odd:
                broken.append(f"{Path(key).name} could not be read ({odd.what})")

    def _listed(self, aws: Aws, bucket: str, prefix: str) -> Iterator[tuple[str, int]]:
        """The export files under the prefix, with their bytes. A ProviderError where it cannot be listed, or has no end."""
        token = ""
        for _ in range(MOST_PAGES):
            more: dict[str, Any] = {"ContinuationToken": token} if token else {}
            page = ask(aws, "s3", self._region, "list_objects_v2", Bucket=bucket, Prefix=prefix, **more)
            found = [one for one in page.get("Contents") or () if str(one.get("Key", "")).endswith(KINDS)]
            yield from ((str(one["Key"]), int(one.get("Size") or 0)) for one in found)
            token = str(page.get("NextContinuationToken") or "")
            if not token:
                return
        raise OddAnswerError(f"the list of objects under {prefix} has no end", provider="aws", account=aws.account)


def _json(text: str) -> object:
    """The tags of a row; what is no JSON is no tags."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def local_files(where: str) -> list[str]:
    """The export files that a path (a folder: all within) or a pattern names, sorted."""
    path = Path(where).expanduser()
    found = [str(one) for one in path.rglob("*")] if path.is_dir() else glob(str(path), recursive=True)  # noqa: PTH207 - the pattern may be absolute
    return sorted(name for name in found if name.endswith(KINDS))[:MOST_FILES]


def rows_of(name: str, opened: IO[bytes] | None = None) -> Iterator[Row]:
    """The rows of one file, by its ending; `opened` in place of the file `name`. InputError where it cannot be read here."""
    if name.endswith(".parquet"):
        yield from _parquet(name, opened)
        return
    with opened or Path(name).open("rb") as raw:
        unpacked = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if name.endswith(".gz") else raw
        capped = io.BufferedReader(_Capped(unpacked, MOST_BYTES))
        yield from csv.DictReader(io.TextIOWrapper(capped, encoding="utf-8-sig", newline=""))


class _Capped(io.RawIOBase):
    """A stream that breaks off after so many bytes: a small file may unpack to a huge one."""

    def __init__(self, inner: IO[bytes], most: int) -> None:
        self._inner, self._left = inner, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a buffer, which has no type of its own in 3.11
        data = self._inner.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise OSError(f"holds more than {MOST_BYTES} bytes")
        buffer[: len(data)] = data
        return len(data)


def _parquet(name: str, opened: IO[bytes] | None) -> Iterator[Row]:
    try:
        from pyarrow import parquet  # type: ignore[import-not-found,unused-ignore]  # an extra that few have
    except ImportError:
        raise InputError("a Parquet file needs pyarrow", field=name, hint="pip install pyarrow, or export CSV") from None
    for batch in parquet.ParquetFile(opened or name).iter_batches(batch_size=4096):
        for row in batch.to_pylist():
            tags = row.get("Tags")
            yield {**row, "Tags": dict(tags) if isinstance(tags, list) else tags}
