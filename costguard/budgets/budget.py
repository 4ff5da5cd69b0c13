"""Budgets: how much may be spent, on what, in which period.

Example: $3,000 a month for resources with the label team=vision, in months of Europe/Berlin. Its progress is a `BudgetStatus`.

A rate cap, such as $12 an hour, limits what everything that it selects costs an hour. It is a budget whose period is an hour
from now, and whose spend is what runs now going on for that hour. No time passes until such a cap is exceeded, so it has no
pace, no forecast and no time to the cap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction

from costguard.values.calendar import (
    LONGEST_ROLLING_DAYS,
    Period,
    find_day,
    find_month,
    find_quarter,
    find_week,
    find_year,
    make_rolling_window,
)
from costguard.values.checks import require, require_one_of, require_whole_number
from costguard.values.instant import EARLIEST
from costguard.values.money import ExchangeRate, Money
from costguard.values.resource import Attribution, is_within_region
from costguard.values.text_format import format_amount

DAY, WEEK, MONTH, QUARTER, YEAR, ROLLING, TOTAL = "day", "week", "month", "quarter", "year", "rolling", "total"
HOUR = "hour"
"""The period of a rate cap."""
PERIODS = (DAY, WEEK, MONTH, QUARTER, YEAR, ROLLING, TOTAL, HOUR)
TOTAL_AHEAD = timedelta(days=366)
"""How far ahead a total without an end is judged."""

SPENT, PACE, FORECAST, TIME_TO_CAP = "spent", "pace", "forecast", "time_to_cap"
MEASURES = (SPENT, PACE, FORECAST, TIME_TO_CAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFilter:
    """Selects spending; all stated criteria must match. None: any; an empty tuple selects nothing.

    `gpus` are canonical names. `regions`: a region selects its zones, too. `labels`: each key must have one of its values.
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
FILTER_KEYS = tuple(one.name for one in fields(ResourceFilter) if one.name != "labels")


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
RATE_THRESHOLDS = (BudgetThreshold(measure=SPENT, limit=Fraction(1)),)
"""Of a rate cap, which has no other measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """At most `cap` in each `period` of `zone` for the spending that `match` selects.

    Several budgets may apply at once; the tightest decides. `days`: the length of a rolling window in days of 24 hours, 0 for
    other periods. `start`, `end`: between which it counts, in UTC; None: no bound. `hard`: machines may be stopped to
    keep it, if a policy is armed; a soft budget warns. Both refuse new holds. `allow_irreversible`: machines whose stop
    loses data may be stopped too; otherwise people are asked about them.

    `rate`: people are shown its amounts in this currency; None: in that of the cap. `cap_stated`: the cap as somebody wrote it
    in that currency, of which `cap` is the worth in dollars; None: `cap` itself.
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
    start: datetime | None = field(default=None, repr=False)  # an acceptance of the cap (describe_cap) holds the repr
    end: datetime | None = field(default=None, repr=False)
    cap_stated: Money | None = field(default=None, repr=False)
    rate: ExchangeRate | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require(bool(self.name.strip()), "budget.name", "is empty", 'write a name such as "vision"')
        require(self.cap.nano > 0, "budget.cap", "must be more than zero", "leave the budget out to set no limit")
        require_one_of(self.period, PERIODS, "budget.period")
        measured = not self.is_rate or all(one.measure == SPENT for one in self.warn)
        require(measured, "budget.warn", 'has for a cap an hour no measure but "spent"', 'write "spent>80%"')
        moving = self.period == ROLLING
        require_whole_number(self.days, "budget.days", least=int(moving), most=LONGEST_ROLLING_DAYS if moving else 0)
        ordered = self.start is None or self.end is None or self.start < self.end
        require(ordered, "budget.until", "is not after from", "write the first day that no longer counts")

    def format_cap(self) -> str:
        """Return `500.00 USD`, `12.00 USD/h`, or `500.00 EUR (543.48 USD at 0.92 EUR to the dollar on 2026-11-01 (ECB))`."""
        unit = "/h" if self.is_rate else ""
        text = f"{format_amount(self.cap)} {self.cap.currency}{unit}"
        if self.cap_stated is None or self.rate is None:
            return text
        return f"{format_amount(self.cap_stated)} {self.cap_stated.currency}{unit} ({text} {self.rate.label})"

    @property
    def is_rate(self) -> bool:
        """Return whether its cap is money an hour."""
        return self.period == HOUR

    @property
    def has_end(self) -> bool:
        """Return whether its period ends: a rolling window, a rate cap and a total without `end` do not."""
        return self.period not in (ROLLING, HOUR) and (self.period != TOTAL or self.end is not None)


def list_current_budgets(budgets: Iterable[Budget], now: datetime) -> tuple[Budget, ...]:
    """Return the budgets that count at `now`: all but those that have not begun or are over."""
    return tuple(b for b in budgets if (b.start is None or b.start <= now) and (b.end is None or now < b.end))


def find_budget_period(budget: Budget, now: datetime) -> Period:
    """Return the period of `budget` that contains `now`, within its bounds; for a rolling one, the window that ends at `now`.

    A total without an end is judged until `TOTAL_AHEAD` from `now`, and a rate cap for the hour from `now`.
    """
    if budget.is_rate:
        return Period(start=now, end=now + timedelta(hours=1))
    if budget.period == ROLLING:
        period = make_rolling_window(now, budget.days)
    elif budget.period == TOTAL:
        period = Period(start=EARLIEST, end=now + TOTAL_AHEAD if budget.end is None else budget.end)
    else:
        finders = {DAY: find_day, WEEK: find_week, MONTH: find_month, QUARTER: find_quarter, YEAR: find_year}
        period = finders[budget.period](now, budget.zone)
    start = period.start if budget.start is None else max(period.start, budget.start)
    return Period(start=start, end=max(start, period.end if budget.end is None else min(period.end, budget.end)))


def covers_filter(outer: ResourceFilter, inner: ResourceFilter) -> bool:
    """Return whether everything that `inner` selects is selected by `outer`, as far as both say it."""
    pairs = ((getattr(outer, name), getattr(inner, name)) for name in FILTER_KEYS)
    within = all(outside is None or (inside is not None and {*inside} <= {*outside}) for outside, inside in pairs)
    labels = dict(inner.labels or ())
    return within and all(key in labels and {*labels[key]} <= {*values} for key, values in outer.labels or ())


def list_filter_words(match: ResourceFilter) -> tuple[str, ...]:
    """Return the criteria of `match` as `report --only` takes them: ("owner=vision", "team=cv")."""
    criteria = ((name.removesuffix("s"), getattr(match, name)) for name in FILTER_KEYS)
    return tuple(f"{key}={value}" for key, values in (*criteria, *(match.labels or ())) for value in values or ())


def matches_filter(match: ResourceFilter, attribution: Attribution) -> bool:
    """Return whether spending with this attribution is selected."""
    at = attribution
    pairs = (
        (match.providers, at.provider),
        (match.accounts, at.account),
        (match.owners, at.owner),
        (match.gpus, at.gpu),
        (match.tiers, at.tier),
        (match.kinds, at.kind),
    )
    if not all(choices is None or value in choices for choices, value in pairs):
        return False
    if match.regions is not None and not any(is_within_region(at.region, region) for region in match.regions):
        return False
    if match.labels is None:
        return True
    labels = dict(at.labels)
    return bool(match.labels) and all(labels.get(key) in values for key, values in match.labels)
