"""Budgets: how much may be spent, on what, in which time.

Example: $3,000 a month for what carries the label team=vision, in months of Europe/Berlin. How far it has come is a
`Standing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from fractions import Fraction

from costguard.values.calendar import LONGEST_ROLLING, day_of, month_of, rolling, week_of
from costguard.values.checks import one_of, require, whole
from costguard.values.money import Money
from costguard.values.period import Period
from costguard.values.resource import Attribution

DAY, WEEK, MONTH, ROLLING = "day", "week", "month", "rolling"
PERIODS = (DAY, WEEK, MONTH, ROLLING)

SPENT, PACE, FORECAST, TIME_TO_CAP = "spent", "pace", "forecast", "time_to_cap"
MEASURES = (SPENT, PACE, FORECAST, TIME_TO_CAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
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


EVERYTHING = Match()


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """When to warn: `measure` beyond `limit`. Shares of the cap (3/20 is 15 %), of `time_to_cap` hours.

    spent: more than this share is spent. pace: the share spent is ahead of the share of the period that has passed by more
    than this. forecast: more than this share will be spent. time_to_cap: fewer hours than this are left.
    """

    measure: str
    limit: Fraction

    def __post_init__(self) -> None:
        one_of(self.measure, MEASURES, "warn")
        require(self.limit >= 0, f"warn {self.measure}", "must not be negative", "write a number from 0")


USUAL_WARNINGS = (
    Threshold(measure=PACE, limit=Fraction(15, 100)),
    Threshold(measure=FORECAST, limit=Fraction(1)),
    Threshold(measure=TIME_TO_CAP, limit=Fraction(24)),
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
    match: Match = EVERYTHING
    hard: bool = False
    allow_irreversible: bool = False
    warn: tuple[Threshold, ...] = USUAL_WARNINGS

    def __post_init__(self) -> None:
        require(bool(self.name.strip()), "budget.name", "is empty", 'write a name such as "vision"')
        require(self.cap.nano > 0, "budget.cap", "must be more than zero", "leave the budget out to set no limit")
        one_of(self.period, PERIODS, "budget.period")
        moving = self.period == ROLLING
        whole(self.days, "budget.days", least=int(moving), most=LONGEST_ROLLING if moving else 0)


def period_at(budget: Budget, now: datetime) -> Period:
    """The period of `budget` that holds `now`; of a rolling one, the window that ends there."""
    if budget.period == ROLLING:
        return rolling(now, budget.days)
    return {DAY: day_of, WEEK: week_of, MONTH: month_of}[budget.period](now, budget.zone)


def matches(match: Match, attribution: Attribution) -> bool:
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
