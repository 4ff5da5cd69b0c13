"""What of a chart is drawn: the largest series and the first labels, every value a number or None, and what was left out."""

from __future__ import annotations

from dataclasses import dataclass

from costguard.renderers.html.numbers import clamp_number, format_given_text, format_value
from costguard.views.document import BARS, HEAT, STACKED, Chart, ChartSeries

MOST_LABELS = {STACKED: 400, HEAT: 48, BARS: 40}
MOST_SERIES = {STACKED: 7, HEAT: 14, BARS: 1}
OTHERS, NAMELESS = "others", "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedChart:
    """A chart that fits its room. `unknown`: the series of which nothing is known, for each label. `left_out`: a sentence."""

    labels: tuple[str, ...]
    series: tuple[ChartSeries, ...]
    unknown: tuple[tuple[str, ...], ...]
    left_out: str


def _fit_chart(chart: Chart) -> FittedChart:
    """`chart` within the limits of its kind."""
    count, most = min(len(chart.labels), MOST_LABELS[chart.kind]), MOST_SERIES[chart.kind]
    every = tuple(_complete_series(one, count, chart.unit) for one in chart.series)
    unknown = tuple(tuple(one.name for one in every if one.values[at] is None) for at in range(count))
    summed = chart.kind == STACKED and len(every) > most
    return FittedChart(
        labels=tuple(label or NAMELESS for label in chart.labels[:count]),
        series=_merge_smallest_series(every, most, chart.unit) if summed else every[:most],
        unknown=unknown,
        left_out=_format_left_out(chart, count, most),
    )


def _complete_series(series: ChartSeries, count: int, unit: str) -> ChartSeries:
    """`series` with a number or None and a text for each of `count` labels."""
    values = tuple(map(clamp_number, (*series.values, *(None,) * count)[:count]))
    texts = (*series.texts, *("",) * count)[:count]
    said = tuple(format_given_text(text, value, unit) for text, value in zip(texts, values, strict=True))
    return ChartSeries(name=series.name or NAMELESS, values=values, texts=said)


def _merge_smallest_series(every: tuple[ChartSeries, ...], most: int, unit: str) -> tuple[ChartSeries, ...]:
    """The largest series in the order they came in, and one more that is the sum of the rest."""
    dearest = sorted(every, key=lambda one: -sum(abs(value or 0.0) for value in one.values))[: most - 1]
    kept = [one for one in every if any(one is other for other in dearest)]
    rest = [one for one in every if not any(one is other for other in dearest)]
    values = tuple(_sum_known(parts) for parts in zip(*(one.values for one in rest), strict=True))
    texts = tuple(format_value(value, unit) for value in values)
    return (*kept, ChartSeries(name=f"{len(rest)} {OTHERS}", values=values, texts=texts))


def _sum_known(parts: tuple[float | None, ...]) -> float | None:
    there = [part for part in parts if part is not None]
    return sum(there) if there else None


def _format_left_out(chart: Chart, count: int, most: int) -> str:
    said = []
    if count < len(chart.labels):
        said.append(f"the first {count} of {len(chart.labels):,}")
    if chart.kind != STACKED and len(chart.series) > most:
        said.append(f"{most} of {len(chart.series):,} series")
    return f"Drawn here: {' and '.join(said)}. The others are in the tables, or in the answer as JSON or CSV." if said else ""
