"""Budgets: how much may be spent, on what, in which time.

Example: $3,000 a month for what carries the label team=vision, in months of Europe/Berlin. How far it has come is a
`Standing`.
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
    """Which spending is meant: all that is stated must fit. None: any; an empty tuple: nothing at all.

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
    """When to warn: `measure` beyond `limit`. Shares of the cap (3/20 is 15 %), of `time_to_cap` hours.

    spent: more than this share is spent. pace: the share spent is ahead of the share of the period that has passed by more
    than this. forecast: more than this share will be spent. time_to_cap: fewer hours than this are left.
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
    """At most `cap` in each `period` of `zone` on what `match` selects. Several may hold at once; the tightest wins.

    `days`: the length of a rolling window in days of 24 hours, 0 for the others. `hard`: machines may be stopped to keep it,
    where a policy is armed; a soft one warns, and refuses new holds as a hard one does. `allow_irreversible`: also those whose
    stop loses data; else people are asked about them.
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
    """The period of `budget` that holds `now`; of a rolling one, the window that ends there."""
    if budget.period == ROLLING:
        return make_rolling_window(now, budget.days)
    return {DAY: find_day, WEEK: find_week, MONTH: find_month}[budget.period](now, budget.zone)


def matches_filter(match: ResourceFilter, attribution: Attribution) -> bool:
    """Whether spending with this attribution is meant."""
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
    if not all(wanted is None or value in wanted for wanted, value in pairs):
        return False
    if match.labels is None:
        return True
    labels = dict(at.labels)
    return bool(match.labels) and all(labels.get(key) in values for key, values in match.labels)
