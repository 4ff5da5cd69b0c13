"""Read the rows of bill files as bill lines.

They are FOCUS exports (the FinOps billing standard, 1.0 to 1.4) or of a provider's own format.

AWS and Google write FOCUS exports into a bucket. FOCUS rows have no id, and a month that is not closed is written again every
day. So a line is identified by its bill and its subject (account, resource, price, beginning, kind of charge), and rows that
share all of these are one line with their sum: a later export of the line has the same id, and replaces it. A correction is
part of a later month's bill.

Example: two rows of i-0abc for 12:00 to 13:00 with EffectiveCost 1.0060000000 and 0.0000000004 are one line of $1.006.

A file is read record by record (a row of a CSV, an object of JSON); only the provider's `BillFormat` can interpret a record of
its own format. FOCUS is read for all providers: a provider adds its names in FOCUS files, and how it names resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache

from costguard.bills.bill_line import (
    ADDRESS,
    COMPUTE,
    CREDIT,
    INVOICED,
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

CONVERTED_TO = "USD"
"""The currency of the rates that Google's rows state, and of its price list."""

ExportRow = Mapping[str, object]

WRITTEN_NULL = "NULL"
"""How some write null in CSV, in whatever case, beside nothing at all and blanks."""


@dataclass(slots=True, kw_only=True)
class BillTally:
    """What is read of a file, in addition to its lines.

    `records`: how many. `left_out`: how many records became no line, by reason. `invoiced`: by currency, the amounts before
    amortisation and conversion. `own_totals`: the totals that the file states itself. `exported_at`: when its newest row was
    written, None if no row says.
    """

    records: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    invoiced: dict[str, Decimal] = field(default_factory=dict)
    own_totals: dict[str, Decimal] = field(default_factory=dict)
    exported_at: datetime | None = None

    def add_invoiced(self, currency: str, amount: Decimal) -> None:
        """Add an amount as invoiced."""
        self.invoiced[currency] = self.invoiced.get(currency, Decimal(0)) + amount

    def add_own_total(self, currency: str, amount: Decimal) -> None:
        """Add a total that the file states."""
        self.own_totals[currency] = self.own_totals.get(currency, Decimal(0)) + amount

    def note_export_time(self, at: datetime | None) -> None:
        """Note when a row was written."""
        if at is not None and (self.exported_at is None or at > self.exported_at):
            self.exported_at = at


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusSource:
    """The origin of rows, and how they are read.

    `provider`: its name in the ledger. `source`: the name of the statement. `as_of`: when it was made, which decides whether a
    month can be closed. `resource`, `account`: convert the provider's ResourceId and SubAccountId to the ledger's ids.
    """

    as_of: datetime
    provider: str = ""
    source: str = "FOCUS file"
    tally: BillTally = field(default_factory=BillTally)
    resource: Callable[[str], str] = lambda text: get_arn_tail(text)  # noqa: PLW0108 - it stands further down
    account: Callable[[str], str] = str


def parse_focus_lines(row: ExportRow, export: FocusSource) -> Iterator[tuple[BillLine, Decimal]]:
    """Yield the line that `row` belongs to, with amount 0, and the row's part of the amount; then its credits.

    Raises InputError if the row cannot be read.
    """
    columns = fold_columns(row)
    rate, currency = convert_currency(
        columns.get_text("BillingCurrency"), columns.get("x_CurrencyConversionRate"), "x_CurrencyConversionRate"
    )
    line, amount = _parse_line(columns, export, currency)
    yield from split_credits(line, amount, parse_credits(columns.get("x_Credits"), "x_Credits"), rate)
    export.tally.note_export_time(parse_export_instant(columns.get("x_ExportTime")))


def get_focus_provider(row: ExportRow) -> str:
    """Return the provider's name in a row; "" if no column states it.

    FOCUS 1.4 has dropped ProviderName.
    """
    columns = fold_columns(row)
    return next(filter(None, (columns.get_text(name).strip() for name in _PROVIDER_COLUMNS)), "")


def find_missing_columns(names: Iterable[str]) -> tuple[str, ...]:
    """Return the FOCUS columns that every line needs and that `names` lacks."""
    columns = {fold_column(name) for name in names}
    missing = [name for name in _NEEDED if fold_column(name) not in columns]
    costs = {fold_column(EFFECTIVE_COST), fold_column(BILLED_COST)}
    return (*missing, *(() if costs & columns else (f"{EFFECTIVE_COST} or {BILLED_COST}",)))


def get_arn_tail(name: str) -> str:
    """Return the last part of an ARN, which is the id in EC2; other names are returned as they are.

    Example: `arn:aws:ec2:us-east-1:1:instance/i-0abc` gives i-0abc.
    """
    return name.rsplit("/", 1)[-1].rsplit(":", 1)[-1] if name.startswith("arn:") else name


def parse_export_instant(value: object) -> datetime | None:
    """Return an instant of an export: a text, or a value of a Parquet file.

    Without an offset it is in UTC. None: it cannot be read as an instant.
    """
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
    return parse_instant(value.isoformat() if isinstance(value, date) else value)


def fold_columns(row: ExportRow) -> _FocusColumns:
    """Return `row` by column names that ignore case and underscores: BilledCost, billed_cost."""
    return _FocusColumns(row, _fold_names(tuple(row)))


@lru_cache(maxsize=64)
def _fold_names(names: tuple[str, ...]) -> Mapping[str, str]:
    """Return folded name -> column, the first of equal ones.

    Cached, because every row of a file has the same columns.
    """
    return {fold_column(str(name)): name for name in reversed(names)}


class _FocusColumns:
    __slots__ = ("_columns", "_row")

    def __init__(self, row: ExportRow, columns: Mapping[str, str]) -> None:
        self._row, self._columns = row, columns

    def get(self, name: str) -> object:
        """Return the value of the FOCUS column `name`; None if it is missing or empty."""
        column = self._columns.get(fold_column(name))
        value = None if column is None else self._row.get(column)
        return None if isinstance(value, str) and (not value or value.isspace() or value.upper() == WRITTEN_NULL) else value

    def get_text(self, name: str) -> str:
        """Return the same value as text that a database stores, "" for None."""
        value = self.get(name)
        return "" if value is None else make_storable(shorten(str(value), LONGEST_ID))


_PROVIDER_COLUMNS = ("ServiceProviderName", "ProviderName", "HostProviderName", "InvoiceIssuerName")
_NEEDED = ("ChargePeriodStart", "ChargePeriodEnd", "BillingCurrency", "ChargeCategory")


@lru_cache(maxsize=4096)
def fold_column(name: str) -> str:
    """Return the name of a column without case and underscores."""
    return name.lower().replace("_", "")


def _parse_line(row: _FocusColumns, export: FocusSource, currency: str) -> tuple[BillLine, Decimal]:
    """Return the line in `currency` that a row belongs to, and the row's part of its amount in the row's own."""
    column = EFFECTIVE_COST if row.get(EFFECTIVE_COST) is not None else BILLED_COST
    amount = parse_bill_amount(row.get(column), column)
    if row.get(BILLED_COST) is not None:
        export.tally.add_invoiced(row.get_text("BillingCurrency"), parse_bill_amount(row.get(BILLED_COST), BILLED_COST))
    start, end = _require_export_instant(row, "ChargePeriodStart"), _require_export_instant(row, "ChargePeriodEnd")
    payer = row.get_text("BillingAccountId")
    sub_account = row.get_text("SubAccountId")
    is_payer = sub_account.rpartition("/")[2] in ("", payer.rpartition("/")[2])
    account = (_find_project(row) if is_payer else "") or export.account(sub_account) or payer
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
        source=f"{export.source}, {column}{INVOICED * (row.get('InvoiceId') is not None)}",
        statement=FOCUS_STATEMENT,
        description=to_one_line(row.get_text("ChargeDescription")),
    ), amount


def _find_project(row: _FocusColumns) -> str:
    """Return the id of the project in `x_Project`, for rows whose SubAccountId is the billing account; "" if there is none.

    Google's FOCUS view and export have it as a struct, tables made of them as plain text or as columns. In costguard's own
    exports, which have `x_ChargeKind`, it is a label.
    """
    if row.get("x_ChargeKind") is not None:
        return ""
    value = row.get("x_Project")
    its = {str(name).lower(): its for name, its in value.items()} if isinstance(value, Mapping) else {"id": value}
    project = its.get("id") or row.get("x_Project.id") or row.get("x_Project_id")
    return "" if project is None else make_storable(shorten(str(project).strip(), LONGEST_ID))


def parse_credits(value: object, field: str) -> list[tuple[str, Decimal]]:
    """Return (type, amount) of the credits of a Google row, a list of structs.

    Raises InputError if it is anything else.
    """
    amounts = list[tuple[str, Decimal]]()
    for one in value if isinstance(value, list) else [] if value is None else [value]:
        if not isinstance(one, Mapping):
            raise InputError(f"is not a list of credits: {shorten(repr(value), 40)}", field=field)
        its = {str(name).lower(): part for name, part in one.items()}
        kind = to_one_line(shorten(str(its.get("type") or its.get("name") or "credit"), LONGEST_PAYER))
        amounts.append((kind, parse_bill_amount(its.get("amount"), f"{field}.amount")))
    return amounts


def split_credits(
    line: BillLine, amount: Decimal, of_types: Iterable[tuple[str, Decimal]], rate: Decimal
) -> Iterator[tuple[BillLine, Decimal]]:
    """Yield `line` with `amount` less its credits `of_types`, and a line for each credit, all divided by `rate`."""
    parts = list(of_types)
    yield line, (amount - sum(part for _, part in parts)) / rate
    for kind, part in parts:
        name = f"{line.id}|{_escape_part(kind)}"
        yield replace(line, id=name, charge=CREDIT, description=f"{kind}: {line.description}"), part / rate


def convert_currency(currency: str, rate: object, field: str) -> tuple[Decimal, str]:
    """Return by what amounts are divided, and their currency then: USD at the rate that a Google row states.

    Example: "EUR" at 0.92 EUR a USD gives (0.92, "USD"). Without a rate the currency stays as it is.
    """
    if currency == CONVERTED_TO or rate is None:
        return Decimal(1), currency
    per_usd = parse_bill_amount(rate, field)
    if per_usd <= 0:
        raise InputError(f"is not an exchange rate: {shorten(str(rate), 40)}", field=field)
    return per_usd, CONVERTED_TO


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
    """Return the line's id, with the instant in FOCUS's form, so that an export as CSV and as Parquet gives one bill."""
    period = {"ChargePeriodStart": format_export_instant(start)}
    return build_line_id(bill, (*(period.get(name) or row.get_text(name) for name in _ID_COLUMNS), currency))


def _find_billing_start(row: _FocusColumns, start: datetime) -> datetime:
    """Return the start of the billing period of a row; if it is not stated, the start of its month."""
    begin, end = parse_export_instant(row.get("BillingPeriodStart")), parse_export_instant(row.get("BillingPeriodEnd"))
    return begin or find_month_start(start if end is None else end - INSTANT_CHARGE_LENGTH)


def find_month_start(at: datetime) -> datetime:
    """Return the first instant of the month of `at`, in UTC."""
    return at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def build_bill_name(statement: str, payer: str, start: datetime) -> str:
    """Return the name of a bill that is delivered again as a whole until it is closed: statement, payer and start."""
    return "|".join((statement, _escape_part(shorten(payer, LONGEST_PAYER)), format_export_instant(start)))


def build_line_id(bill: str, parts: Iterable[str]) -> str:
    """Return the id of a line of `bill` with the identifying `parts`."""
    return "|".join((bill, *map(_escape_part, parts)))


def _escape_part(part: str) -> str:
    return part.replace("\\", "\\\\").replace("|", "\\|")


def format_export_instant(at: datetime) -> str:
    """Return an instant as `2026-11-20T12:00:00Z`, with a fraction if there is one."""
    return f"{at.replace(tzinfo=None).isoformat()}Z"


def _require_export_instant(row: _FocusColumns, column: str) -> datetime:
    at = parse_export_instant(row.get(column))
    if at is None:
        raise InputError(f"is not a time: {shorten(repr(row.get(column)), 40)}", field=column)
    return at


def _is_estimated(row: _FocusColumns, as_of: datetime) -> bool:
    """Return whether the line can still change: it has no invoice, and its month ended less than `CLOSED_AFTER` ago."""
    if row.get("InvoiceId") is not None:
        return False
    as_of = parse_export_instant(row.get("x_ExportTime")) or as_of
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


@lru_cache(maxsize=4096)
def classify_charge(category: str, *terms: str) -> str:
    """Return the kind of charge of a row.

    `terms`: the provider's terms for it, the most exact first; the first known one decides.
    """
    if category.lower() in _BY_CATEGORY:
        return _BY_CATEGORY[category.lower()]
    for text in map(str.lower, terms):
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
    """Facts about a file in addition to its records.

    `account`: used where no record names one. `as_of`: when it was made. `tally`: where readers note what becomes no line.
    `bucket`: how long the buckets of records are that do not state it.
    """

    account: str
    as_of: datetime
    bucket: timedelta = timedelta(0)
    tally: BillTally = field(default_factory=BillTally)


@dataclass(frozen=True, slots=True, kw_only=True)
class BillFormat:
    """One format of a provider's bill.

    `name`: for people. `known`: whether a record has this format, by its keys. `read`: returns the parts of a record, none for
    a record that is no charge (a payment); raises InputError for one that cannot be read. `says_whose`: whether records name
    their account. `sums`: whether records with one line id add up; else each states the full amount, and the last one counts.
    `omits`: what a record without parts is, for people. `finish`: gets the keys beside the lists of records, page by page,
    after the last record; it notes the totals that they state, and raises InputError if records are missing. `survey`: returns
    how long the buckets of all records are, where no record states it.
    """

    name: str
    known: Callable[[BillFileRecord], bool]
    read: Callable[[BillFileRecord, BillFileFacts], Iterable[BillLinePart]]
    says_whose: bool = False
    sums: bool = True
    omits: str = "records without a charge"
    finish: Callable[[Sequence[BillFileRecord], BillTally], None] | None = None
    survey: Callable[[Iterable[BillFileRecord]], timedelta] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BillFiles:
    """The formats and names of one provider's bill files.

    `formats`: its own. `called`: its names in FOCUS files. `resource`, `account`: convert a FOCUS ResourceId and SubAccountId
    to the ledger's ids.
    """

    formats: tuple[BillFormat, ...] = ()
    called: tuple[str, ...] = ()
    resource: Callable[[str], str] = get_arn_tail
    account: Callable[[str], str] = str


def sum_bill_lines(parts: Iterable[BillLinePart], period: Period, *, sums: bool = True) -> BillLines:
    """Return the lines that overlap `period`, uncut, oldest first, each rounded once, half to even.

    `sums`: as in `BillFormat`. A line ends with the last of its parts. `why` counts the lines beyond `MOST_BILL_LINES`.
    """
    lines, over = dict[str, BillLinePart](), 0
    for line, amount in parts:
        if not (line.start < period.end and period.start < line.end):
            continue
        old_part = lines.get(line.id)
        if old_part is None and len(lines) >= MOST_BILL_LINES:
            over += 1
            continue
        lines[line.id] = (line, amount) if old_part is None or not sums else _add_parts(old_part, (line, amount))
    bill_lines = sorted((_round_line(line, amount) for line, amount in lines.values()), key=lambda line: (line.start, line.id))
    why = f"{over} lines beyond {MOST_BILL_LINES:,} were left out: copy the files, and name them with --file" if over else ""
    return BillLines(lines=tuple(bill_lines), why=why)


def _add_parts(one: BillLinePart, other: BillLinePart) -> BillLinePart:
    longer = one[0] if other[0].end <= one[0].end else other[0]
    amount = Money(nano=one[0].amount.nano + other[0].amount.nano, currency=longer.amount.currency)
    return replace(longer, amount=amount, estimated=one[0].estimated or other[0].estimated), one[1] + other[1]


def _round_line(line: BillLine, amount: Decimal) -> BillLine:
    """Return `line` with `amount` added, rounded to nano-units: exports state ten and more decimals."""
    nano = line.amount.nano + int(amount.scaleb(9).to_integral_value())
    return replace(line, amount=Money(nano=nano, currency=line.amount.currency))
