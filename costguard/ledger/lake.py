"""Closed months as FOCUS Parquet in a folder or an object store (the lake), and sums over them.

    URL/billing_period=2026-10/provider=aws/costguard.parquet

A month is in UTC. Each file holds one provider's charge items of one month, as `report --format focus` exports them. Its
metadata has a digest of them, so that a file that holds the ledger's items is not written again, and the id of its ledger: a
file of another ledger, or of somebody else, is never replaced or removed. A file appears whole or not at all. DuckDB reads the
sums, so anyone else's tools that read Parquet by Hive partitions get the same ones.

Files are read and written through fsspec, which names object stores by URL ("s3://", "gs://", "abfs://").
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

from costguard.errors import CostguardError, InputError, shorten
from costguard.metering.charge_item import ChargeItem
from costguard.renderers.focus_parquet import GROUP, build_columns, build_schema
from costguard.reporting.focus.columns import NEWEST_VERSION
from costguard.reporting.focus.rows import RowValue, build_row
from costguard.reporting.lake import LakeChanges, LakeSum
from costguard.values.provider import Seller, get_seller

FILE, DIGEST_KEY, LEDGER_KEY = "costguard.parquet", b"costguard.digest", b"costguard.ledger"
BROKEN = "broken"
"""In the place of a ledger's id: a file that is no Parquet, as after a write that a store cut off. It is written anew."""
LAKE_COLUMNS: Mapping[str, str] = {
    "month": "billing_period",
    "provider": "provider",
    "account": '"SubAccountId"',
    "region": '"RegionId"',
    "charge": '"x_ChargeKind"',
    "gpu": '"x_GpuModel"',
    "tier": '"x_Tier"',
    "owner": '"x_Owner"',
    "project": '"x_Project"',
    "team": '"x_Team"',
    "resource": '"ResourceId"',
    "name": '"ResourceName"',
}
"""Key of LAKE_KEYS -> the column of the files."""


class Lake:
    """The lake at `url`: a folder, or an object store. Raises CostguardError where a library or the store is missing."""

    def __init__(self, url: str) -> None:
        try:
            import duckdb  # noqa: F401 - asked for now, so that nothing is written that cannot be read
            import fsspec
            import pyarrow as pa  # noqa: F401 - same
        except ImportError as error:
            hint = "pip install 'gpu-costguard[lake]'"
            raise CostguardError(f"a lake needs {error.name}, which is not installed", field="lake.url", hint=hint) from None
        try:
            self._files, self._root = fsspec.url_to_fs(url)
        except (ImportError, ValueError) as error:
            hint = "name a folder, or install the library for this kind of store (s3fs, gcsfs, adlfs)"
            raise InputError(f"'{shorten(url)}' cannot be opened: {error}", field="lake.url", hint=hint) from None
        self.url = url

    def write_month(
        self, month: str, items: Iterator[ChargeItem], *, ledger: str, sellers: Mapping[str, Seller], changes: LakeChanges
    ) -> None:
        """Make the files of `month` ("2026-10") hold `items` of the ledger with this id, and add to `changes` what that took.

        Raises CostguardError where the store refuses, and InputError where a file is another ledger's; files that were written
        until then are whole, and writing again goes on.
        """
        try:
            with tempfile.TemporaryDirectory(prefix="costguard-lake-") as folder, ExitStack() as stack:
                made: dict[str, _PartitionWriter] = {}
                for item in items:
                    name = item.attribution.provider
                    if name not in made:
                        made[name] = stack.enter_context(_PartitionWriter(Path(folder, f"{len(made)}.parquet")))
                    made[name].add(build_row(item, get_seller(sellers, name)))
                for writer in made.values():
                    writer.finish(ledger)
                self._replace_files(month, made, ledger, changes)
        except OSError as error:
            raise CostguardError(f"month {month} cannot be written: {error}", field="lake.url", hint="see --debug") from error

    def _replace_files(self, month: str, made: Mapping[str, _PartitionWriter], ledger: str, changes: LakeChanges) -> None:
        """Upload what differs from the store's, and remove this ledger's files of providers without items in `month`."""
        there = {path: self._read_marks(path) for path in self._list_files(month)}
        ours = {f"billing_period={month}/provider={name}/{FILE}": writer for name, writer in sorted(made.items())}
        for path in ours:
            if path in there and there[path][0] not in (ledger, BROKEN):
                hint = "name a lake of its own for each ledger, or move that file away"
                raise InputError(f"holds {path} of another ledger: nothing of {month} was written", field=self.url, hint=hint)
        for path, writer in ours.items():
            if path in there and there[path] == (ledger, writer.digest):
                changes.unchanged.append(path)
                continue
            self._files.makedirs(f"{self._root}/{path.rpartition('/')[0]}", exist_ok=True)
            with (
                self._files.transaction,  # the file is there when this block ends, and not before
                self._files.open(f"{self._root}/{path}", "wb") as target,
                writer.path.open("rb") as source,
            ):
                while part := source.read(1 << 20):
                    target.write(part)
            changes.written.append(path)
            changes.rows += writer.rows
        for path, (owner, _) in there.items():
            if path not in ours and owner == ledger:
                self._files.rm(f"{self._root}/{path}")
                changes.removed.append(path)

    def _list_files(self, month: str) -> list[str]:
        found = self._files.glob(f"{self._root}/billing_period={month}/provider=*/{FILE}")
        return ["/".join(one.split("/")[-3:]) for one in sorted(found)]

    def _read_marks(self, path: str) -> tuple[str, str]:
        """Return the ledger's id and the digest in a file, "" for what it has not; BROKEN as the id if it cannot be read."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with suppress(pa.ArrowInvalid), self._files.open(f"{self._root}/{path}", "rb") as file:
            marks: Mapping[bytes, bytes] = pq.read_metadata(file).metadata or {}
            return marks.get(LEDGER_KEY, b"").decode(), marks.get(DIGEST_KEY, b"").decode()
        return BROKEN, ""

    def list_months(self) -> list[str]:
        """Return the months that have files, oldest first."""
        found = self._files.glob(f"{self._root}/billing_period=*/provider=*/*.parquet")
        return sorted({one.split("/")[-3].removeprefix("billing_period=") for one in found})

    def sum_months(self, first: str, last: str, by: Sequence[str]) -> list[LakeSum]:
        """Return the sums of the months `first` to `last` ("2026-10"), grouped by keys of LAKE_COLUMNS, in order of the groups.

        The files may be anybody's that have FOCUS columns and these partitions.
        """
        import duckdb

        if not any(first <= month <= last for month in self.list_months()):
            return []
        keys = [f"coalesce(cast({LAKE_COLUMNS[key]} AS VARCHAR), '')" for key in by]
        grouped = ", ".join((*keys, '"BillingCurrency"'))
        sums = ", ".join(f'coalesce(sum("{column}"), 0)' for column in ("x_CostLow", "EffectiveCost", "x_CostHigh"))
        with duckdb.connect(":memory:") as engine:
            pattern = f"{self._root}/billing_period=*/provider=*/*.parquet"
            if "file" not in self._protocols():
                engine.register_filesystem(self._files)
                pattern = f"{self._protocols()[0]}://{pattern}"
            files = "read_parquet(?, hive_partitioning = true, hive_types_autocast = false)"
            where = f"{files} WHERE billing_period BETWEEN ? AND ? GROUP BY {grouped} ORDER BY {grouped}"
            sql = f"SELECT {grouped}, {sums}, count(*) FROM {where}"  # noqa: S608 - our own column names
            try:
                rows = engine.execute(sql, [pattern, first, last]).fetchall()
            except duckdb.Error as error:
                hint = f"it must hold FOCUS Parquet as billing_period=YYYY-MM/provider=NAME/{FILE}"
                raise CostguardError(f"the lake cannot be read: {shorten(str(error))}", field="lake.url", hint=hint) from None
        return [_build_sum(row, len(keys)) for row in rows]

    def _protocols(self) -> tuple[str, ...]:
        named = self._files.protocol
        return (named,) if isinstance(named, str) else tuple(named)


def _build_sum(row: Sequence[Any], width: int) -> LakeSum:
    """Return a row of the sums, whose first `width` cells are the group's."""
    by, (currency, low, expected, high, rows) = row[:width], row[width:]
    return LakeSum(tuple(by), currency, Decimal(low), Decimal(expected), Decimal(high), rows)


class _PartitionWriter:
    """Writes rows to a local Parquet file, and hashes them."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path, self.rows, self.digest = path, 0, ""
        self._pa, self._held, self._hash = pa, list[Mapping[str, RowValue]](), hashlib.sha256()
        self._schema = build_schema(pa, NEWEST_VERSION)
        self._writer: Any = pq.ParquetWriter(path, self._schema, compression="zstd")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def add(self, row: Mapping[str, RowValue]) -> None:
        """Add a row."""
        self._held.append(row)
        self.rows += 1
        self._hash.update(json.dumps([row[name] for name in self._schema.names], default=str, sort_keys=True).encode())
        if len(self._held) >= GROUP:
            self._flush()

    def finish(self, ledger: str) -> None:
        """Write what is left, the id of the ledger and the digest, and close the file."""
        self._flush()
        self.digest = self._hash.hexdigest()
        self._writer.add_key_value_metadata({DIGEST_KEY: self.digest.encode(), LEDGER_KEY: ledger.encode()})
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(self._pa.table(build_columns(self._schema.names, self._held), schema=self._schema))
            self._held.clear()
