"""The lines of a provider's bill, which are compared with costguard's own charges.

Bills arrive late and change: a line is identified by its `id` (same id: the newer statement replaces the older), and a line
that is `estimated` will change.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from costguard.errors import InputError, shorten
from costguard.values.checks import require
from costguard.values.instant import require_instant
from costguard.values.money import Money

COMPUTE, STORAGE, ADDRESS, TRAFFIC, OTHER, CREDIT, TAX = "compute", "storage", "address", "traffic", "other", "credit", "tax"
INVOICED = ", invoiced"
"""How the source of a line ends whose row states the number of its invoice."""
ASKED = ", asked"
"""How the source of an import ends that an account answered: of a period, and with all of its lines unless it says why not."""
CHARGES = (COMPUTE, STORAGE, ADDRESS, TRAFFIC, OTHER, CREDIT, TAX)

OF_USAGE = (COMPUTE, STORAGE, ADDRESS, TRAFFIC)
"""Charges whose lines are invoiced after their month; purchases and taxes are within it."""

LARGEST_LINE, LEAST_EXPONENT = Decimal(10**9), -100
"""A billion of any currency in one line: more is a slip. 64 bits hold nine times as much in nano-units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """`amount` for `charge` from `start` until before `end` (UTC).

    Credits are negative. `resource_id`: the provider's id, "" if the line is for no single resource. `source`: where the line
    was read ("GET /v2/billing/pods"). `statement`: the provider's statement that it belongs to; two statements of the same
    money (Cost Explorer and an export file) have two names and are never added. `bill`: the bill that it belongs to, if the
    provider delivers the whole bill again until it is closed, as exports do ("focus|999988887777|2026-10-01T00:00:00Z"); the
    line's id begins with it.
    """

    id: str
    provider: str
    account: str
    start: datetime
    end: datetime
    amount: Money
    charge: str = OTHER
    resource_id: str = ""
    region: str = ""
    estimated: bool = False
    source: str = ""
    statement: str = ""
    description: str = ""
    bill: str = ""

    def __post_init__(self) -> None:
        require(bool(self.id and self.provider), "bill line", "needs an id and a provider")
        require(
            self.charge in CHARGES,
            f"bill line {self.id}",
            f"has the unknown charge '{self.charge}'",
            f"write one of {', '.join(CHARGES)}",
        )
        require(
            self.id.startswith(self.bill),
            f"bill line {self.id}",
            "belongs to another bill",
            "its id must begin with the id of its bill",
        )
        require_instant(self.start, f"bill line {self.id}")
        require_instant(self.end, f"bill line {self.id}")
        require(self.start < self.end, f"bill line {self.id}", "ends before it starts", "a half-open period")


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLines:
    """The lines of a provider for a period.

    `why`: what is missing, "" if the statement is complete. `made_at`: when it was stated, None: now. `left_out`: the number of
    rows of other providers in it, by provider.
    """

    lines: tuple[BillLine, ...]
    why: str = ""
    made_at: datetime | None = None
    left_out: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BillImport:
    """The result of importing one statement of `provider` from `source`: `lines` lines, in `start` to `end`.

    `added`: new lines. `replaced`: lines that differed before. `withdrawn`: lines no longer stated. `outdated`: lines that the
    ledger has from a later statement, which stayed. `lacking`: lines of the same bills in the ledger that the statement lacks,
    which also stayed, because the statement does not claim to be complete. `why`: what the statement leaves out, "" if it is
    complete. `estimated`: lines that will still change.
    """

    provider: str
    source: str
    start: datetime
    end: datetime
    lines: int
    added: int
    replaced: int
    withdrawn: int
    outdated: int
    estimated: int
    lacking: int = 0
    why: str = ""


def parse_bill_amount(value: object, field: str) -> Decimal:
    """Return the amount that a bill states: a number, or its text with a decimal point.

    Raises InputError otherwise. A float (some Parquet columns have no other numbers) counts by its shortest digits.
    """
    text = str(value).strip() if isinstance(value, str | int | float | Decimal) and not isinstance(value, bool) else ""
    try:
        amount = Decimal(text)
    except ArithmeticError:
        amount = Decimal("NaN")
    if amount.is_finite() and -LARGEST_LINE < amount < LARGEST_LINE and (not amount or amount.adjusted() >= LEAST_EXPONENT):
        return amount
    shown = shorten(repr(value), 40)
    if text.count(",") == 1 and text.replace(",", "", 1).lstrip("+-").isdigit():
        hint = "export it again with a decimal point: the comma may be a decimal or a thousands separator"
        raise InputError(f"is an amount with a comma: {shown}", field=field, hint=hint)
    raise InputError(f"is not an amount of money: {shown}", field=field)
