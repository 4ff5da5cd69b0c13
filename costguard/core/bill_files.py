"""What a provider says of its bills as files: how a record of one is recognised, and how it becomes lines.

A file is read record by record (a row of a CSV, an object of JSON), whoever wrote it; only its provider knows what a record
means. FOCUS is read for everybody (`focus_rows`): a provider adds what it is called there, and how it names resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from costguard.core.billed import BillLine
from costguard.core.focus_rows import arn_tail

Record = Mapping[str, object]
Part = tuple[BillLine, Decimal]
"""A line of no amount yet, and what one record adds to it: records that share a line's id are one line with their sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
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
    known: Callable[[Record], bool]
    read: Callable[[Record, About], Iterable[Part]]
    says_whose: bool = False
    sums: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BillFiles:
    """A provider's own `formats`. `called`: its names in FOCUS files. `resource`: a FOCUS ResourceId as the ledger's id."""

    formats: tuple[BillFormat, ...] = ()
    called: tuple[str, ...] = ()
    resource: Callable[[str], str] = arn_tail
