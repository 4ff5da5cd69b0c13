"""Drift: what a provider's bill says beside what costguard charged, resource by resource, and what the difference comes from.

A bill lies right where it lies within low and high of the charges. What lies outside is judged resource by resource, so that
$10 too much here and $10 too little there are $20 and not nothing; what has a cause of which costguard knows that it is not in
the charges (tax, credits, rounding, lines that are late) is apart. The parts of a result add up to bill less expected charges.

Example: 24 lines of $0.76 for pod k3v9, whose 24 hours were charged $0.69: the bill is 1.1014 times the charges in every cell,
so the drift of $1.68 is a wrong rate, and $0.7600 an hour would fit.

How far a bill may lie from the charges: a part of it, an amount, or whichever of both is more.

Example: "1%, 0.10" allows $0.10 of a bill of $8 and $20 of one of $2,000.

What people are told of bills that differ from the charges: each drift once, until it has been within tolerance again.
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
    """One statement of a provider's that speaks of `account`; `name` tells it from others of the same money.

    `start_us`, `end_us`: what time it speaks of. `days`: on how many it has lines. `newest`: rises with each import.
    """

    account: str
    name: str
    lines: int
    resources: int
    days: int
    start_us: int
    end_us: int
    newest: int


class BilledLines(NamedTuple):
    """Lines of one statement, resource and kind of charge in the cells `first` to `last` (numbers of hours since 1970).

    `resource`: "" for lines of none. `estimated`: how many will still change. `step`: nano-units that every amount is a whole
    multiple of, 0 for none that shows. `overlapping`: lines that lie over others of the same thing. `told`: a description.
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
    """What one resource was charged of one kind in one cell, at one price. `where`: INSIDE, BEFORE or AFTER the statement.

    `sku`: what is priced ("p5.48xlarge, on-demand"). `price`: nano-units per `unit`, with its `source`.
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
    """What one cause adds to the charges: `nano` is bill less expected charges.

    `off`: how much of it lies outside of [low, high], added up resource by resource without signs. `explained`: whether it
    stands apart from what the tolerance is asked of. `named`: some of the resources.
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
    """One cell, or of a result one UTC day since 1970: what was billed, and the charges."""

    cell: int
    billed: int
    charged: NanoAmounts


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftResult:
    """A bill of one account in one currency, held against its charges in `period`.

    `unexplained`: what lies outside without standing apart, in nano-units; within `allowed` it is WITHIN. `why`: what the bill
    leaves out, or why nothing can be said.
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
    """Cells that are compared as one: a line may cover several."""

    billed: int = 0
    low: int = 0
    expected: int = 0
    high: int = 0
    lines: int = 0
    estimated: int = 0

    @property
    def off(self) -> int:
        """By how much the bill lies outside of the charges: above them, below them (negative), or 0."""
        return max(0, self.billed - self.high) or min(0, self.billed - self.low)


@dataclass(slots=True)
class DriftGroup:
    """One resource and kind of charge: what is judged as one.

    `settled` and `late`: its blocks of final and of estimated lines. `early`: what was billed before costguard first saw it,
    and was not charged. `ratio`: of a wrong rate, how many times the charges the bill is.
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
        """All of it."""
        return self.settled.billed + self.late.billed + self.early.billed

    @property
    def charged(self) -> NanoAmounts:
        """All of it."""
        return (
            self.settled.low + self.late.low,
            self.settled.expected + self.late.expected,
            self.settled.high + self.late.high,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountComparison:
    """One account and currency, group by group, before causes are named."""

    account: str
    currency: str
    groups: tuple[DriftGroup, ...]
    unplaced: tuple[DriftGroup, ...]
    apart: Mapping[str, tuple[int, int]]
    outside: Mapping[str, NanoAmounts]
    cells: tuple[CellAmounts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationRecord:
    """What the ledger remembers of a bill that was compared with the charges of `period` at `at`; amounts as in `Result`."""

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
    """What causes are named by, beside the amounts.

    `known`: (account, resource) of all that costguard ever saw -> in which hour since 1970 it did so first; -1 where somebody
    stated since when it is there. `cells`: how many of them make a day. `accounts`: those that it polls. `others`: by
    (account, resource, charge) the currencies of what is billed in one and charged in another. `why`: what the bill leaves out.
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
    """`millionths` of the bill, or `nano` of its currency, whichever is more."""

    millionths: int
    nano: int

    def compute_allowed(self, nano: int) -> int:
        """The nano-units that a bill of `nano` may differ by."""
        return max(self.nano, divide_half_even(abs(nano) * self.millionths, MILLIONTHS))

    def format(self) -> str:
        """As it is written: `1%, 0.10`; `0` for none at all."""
        percent = f"{Decimal(self.millionths).scaleb(-4).normalize():f}%" if self.millionths else ""
        whole, _, decimals = Money(nano=self.nano).format(9).partition(".")
        amount = f"{whole}.{decimals.rstrip('0').ljust(2, '0')}" if self.nano else ""
        return ", ".join(filter(None, (percent, amount))) or "0"


DEFAULT_TOLERANCE = Tolerance(millionths=10_000, nano=100_000_000)
"""1 %, and at least 0.10: RELIABILITY, M13."""


def parse_tolerance(text: str, field: str) -> Tolerance:
    """What `text` allows: "2%", "0.50", or "1%, 0.10". InputError for anything else."""
    millionths, nano, seen = 0, 0, set[str]()
    for part in text.split(","):
        found = _TOLERANCE_PART.fullmatch(part.strip())
        sign = found[2] if found else ""
        require(found is not None and sign not in seen, field, f"is not a tolerance: {describe_value(text)}", TOLERANCE_HINT)
        seen.add(sign)
        number = Decimal(found[1] if found else 0)
        if sign:
            require(number <= 100, field, f"is more than the whole bill: {describe_value(text)}", TOLERANCE_HINT)  # noqa: PLR2004 - per cent
            millionths = int(number.scaleb(4))
        else:
            nano = int(number.scaleb(9))
    return Tolerance(millionths=millionths, nano=nano)


MOST_CAUSES = 3


def format_drift_subject(result: DriftResult) -> str:
    """What a notice is about: `bill runpod/default USD 2026-11-01`."""
    return f"bill {result.provider}/{to_one_line(result.account)} {result.currency} {result.period.start:%Y-%m-%d}"


def is_already_notified(result: DriftResult, before: Sequence[ReconciliationRecord]) -> bool:
    """Whether people know of it: the last time this bill was held, it was beyond tolerance too, and they were told."""
    key = (result.provider, result.account, result.currency, result.period)
    return any(
        (one.provider, one.account, one.currency, one.period) == key and one.outcome == BEYOND and one.told for one in before
    )


def build_drift_alert(result: DriftResult) -> Alert:
    """The notice of a bill beyond tolerance, with what it comes from."""
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
