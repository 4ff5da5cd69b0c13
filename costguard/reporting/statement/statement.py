"""A statement: what a period cost, in groups that add up to its total to the nano-unit, and all that is said beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from costguard.bills.drift import ReconciliationRecord
from costguard.metering.inventory import UncoveredScope
from costguard.metering.spending import ScopeCoverage, Spending
from costguard.reporting.statement.groups import CurrencySums
from costguard.reporting.statement.history import CostByDay, WeeklyBurn
from costguard.reporting.statement.savings import Savings
from costguard.reporting.statement.sections import PreviousPeriod, PriceSourceCost, QuotedRun, StoppedDiskCost, TopResource
from costguard.values.calendar import Period
from costguard.values.money import MoneyInterval
from costguard.values.resource import ScopeKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What `report` says of `period`, named `label` in the time zone `zone`, as known at `as_of`.

    `not_modelled`: for each provider that the period has to do with, what its billing rule leaves out. `unseen`: the scopes
    that were not read completely all through. `scopes`: how many there are. `misdated`: those whose last poll lies ahead of
    `as_of`, since a wrong clock dated it.

    `before`: the period before, None where there is none. `forecast`: what a running period comes to by its end, by
    currency. `spenders`: the dearest resources. `rest`: what disks cost whose machines did not run. `saved`, `quotes`,
    `prices`: see there. `days`, `burn`, `idle_days`: the same by day and by hour, for those who draw it. `held`: how
    bills were compared with the charges last, of the providers `spent_at`. `beside`: whether all that was asked for; else
    nothing is known of it.
    """

    period: Period
    label: str
    zone: str
    as_of: datetime
    by: tuple[str, ...]
    usd: CurrencySums
    others: tuple[CurrencySums, ...] = ()
    not_modelled: tuple[tuple[str, str], ...] = ()
    unseen: tuple[UncoveredScope, ...] = ()
    scopes: int = 0
    misdated: tuple[ScopeCoverage, ...] = ()
    before: PreviousPeriod | None = None
    forecast: tuple[MoneyInterval, ...] = ()
    spenders: tuple[TopResource, ...] = ()
    rest: StoppedDiskCost = field(default_factory=StoppedDiskCost)
    saved: Savings = field(default_factory=Savings)
    quotes: tuple[QuotedRun, ...] = ()
    prices: tuple[PriceSourceCost, ...] = ()
    days: CostByDay | None = None
    burn: WeeklyBurn | None = None
    idle_days: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    held: tuple[ReconciliationRecord, ...] = ()
    spent_at: tuple[str, ...] = ()
    beside: bool = False

    @property
    def ahead(self) -> bool:
        """Whether all of the period lies in the future."""
        return self.period.start > self.as_of

    @property
    def running(self) -> bool:
        """Whether the period has begun and not ended."""
        return self.period.start <= self.as_of < self.period.end

    @property
    def incomplete(self) -> bool:
        """Whether something that has passed was not looked at: a scope, or everything where the ledger knows of none."""
        return not self.ahead and (self.scopes == 0 or bool(self.unseen))

    @property
    def blank(self) -> bool:
        """Whether the ledger holds nothing of the part that has passed: no spending, and no scope was seen in it."""
        spent = any(sums.groups for sums in (self.usd, *self.others))
        return not self.ahead and not spent and len(self.unseen) == self.scopes and all(u.never for u in self.unseen)


def list_providers(spending: Iterable[Spending], scopes: Iterable[ScopeKey]) -> tuple[str, ...]:
    """Every provider with spending or a scope, by name."""
    return tuple(sorted({*(s.attribution.provider for s in spending), *(scope.provider for scope in scopes)}))
