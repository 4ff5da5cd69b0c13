"""What a provider says of its bills as files: how a record of one is recognised, and how it becomes lines.

A file is read record by record (a row of a CSV, an object of JSON), whoever wrote it; only its provider knows what a record
means. FOCUS is read for everybody (`focus_rows`): a provider adds what it is called there, and how it names resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from costguard.bills.bill_line import BillLine, BillLines
from costguard.bills.focus_rows import get_arn_tail
from costguard.values.money import Money
from costguard.values.period import Period

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
