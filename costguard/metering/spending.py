"""The answers of the ledger: sums of a period, the present resources, and the coverage of each scope.

Plain values. The ledger reads them; the statement, the status and the budgets are computed from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from costguard.metering.observation import Observation
from costguard.metering.span import Span
from costguard.values.money import MoneyInterval
from costguard.values.resource import Attribution, ResourceKey, ScopeKey


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledResource:
    """A resource that costs money, as last seen.

    `labels`: its labels; `job`: the job that the machine belongs to.
    """

    key: ResourceKey
    name: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    job: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The sum of one kind of charge in a period.

    `us`: microseconds that probably billed, summed over resources. `known` is False for what billed at an estimated price, and
    for what is unpriced: nothing of that is expected, and its high is a bound. `bearer`: the resource, None where resources are
    not separated.
    """

    attribution: Attribution
    charge: str
    money: MoneyInterval
    us: int
    known: bool = True
    bearer: BilledResource | None = None

    @property
    def unpriced(self) -> bool:
        """Whether only an upper bound of it is known: nothing is expected.

        An estimated price of a machine that began or ended between two listings has a low end of 0 and an expectation.
        """
        return not self.known and not self.money.expected.nano and self.money.high.nano > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResource:
    """A resource that is not known to have ended.

    `open`: the lines that bill now. `spent`: its recorded lifetime cost. `absent_at`: since when complete listings lack it,
    while its end is not settled; else None. `unheard`: usage that may bill in addition to `open`, because the resource was not
    looked at for too long; it is included in the high end of `spent`. `not_counted`: parts that surely cost something but have
    no known price, a sentence each; they are included in no figure.
    """

    scope: ScopeKey
    observation: Observation
    first_seen_at: datetime
    seen_at: datetime
    open: tuple[Span, ...]
    spent: MoneyInterval
    absent_at: datetime | None = None
    unheard: tuple[Span, ...] = ()
    not_counted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnobservedUsage:
    """What machines that look alike may have billed since anybody looked, each of them as much.

    `numbers`: their rows in the ledger. `spans`: of one of them; those of the others differ in the key alone.
    """

    numbers: tuple[int, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimeCost:
    """The recorded lifetime cost of one resource in one currency, ended or not.

    `spans`: the number of spans in it.
    """

    key: ResourceKey
    money: MoneyInterval
    spans: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeCoverage:
    """The coverage of a scope.

    `outcome`, `why`: of its last poll at `at`; `since`: the first poll in a row with that outcome. `first_at`: the first
    complete poll ever; None: there was none.
    """

    scope: ScopeKey
    outcome: str
    at: datetime
    since: datetime
    last_complete_at: datetime | None
    why: str = ""
    first_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PollStretch:
    """Consecutive polls of one scope with one outcome, from `start` to `end`."""

    scope: ScopeKey
    outcome: str
    start: datetime
    end: datetime
    polls: int
    why: str = ""
