"""What the ledger answers: sums of a period, the resources there are now, and how well each scope is seen.

Plain values between the ledger, which reads them, and the statement, the status and the budgets, which are made of them.
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
    """The resource that something was spent on, as it was last seen: its `labels`, and the `job` that it is a machine of."""

    key: ResourceKey
    name: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    job: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The sum of one kind of charge in a period. `us`: microseconds that probably billed, summed over resources.

    `known` is False for what billed at an estimated price: its low is 0 and its high a bound. `bearer`: of which
    resource, None where resources are not told apart.
    """

    attribution: Attribution
    charge: str
    money: MoneyInterval
    us: int
    known: bool = True
    bearer: BilledResource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResource:
    """A resource that is not known to have ended. `open`: the lines that bill now. `spent`: all its life, as far as recorded.

    `absent_at`: since when complete listings lack it, while its end is not settled; else None. `unheard`: what may bill beside
    what is open, as nobody has looked for too long; it stands in the high end of `spent`. `not_counted`: what it holds that
    surely costs something which nobody can say, a sentence each; that stands in no figure.
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
class LifetimeCost:
    """All that one resource ever cost in one currency, as far as recorded, whether it lives or not. `spans`: of how many."""

    key: ResourceKey
    money: MoneyInterval
    spans: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeCoverage:
    """How well a scope is seen. `outcome` and `why` of its last poll at `at`; `since`: the first poll in a row that said so."""

    scope: ScopeKey
    outcome: str
    at: datetime
    since: datetime
    last_complete_at: datetime | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollStretch:
    """Polls in a row of one scope with one outcome: the listing was complete (or was not) from `start` to `end`."""

    scope: ScopeKey
    outcome: str
    start: datetime
    end: datetime
    polls: int
    why: str = ""
