"""Where the bill files stand that AWS writes into S3 (FOCUS, CUR), or that were copied from there. Others read them.

The setting `focus_export` says where: a path, a folder or a pattern (`/exports/**/*.csv.gz`), or `s3://bucket/prefix`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from costguard.bills.bill_line import BillLines
from costguard.errors import InputError, InvalidAnswerError
from costguard.providers.bills import BillFilePiece, BillReader
from costguard.system.clock import Clock
from costguard.values.period import Period
from costguard_aws.seam import AwsClients, call_operation

S3 = "s3://"
MOST_PAGES = 100
"""Of a thousand objects each."""
MOST_OBJECT = 16 * 2**20
"""Of one object read from S3, as the transport takes no larger body: greater exports are copied first (`aws s3 sync`)."""

EXPORT_FILE_KINDS = (".csv", ".csv.gz", ".parquet")
REGION = "us-east-1"


class FocusExport:
    """The export of one account. `where`: as the setting says it; of an s3:// address, `aws` asks in the bucket's `region`."""

    def __init__(
        self, where: str, bills: BillReader, clock: Clock, aws: AwsClients | None = None, *, region: str = REGION
    ) -> None:
        self._where, self._bills, self._clock, self._aws, self._region = where, bills, clock, aws, region

    def fetch_bill_lines(self, period: Period) -> BillLines:
        """The lines of `period`. InputError where there is no such file, or one cannot be read; a ProviderError of S3."""
        pieces = list(self._list_objects()) if self._where.startswith(S3) else self._bills.find_pieces(self._where)
        return self._bills.read_bill("aws", pieces, period, self._clock.now())

    def _list_objects(self) -> Iterator[BillFilePiece]:
        """The export files under the prefix. InputError where there are none, or one is too large to be read from there."""
        if self._aws is None:
            raise InputError("an s3:// address needs an AWS account", field="focus_export")
        parts, found = urlsplit(self._where), 0
        for one in _list_keys(self._aws, self._region, parts.netloc, parts.path.lstrip("/")):
            name, found = f"{S3}{parts.netloc}/{one['Key']}", found + 1
            if int(one.get("Size") or 0) > MOST_OBJECT:
                hint = "copy the export with `aws s3 sync`, and name the folder in focus_export"
                raise InputError(f"has {one['Size']} bytes, too many to be read from S3", field=name, hint=hint)
            made = one.get("LastModified")
            opened = partial(_open_object, self._aws, self._region, parts.netloc, str(one["Key"]))
            yield BillFilePiece(name=name, opened=opened, made_at=made if isinstance(made, datetime) else None)
        if not found:
            hint = (
                f"files there end in {', '.join(EXPORT_FILE_KINDS)}; or name a path, or a pattern such as /exports/**/*.csv.gz"
            )
            raise InputError("has no export file", field=self._where, hint=hint)


@contextmanager
def _open_object(aws: AwsClients, region: str, bucket: str, key: str) -> Iterator[io.BufferedReader]:
    """The bytes of one object. A ProviderError where it cannot be had."""
    found = call_operation(aws, "s3", region, "get_object", Bucket=bucket, Key=key)
    yield io.BufferedReader(io.BytesIO(found["Body"].read()))


def _list_keys(aws: AwsClients, region: str, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    """What S3 says of each export file under the prefix. A ProviderError where it cannot be listed, or has no end."""
    token = ""
    for _ in range(MOST_PAGES):
        more: dict[str, Any] = {"ContinuationToken": token} if token else {}
        page = call_operation(aws, "s3", region, "list_objects_v2", Bucket=bucket, Prefix=prefix, **more)
        yield from (one for one in page.get("Contents") or () if str(one.get("Key", "")).endswith(EXPORT_FILE_KINDS))
        token = str(page.get("NextContinuationToken") or "")
        if not token:
            return
    raise InvalidAnswerError(f"the list of objects under {prefix} has no end", provider="aws", account=aws.account)
