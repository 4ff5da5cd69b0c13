"""Vast's charges as bill lines, requested by UTC day: a line is identified by its day, contract and kind.

For a longer period Vast adds up the days of a contract, so a line requested twice would have two lengths. Source: the project's
provider notes (vast.md, section 6, 2026-11-21).

Example: on 2026-11-20 instance-24815377 has items gpu $9.336 and disk $0.32: two lines of that day, compute and storage.

Files with charges (`GET /api/v0/charges`, JSON): a charge within one day gets the same id as in the account's own answer; one
of several days belongs to a separate statement, whose lines are named by their start, because they grow until their contract
ends. What the items of a charge lack of its amount is a line of its own, and a page whose `next_token` leads to a page that is
not there is refused. Files with invoices (`vastai show invoices`, JSON or CSV) state one amount and the time when it was taken;
they are a separate statement as well, which is never added to the charges. Source: Vast's documentation of both (docs.vast.ai,
api-reference/billing, 2026-11).

Example: {"type": "charge", "description": "Instance 123 GPU charge: hours * $/hr", "timestamp": 1633036800, "quantity":
"10.000", "rate": "0.1000", "amount": "1.000", "instance_id": 123} is $1.00 of computing in the ten hours before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from costguard.bills import bill_line as kinds
from costguard.bills.bill_files import BillFileFacts, BillFileRecord, BillFormat, BillLinePart, BillTally
from costguard.bills.bill_line import BillLine, BillLines, parse_bill_amount
from costguard.errors import InputError, ProviderError, shorten, to_one_line
from costguard.providers.transport import Deadline
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, EPOCH, from_micros, parse_instant, to_micros
from costguard.values.money import Money
from costguard_vast.api import format_reason, read_rows
from costguard_vast.translation import PROVIDER
from costguard_vast.wire import Charge, ChargePart, parse_finite, to_nano

if TYPE_CHECKING:
    from costguard_vast.account import VastAccount

DAY = timedelta(days=1)
SOURCE = "GET /api/v0/charges"
KINDS = {"gpu": kinds.COMPUTE, "disk": kinds.STORAGE, "bwd": kinds.TRAFFIC, "bwu": kinds.TRAFFIC, "volume": kinds.STORAGE}
SETTLES = DAY
"""A day's charges may change until so long after its end: an assumption, 2026-11."""
DAY_S = 2.0
"""Seconds that one day may take, beside the time of one question."""
ROUNDED = Decimal("0.0005")
"""USD by which the sum of a contract is rounded: it has three decimals."""
DIFFERS = Decimal("0.01")
"""USD by which the items of a contract may differ from its sum, which is rounded to three decimals."""


def fetch_billed(account: VastAccount, period: Period) -> BillLines:
    """Return every line of the days of `period`; raises a ProviderError if the first day fails."""
    days = list(_list_days(period, account.clock.now()))
    deadline = Deadline(account.timeout_s + DAY_S * len(days))
    who, lines, whys = account.fetch_account_id(deadline), list[BillLine](), dict[str, None]()
    for number, day in enumerate(days):
        first = (day - EPOCH) // timedelta(seconds=1)
        try:
            rows = read_rows(lambda token, first=first: account.api.fetch_charges(first, first + 86_399, token, deadline))  # type: ignore[misc]
        except ProviderError as broken:
            if not number:
                raise
            whys.setdefault(f"{day:%Y-%m-%d} and later days were not read: {format_reason(broken)}")
            break
        if rows.why:
            whys.setdefault(f"{day:%Y-%m-%d}: {rows.why}")
        lines += parse_charges(rows.items, who, day, account.clock.now(), whys)
    return BillLines(lines=tuple(lines), why="; ".join(whys))


def _list_days(period: Period, now: datetime) -> Iterator[datetime]:
    """Yield the starts of the days that `period` touches and that have begun."""
    day = period.start.replace(hour=0, minute=0, second=0, microsecond=0)
    while day < min(period.end, now):
        yield day
        day += DAY


def parse_charges(
    raws: Sequence[msgspec.Raw], account: str, day: datetime, now: datetime, whys: dict[str, None]
) -> list[BillLine]:
    """Return the lines of one day; unreadable ones are counted in `whys`."""
    lines, unreadable, counted = list[BillLine](), 0, Counter[str]()
    for raw in raws:
        try:
            charge = msgspec.json.decode(raw, type=Charge)
        except (msgspec.DecodeError, RecursionError):
            unreadable += 1
            continue
        charge_lines = list(split_charge(charge, account, day, now, counted))
        unreadable += len(_list_parts(charge)) - len(charge_lines)
        lines += [*charge_lines, *_list_idle_lines(charge, charge_lines)]
        total = parse_finite(charge.amount)
        sum_nano = sum(line.amount.nano for line in charge_lines)
        if total is not None and abs(sum_nano - to_nano(total)) > to_nano(DIFFERS):
            whys.setdefault(f"{day:%Y-%m-%d}: the items of {shorten(to_one_line(charge.source), 40)} are not its sum")
    if unreadable:
        whys.setdefault(f"{day:%Y-%m-%d}: {unreadable} charges cannot be read")
    return lines


def _list_idle_lines(charge: Charge, lines: Sequence[BillLine]) -> Iterator[BillLine]:
    """Yield a line of zero for the computing of a contract whose items have none and add up: its GPU did not bill that day."""
    total, item_count = parse_finite(charge.amount), len(charge.items or ())
    if charge.type != "instance" or total is None or not lines or len(lines) != item_count:
        return
    rest = abs(sum(line.amount.nano for line in lines) - to_nano(total))
    if rest <= to_nano(ROUNDED) and all(line.charge != kinds.COMPUTE for line in lines):
        first = lines[0]
        name = f"{first.id.rsplit('/', 2)[0]}/gpu/1"
        start = _find_day(first.start)
        yield replace(
            first,
            id=name,
            start=start,
            end=start + DAY,
            amount=Money(nano=0),
            charge=kinds.COMPUTE,
            description="no gpu item",
        )


def _list_parts(charge: Charge) -> Sequence[ChargePart]:
    """Return the parts of a charge, or the whole charge if it has none."""
    part = ChargePart(
        amount=charge.amount, type=charge.type, start=charge.start, end=charge.end, description=charge.description
    )
    return charge.items or (part,)


def split_charge(charge: Charge, account: str, day: datetime, now: datetime, counted: Counter[str]) -> Iterator[BillLine]:
    """Yield a line for each part that states an amount.

    `counted`: the number of parts of each name on that day; two with one name give two lines.
    """
    source = shorten(to_one_line(charge.source.strip()), 80)
    for item in _list_parts(charge):
        kind, amount = shorten(to_one_line((item.type or "other").strip().lower()), 20), parse_finite(item.amount)
        name = f"{account}/{day:%Y-%m-%d}/{source}/{kind}"
        counted[name] += 1
        if amount is None:
            continue
        start, end = _clip_to_day(item, day)
        yield BillLine(
            id=f"{name}/{counted[name]}",
            provider=PROVIDER,
            account=account,
            start=start,
            end=end,
            amount=Money(nano=to_nano(amount)),
            charge=KINDS.get(kind, kinds.OTHER),
            resource_id=source.removeprefix("instance-"),
            estimated=now < day + DAY + SETTLES,
            source=SOURCE,
            description=shorten(to_one_line((item.description or "").strip()), 200),
        )


def _clip_to_day(item: ChargePart, day: datetime) -> tuple[datetime, datetime]:
    """Return the item's time within the day; the whole day if it states no time in it."""
    start, end = max(parse_instant(item.start) or day, day), min(parse_instant(item.end) or day + DAY, day + DAY)
    return (start, end) if start < end else (day, day + DAY)


INVOICES = "invoices"
WORDS = (("gpu", kinds.COMPUTE), ("storage", kinds.STORAGE), ("disk", kinds.STORAGE), ("band", kinds.TRAFFIC))
MOST_HOURS = 24 * 31


def is_charge(record: BillFileRecord) -> bool:
    """Return whether a record is the charge of a contract."""
    return {"source", "amount", "items"} <= record.keys()


def read_charge(record: BillFileRecord, about: BillFileFacts) -> Iterator[BillLinePart]:
    """Yield the parts of one contract's charge."""
    try:
        charge = msgspec.convert(record, Charge, strict=False)
    except (msgspec.ValidationError, ArithmeticError, ValueError) as odd:
        raise InputError(f"is not a charge: {shorten(str(odd), 80)}", field="record") from None
    start, end = parse_instant(charge.start), parse_instant(charge.end)
    if start is None or end is None:
        raise InputError("states no time", field="record", hint="start and end are required")
    day = _find_day(start)
    lines, total = list(split_charge(charge, about.account, day, about.as_of, Counter())), parse_finite(charge.amount)
    if len(lines) < len(_list_parts(charge)):
        raise InputError("is missing, or is not an amount of money", field="amount of the charge or of an item")
    about.tally.add_own_total("USD", total or Decimal(0))
    rest = 0 if total is None else to_nano(total) - sum(line.amount.nano for line in lines)
    if lines and abs(rest) > to_nano(DIFFERS):
        name = lines[0].id.rsplit("/", 2)[0]
        line = replace(lines[0], id=f"{name}/rest/1", start=day, end=day + DAY, amount=Money(nano=rest), charge=kinds.OTHER)
        lines.append(replace(line, description="what its items lack of the amount of the charge"))
    for line in lines:
        yield line if end <= day + DAY else _rename_long_line(line, start, end, about), Decimal(0)


def check_pages(pages: Sequence[BillFileRecord], tally: BillTally) -> None:
    """Raise InputError if the files lack a page: every page names a next one, or they have fewer records than there are."""
    counts = [total for page in pages if "count" in page and isinstance(total := page.get("total"), int)]
    hint = "fetch the further pages with after_token, put all of them in one folder, and name the folder"
    if pages and all(page.get("next_token") for page in pages):
        raise InputError("is not null: there are more pages", field="next_token", hint=hint)
    if len(set(counts)) == 1 and tally.records < counts[0]:
        raise InputError(f"is {counts[0]}, and {tally.records} records are there", field="total", hint=hint)


def _rename_long_line(line: BillLine, start: datetime, end: datetime, about: BillFileFacts) -> BillLine:
    """Return a line of several days, whose name has its start time in place of its first day."""
    rest = line.id.removeprefix(f"{about.account}/{start:%Y-%m-%d}")
    line_id, settled = f"{about.account}/{start:%Y-%m-%dT%H:%M:%S}{rest}", about.as_of >= end + SETTLES
    return replace(line, id=line_id, start=start, end=end, estimated=not settled, statement="charges of several days")


def is_invoice(record: BillFileRecord) -> bool:
    """Return whether a record is a line of an invoice."""
    return {"type", "description", "timestamp", "amount"} <= record.keys()


def read_invoice(record: BillFileRecord, about: BillFileFacts) -> Iterator[BillLinePart]:
    """Yield one amount of an invoice; payments and credits are left out."""
    description = to_one_line(shorten(str(record["description"] or ""), 200))
    at = parse_instant(_parse_number(record["timestamp"]))
    if str(record["type"]).strip().lower() != "charge":
        return
    if at is None:
        raise InputError("is not a time", field="timestamp")
    amount = parse_bill_amount(record["amount"], "amount")
    start, end = _find_period(at, record, description)
    machine = str(record.get("instance_id") or "").strip()
    yield (
        BillLine(
            id=f"{about.account}/{INVOICES}/{to_micros(at)}/{machine}/{description}",
            provider=PROVIDER,
            account=about.account,
            start=start,
            end=end,
            amount=Money(nano=to_nano(amount)),
            charge=next((kind for word, kind in WORDS if word in description.lower()), kinds.OTHER),
            resource_id=machine,
            estimated=about.as_of < at + SETTLES,
            source="invoices",
            statement=INVOICES,
            description=description,
        ),
        Decimal(0),
    )


def _find_period(at: datetime, record: BillFileRecord, description: str) -> tuple[datetime, datetime]:
    """Return the hours before an amount was taken, if it is charged by the hour; else the day on which it was taken."""
    if "hour" in description.lower() and "gpu" in description.lower() and record.get("quantity"):
        hours = parse_bill_amount(record["quantity"], "quantity")
        if 0 < hours <= MOST_HOURS:
            return at - timedelta(microseconds=int(hours * 3600 * 10**6)), at
    return _find_day(at), _find_day(at) + DAY


def _parse_number(value: object) -> object:
    """Convert a number that a CSV file has as text."""
    return Decimal(value) if isinstance(value, str) and value.strip().replace(".", "", 1).isdigit() else value


def _find_day(at: datetime) -> datetime:
    return from_micros(to_micros(at) // DAY_US * DAY_US)


CHARGES_FORMAT = BillFormat(name="Vast charges (JSON)", known=is_charge, read=read_charge, sums=False, finish=check_pages)
INVOICES_FORMAT = BillFormat(
    name="Vast invoices (JSON or CSV)",
    known=is_invoice,
    read=read_invoice,
    sums=False,
    omits="payments and credits",
    finish=check_pages,
)
