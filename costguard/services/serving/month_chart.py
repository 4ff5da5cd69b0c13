"""The month of the page Now: what it cost by day and owner, where it leads, the caps it must keep, and what was saved.

Amounts are running totals: the column of a day has what the month cost until its end, so that the last one is the month so
far, and a cap is a line at its own height. Example: on the 12th $546 are spent, a dashed line leads to $1,365 at the end of
the month (forecast), and a cap of $3,000 is above both.

A drawing is 100 high and as wide as the month has days; a page stretches it to its width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, timedelta
from itertools import accumulate
from typing import NamedTuple

from costguard.budgets.budget import MATCH_ALL, MONTH
from costguard.ledger.reports.reader import ReportReader
from costguard.reporting.statement.history import CostByDay, sum_by_day
from costguard.reporting.statement.savings import Savings, compute_savings
from costguard.reporting.status import FleetStatus
from costguard.services.report.ledger_answers import open_books
from costguard.settings import Settings
from costguard.values.calendar import Period
from costguard.values.instant import MICROSECOND
from costguard.values.money import Money
from costguard.values.text_format import format_amount, format_bounds
from costguard.views.report_charts import NOBODY, OTHER
from costguard.views.report_sections import format_count

OWNERS_MAX, CAPS_MAX = 5, 3
CAP_ABOVE_MOST = 8
"""A cap that is so many times the month's end would make its columns too low to read; it stands among the budgets."""
NANO = 10**9
TICK_STEPS = (0.5, 1, 2, 5)


class OwnerArea(NamedTuple):
    """What one owner's machines cost: `path` of its area in the drawing, `amount` of the month so far."""

    name: str
    path: str
    amount: str


class MonthLine(NamedTuple):
    """A line across the drawing, at so many percent from its top."""

    text: str
    top: float


class MonthChart(NamedTuple):
    """The month as it is drawn. `days`: each with the cost of the day. `ahead`: path of the forecast, "" for none.

    `saved`: a sentence; "" if no act of the guard saved anything.
    """

    width: int
    areas: tuple[OwnerArea, ...]
    ticks: tuple[MonthLine, ...]
    caps: tuple[MonthLine, ...]
    ahead: str
    days: tuple[tuple[date, str], ...]
    saved: str


def load_month_chart(settings: Settings, status: FleetStatus) -> MonthChart:
    """Load the month of `status` from the ledger, in dollars and days of UTC."""
    passed = Period(start=status.month.start, end=max(status.at, status.month.start + MICROSECOND))
    with open_books(settings, ReportReader) as accounts, accounts.read_one_snapshot():
        costs = accounts.load_daily_costs(passed, status.at, "owner")
        saved = compute_savings(accounts.load_actions(passed.start, passed.end), passed, status.at)
    days = sum_by_day(costs, "owner", passed.start.astimezone(UTC).date(), (passed.end - MICROSECOND).astimezone(UTC).date())
    return build_month_chart(days, status, saved)


def build_month_chart(days: CostByDay, status: FleetStatus, saved: Savings) -> MonthChart:
    """Build the drawing of `days` of the month of `status`, and say what was `saved` in it."""
    width = round((status.month.end - status.month.start) / timedelta(days=1))
    ahead, caps = status.usd.ahead.total.expected, sorted(_list_caps(status), key=lambda cap: cap[1].nano)[:CAPS_MAX]
    owners = _rank_owners(days)
    spent = [sum(nanos) for nanos in zip(*days.parts.values(), strict=True)] or [0] * len(days.days)
    sums = [*accumulate(spent)]
    highest = max(sums[-1], ahead.nano)
    near = [(name, cap) for name, cap in caps if cap.nano <= CAP_ABOVE_MOST * highest]
    top = max(1, highest, *(cap.nano for _, cap in near))
    ticks, scale = _choose_ticks(top), 96 / top  # some room above the highest line
    floor, areas = [0] * len(spent), list[OwnerArea]()
    for name, nanos in owners:
        ceiling = [low + high for low, high in zip(floor, accumulate(nanos), strict=True)]
        areas.append(OwnerArea(name, _draw_steps(floor, ceiling, scale), f"${format_amount(Money(nano=sum(nanos)))}"))
        floor = ceiling
    day = len(spent)
    line = f"M{day} {_find_top(sums[-1], scale)}L{width} {_find_top(ahead.nano, scale)}" if day < width else ""
    return MonthChart(
        width=width,
        areas=tuple(areas),
        ticks=tuple(MonthLine(f"${format_amount(one, 0)}", _find_top(one.nano, scale)) for one in ticks),
        caps=tuple(MonthLine(f"cap of {name}: ${format_amount(cap)}", _find_top(cap.nano, scale)) for name, cap in near),
        ahead=line,
        days=tuple((one, f"${format_amount(Money(nano=nano))}") for one, nano in zip(days.days, spent, strict=True)),
        saved=describe_savings(saved),
    )


def describe_savings(saved: Savings) -> str:
    """Return what acts of the guard saved: `$3,373 in 3 acts`; "" for nothing."""
    acts = len({one.act.intent_id for one in saved.counted})
    net = saved.get_net("USD")
    if not acts or net.expected.nano <= 0:
        return ""
    return f"${format_amount(net.expected, 0)} in {format_count(acts, 'act')} ({format_bounds(net.low, net.high, 0)})"


def _list_caps(status: FleetStatus) -> Iterator[tuple[str, Money]]:
    """Yield the budgets of the calendar month that count all spending, in dollars."""
    for one in status.budgets:
        budget = one.budget
        if budget.period == MONTH and budget.match == MATCH_ALL and budget.cap.currency == "USD":
            yield budget.name, budget.cap


def _rank_owners(days: CostByDay) -> list[tuple[str, Sequence[int]]]:
    """Return the owners with the highest cost, and the others as one, each with the cost of every day."""
    ranked = sorted(days.parts, key=lambda name: (-sum(days.parts[name]), name))
    owners = [(name or NOBODY, days.parts[name]) for name in ranked[:OWNERS_MAX]]
    rest = [days.parts[name] for name in ranked[OWNERS_MAX:]]
    return [*owners, (OTHER, [*map(sum, zip(*rest, strict=True))])] if rest else [*owners]


def _draw_steps(floor: Sequence[int], ceiling: Sequence[int], scale: float) -> str:
    """Return the outline of an area of columns, one a day: along the upper ends, and back along the lower ones."""
    forth = "".join(f"V{_find_top(nano, scale)}H{number + 1}" for number, nano in enumerate(ceiling))
    back = "".join(f"V{_find_top(floor[number], scale)}H{number}" for number in range(len(floor) - 1, -1, -1))
    return f"M0 {_find_top(floor[0], scale)}{forth}{back}Z" if floor else ""


def _find_top(nano: int, scale: float) -> float:
    return round(100 - nano * scale, 2)


def _choose_ticks(top: int) -> list[Money]:
    """Return two to four round amounts up to `top`; none below a dollar."""
    unit = 10 ** (len(str(top // NANO)) - 1) * NANO
    step = next(int(step * unit) for step in TICK_STEPS if top <= 4 * step * unit)
    return [Money(nano=step * number) for number in range(1, top // step + 1)] if top >= NANO else []
