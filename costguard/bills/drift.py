"""Drift: a provider's bill compared with costguard's charges, resource by resource, and the causes of the difference.

A bill agrees if it lies within low and high of the charges. The amount outside is judged resource by resource, so that $10 too
much for one and $10 too little for another are $20 and not zero. Amounts with a cause that is known to be missing in the
charges (tax, credits, rounding, late lines) are reported separately. The parts of a result add up to bill less expected
charges.

Example: 24 lines of $0.76 for pod k3v9, whose 24 hours were charged $0.69: the bill is 1.1014 times the charges in every cell,
so the drift of $1.68 is a wrong rate, and $0.7600 an hour would fit.

The tolerance is a share of the bill, an amount, or the larger of both. Example: "1%, 0.10" allows $0.10 of a bill of $8 and $20
of one of $2,000.

Each drift beyond the tolerance is notified once, until the bill has been within tolerance again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from costguard.errors import shorten, to_one_line
from costguard.guard.alerts.alert import WARNING, Alert
from costguard.values.calendar import Period
from costguard.values.checks import describe_value, require
from costguard.values.money import Money, divide_half_even
from costguard.values.text_format import get_currency_sign

WITHIN, BEYOND, UNSURE = "within", "beyond", "unknown"
"""Outcomes. `unknown`: another currency, or a bill that is not whole and does not fit."""

INSIDE, BEFORE, AFTER = "inside", "before", "after"
"""Where a charge lies beside the time that the statement speaks of."""

NanoAmounts = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderBill:
    """One statement of a provider for `account`; `name` distinguishes it from other statements of the same money.

    `micros`: the sum of its lines, in millionths of a unit. `start_us`, `end_us`: the period that it covers. `days`: the number
    of days with lines. `newest`: increases with each import.
    """

    account: str
    name: str
    lines: int
    resources: int
    days: int
    start_us: int
    end_us: int
    newest: int
    micros: int = 0


class BilledLines(NamedTuple):
    """Lines of one statement, resource and kind of charge in the cells `first` to `last` (hours since 1970).

    `resource`: "" for lines of none. `estimated`: the number of lines that will still change. `step`: nano-units that every
    amount is a whole multiple of, 0 if none is visible. `overlapping`: lines that overlap others of the same kind. `told`: a
    description.
    """

    account: str
    region: str
    resource: str
    charge: str
    currency: str
    first: int
    last: int
    nano: int
    lines: int
    estimated: int
    step: int
    overlapping: int
    told: str


class ChargedCell(NamedTuple):
    """The charge of one resource, of one kind, in one cell, at one price.

    `where`: INSIDE, BEFORE or AFTER the period of the statement. `sku`: the priced item ("p5.48xlarge, on-demand"). `price`:
    nano-units per `unit`, with its `source`.
    """

    account: str
    region: str
    resource: str
    charge: str
    currency: str
    cell: int
    low: int
    expected: int
    high: int
    where: str
    sku: str
    price: int
    unit: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftPart:
    """The part of the drift with one cause.

    `nano`: bill less expected charges. `off`: the part of it outside of [low, high], summed over resources without signs.
    `explained`: whether it is excluded from the amount that the tolerance is compared with. `named`: some of the resources.
    """

    cause: str
    charge: str
    sku: str
    nano: int
    off: int
    explained: bool
    resources: int
    lines: int
    reason: str
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CellAmounts:
    """Bill and charges of one cell, or in a result of one UTC day since 1970."""

    cell: int
    billed: int
    charged: NanoAmounts


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftResult:
    """A bill of one account in one currency, compared with its charges in `period`.

    `unexplained`: nano-units outside the charges without an explained cause; up to `allowed` the outcome is WITHIN. `why`: what
    the bill leaves out, or why there is no verdict.
    """

    provider: str
    account: str
    currency: str
    period: Period
    at: datetime
    billed: int
    charged: NanoAmounts
    unexplained: int
    allowed: int
    tolerance: str
    outcome: str
    parts: tuple[DriftPart, ...] = ()
    cells: tuple[CellAmounts, ...] = ()
    groups: tuple[DriftGroup, ...] = ()
    why: str = ""

    @property
    def drift(self) -> int:
        """Bill less expected charges."""
        return self.billed - self.charged[1]


@dataclass(slots=True)
class CellBlock:
    """Cells that are compared as one, because a line may cover several."""

    billed: int = 0
    low: int = 0
    expected: int = 0
    high: int = 0
    lines: int = 0
    estimated: int = 0

    @property
    def off(self) -> int:
        """The amount by which the bill lies outside of the charges: positive above them, negative below them, else 0."""
        return max(0, self.billed - self.high) or min(0, self.billed - self.low)


@dataclass(slots=True)
class DriftGroup:
    """One resource and kind of charge, judged as one.

    `settled` and `late`: its blocks of final and of estimated lines. `early`: the amount that was billed before costguard first
    saw the resource, and not charged. `ratio`: for a wrong rate, bill divided by charges.
    """

    resource: str
    region: str
    charge: str
    sku: str = ""
    blocks: dict[int, CellBlock] = field(default_factory=dict)
    settled: CellBlock = field(default_factory=CellBlock)
    late: CellBlock = field(default_factory=CellBlock)
    early: CellBlock = field(default_factory=CellBlock)
    steps: set[int] = field(default_factory=set)
    prices: set[tuple[int, str, str]] = field(default_factory=set)
    overlapping: int = 0
    told: str = ""
    cause: str = ""
    ratio: Fraction = Fraction(1)

    @property
    def billed(self) -> int:
        """The sum of settled, late and early bills."""
        return self.settled.billed + self.late.billed + self.early.billed

    @property
    def charged(self) -> NanoAmounts:
        """The sum of settled and late charges."""
        return (
            self.settled.low + self.late.low,
            self.settled.expected + self.late.expected,
            self.settled.high + self.late.high,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountComparison:
    """One account and currency, group by group, before causes are assigned."""

    account: str
    currency: str
    groups: tuple[DriftGroup, ...]
    unplaced: tuple[DriftGroup, ...]
    apart: Mapping[str, tuple[int, int]]
    outside: Mapping[str, NanoAmounts]
    cells: tuple[CellAmounts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationRecord:
    """A stored comparison of a bill with the charges of `period`, made at `at`; amounts as in `DriftResult`."""

    provider: str
    account: str
    currency: str
    period: Period
    at: datetime
    billed: int
    charged: NanoAmounts
    unexplained: int
    allowed: int
    tolerance: str
    outcome: str
    told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseContext:
    """The facts, in addition to the amounts, from which causes are derived.

    `known`: (account, resource) of every resource ever seen -> the hour since 1970 in which it was first seen; -1 where the
    provider states since when it exists. `cells`: the number of cells in a day. `accounts`: those that costguard polls.
    `others`: by (account, resource, charge) the currencies of what is billed in one and charged in another. `why`: what the
    bill leaves out.
    """

    provider: str
    period: Period
    at: datetime
    tolerance: Tolerance
    known: Mapping[tuple[str, str], int]
    accounts: Collection[str]
    others: Mapping[tuple[str, str, str], Collection[str]]
    cells: int = 1
    why: str = ""


_TOLERANCE_PART = re.compile(r"(\d{1,4}(?:\.\d{1,4})?)\s*(%?)", re.ASCII)
TOLERANCE_HINT = 'write 2%, 0.50, or both: "1%, 0.10"'
MILLIONTHS = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """`millionths` of the bill, or `nano` of its currency, whichever is larger."""

    millionths: int
    nano: int

    def compute_allowed(self, nano: int) -> int:
        """Return the nano-units by which a bill of `nano` may differ."""
        return max(self.nano, divide_half_even(abs(nano) * self.millionths, MILLIONTHS))

    def format(self) -> str:
        """Return it in the form of the settings: `1%, 0.10`; `0` for none at all."""
        percent = f"{Decimal(self.millionths).scaleb(-4).normalize():f}%" if self.millionths else ""
        units, _, decimals = Money(nano=self.nano).format(9).partition(".")
        amount = f"{units}.{decimals.rstrip('0').ljust(2, '0')}" if self.nano else ""
        return ", ".join(filter(None, (percent, amount))) or "0"


DEFAULT_TOLERANCE = Tolerance(millionths=10_000, nano=100_000_000)
"""1 %, and at least 0.10: RELIABILITY, M13."""


def parse_tolerance(text: str, field: str) -> Tolerance:
    """Parse "2%", "0.50", or "1%, 0.10".

    Raises InputError for anything else.
    """
    millionths, nano, signs = 0, 0, set[str]()
    for part in text.split(","):
        match = _TOLERANCE_PART.fullmatch(part.strip())
        sign = match[2] if match else ""
        require(match is not None and sign not in signs, field, f"is not a tolerance: {describe_value(text)}", TOLERANCE_HINT)
        signs.add(sign)
        number = Decimal(match[1] if match else 0)
        if sign:
            require(number <= 100, field, f"is more than the whole bill: {describe_value(text)}", TOLERANCE_HINT)  # noqa: PLR2004 - per cent
            millionths = int(number.scaleb(4))
        else:
            nano = int(number.scaleb(9))
    return Tolerance(millionths=millionths, nano=nano)


MOST_CAUSES = 3


def format_drift_subject(result: DriftResult) -> str:
    """Return the subject of a notice: `bill runpod/default USD 2026-11-01`."""
    return f"bill {result.provider}/{to_one_line(result.account)} {result.currency} {result.period.start:%Y-%m-%d}"


def is_already_notified(result: DriftResult, records: Sequence[ReconciliationRecord]) -> bool:
    """Return whether the last comparison of this bill, in `records`, was beyond tolerance and notified."""
    key = (result.provider, result.account, result.currency, result.period)
    return any(
        (one.provider, one.account, one.currency, one.period) == key and one.outcome == BEYOND and one.told for one in records
    )


def build_drift_alert(result: DriftResult) -> Alert:
    """Return the alert for a bill beyond tolerance, with its causes."""
    mark = get_currency_sign(result.currency)

    def money(nano: int) -> str:
        return f"{mark}{Money(nano=nano, currency=result.currency).format()}"

    whose = f"{result.provider}/{shorten(to_one_line(result.account), 60)}"
    causes = [part for part in result.parts if not part.explained][:MOST_CAUSES]
    return Alert(
        topic=f"bill:{result.provider}",
        subject=format_drift_subject(result),
        owner="",
        severity=WARNING,
        what=f"the bill of {whose} differs from the charges by {money(abs(result.drift))}",
        at=result.at,
        facts=(
            ("billed", money(result.billed)),
            ("charged", f"{money(result.charged[1])} ({money(result.charged[0])} to {money(result.charged[2])})"),
            ("unexplained", f"{money(result.unexplained)}, allowed {money(result.allowed)}"),
            *((part.cause, to_one_line(part.reason)) for part in causes),
            ("next", "costguard reconcile shows it by day, resource and cause"),
        ),
        once=True,
    )
