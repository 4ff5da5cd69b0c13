"""A statement: the cost of a period, in groups that add up to its total to the nano-unit, with all its sections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from costguard.bills.drift import ReconciliationRecord
from costguard.budgets.budget import MATCH_ALL, ResourceFilter
from costguard.budgets.budget_status import BudgetStatus
from costguard.budgets.spend_forecast import SpendForecast
from costguard.guard.alerts.alert import Alert
from costguard.metering.inventory import UncoveredScope
from costguard.metering.spending import ScopeCoverage, Spending
from costguard.reporting.statement.groups import CurrencySums
from costguard.reporting.statement.history import CostByDay, WeeklyBurn
from costguard.reporting.statement.savings import Savings
from costguard.reporting.statement.sections import PreviousPeriod, PriceSourceCost, QuotedRun, StoppedDiskCost, TopResource
from costguard.values.calendar import Period
from costguard.values.money import MoneyInterval
from costguard.values.resource import ENTERED, ScopeKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The result of `report` for `period`, named `label` in the time zone `zone`, as known at `as_of`.

    `not_modelled`: for each provider of the period, what its billing rule leaves out. `unseen`: the scopes that were not
    listed completely throughout. `scopes`: how many there are. `misdated`: scopes whose last poll is dated after `as_of`, by
    a wrong clock. `before`: the period before, None if there is none. `forecast`: the total of a running period at its end,
    by currency. `match`: the spending that it is about; `unallocated`: see `sum_unallocated`. `budgets`: those within
    `match`, as they stand or stood at the period's end. `spenders`: the top resources. `rest`: the disks of machines that did
    not run. `saved`, `quotes`, `prices`: see their classes. `days`, `burn`, `idle_days`: the same by day and by hour, for
    charts. `held`: the last comparisons of bills with the charges, of the providers `spent_at`. `unusual`: the alerts about
    what was unusual. `beside`: whether the further sections were requested; if not, they are empty.
    """

    period: Period
    label: str
    zone: str
    as_of: datetime
    by: tuple[str, ...]
    usd: CurrencySums
    others: tuple[CurrencySums, ...] = ()
    match: ResourceFilter = MATCH_ALL
    unallocated: tuple[tuple[str, MoneyInterval], ...] = ()
    budgets: tuple[BudgetStatus, ...] = ()
    not_modelled: tuple[tuple[str, str], ...] = ()
    unseen: tuple[UncoveredScope, ...] = ()
    scopes: int = 0
    misdated: tuple[ScopeCoverage, ...] = ()
    before: PreviousPeriod | None = None
    forecast: tuple[SpendForecast, ...] = ()
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
    unusual: tuple[Alert, ...] = ()
    beside: bool = False

    @property
    def ahead(self) -> bool:
        """Return whether the whole period lies in the future."""
        return self.period.start > self.as_of

    @property
    def running(self) -> bool:
        """Return whether the period has begun and not ended."""
        return self.period.start <= self.as_of < self.period.end

    @property
    def incomplete(self) -> bool:
        """Return whether the elapsed part was not fully observed: a scope was not, or the ledger has no scope."""
        return not self.ahead and (self.scopes == 0 or bool(self.unseen))

    @property
    def blank(self) -> bool:
        """Return whether the ledger has nothing for the elapsed part: no spending, and no scope was listed in it."""
        spent = any(sums.groups for sums in (self.usd, *self.others))
        return not self.ahead and not spent and len(self.unseen) == self.scopes and all(u.never for u in self.unseen)


def list_providers(spending: Iterable[Spending], scopes: Iterable[ScopeKey]) -> tuple[str, ...]:
    """Return every provider with spending or a scope, ordered by name."""
    billed = {s.attribution.provider for s in spending if s.attribution.kind != ENTERED}  # nobody bills what people enter
    return tuple(sorted({*billed, *(scope.provider for scope in scopes)}))
