"""Cost and Usage Reports (CUR, and CUR 2.0 as Data Exports write it) as bill lines: what AWS wrote before it wrote FOCUS.

Costs are amortised, as AWS's own query library does it: what a savings plan or a reservation covers counts at its effective
cost in the hour in which it was used, and of the commitment itself only what was not used. A row has an id that changes with
every export, so a line is named by what it is about, as FOCUS rows are (core/focus_rows.py).

Example: lineItem/LineItemType "Usage", lineItem/UsageType "USW2-BoxUsage:p5.48xlarge", lineItem/UnblendedCost "98.32".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache

from costguard.bills.bill_files import BillFileFacts, BillFileRecord, BillFormat, BillLinePart
from costguard.bills.bill_line import CREDIT, OTHER, TAX, BillLine, parse_bill_amount
from costguard.bills.focus_rows import (
    INSTANT_CHARGE_LENGTH,
    build_bill_name,
    build_line_id,
    classify_charge,
    find_month_start,
    format_export_instant,
    get_arn_tail,
    parse_export_instant,
)
from costguard.errors import InputError, shorten, to_one_line
from costguard.values.money import Money
from costguard.values.resource import make_storable
from costguard_aws.cost_explorer import SETTLED, parse_usage_region

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
    """Whether a record is a row of a CUR."""
    return set(NEEDED) <= set(_map_columns(tuple(record)))


def read_cur_row(record: BillFileRecord, about: BillFileFacts) -> Iterator[BillLinePart]:
    """The line that a row belongs to, and the row's part of it."""
    columns = _map_columns(tuple(record))

    def text(name: str) -> str:
        value = record.get(columns.get(name, ""))
        return "" if value is None else make_storable(shorten(str(value), LONGEST))

    start, end = (parse_export_instant(record.get(columns[name])) for name in NEEDED[:2])
    if start is None or end is None:
        raise InputError("is no instant", field="lineItem/UsageStartDate or UsageEndDate")
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
        source="Cost and Usage Report, amortised",
        statement=STATEMENT,
        description=to_one_line(text("lineitemlineitemdescription") or usage),
    )
    amounts = (sign * _parse_cost(record.get(columns.get(name, "")), name) for name, sign in costs)
    yield line, sum(amounts, Decimal(0))


def _parse_cost(value: object, name: str) -> Decimal:
    """An amount; a column that is empty or not there adds nothing but to usage, whose cost a row must state."""
    if value is None or value == "":
        if name in (*NEEDED, "reservationeffectivecost", "savingsplansavingsplaneffectivecost"):
            raise InputError("is missing", field=name, hint="include the columns of costs in the export")
        return Decimal(0)
    return parse_bill_amount(value, name)


@lru_cache(maxsize=8)
def _map_columns(names: tuple[str, ...]) -> dict[str, str]:
    """Folded name -> column: lineItem/UsageType and line_item_usage_type are one."""
    return {name.lower().replace("/", "").replace("_", ""): name for name in names}


CUR_FORMAT = BillFormat(name="AWS Cost and Usage Report", known=is_cur_row, read=read_cur_row, says_whose=True)
"""Compute hours of machines, their disks, addresses and traffic, and everything else on the bill."""
