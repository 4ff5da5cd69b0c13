"""The bill files that AWS writes to S3 (FOCUS, CUR), or local copies of them; and the reader of CUR rows.

The setting `focus_export` names their place: a path, a folder or a pattern (`/exports/**/*.csv.gz`), or `s3://bucket/prefix`.
This module finds the files; `costguard.bills` reads them.

Cost and Usage Reports (CUR, and CUR 2.0 of Data Exports) are AWS's format before FOCUS. Costs are amortised, as in AWS's own
query library: usage covered by a savings plan or a reservation counts at its effective cost in the hour of use, and of the
commitment itself only the unused part counts. A row's id changes with every export, so a line is identified by its content, as
FOCUS rows are (bills/bill_files.py).

Example: lineItem/LineItemType "Usage", lineItem/UsageType "USW2-BoxUsage:p5.48xlarge", lineItem/UnblendedCost "98.32".
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlsplit

from costguard.bills.bill_files import (
    INSTANT_CHARGE_LENGTH,
    BillFileFacts,
    BillFileRecord,
    BillFormat,
    BillLinePart,
    build_bill_name,
    build_line_id,
    classify_charge,
    find_month_start,
    format_export_instant,
    get_arn_tail,
    parse_export_instant,
)
from costguard.bills.bill_line import CREDIT, INVOICED, OTHER, TAX, BillLine, BillLines, parse_bill_amount
from costguard.errors import InputError, InvalidAnswerError, shorten, to_one_line
from costguard.providers.context import BillFilePiece, BillReader
from costguard.system.clock import Clock
from costguard.values.calendar import Period
from costguard.values.money import Money
from costguard.values.resource import make_storable
from costguard_aws.cost_explorer import SETTLED, parse_usage_region
from costguard_aws.errors import AwsClients, call_operation

S3 = "s3://"
MOST_PAGES = 100
"""Of a thousand objects each."""
MOST_OBJECT = 16 * 2**20
"""Of one object read from S3, as the transport takes no larger body: greater exports are copied first (`aws s3 sync`)."""

EXPORT_FILE_KINDS = (".csv", ".csv.gz", ".parquet")
REGION = "us-east-1"


class FocusExport:
    """The export of one account.

    `where`: the value of the setting; for an s3:// address `aws` sends requests to the bucket's `region`.
    """

    def __init__(
        self, where: str, bills: BillReader, clock: Clock, aws: AwsClients | None = None, *, region: str = REGION
    ) -> None:
        self._where, self._bills, self._clock, self._aws, self._region = where, bills, clock, aws, region

    def fetch_bill_lines(self, period: Period) -> BillLines:
        """Return the lines of `period`.

        Raises InputError if there is no such file or one cannot be read, and a ProviderError of S3.
        """
        pieces = list(self._list_objects()) if self._where.startswith(S3) else self._bills.find_pieces(self._where)
        return self._bills.read_bill("aws", pieces, period, self._clock.now())

    def _list_objects(self) -> Iterator[BillFilePiece]:
        """Yield the export files under the prefix; raises InputError if there are none, or one is too large for this."""
        if self._aws is None:
            raise InputError("an s3:// address needs an AWS account", field="focus_export")
        parts, count = urlsplit(self._where), 0
        for one in _list_keys(self._aws, self._region, parts.netloc, parts.path.lstrip("/")):
            name, count = f"{S3}{parts.netloc}/{one['Key']}", count + 1
            if int(one.get("Size") or 0) > MOST_OBJECT:
                hint = "copy the export with `aws s3 sync`, and name the folder in focus_export"
                raise InputError(f"has {one['Size']} bytes, too many to be read from S3", field=name, hint=hint)
            modified_at = one.get("LastModified")
            opened = partial(_open_object, self._aws, self._region, parts.netloc, str(one["Key"]))
            yield BillFilePiece(name=name, opened=opened, made_at=modified_at if isinstance(modified_at, datetime) else None)
        if not count:
            hint = (
                f"files there end in {', '.join(EXPORT_FILE_KINDS)}; or name a path, or a pattern such as /exports/**/*.csv.gz"
            )
            raise InputError("has no export file", field=self._where, hint=hint)


@contextmanager
def _open_object(aws: AwsClients, region: str, bucket: str, key: str) -> Iterator[io.BufferedReader]:
    """Open the bytes of one object; raises a ProviderError if it cannot be fetched."""
    answer = call_operation(aws, "s3", region, "get_object", Bucket=bucket, Key=key)
    yield io.BufferedReader(io.BytesIO(answer["Body"].read()))


def _list_keys(aws: AwsClients, region: str, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield S3's entry for each export file under the prefix.

    Raises a ProviderError if it cannot be listed or the list has no end.
    """
    token = ""
    for _ in range(MOST_PAGES):
        more: dict[str, Any] = {"ContinuationToken": token} if token else {}
        page = call_operation(aws, "s3", region, "list_objects_v2", Bucket=bucket, Prefix=prefix, **more)
        yield from (one for one in page.get("Contents") or () if str(one.get("Key", "")).endswith(EXPORT_FILE_KINDS))
        token = str(page.get("NextContinuationToken") or "")
        if not token:
            return
    raise InvalidAnswerError(f"the list of objects under {prefix} has no end", provider="aws", account=aws.account)


STATEMENT = "cur"
LONGEST = 300

CUR_KINDS: Mapping[str, tuple[str, tuple[tuple[str, int], ...]]] = {
    "usage": ("", (("lineitemunblendedcost", 1),)),
    "discountedusage": ("", (("reservationeffectivecost", 1),)),
    "savingsplancoveredusage": ("", (("savingsplansavingsplaneffectivecost", 1),)),
    "savingsplannegation": (OTHER, ()),
    "savingsplanupfrontfee": (OTHER, ()),
    "savingsplanrecurringfee": (
        OTHER,
        (("savingsplantotalcommitmenttodate", 1), ("savingsplanusedcommitment", -1)),
    ),
    "rifee": (
        OTHER,
        (("reservationunusedamortizedupfrontfeeforbillingperiod", 1), ("reservationunusedrecurringfee", 1)),
    ),
    "tax": (TAX, (("lineitemunblendedcost", 1),)),
    "credit": (CREDIT, (("lineitemunblendedcost", 1),)),
    "refund": (CREDIT, (("lineitemunblendedcost", 1),)),
}
"""Line item type -> its charge ("": by the usage type), and the columns that its amortised cost is the sum of."""

NEEDED = ("lineitemusagestartdate", "lineitemusageenddate", "lineitemlineitemtype", "lineitemunblendedcost")
_NAMED = ("lineitemusageaccountid", "lineitemresourceid", "lineitemproductcode", "lineitemusagetype")
_NAMED_TOO = ("lineitemoperation", "lineitemavailabilityzone", "lineitemlineitemtype", "lineitemusagestartdate")
_NAMED_LAST = ("lineitemlineitemdescription", "pricingterm", "lineitemcurrencycode")
"""The end is not among them: the last bucket of a month that is not closed grows, and replaces what it was."""


def is_cur_row(record: BillFileRecord) -> bool:
    """Return whether a record is a row of a CUR."""
    return set(NEEDED) <= set(_map_columns(tuple(record)))


def read_cur_row(record: BillFileRecord, about: BillFileFacts) -> Iterator[BillLinePart]:
    """Yield the line to which a row belongs, and the row's part of it."""
    columns = _map_columns(tuple(record))

    def text(name: str) -> str:
        value = record.get(columns.get(name, ""))
        return "" if value is None else make_storable(shorten(str(value), LONGEST))

    start, end = (parse_export_instant(record.get(columns[name])) for name in NEEDED[:2])
    if start is None or end is None:
        raise InputError("is not a time", field="lineItem/UsageStartDate or UsageEndDate")
    kind = text("lineitemlineitemtype").lower()
    charge, costs = CUR_KINDS.get(kind, (OTHER, CUR_KINDS["tax"][1]))
    if kind == "fee" and text("reservationreservationarn"):
        costs = ()  # the upfront fee of a reservation, which its hours carry
    usage = text("lineitemusagetype")
    month_end = parse_export_instant(record.get(columns.get("billbillingperiodenddate", ""))) or end
    month = parse_export_instant(record.get(columns.get("billbillingperiodstartdate", ""))) or find_month_start(
        month_end - INSTANT_CHARGE_LENGTH
    )
    bill = build_bill_name(STATEMENT, text("billpayeraccountid"), month)
    names = (*_NAMED, *_NAMED_TOO, *_NAMED_LAST)
    line = BillLine(
        id=build_line_id(bill, (format_export_instant(start) if name == NEEDED[0] else text(name) for name in names)),
        bill=bill,
        provider="aws",
        account=text("lineitemusageaccountid") or text("billpayeraccountid"),
        start=start,
        end=end if start != end else start + INSTANT_CHARGE_LENGTH,
        amount=Money(nano=0, currency=text("lineitemcurrencycode") or "USD"),
        charge=charge or classify_charge("Usage", usage, text("lineitemproductcode")),
        resource_id=get_arn_tail(text("lineitemresourceid")),
        region=text("productregioncode") or text("productregion") or parse_usage_region(usage),
        estimated=not text("billinvoiceid") and about.as_of < month_end + SETTLED,
        source=f"Cost and Usage Report, amortised{INVOICED * bool(text('billinvoiceid'))}",
        statement=STATEMENT,
        description=to_one_line(text("lineitemlineitemdescription") or usage),
    )
    about.tally.add_invoiced(line.amount.currency, _parse_cost(record.get(columns.get(NEEDED[3], "")), NEEDED[3]))
    amounts = (sign * _parse_cost(record.get(columns.get(name, "")), name) for name, sign in costs)
    yield line, sum(amounts, Decimal(0))


def _parse_cost(value: object, name: str) -> Decimal:
    """Parse an amount; an empty or missing column counts as 0, except for usage, whose cost a row must state."""
    if value is None or value == "":
        if name in (*NEEDED, "reservationeffectivecost", "savingsplansavingsplaneffectivecost"):
            raise InputError("is missing", field=name, hint="include the columns of costs in the export")
        return Decimal(0)
    return parse_bill_amount(value, name)


@lru_cache(maxsize=8)
def _map_columns(names: tuple[str, ...]) -> dict[str, str]:
    """Map folded names to columns: lineItem/UsageType and line_item_usage_type are the same."""
    return {name.lower().replace("/", "").replace("_", ""): name for name in names}


CUR_FORMAT = BillFormat(name="AWS Cost and Usage Report", known=is_cur_row, read=read_cur_row, says_whose=True)
"""Compute hours of machines, their disks, addresses and traffic, and everything else on the bill."""
