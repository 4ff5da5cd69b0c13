"""Answers in a notebook: pictures (matplotlib) and tables (pandas), of the extra `notebook`.

    answer.plot()               cost over hours of a quote, with the intervals; a report's spend by day and owner
    answer.to_frame()           a row for each record of the JSON answer, with amounts as numbers

Neither library is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from costguard.errors import InputError, NoAnswerError
from costguard.views.document import STACKED, Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from costguard.quoting.quote import QuoteOption
    from costguard.values.interval import Interval
    from costguard.values.money import MoneyInterval

LABELS_MAX = 12
"""Labels of days under one picture: more overlap."""


def build_frame(records: Sequence[Mapping[str, object]]) -> DataFrame:
    """Return a row for each of `records`. Amounts, which are exact decimal text in JSON, become floats: for plots and sums."""
    frame: DataFrame = _import_extra("pandas").DataFrame.from_records([dict(one) for one in records])
    for name in (column for column in frame.columns if "usd" in column.split("_")):
        frame[name] = [None if one is None else float(Decimal(one)) for one in frame[name]]
        frame[name] = frame[name].astype("float64")
    return frame


def draw_options(options: Sequence[QuoteOption], axes: Axes | None = None) -> Axes:
    """Draw cost (USD) over hours, one point for each of `options` with the 80 % intervals of both."""
    drawn = [(one, one.hours, one.usd) for one in options if one.hours is not None and one.usd is not None]
    if not drawn:
        raise NoAnswerError("no option has both a cost and a duration: state tokens, and hardware that has a price")
    axes = axes or _make_axes()
    for option, hours, usd in drawn:
        _draw_interval(axes, option, hours, usd)
    axes.set_xlabel("hours")
    axes.set_ylabel("cost, USD (80 % interval)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")
    return axes


def _draw_interval(axes: Axes, option: QuoteOption, hours: Interval, usd: MoneyInterval) -> None:
    low, expected, high = float(usd.low), float(usd.expected), float(usd.high)
    place = f"{option.offer.provider} {option.offer.tier} " if option.offer else ""
    axes.errorbar(
        [hours.expected],
        [expected],
        xerr=[[hours.expected - hours.low], [hours.high - hours.expected]],
        yerr=[[expected - low], [high - expected]],
        fmt="o",
        capsize=3,
        label=f"{place}{option.gpu.name} x{option.gpu_count * option.nodes}",
    )


def draw_columns(charts: Sequence[Chart], axes: Axes | None = None) -> Axes:
    """Draw the first of `charts` whose parts add up: columns of a day or month, one colour for each part."""
    chart = next((one for one in charts if one.kind == STACKED), None)
    if chart is None:
        raise NoAnswerError("nothing was spent in this period, or the answer has nothing by day: there is nothing to draw")
    axes = axes or _make_axes()
    bottoms = [0.0] * len(chart.labels)
    for series in chart.series:
        heights = [value or 0.0 for value in series.values]  # noqa: PD011 - no pandas; a day that nobody looked at has no column
        axes.bar(chart.labels, heights, bottom=bottoms, label=series.name)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    axes.set_title(chart.title)
    axes.set_ylabel(chart.unit)
    axes.set_xticks(range(0, len(chart.labels), -(-len(chart.labels) // LABELS_MAX)))
    axes.tick_params(axis="x", rotation=45)
    axes.legend(fontsize="small")
    return axes


def _make_axes() -> Axes:
    axes: Axes = _import_extra("matplotlib.pyplot").subplots()[1]
    return axes


def _import_extra(name: str) -> ModuleType:
    """Return a module of the extra `notebook`; raise InputError that says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        package, hint = name.partition(".")[0], "in a clone of costguard: pip install '.[notebook]'"
        raise InputError(f"needs {package}", field="notebook", hint=hint) from error
