"""What a provider says it charged: the lines of its bill, to hold costguard's own charges against.

Bills come late and change: a line is known by its `id` (same id: the newer statement replaces the older), and one that is
`estimated` will change.
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
CHARGES = (COMPUTE, STORAGE, ADDRESS, TRAFFIC, OTHER, CREDIT, TAX)

LARGEST_LINE = Decimal(10**9)
"""A billion of any currency in one line: more is a slip. 64 bits hold nine times as much in nano-units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """`amount` for `charge` from `start` until before `end` (UTC). Credits are negative.

    `resource_id`: the provider's id, "" where the line is of no single resource. `source` names where it stands
    ("GET /v2/billing/pods"). `statement`: which of its provider's statements it belongs to: two that state the same money in
    two ways (Cost Explorer and an export file) have two names and are never added. `bill`: which bill it stands in, where its
    provider delivers whole bills anew until they are closed ("focus|999988887777|2026-10-01T00:00:00Z"), as exports are; its
    id begins with that.
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
        require(self.charge in CHARGES, f"bill line {self.id}", f"has charge '{self.charge}'", f"one of {', '.join(CHARGES)}")
        require(self.id.startswith(self.bill), f"bill line {self.id}", "is of another bill", "an id that begins with its bill")
        require_instant(self.start, f"bill line {self.id}")
        require_instant(self.end, f"bill line {self.id}")
        require(self.start < self.end, f"bill line {self.id}", "ends before it starts", "a half-open period")


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLines:
    """Every line that a provider could give of a period. `why`: what is missing, "" where the statement is whole.

    `made_at`: when it was stated, None for now. `left_out`: rows of others that stood among them, by whose they are.
    """

    lines: tuple[BillLine, ...]
    why: str = ""
    made_at: datetime | None = None
    left_out: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BillImport:
    """What became of one statement of `provider`, read from `source`: so many `lines`, in `start` to `end`.

    `added` were new, `replaced` said something else before, `withdrawn` are stated no more, `outdated` were known as a later
    statement has them and stayed. `lacking`: those that the ledger has of the same bills and the statement does not, which
    stayed, too, as nobody said that it is all of them. `why`: what the statement leaves out, "" where it is whole. `estimated`:
    lines that will still change.
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
    """The amount that a bill states: a number, or a text of one with a decimal point; InputError for anything else.

    A float (Parquet has no other numbers in places) counts by its shortest digits.
    """
    text = str(value).strip() if isinstance(value, str | int | float | Decimal) and not isinstance(value, bool) else ""
    try:
        amount = Decimal(text)
    except ArithmeticError:
        amount = Decimal("NaN")
    if amount.is_finite() and abs(amount) < LARGEST_LINE:
        return amount
    shown = shorten(repr(value), 40)
    if text.count(",") == 1 and text.replace(",", "", 1).lstrip("+-").isdigit():
        hint = "export it anew with a decimal point: whether this comma parts thousands nobody can tell"
        raise InputError(f"is written with a comma: {shown}", field=field, hint=hint)
    raise InputError(f"is not an amount of money: {shown}", field=field)
