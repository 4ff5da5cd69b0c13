"""Budgets: how much may be spent, on what, in which period.

Example: $3,000 a month for resources with the label team=vision, in months of Europe/Berlin. Its progress is a `BudgetStatus`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from fractions import Fraction

from costguard.values.calendar import LONGEST_ROLLING_DAYS, Period, find_day, find_month, find_week, make_rolling_window
from costguard.values.checks import require, require_one_of, require_whole_number
from costguard.values.money import Money
from costguard.values.resource import Attribution

DAY, WEEK, MONTH, ROLLING = "day", "week", "month", "rolling"
PERIODS = (DAY, WEEK, MONTH, ROLLING)

SPENT, PACE, FORECAST, TIME_TO_CAP = "spent", "pace", "forecast", "time_to_cap"
MEASURES = (SPENT, PACE, FORECAST, TIME_TO_CAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFilter:
    """Selects spending; all stated criteria must match. None: any; an empty tuple selects nothing.

    `gpus` are canonical names. `labels`: each key must have one of its values.
    """

    providers: tuple[str, ...] | None = None
    accounts: tuple[str, ...] | None = None
    regions: tuple[str, ...] | None = None
    owners: tuple[str, ...] | None = None
    gpus: tuple[str, ...] | None = None
    tiers: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    labels: tuple[tuple[str, tuple[str, ...]], ...] | None = None


MATCH_ALL = ResourceFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetThreshold:
    """A warning threshold: warn if `measure` passes `limit`, a share of the cap (3/20 is 15 %) or a number of hours.

    spent: more than this share is spent. pace: the share spent exceeds the elapsed share of the period by more than this.
    forecast: more than this share will be spent. time_to_cap: fewer hours than this are left.
    """

    measure: str
    limit: Fraction

    def __post_init__(self) -> None:
        require_one_of(self.measure, MEASURES, "warn")
        require(self.limit >= 0, f"warn {self.measure}", "must not be negative", "write a number from 0")


DEFAULT_THRESHOLDS = (
    BudgetThreshold(measure=PACE, limit=Fraction(15, 100)),
    BudgetThreshold(measure=FORECAST, limit=Fraction(1)),
    BudgetThreshold(measure=TIME_TO_CAP, limit=Fraction(24)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """At most `cap` in each `period` of `zone` for the spending that `match` selects.

    Several budgets may apply at once; the tightest decides. `days`: the length of a rolling window in days of 24 hours, 0 for
    other periods. `hard`: machines may be stopped to keep it, if a policy is armed; a soft budget warns. Both refuse new holds.
    `allow_irreversible`: machines whose stop loses data may be stopped too; otherwise people are asked about them.
    """

    name: str
    cap: Money
    period: str = MONTH
    days: int = 0
    zone: tzinfo = UTC
    match: ResourceFilter = MATCH_ALL
    hard: bool = False
    allow_irreversible: bool = False
    warn: tuple[BudgetThreshold, ...] = DEFAULT_THRESHOLDS

    def __post_init__(self) -> None:
        require(bool(self.name.strip()), "budget.name", "is empty", 'write a name such as "vision"')
        require(self.cap.nano > 0, "budget.cap", "must be more than zero", "leave the budget out to set no limit")
        require_one_of(self.period, PERIODS, "budget.period")
        moving = self.period == ROLLING
        require_whole_number(self.days, "budget.days", least=int(moving), most=LONGEST_ROLLING_DAYS if moving else 0)


def find_budget_period(budget: Budget, now: datetime) -> Period:
    """Return the period of `budget` that contains `now`; for a rolling one, the window that ends at `now`."""
    if budget.period == ROLLING:
        return make_rolling_window(now, budget.days)
    return {DAY: find_day, WEEK: find_week, MONTH: find_month}[budget.period](now, budget.zone)


def matches_filter(match: ResourceFilter, attribution: Attribution) -> bool:
    """Return whether spending with this attribution is selected."""
    at = attribution
    pairs = (
        (match.providers, at.provider),
        (match.accounts, at.account),
        (match.regions, at.region),
        (match.owners, at.owner),
        (match.gpus, at.gpu),
        (match.tiers, at.tier),
        (match.kinds, at.kind),
    )
    if not all(choices is None or value in choices for choices, value in pairs):
        return False
    if match.labels is None:
        return True
    labels = dict(at.labels)
    return bool(match.labels) and all(labels.get(key) in values for key, values in match.labels)
