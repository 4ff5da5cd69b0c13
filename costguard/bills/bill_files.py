"""Rows of a FOCUS export (the FinOps billing standard, 1.0 to 1.4) as bill lines: what AWS and Google write into a bucket.

FOCUS gives no row a name, and a month that is not closed is written anew every day. So a line is named by the bill it stands
in and by what it is about (account, resource, price, beginning, kind of charge), and rows that share all of that are one line
with their sum: what a later export says of it has the same id, and replaces it. A correction stands in a later month's bill.

Example: two rows of i-0abc for 12:00 to 13:00 with EffectiveCost 1.0060000000 and 0.0000000004 are one line of $1.006.

What a provider says of its bills as files: how a record of one is recognised, and how it becomes lines.

A file is read record by record (a row of a CSV, an object of JSON), whoever wrote it; only its provider knows what a record
means. FOCUS is read for everybody (`focus_rows`): a provider adds what it is called there, and how it names resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache

from costguard.bills.bill_line import (
    ADDRESS,
    COMPUTE,
    CREDIT,
    OTHER,
    STORAGE,
    TAX,
    TRAFFIC,
    BillLine,
    BillLines,
    parse_bill_amount,
)
from costguard.errors import InputError, shorten, to_one_line
from costguard.values.calendar import Period
from costguard.values.instant import parse_instant
from costguard.values.money import Money
from costguard.values.resource import make_storable

EFFECTIVE_COST, BILLED_COST = "EffectiveCost", "BilledCost"
"""Amortised over what a commitment covers, which counts; and as invoiced, where a row lacks the other."""

FOCUS_STATEMENT = "focus"
"""Which statement of a provider's it is: its rows are never added to those of another one."""

CLOSED_AFTER = timedelta(days=7)
"""A month without an invoice number counts as closed this long after its end: an assumption, 2026-11."""

INSTANT_CHARGE_LENGTH = timedelta(seconds=1)
"""What a row reaches over that ends when it begins, as rows of taxes and roundings do."""

LONGEST_ID, LONGEST_PAYER = 300, 64

ExportRow = Mapping[str, object]

WRITTEN_NULL = "NULL"
"""How some write null in CSV, in whatever case, beside nothing at all and blanks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusSource:
    """Where rows come from and how they are read.

    `provider`: the ledger's name for it. `source` names the statement. `as_of`: when it was made, which says whether a month
    can be closed. `resource`: the provider's ResourceId as the ledger's id.
    """

    provider: str
    source: str
    as_of: datetime
    resource: Callable[[str], str] = lambda stated: get_arn_tail(stated)  # noqa: PLW0108 - it stands further down


def parse_focus_line(row: ExportRow, export: FocusSource) -> tuple[BillLine, Decimal]:
    """The line that `row` belongs to, of no amount yet, and the row's part of it; InputError where it cannot be read."""
    return _parse_line(_fold_columns(row), export)


def get_focus_provider(row: ExportRow) -> str:
    """Who provides what a row charges for, as the row calls them; "" where no column says so. 1.4 has dropped ProviderName."""
    columns = _fold_columns(row)
    return next(filter(None, (columns.get_text(name).strip() for name in _PROVIDER_COLUMNS)), "")


def find_missing_columns(names: Iterable[str]) -> tuple[str, ...]:
    """The FOCUS columns that no line can do without and that `names` lacks."""
    there = {_fold_column(name) for name in names}
    missing = [name for name in _NEEDED if _fold_column(name) not in there]
    costs = {_fold_column(EFFECTIVE_COST), _fold_column(BILLED_COST)}
    return (*missing, *(() if costs & there else (f"{EFFECTIVE_COST} or {BILLED_COST}",)))


def get_arn_tail(stated: str) -> str:
    """The last part of an ARN, as EC2 names things: `arn:aws:ec2:us-east-1:1:instance/i-0abc` is i-0abc; others as they are."""
    return stated.rsplit("/", 1)[-1].rsplit(":", 1)[-1] if stated.startswith("arn:") else stated


def parse_export_instant(value: object) -> datetime | None:
    """An instant as exports write it: a text, or what a Parquet file holds; without an offset it is in UTC."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
    return parse_instant(value.isoformat() if isinstance(value, date) else value)


def _fold_columns(row: ExportRow) -> _FocusColumns:
    """`row` by the names of its columns whatever their case, with or without underscores: BilledCost, billed_cost."""
    return _FocusColumns(row, _fold_names(tuple(row)))


@lru_cache(maxsize=64)
def _fold_names(names: tuple[str, ...]) -> Mapping[str, str]:
    """Folded name -> column, the first one of those that are alike: every row of a file has the same ones."""
    return {_fold_column(str(name)): name for name in reversed(names)}


class _FocusColumns:
    __slots__ = ("_columns", "_row")

    def __init__(self, row: ExportRow, columns: Mapping[str, str]) -> None:
        self._row, self._columns = row, columns

    def get(self, name: str) -> object:
        """The value of the FOCUS column `name`; None where it is missing or empty."""
        column = self._columns.get(_fold_column(name))
        value = None if column is None else self._row.get(column)
        return None if isinstance(value, str) and (not value or value.isspace() or value.upper() == WRITTEN_NULL) else value

    def get_text(self, name: str) -> str:
        """The same as text that a database holds, "" for none."""
        value = self.get(name)
        return "" if value is None else make_storable(shorten(str(value), LONGEST_ID))


_PROVIDER_COLUMNS = ("ServiceProviderName", "ProviderName", "HostProviderName", "InvoiceIssuerName")
_NEEDED = ("ChargePeriodStart", "ChargePeriodEnd", "BillingCurrency", "ChargeCategory")


def _fold_column(name: str) -> str:
    return name.lower().replace("_", "")


def _parse_line(row: _FocusColumns, export: FocusSource) -> tuple[BillLine, Decimal]:
    """The line that a row belongs to, and the row's part of its amount."""
    column = EFFECTIVE_COST if row.get(EFFECTIVE_COST) is not None else BILLED_COST
    amount, currency = parse_bill_amount(row.get(column), column), row.get_text("BillingCurrency")
    start, end = _require_export_instant(row, "ChargePeriodStart"), _require_export_instant(row, "ChargePeriodEnd")
    payer = row.get_text("BillingAccountId")
    account = row.get_text("SubAccountId") or payer
    bill = build_bill_name(FOCUS_STATEMENT, payer, _find_billing_start(row, start))
    return BillLine(
        id=_build_id(row, bill, start, currency),
        bill=bill,
        provider=export.provider,
        account=account,
        start=start,
        end=end if start != end else start + INSTANT_CHARGE_LENGTH,
        amount=Money(nano=0, currency=currency),
        charge=classify_charge(row.get_text("ChargeCategory"), *(row.get_text(name) for name in _KIND_COLUMNS)),
        resource_id=export.resource(row.get_text("ResourceId")),
        region=row.get_text("RegionId"),
        estimated=_is_estimated(row, export.as_of),
        source=f"{export.source}, {column}",
        statement=FOCUS_STATEMENT,
        description=to_one_line(row.get_text("ChargeDescription")),
    ), amount


_ID_COLUMNS = (
    "SubAccountId",
    "ResourceId",
    "SkuPriceId",
    "SkuId",
    "ChargePeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "PricingCategory",
    "CommitmentDiscountId",
    "CommitmentDiscountStatus",
    "CapacityReservationId",
    "CapacityReservationStatus",
    "x_UsageType",
    "x_Operation",
    "ChargeDescription",
)
"""Tags are not among them: a tag that is set later rewrites the month, and would leave the old line beside the new one. Nor is
the end: the last bucket of a bill that is not closed grows, and what is stated of it later replaces what was."""


def _build_id(row: _FocusColumns, bill: str, start: datetime, currency: str) -> str:
    """The instant as FOCUS writes it, however the file does: an export as CSV and as Parquet is one bill."""
    period = {"ChargePeriodStart": format_export_instant(start)}
    return build_line_id(bill, (*(period.get(name) or row.get_text(name) for name in _ID_COLUMNS), currency))


def _find_billing_start(row: _FocusColumns, start: datetime) -> datetime:
    """When the billing period of a row begins; where it does not say so, that of its month."""
    stated, end = parse_export_instant(row.get("BillingPeriodStart")), parse_export_instant(row.get("BillingPeriodEnd"))
    return stated or find_month_start(start if end is None else end - INSTANT_CHARGE_LENGTH)


def find_month_start(at: datetime) -> datetime:
    """The first instant of the month of `at`, in UTC."""
    return at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def build_bill_name(statement: str, payer: str, start: datetime) -> str:
    """What a bill is called that is delivered whole, and anew until it is closed: whose it is, and since when it bills."""
    return "|".join((statement, _escape_part(shorten(payer, LONGEST_PAYER)), format_export_instant(start)))


def build_line_id(bill: str, parts: Iterable[str]) -> str:
    """The name of a line of `bill` that is about `parts`."""
    return "|".join((bill, *map(_escape_part, parts)))


def _escape_part(part: str) -> str:
    return part.replace("\\", "\\\\").replace("|", "\\|")


def format_export_instant(at: datetime) -> str:
    """`2026-11-20T12:00:00Z`, with a fraction where there is one."""
    return f"{at.replace(tzinfo=None).isoformat()}Z"


def _require_export_instant(row: _FocusColumns, column: str) -> datetime:
    at = parse_export_instant(row.get(column))
    if at is None:
        raise InputError(f"is not an instant: {shorten(repr(row.get(column)), 40)}", field=column)
    return at


def _is_estimated(row: _FocusColumns, as_of: datetime) -> bool:
    """Whether the line can still change: it has no invoice, and its month is not long over."""
    if row.get("InvoiceId") is not None:
        return False
    closes = parse_export_instant(row.get("BillingPeriodEnd")) or parse_export_instant(row.get("ChargePeriodEnd"))
    return closes is None or as_of < closes + CLOSED_AFTER


_KIND_COLUMNS = ("x_UsageType", "SkuMeter", "ResourceType", "ChargeDescription", "ServiceSubcategory", "ServiceCategory")

_BY_CATEGORY = {"tax": TAX, "credit": CREDIT, "purchase": OTHER, "adjustment": OTHER}

_WORDS = (
    (ADDRESS, ("publicipv4", "elasticip", "external ip", "static ip", "ipv4 address", "ip address")),
    (TRAFFIC, ("datatransfer", "data transfer", "-bytes", "egress", "network internet", "natgateway", "networking")),
    (STORAGE, ("ebs:", "snapshot", "timedstorage", "storage", "local ssd", "pd capacity", "persistent disk", "hyperdisk")),
    (STORAGE, ("block volume",)),
    (
        COMPUTE,
        ("boxusage", "spotusage", "dedicatedusage", "hostusage", "unusedbox", "reservation:", "capacityblock"),
    ),
    (COMPUTE, ("compute", "virtual machine", "instance", "gpu", "ai and machine learning")),
)
"""Words of usage types, meters and FOCUS's own service categories, in the order of trial within one column."""


def classify_charge(category: str, *told: str) -> str:
    """What a row is a charge for. `told`: what the provider calls it, the most exact word first; the first known decides."""
    if category.lower() in _BY_CATEGORY:
        return _BY_CATEGORY[category.lower()]
    for text in map(str.lower, told):
        for charge, words in _WORDS:
            if any(word in text for word in words):
                return charge
    return OTHER


MOST_BILL_LINES = 1_000_000
"""Lines of one answer that are kept: a month of 1,300 machines by the hour. About 1 GB of memory."""

BillFileRecord = Mapping[str, object]
BillLinePart = tuple[BillLine, Decimal]
"""A line of no amount yet, and what one record adds to it: records that share a line's id are one line with their sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillFileFacts:
    """What is known of a file beside its records. `account`: whose it is where no record says so. `as_of`: when it was made."""

    account: str
    as_of: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BillFormat:
    """One way in which a provider writes its bill.

    `name`: for people. `known`: whether a record is of this kind, by its keys. `read`: the parts of a record, none for what is
    no charge (a payment); InputError for one that cannot be read. `says_whose`: whether records name their account. `sums`:
    whether records of one line's id add up to it; else each states all of it, and the last one counts.
    """

    name: str
    known: Callable[[BillFileRecord], bool]
    read: Callable[[BillFileRecord, BillFileFacts], Iterable[BillLinePart]]
    says_whose: bool = False
    sums: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BillFiles:
    """A provider's own `formats`. `called`: its names in FOCUS files. `resource`: a FOCUS ResourceId as the ledger's id."""

    formats: tuple[BillFormat, ...] = ()
    called: tuple[str, ...] = ()
    resource: Callable[[str], str] = get_arn_tail


def sum_bill_lines(parts: Iterable[BillLinePart], period: Period, *, sums: bool = True) -> BillLines:
    """The lines of `period` (those that reach into it, whole), oldest first, each rounded once, half to even.

    `sums`: as of a `BillFormat`. A line reaches as far as the longest of its parts. `why` counts what is beyond MOST_LINES.
    """
    lines, over = dict[str, BillLinePart](), 0
    for line, amount in parts:
        if not (line.start < period.end and period.start < line.end):
            continue
        known = lines.get(line.id)
        if known is None and len(lines) >= MOST_BILL_LINES:
            over += 1
            continue
        lines[line.id] = (line, amount) if known is None or not sums else _add_parts(known, (line, amount))
    whole = sorted((_round_line(line, amount) for line, amount in lines.values()), key=lambda line: (line.start, line.id))
    why = f"{over} lines beyond {MOST_BILL_LINES:,} were left out: copy the files, and name them with --file" if over else ""
    return BillLines(lines=tuple(whole), why=why)


def _add_parts(one: BillLinePart, other: BillLinePart) -> BillLinePart:
    longer = one[0] if other[0].end <= one[0].end else other[0]
    amount = Money(nano=one[0].amount.nano + other[0].amount.nano, currency=longer.amount.currency)
    return replace(longer, amount=amount, estimated=one[0].estimated or other[0].estimated), one[1] + other[1]


def _round_line(line: BillLine, amount: Decimal) -> BillLine:
    """Exports state ten and more decimals."""
    nano = line.amount.nano + int(amount.scaleb(9).to_integral_value())
    return replace(line, amount=Money(nano=nano, currency=line.amount.currency))
