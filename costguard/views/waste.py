"""Waste in a report, the money paid for idle time: its data, sentences, headline figure, table cells and charts.

`reporting/statement/waste.py` computes it. A new figure is a field of `Waste`, a `Column` here, and words in `_describe_idle`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import timedelta
from fractions import Fraction

from costguard.errors import shorten
from costguard.reporting.statement.groups import CurrencySums
from costguard.reporting.statement.history import CostByDay
from costguard.reporting.statement.statement import Statement
from costguard.reporting.statement.waste import Waste
from costguard.values.instant import EPOCH, HOUR_US, to_hours
from costguard.values.money import Money
from costguard.values.text_format import format_amount, format_exact, format_share
from costguard.views.document import BARS, STACKED, Chart, ChartSeries, Column, HeadlineFigure
from costguard.views.report_charts import LONGEST_LABEL, MOST_BARS, NOBODY

IDLE_MEANS = (
    "idle: time between samples without measured activity; partly idle: GPUs of an active machine without activity for "
    "the hour, and machines of an active group"
)
WITHOUT_DATA = "too little data on machine activity"

WASTE_COLUMNS: tuple[Column[Waste], ...] = (
    Column("idle_usd", "", lambda waste: format_exact(Money(nano=waste.idle))),
    Column("idle_hours", "", lambda waste: to_hours(waste.idle_us)),
    Column("partly_idle_usd", "", lambda waste: format_exact(Money(nano=waste.partly))),
    Column("idle_kwh", "", lambda waste: None if waste.idle_kwh is None else round(waste.idle_kwh, 4)),
    Column("idle_kwh_hours", "", lambda waste: to_hours(waste.power_us)),
)


def build_waste_record(waste: Waste | None) -> dict[str, object]:
    """Return the figures of a group, for JSON and CSV. None: nothing of it could be judged."""
    return {column.key: column.value(waste) if waste else None for column in WASTE_COLUMNS}


def build_waste_data(usd: CurrencySums) -> dict[str, object]:
    """Return the contract's `idle`: the sums of all groups, with keys without `idle_`, and how much of the cost was judged."""
    waste, share = usd.waste, usd.judged_share
    return {
        **{key.replace("idle_", ""): value for key, value in build_waste_record(waste).items()},
        "judged_usd": format_exact(Money(nano=waste.judged if waste else 0)),
        "computing_usd": format_exact(Money(nano=usd.computing)),
        "judged_share": None if share is None else round(float(share), 4),
        "means": IDLE_MEANS,
    }


def list_waste_sentences(usd: CurrencySums) -> Iterator[str]:
    """Yield what was wasted; nothing if it is not known."""
    waste, share = usd.waste, usd.judged_share
    if waste is not None and share is not None:
        of = f"of the {format_share(float(share))} of the compute cost with known activity"
        yield f"Idle: ${format_amount(Money(nano=waste.idle))} ({_describe_idle(waste)}), and {_format_partly(waste)}, {of}."


def list_waste_notes(usd: CurrencySums) -> Iterator[str]:
    """Yield what the figures mean, or that they are not known."""
    if usd.computing:
        yield f"Idle means: {IDLE_MEANS}." if usd.waste else f"Idle: not known. {WITHOUT_DATA.capitalize()}."


def build_waste_figure(usd: CurrencySums) -> HeadlineFigure:
    """Return the headline figure."""
    waste, share = usd.waste, usd.judged_share
    if waste is None or share is None:
        return HeadlineFigure(name="Idle", text="not known", note=WITHOUT_DATA)
    note = f"and {_format_partly(waste)}, of the {float(share):.0%} with known activity"
    return HeadlineFigure(name="Idle", text=f"${format_amount(Money(nano=waste.idle))}", note=note)


def format_waste_cell(waste: Waste | None, *, computing: bool) -> str:
    """Return the waste of a group, or of the total, in a table. `computing`: whether there is any compute cost to judge."""
    return "-" if not computing else "unknown" if waste is None else format_amount(Money(nano=waste.wasted))


def list_waste_charts(statement: Statement) -> Iterator[Chart]:
    """Yield the idle share of the compute cost with known activity, by day or month and by the first key of the groups."""
    if statement.days is None:
        return
    days = _sum_shares_by_day(statement.days, statement.idle_days)
    if any(share is not None for share in days.values()):
        note = "Share of the compute cost with known activity"
        yield _build_share_chart("month" if statement.days.monthly else "day", STACKED, days, note)
    groups = _rank_group_shares(statement.usd)
    if groups:
        note = f"Of the {format_share(float(statement.usd.judged_share or 0))} of the compute cost with known activity"
        yield _build_share_chart(statement.by[0], BARS, groups, note)


def _describe_idle(waste: Waste) -> str:
    hours, power_hours = f"{waste.idle_us / HOUR_US:.1f} h", f"{waste.power_us / HOUR_US:.1f} h"
    if not waste.idle_us:
        return hours
    if waste.idle_kwh is None:
        return f"{hours}, kWh of GPUs unknown: no samples of power"
    part = "" if hours == power_hours else f" in the {power_hours} with samples of power"
    return f"{hours}, GPUs drew {waste.idle_kwh:.2f} kWh{part}"


def _format_partly(waste: Waste) -> str:
    return f"${format_amount(Money(nano=waste.partly))} partly idle"


def _sum_shares_by_day(days: CostByDay, idle_days: Mapping[int, tuple[int, int]]) -> dict[str, Fraction | None]:
    """Return the share by day or month; None: not known."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    form = "%Y-%m" if days.monthly else "%Y-%m-%d"
    for day, (judged, wasted) in idle_days.items():
        of = sums[f"{EPOCH + timedelta(days=day):{form}}"]
        of[0] += judged
        of[1] += wasted
    labels = [f"{day:{form}}" for day in days.days]
    return {label: Fraction(sums[label][1], sums[label][0]) if sums[label][0] else None for label in labels}


def _rank_group_shares(usd: CurrencySums) -> dict[str, Fraction]:
    """Return the share by the first key of the groups, the largest first; empty if the groups have no key."""
    wastes: dict[str, list[Waste]] = defaultdict(list)
    for group in usd.groups:
        if group.by and group.waste:
            wastes[next(iter(group.by.values())) or NOBODY].append(group.waste)
    sums = {value: (sum(one.wasted for one in of), sum(one.judged for one in of)) for value, of in wastes.items()}
    shares = {value: Fraction(wasted, judged) for value, (wasted, judged) in sums.items()}
    return {value: shares[value] for value in sorted(shares, key=lambda value: (-shares[value], value))[:MOST_BARS]}


def _build_share_chart(by: str, kind: str, shares: Mapping[str, Fraction | None], note: str) -> Chart:
    values = tuple(None if share is None else round(float(100 * share), 2) for share in shares.values())
    texts = tuple("" if share is None else f"{float(share):.0%}" for share in shares.values())
    return Chart(
        title=f"Idle share by {by}",
        kind=kind,
        unit="%",
        labels=tuple(shorten(value, LONGEST_LABEL) for value in shares),
        series=(ChartSeries(name="idle", values=values, texts=texts),),
        note=f"{note}; idle and partly idle together.",
    )
