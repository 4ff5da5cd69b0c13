"""Vast's charges and invoices, kept as files, as bill lines.

Charges (`GET /api/v0/charges`, JSON): what lies within one day has the name that the account's own answer gives it; what is of
several is a statement of its own, whose lines are named by when they begin, for they grow until their contract ends. Invoices
(`vastai show invoices`, JSON or CSV) state one amount and the moment at which it was taken; they are a statement of their own,
which is never added to the charges. Source: Vast's documentation of both (docs.vast.ai, api-reference/billing, 2026-11).

Example: {"type": "charge", "description": "Instance 123 GPU charge: hours * $/hr", "timestamp": 1633036800, "quantity":
"10.000", "rate": "0.1000", "amount": "1.000", "instance_id": 123} is $1.00 of computing in the ten hours before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec

from costguard.bills import bill_line as kinds
from costguard.bills.bill_files import BillFileFacts, BillFileRecord, BillFormat, BillLinePart
from costguard.bills.bill_line import BillLine, parse_bill_amount
from costguard.errors import InputError, shorten, to_one_line
from costguard.values.instant import DAY_US, from_micros, to_micros
from costguard.values.money import Money
from costguard.values.stated_time import parse_instant
from costguard_vast.charges import DAY, SETTLES, split_charge
from costguard_vast.numbers import to_nano
from costguard_vast.translation import PROVIDER
from costguard_vast.wire import Charge

INVOICES = "invoices"
WORDS = (("gpu", kinds.COMPUTE), ("storage", kinds.STORAGE), ("disk", kinds.STORAGE), ("band", kinds.TRAFFIC))
MOST_HOURS = 24 * 31


def is_charge(record: BillFileRecord) -> bool:
    """Whether a record is what one contract was charged."""
    return {"source", "amount", "items"} <= record.keys()


def read_charge(record: BillFileRecord, about: BillFileFacts) -> Iterator[BillLinePart]:
    """The parts of one contract's charge."""
    try:
        charge = msgspec.convert(record, Charge, strict=False)
    except (msgspec.ValidationError, ArithmeticError) as odd:
        raise InputError(f"is no charge: {shorten(str(odd), 80)}", field="record") from None
    start, end = parse_instant(charge.start), parse_instant(charge.end)
    if start is None or end is None:
        raise InputError("states no time", field="record", hint="start and end are wanted")
    day = _find_day(start)
    for line in split_charge(charge, about.account, day, about.as_of, Counter()):
        yield line if end <= day + DAY else _rename_long_line(line, start, end, about), Decimal(0)


def _rename_long_line(line: BillLine, start: datetime, end: datetime, about: BillFileFacts) -> BillLine:
    """A line of several days: its name has the instant in which they begin in place of their first day."""
    rest = line.id.removeprefix(f"{about.account}/{start:%Y-%m-%d}")
    named, settled = f"{about.account}/{start:%Y-%m-%dT%H:%M:%S}{rest}", about.as_of >= end + SETTLES
    return replace(line, id=named, start=start, end=end, estimated=not settled, statement="charges of several days")


def is_invoice(record: BillFileRecord) -> bool:
    """Whether a record is a line of an invoice."""
    return {"type", "description", "timestamp", "amount"} <= record.keys()


def read_invoice(record: BillFileRecord, about: BillFileFacts) -> Iterator[BillLinePart]:
    """One amount of an invoice; payments and credits are no charges."""
    told = to_one_line(shorten(str(record["description"] or ""), 200))
    at = parse_instant(_parse_number(record["timestamp"]))
    if str(record["type"]).strip().lower() != "charge":
        return
    if at is None:
        raise InputError("is no instant", field="timestamp")
    amount = parse_bill_amount(record["amount"], "amount")
    start, end = _find_period(at, record, told)
    machine = str(record.get("instance_id") or "").strip()
    yield (
        BillLine(
            id=f"{about.account}/{INVOICES}/{to_micros(at)}/{machine}/{told}",
            provider=PROVIDER,
            account=about.account,
            start=start,
            end=end,
            amount=Money(nano=to_nano(amount)),
            charge=next((kind for word, kind in WORDS if word in told.lower()), kinds.OTHER),
            resource_id=machine,
            estimated=about.as_of < at + SETTLES,
            source="invoices",
            statement=INVOICES,
            description=told,
        ),
        Decimal(0),
    )


def _find_period(at: datetime, record: BillFileRecord, told: str) -> tuple[datetime, datetime]:
    """The hours before an amount was taken, where it is of hours; else the day of that moment."""
    if "hour" in told.lower() and "gpu" in told.lower() and record.get("quantity"):
        hours = parse_bill_amount(record["quantity"], "quantity")
        if 0 < hours <= MOST_HOURS:
            return at - timedelta(microseconds=int(hours * 3600 * 10**6)), at
    return _find_day(at), _find_day(at) + DAY


def _parse_number(stated: object) -> object:
    """A CSV has numbers as text."""
    return Decimal(stated) if isinstance(stated, str) and stated.strip().replace(".", "", 1).isdigit() else stated


def _find_day(at: datetime) -> datetime:
    return from_micros(to_micros(at) // DAY_US * DAY_US)


CHARGES_FORMAT = BillFormat(name="Vast charges (JSON)", known=is_charge, read=read_charge, sums=False)
INVOICES_FORMAT = BillFormat(name="Vast invoices (JSON or CSV)", known=is_invoice, read=read_invoice, sums=False)
