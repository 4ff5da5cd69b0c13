"""The charts of a statement: days, burn by hour of the week, owners, GPUs and idle shares.

The tables have the same numbers. Values are floats of dollars or percent, because they are drawn; the texts beside them are
made from the exact amounts where there are any. The module also builds the headline figures, for formats that show them large;
the lead has them in words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

from costguard.errors import shorten
from costguard.reporting.statement.groups import CostGroup, CurrencySums
from costguard.reporting.statement.history import CostByDay, WeeklyBurn
from costguard.reporting.statement.statement import Statement
from costguard.values.instant import EPOCH
from costguard.values.money import Money, MoneyInterval
from costguard.values.text_format import LARGEST_SHARE, format_bounds, format_share, get_currency_sign
from costguard.views.document import BARS, HEAT, STACKED, Chart, ChartSeries, HeadlineFigure

MOST_SERIES, MOST_BARS = 6, 12
OTHER, NOBODY = "other", "not stated"
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
LONGEST_LABEL = 40
NANO = 10**9
HUNDRED = 100


def list_report_charts(statement: Statement) -> Iterator[Chart]:
    """Yield the charts that have data; none if the statement was made for formats without charts."""
    if statement.days is not None and statement.days.parts:
        yield _build_day_chart(statement.days, statement)
    if statement.burn is not None and any(cell for row in statement.burn.cells for cell in row):
        yield _build_burn_chart(statement.burn)
    if statement.days is not None:
        for key, title in (("owner", "Spend by owner"), ("gpu", "Spend by GPU")):
            yield from _list_spend_bars(statement, key, title)
        yield from _list_idle_day_charts(statement, statement.days)
        yield from _list_idle_charts(statement)


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
        note=f"{'Months' if days.monthly else 'Days'} of UTC, as the ledger keeps them; what is expected.",
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


def _list_idle_day_charts(statement: Statement, days: CostByDay) -> Iterator[Chart]:
    """Yield the idle share of the compute cost with known activity by day or month; None where none is known."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    form = "%Y-%m" if days.monthly else "%Y-%m-%d"
    for day, (judged, wasted) in statement.idle_days.items():
        of = sums[f"{EPOCH + timedelta(days=day):{form}}"]
        of[0] += judged
        of[1] += wasted
    labels = [f"{day:{form}}" for day in days.days]
    shares = [Fraction(sums[label][1], sums[label][0]) if sums[label][0] else None for label in labels]
    if any(share is not None for share in shares):
        yield Chart(
            title=f"Idle share by {'month' if days.monthly else 'day'}",
            kind=STACKED,
            unit="%",
            labels=tuple(labels),
            series=(
                ChartSeries(
                    name="idle",
                    values=tuple(None if share is None else round(float(HUNDRED * share), 2) for share in shares),
                    texts=tuple("" if share is None else f"{float(share):.0%}" for share in shares),
                ),
            ),
            note="Share of the compute cost with known activity; idle and partly idle together.",
        )


def _list_idle_charts(statement: Statement) -> Iterator[Chart]:
    """Yield the idle share of the compute cost with known activity, by the first key of the groups."""
    if not statement.by:
        return
    groups: dict[str, list[CostGroup]] = defaultdict(list)
    for group in statement.usd.groups:
        groups[next(iter(group.by.values())) or NOBODY].append(group)
    shares = {value: share for value, of in groups.items() if (share := _compute_idle_share(of)) is not None}
    if not shares:
        return
    ranked: Sequence[str] = sorted(shares, key=lambda value: (-shares[value], value))[:MOST_BARS]
    judged = _sum_judged(groups)
    yield Chart(
        title=f"Idle share by {statement.by[0]}",
        kind=BARS,
        unit="%",
        labels=tuple(shorten(value, LONGEST_LABEL) for value in ranked),
        series=(
            ChartSeries(
                name="idle",
                values=tuple(round(float(HUNDRED * shares[value]), 2) for value in ranked),
                texts=tuple(f"{float(shares[value]):.0%}" for value in ranked),
            ),
        ),
        note=f"Of the {format_share(judged)} of the compute cost with known activity; idle and partly idle together.",
    )


def _compute_idle_share(groups: Sequence[CostGroup]) -> Fraction | None:
    judged = sum(group.waste.judged for group in groups if group.waste)
    idle = sum(group.waste.idle + group.waste.partly for group in groups if group.waste)
    return Fraction(idle, judged) if judged else None


def _sum_judged(groups: Mapping[str, Sequence[CostGroup]]) -> float:
    every = [group for of in groups.values() for group in of]
    computing = sum(group.computing for group in every)
    return sum(group.waste.judged for group in every if group.waste) / computing if computing else 0.0


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
        texts=tuple("" if number in blank else Money(nano=nano).format() for number, nano in enumerate(nanos)),
    )


def _format_nano_interval(nanos: Sequence[int]) -> str:
    low, expected, high = (Money(nano=nano) for nano in nanos)
    return expected.format() if low.format() == high.format() else f"{expected.format()} ({format_bounds(low, high, 2)})"


LONGEST_FIGURE_NAME = 40
UNKNOWN = "not known"


def list_headline_figures(statement: Statement) -> Iterator[HeadlineFigure]:
    """Yield the headline figures; none for a future period or a period without data."""
    if statement.ahead or statement.blank:
        return
    for sums in (statement.usd, *statement.others):
        yield _build_money_figure("Spent so far" if statement.running else "Spent", sums.total)
    for forecast in statement.forecast:
        yield _build_money_figure("By its end at the current burn", forecast)
    if statement.before is not None:
        yield _build_change_figure(statement)
    if statement.usd.computing:
        yield _build_idle_figure(statement.usd)
    for money in statement.rest.money:
        many = statement.rest.machines
        yield _build_money_figure("Disks of stopped machines", money, f"{many} machine{'s' * (many != 1)}")
    for net in statement.saved.net:
        yield _build_money_figure("Saved by the guard", net)


def _build_money_figure(name: str, money: MoneyInterval, note: str = "") -> HeadlineFigure:
    """Return an amount, with its bounds if they differ by a cent or more."""
    low, expected, high = money.format_ends().values()
    code = get_currency_sign(money.expected.currency)
    bounds = "" if low == high else f"between {_move_minus_sign(low, code)} and {_move_minus_sign(high, code)}"
    return HeadlineFigure(name=name, text=_move_minus_sign(expected, code), note="; ".join(filter(None, (bounds, note))))


def _build_change_figure(statement: Statement) -> HeadlineFigure:
    previous = statement.before
    assert previous is not None  # noqa: S101 - asked by its caller
    name = f"Against {shorten(previous.label, LONGEST_FIGURE_NAME)}"
    change, share = previous.compute_change(statement.usd), previous.compute_share(statement.usd)
    if change is None:
        return HeadlineFigure(name=name, text=UNKNOWN, note="not polled then")
    was = (
        f"${previous.part.total.expected.format()} in as much of it"
        if statement.running
        else f"from ${previous.usd.total.expected.format()}"
    )
    by = f"; {float(share):+.0%}" if share is not None and abs(share) < LARGEST_SHARE else ""
    gaps = "" if previous.complete else "; it has gaps"
    text = _move_minus_sign(change.format(), "$")
    return HeadlineFigure(name=name, text=text if change.nano <= 0 else f"+{text}", note=f"{was}{by}{gaps}")


def _build_idle_figure(usd: CurrencySums) -> HeadlineFigure:
    wastes = [group.waste for group in usd.groups if group.waste]
    judged = sum(waste.judged for waste in wastes)
    if not judged:
        return HeadlineFigure(name="Idle", text=UNKNOWN, note="too little data on machine activity")
    idle, partly = Money(nano=sum(w.idle for w in wastes)), Money(nano=sum(w.partly for w in wastes))
    note = f"and ${partly.format()} partly idle, of the {judged / usd.computing:.0%} with known activity"
    return HeadlineFigure(name="Idle", text=f"${idle.format()}", note=note)


def _move_minus_sign(amount: str, code: str) -> str:
    """Return `-$5.00` instead of `$-5.00`."""
    return f"-{code}{amount[1:]}" if amount.startswith("-") else f"{code}{amount}"
