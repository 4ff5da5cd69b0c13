"""The charts of a statement: days, burn by hour of the week, owners and GPUs.

The tables have the same numbers. Values are floats of dollars or percent, because they are drawn; the texts beside them are
made from the exact amounts where there are any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta

from costguard.errors import shorten
from costguard.reporting.statement.history import CostByDay, WeeklyBurn
from costguard.reporting.statement.statement import Statement
from costguard.values.money import Money
from costguard.values.text_format import format_amount, format_bounds
from costguard.views.document import BARS, HEAT, STACKED, Chart, ChartSeries

MOST_SERIES, MOST_BARS = 6, 12
OTHER, NOBODY = "other", "not stated"
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
LONGEST_LABEL = 40
NANO = 10**9


def list_report_charts(statement: Statement) -> Iterator[Chart]:
    """Yield the charts that have data; none if the statement was made for formats without charts."""
    if statement.days is not None and statement.days.parts:
        yield _build_day_chart(statement.days, statement)
    if statement.burn is not None and any(cell for row in statement.burn.cells for cell in row):
        yield _build_burn_chart(statement.burn)
    if statement.days is not None:
        for key, title in (("owner", "Spend by owner"), ("gpu", "Spend by GPU")):
            yield from _list_spend_bars(statement, key, title)


def _build_day_chart(days: CostByDay, statement: Statement) -> Chart:
    """Return the cost by day for each value of a key, the most expensive first, and the others as one series.

    A day that was not polled is None.
    """
    spent = [sum(nanos) for nanos in zip(*days.parts.values(), strict=True)]
    bare = (number for number, nano in enumerate(spent) if not nano and not days.monthly)
    blank = {number for number in bare if _is_unseen_day(days.days[number], statement)}
    ranked = sorted(days.parts, key=lambda value: (-sum(days.parts[value]), value))
    series = [(value or NOBODY, days.parts[value]) for value in ranked[:MOST_SERIES]]
    rest = [days.parts[value] for value in ranked[MOST_SERIES:]]
    if rest:
        series.append((OTHER, tuple(map(sum, zip(*rest, strict=True)))))
    return Chart(
        title=f"Spend by {'month' if days.monthly else 'day'} and {days.by}",
        kind=STACKED,
        unit="$",
        labels=tuple(f"{day:%Y-%m}" if days.monthly else f"{day:%Y-%m-%d}" for day in days.days),
        series=tuple(_build_amount_series(name, nanos, blank) for name, nanos in series),
        note=f"{'Months' if days.monthly else 'Days'} in UTC; expected cost.",
    )


def _build_burn_chart(burn: WeeklyBurn) -> Chart:
    """Return the mean dollars per hour for each hour of the week."""
    return Chart(
        title="Burn by weekday and hour",
        kind=HEAT,
        unit="$/h",
        labels=tuple(f"{hour:02d}" for hour in range(len(burn.cells[0]))),
        series=tuple(
            ChartSeries(
                name=day,
                values=tuple(None if cell is None else round(cell, 4) for cell in row),
                texts=tuple("" if cell is None else f"{cell:.2f}" for cell in row),
            )
            for day, row in zip(WEEKDAYS, burn.cells, strict=True)
        ),
        note=f"Mean dollars an hour, in {burn.zone}; each charge is spread evenly over its time.",
    )


def _list_spend_bars(statement: Statement, key: str, title: str) -> Iterator[Chart]:
    """Yield one bar for each value of `key`, the most expensive first; nothing if the groups have no such key."""
    if key not in statement.by:
        return
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for group in statement.usd.groups:
        of = sums[group.by[key] or (NOBODY if key == "owner" else "no GPU")]
        for number, end in enumerate((group.money.low, group.money.expected, group.money.high)):
            of[number] += end.nano
    ranked = sorted(sums, key=lambda value: (-sums[value][1], value))
    shown = [(value, sums[value]) for value in ranked[:MOST_BARS]]
    if ranked[MOST_BARS:]:
        shown.append((OTHER, [sum(sums[value][end] for value in ranked[MOST_BARS:]) for end in range(3)]))
    if not shown:
        return
    yield Chart(
        title=title,
        kind=BARS,
        unit="$",
        labels=tuple(shorten(value, LONGEST_LABEL) for value, _ in shown),
        series=(
            ChartSeries(
                name="cost",
                values=tuple(expected / NANO for _, (_, expected, _) in shown),
                texts=tuple(_format_nano_interval(nanos) for _, nanos in shown),
            ),
        ),
    )


def _is_unseen_day(day: date, statement: Statement) -> bool:
    """Return whether no scope was read in any part of `day` within the period, so that zero spending is not known."""
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    start, end = max(begin, statement.period.start), min(begin + timedelta(days=1), statement.period.end, statement.as_of)
    holes = [[hole.period for hole in one.holes] for one in statement.unseen]
    return len(holes) == statement.scopes and all(any(h.start <= start and end <= h.end for h in of) for of in holes)


def _build_amount_series(name: str, nanos: Sequence[int], blank: Collection[int]) -> ChartSeries:
    return ChartSeries(
        name=shorten(name, LONGEST_LABEL),
        values=tuple(None if number in blank else nano / NANO for number, nano in enumerate(nanos)),
        texts=tuple("" if number in blank else format_amount(Money(nano=nano)) for number, nano in enumerate(nanos)),
    )


def _format_nano_interval(nanos: Sequence[int]) -> str:
    low, expected, high = (Money(nano=nano) for nano in nanos)
    return (
        format_amount(expected)
        if low.format() == high.format()
        else f"{format_amount(expected)} ({format_bounds(low, high, 2)})"
    )
