"""Read rows of Google's own billing exports: the standard and the detailed usage cost tables of BigQuery.

They come as JSON lines or Parquet with nested fields, or as CSV with columns such as `project.id` or `project_id` and structs
as JSON text. `cost` is before credits: each type of credit is a line of its own. Rows of one resource, SKU and hour are one
line with their sum. A row belongs to the invoice of its `invoice.month`, a month in Pacific time; a correction of an earlier
month is part of the later invoice. In another currency than USD, amounts are converted at the `currency_conversion_rate`.

Example: cost 4.60, credits [{"type": "SUSTAINED_USAGE_DISCOUNT", "amount": -0.92}], currency "EUR" and currency_conversion_rate
0.92 are a line of $5.00 and a credit of -$1.00. Source: Google's documentation of both tables (cloud.google.com/billing/docs,
export-data-bigquery-tables, 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from costguard.bills.bill_files import (
    CLOSED_AFTER,
    INSTANT_CHARGE_LENGTH,
    BillFileFacts,
    BillFileRecord,
    BillFormat,
    BillLinePart,
    build_bill_name,
    build_line_id,
    classify_charge,
    convert_currency,
    format_export_instant,
    parse_credits,
    parse_export_instant,
    split_credits,
)
from costguard.bills.bill_line import TAX, BillLine, parse_bill_amount
from costguard.errors import InputError, shorten, to_one_line
from costguard.metering.billing import BILL_ZONES
from costguard.metering.meter import find_billing_month
from costguard.values.calendar import Period
from costguard.values.instant import from_micros, to_micros
from costguard.values.money import Money
from costguard.values.resource import make_storable
from costguard_gcp.wire import take_last_part

PACIFIC = "America/Los_Angeles"
"""Google's invoices are of calendar months in it (Google's documentation of invoice.month, 2026-11)."""
NEEDED = ("billingaccountid", "usagestarttime", "usageendtime", "cost", "currency")
UNNESTED = ("creditsamount", "creditstype", "creditsname")
LONGEST = 300
_LOCAL = re.compile(r"^(.*?)\s*(?:America/Los_Angeles|US/Pacific|P[SD]T)$")


def is_export_row(record: BillFileRecord) -> bool:
    """Return whether a record is a row of one of the two tables."""
    return set(NEEDED) <= set(_fold_names(tuple(record)))


def read_export_row(record: BillFileRecord, about: BillFileFacts) -> Iterator[BillLinePart]:
    """Yield the line to which a row belongs, with the row's part of it, and those of its credits."""
    row = _Row(record)
    if row.has(*UNNESTED):
        hint = "export the column as it is, or as TO_JSON_STRING(credits) AS credits"
        raise InputError(
            "is a column of its own: a row with two credits would state its cost twice", field="credits", hint=hint
        )
    payer, currency, kind = row.text("billing_account_id"), row.text("currency").upper(), row.text("cost_type").lower()
    start, end = row.instant("usage_start_time"), row.instant("usage_end_time")
    month = _find_invoice_month(row.text("invoice.month"), start)
    statement = "detailed export" if row.has("resource", "resourceglobalname", "resourcename") else "standard export"
    resource, sku = row.text("resource.global_name"), row.text("sku.description")
    adjustment = " ".join(filter(None, (row.text(f"adjustment_info.{name}") for name in ("type", "mode", "description"))))
    names = (resource, row.text("sku.id"), format_export_instant(start), kind, row.text("adjustment_info.id"), adjustment)
    charge = TAX if kind == "tax" else classify_charge("Usage", sku, row.text("service.description"))
    bill = build_bill_name(statement, payer, month.start)
    credited = parse_credits(row.get("credits"), "credits")
    cost = parse_bill_amount(row.get("cost"), "cost")
    amount = cost + sum(part for _, part in credited)
    about.tally.add_invoiced(currency, amount)
    exported_at = parse_export_instant(row.get("export_time"))
    about.tally.note_export_time(exported_at)
    rate, currency = convert_currency(currency, row.get("currency_conversion_rate"), "currency_conversion_rate")
    line = BillLine(
        id=build_line_id(bill, (*names, currency)),
        bill=bill,
        provider="gcp",
        account=row.text("project.id") or payer,
        start=start,
        end=max(end, start + INSTANT_CHARGE_LENGTH),
        amount=Money(nano=0, currency=currency),
        charge=charge,
        resource_id=take_last_part(resource),
        region=row.text("location.zone") or row.text("location.region"),
        estimated=(exported_at or about.as_of) < month.end + CLOSED_AFTER,
        source=f"BigQuery {statement}",
        statement=statement,
        description=to_one_line(" ".join(filter(None, (adjustment, sku or kind)))),
    )
    yield from split_credits(line, amount, credited, rate)


class _Row:
    """The fields of a row, by their names in Google's schema, nested or not."""

    def __init__(self, record: BillFileRecord) -> None:
        self._record, self._columns = record, _fold_names(tuple(record))

    def has(self, *folded: str) -> bool:
        return any(name in self._columns for name in folded)

    def get(self, path: str) -> object:
        """Return the value at `path` ("project.id"); None if it is missing or empty."""
        column = self._columns.get(_fold(path))
        if column is not None:
            value = _parse_nested(self._record[column])
            return None if value == "" else value
        outer, _, inner = path.partition(".")
        column = self._columns.get(_fold(outer))
        struct = _parse_nested(self._record[column]) if inner and column is not None else None
        value = struct.get(inner) if isinstance(struct, Mapping) else None
        return None if value == "" else value

    def text(self, path: str) -> str:
        value = self.get(path)
        return "" if value is None else make_storable(shorten(str(value), LONGEST))

    def instant(self, path: str) -> datetime:
        """Return an instant: with an offset, in UTC, or on the clock of Los Angeles if the text names it."""
        value = self.get(path)
        local = _LOCAL.match(value.strip()) if isinstance(value, str) else None
        at = parse_export_instant(local[1] if local else value)
        if at is None:
            raise InputError(f"is not a time: {shorten(repr(value), 40)}", field=path)
        return at.replace(tzinfo=_load_pacific()).astimezone(at.tzinfo) if local else at


def _find_invoice_month(text: str, start: datetime) -> Period:
    """Return the month of "202611"; if it is not stated, the month of the usage. Raises InputError for anything else."""
    at_us = to_micros(start)
    if text and not re.fullmatch(r"20\d\d(0[1-9]|1[0-2])", text, re.ASCII):
        raise InputError(f"is not a month such as 202611: {shorten(text, 40)}", field="invoice.month")
    if text:
        at_us = to_micros(datetime(int(text[:4]), int(text[4:]), 15, tzinfo=UTC))
    _, start_us, length_us = find_billing_month(BILL_ZONES[PACIFIC], at_us)
    return Period(start=from_micros(start_us), end=from_micros(start_us + length_us))


def _load_pacific() -> ZoneInfo:
    try:
        return ZoneInfo(PACIFIC)
    except ZoneInfoNotFoundError:
        raise InputError("has a time of Los Angeles, and this system has no data of time zones", field="time") from None


def _parse_nested(value: object) -> object:
    """Return a value as it is, or parsed if it is the JSON text of a struct or a list."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        nested: object = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value
    return nested


@lru_cache(maxsize=8)
def _fold_names(names: tuple[str, ...]) -> Mapping[str, str]:
    """Return folded name -> column: `project.id`, `project_id` and `projectId` are the same."""
    return {_fold(str(name)): name for name in reversed(names)}


def _fold(name: str) -> str:
    return re.sub(r"[._/ ]", "", name).lower()


EXPORT_FORMAT = BillFormat(
    name="Google's standard or detailed export (CSV, JSON lines, Parquet)",
    known=is_export_row,
    read=read_export_row,
    says_whose=True,
)
"""Every row, of Compute Engine or not."""
