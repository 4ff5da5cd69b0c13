"""Charts as HTML figures: a picture that fits any width, and a table of its numbers below it.

Shapes are in percent of the width, and letters have a fixed size, so a label is readable on a phone and on a large screen.
Unknown values are hatched and never drawn as zero. Parts differ by pattern as well as by colour.

`FittedChart` limits a chart to the largest series and the first labels, and states what was left out. Axis numbers are round:

    compute_ticks(0, 3700)  ->  0, 1000, 2000, 3000, 4000
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from costguard.renderers.html.markup import Markup, join_markup, make_element, shorten_with_title
from costguard.views.document import BARS, HEAT, STACKED, Chart, ChartSeries

LONGEST_NAME, LONGEST_LABEL, LONGEST_ROW, LONGEST_UNIT = 36, 10, 12, 12
"""Characters of a name beside a bar or in a legend, of a label under a column, of a row of a grid, of a unit."""

DENSE = 70
"""Columns from which on there is no gap between them."""

WIDEST = 9.0
"""Percent of the width that one column takes at most."""

PLOT_WIDTHS = (790.0, 440.0, 210.0)
"""Pixels across a plot of columns in a wide, a middling and a narrow figure, at least (page.css has their edges)."""

LETTER_WIDTH, GAP = 7.2, 12.0
"""Pixels of a letter under a column, and between two labels."""

DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
"""A label that is a day: of one year's days the year is left out below the columns."""

CAPITAL_WIDTH_FACTOR = 1.2
"""How much wider a name may be than as many digits."""

SHADES, MOST_ACROSS = 6, 24
"""Classes of a cell that is not zero, and how many cells beside each other have room for their numbers."""

PATTERN_COUNT = 7
"""Kinds of part there are: the last is the grey `p0`."""


SIZES = {"gutter": "ch", "value": "ch", "name": "ch", "across": "", "down": ""}
"""Sizes that a chart has of its own -> their units. They are classes and no styles of elements, which pages forbid (CSP)."""
SIZE_MAX = 99
SIZE_CLASS = re.compile(rf"(?<=[ \"])({'|'.join(SIZES)})-([0-9]{{1,2}})(?=[ \"])")


def name_size(name: str, size: int) -> str:
    """Return the class that sets a size of SIZES, of at most SIZE_MAX."""
    return f"{name}-{min(size, SIZE_MAX)}"


def build_size_rules(markup: str | None = None) -> str:
    """Return the rules of the size classes in `markup`; None: of every class."""
    used = (
        sorted(set(SIZE_CLASS.findall(markup)), key=lambda one: (one[0], int(one[1])))
        if markup is not None
        else [(name, str(size)) for name in SIZES for size in range(1, SIZE_MAX + 1)]
    )
    return "".join(f".{name}-{size} {{ --{name}: {size}{SIZES[name]}; }}\n" for name, size in used)


def draw_chart(chart: Chart, number: int, table: Callable[[Chart, FittedChart, str], Markup]) -> Markup:
    """Return the whole figure.

    `table`: returns the table of its numbers. `number`: makes the figure's ids unique on the page.
    """
    chart = replace(
        chart, title=shorten_with_title(chart.title or "Chart")[0], unit=shorten_with_title(chart.unit, LONGEST_UNIT)[0]
    )
    fitted_chart, ident = _fit_chart(chart), f"chart-{number}"
    numbers = [value for one in fitted_chart.series for value in one.values if value is not None]
    empty = not fitted_chart.labels or not fitted_chart.series
    parts = [make_element("h2", chart.title, id=ident)]
    if chart.note:
        parts.append(make_element("p", chart.note, class_="note"))
    if empty:
        parts.append(make_element("p", "No data.", class_="note"))
    else:
        parts += [*DRAW_BY_KIND[chart.kind](chart, fitted_chart)] if numbers else [make_element("p", "No data.", class_="note")]
        if fitted_chart.left_out:
            parts.append(make_element("p", fitted_chart.left_out, class_="note"))
        if chart.kind != BARS or not numbers:
            parts.append(table(chart, fitted_chart, ident))
    return make_element("figure", *parts, class_=f"chart chart-{chart.kind}", aria_labelledby=ident)


def _draw_stacked(chart: Chart, fitted_chart: FittedChart) -> Iterator[Markup]:
    """Yield columns of stacked parts: positive values upwards from zero, negative ones downwards."""
    columns = [[one.values[at] for one in fitted_chart.series] for at in range(len(fitted_chart.labels))]
    heights = [sum(v for v in column if v is not None and v > 0) for column in columns]
    depths = [sum(v for v in column if v is not None and v < 0) for column in columns]
    at = compute_ticks(min(depths), max(heights))
    classes = [f"p{(n + 1) % PATTERN_COUNT}" for n in range(len(fitted_chart.series))]
    yield _draw_legend(fitted_chart, classes)
    texts = format_ticks(at, chart.unit)
    slot = 100 / len(columns)
    dense = len(columns) > DENSE
    width = slot if dense else min(slot * 0.8, WIDEST)
    lines = [
        join_markup(
            (
                make_element(
                    "line", x1="0", x2="100%", y1=_get_top(v, at), y2=_get_top(v, at), class_="zero" if v == 0 else "rule"
                ),
                make_element("text", text, x="-8", y=_get_top(v, at), dy="0.32em", text_anchor="end"),
            )
        )
        for v, text in zip(at, texts, strict=True)
    ]
    bars = [
        make_element(
            "g",
            make_element("title", _format_column_title(chart, fitted_chart, n)),
            make_element("rect", x=_format_percent(n * slot), width=_format_percent(slot), y="0", height="100%", class_="spot"),
            *_draw_column(fitted_chart, n, at, classes, x=n * slot + (slot - width) / 2, width=width),
        )
        for n in range(len(columns))
    ]
    labels = _draw_labels(fitted_chart.labels, slot)
    drawing = make_element(
        "svg",
        *lines,
        *bars,
        *labels,
        class_=f"plot{' dense' if dense else ''} {name_size('gutter', max(map(len, texts)) + 2)}",
        aria_hidden="true",
    )
    yield make_element("div", drawing, role="img", aria_label=_describe_chart(chart, fitted_chart, heights))


def _draw_column(
    fitted_chart: FittedChart, n: int, at: tuple[float, ...], classes: list[str], *, x: float, width: float
) -> Iterator[Markup]:
    above = below = 0.0
    place = {"x": _format_percent(x), "width": _format_percent(width)}
    for one, class_ in zip(fitted_chart.series, classes, strict=True):
        value = one.values[n]
        if value:
            start = above if value > 0 else below
            top, bottom = max(start, start + value), min(start, start + value)
            yield make_element("rect", **place, y=_get_top(top, at), height=_format_length(top - bottom, at), class_=class_)
            above, below = (top, below) if value > 0 else (above, bottom)
    if fitted_chart.unknown[n]:
        yield make_element("rect", **place, y="0", height=_format_length(at[-1] - above, at), class_="unknown")


def _draw_labels(labels: tuple[str, ...], slot: float) -> Iterator[Markup]:
    """Yield the texts below the columns.

    Of many labels only every second, third and so on is shown, as many as fit at each width.
    """
    years = {label[:5] for label in labels if DAY.fullmatch(label)}
    same = len(years) == 1 and all(map(DAY.fullmatch, labels))
    texts = [(label[5:], label) if same else shorten_with_title(label, LONGEST_LABEL) for label in labels]
    wide = max(sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text) for text, _ in texts) * LETTER_WIDTH + GAP
    steps, step = list[int](), 1
    for place in PLOT_WIDTHS:
        step *= max(1, math.ceil(len(labels) * wide / place / step))
        steps.append(step)
    for n, (text, title) in enumerate(texts):
        if n % steps[0] == 0:
            fits = next((name for name, every in zip(("x3", "x2"), (steps[2], steps[1]), strict=True) if n % every == 0), "x1")
            parts = (text, make_element("title", title)) if title else (text,)
            yield make_element(
                "text", *parts, x=_format_percent((n + 0.5) * slot), y="100%", dy="1.5em", text_anchor="middle", class_=fits
            )


def _format_column_title(chart: Chart, fitted_chart: FittedChart, n: int) -> str:
    pairs = [(one, one.values[n]) for one in fitted_chart.series]
    parts = [f"{shorten_with_title(one.name, LONGEST_NAME)[0]} {one.texts[n]}" for one, value in pairs if value]
    total = sum(value for _, value in pairs if value is not None)
    unknown = fitted_chart.unknown[n]
    if len(fitted_chart.series) > 1 and len(unknown) < len(fitted_chart.series):
        parts.insert(0, f"total {format_value(total, chart.unit)}")
    if unknown:
        parts.append(f"{UNKNOWN}: {', '.join(shorten_with_title(one, LONGEST_NAME)[0] for one in unknown[:PATTERN_COUNT])}")
    return f"{shorten_with_title(fitted_chart.labels[n])[0]}: {'; '.join(parts) or add_unit('0', chart.unit)}"


def _draw_legend(fitted_chart: FittedChart, classes: list[str]) -> Markup:
    """Return the legend of the patterns; empty if there is only one part and all its values are known."""
    pairs = [(one.name, class_) for one, class_ in zip(fitted_chart.series, classes, strict=True)]
    if any(fitted_chart.unknown):
        pairs.append((UNKNOWN, "unknown"))
    if len(pairs) == 1:
        return Markup()
    items = []
    for name, class_ in pairs:
        swatch = make_element(
            "svg", make_element("rect", width="100%", height="100%", class_=class_), class_="swatch", aria_hidden="true"
        )
        text, title = shorten_with_title(name, LONGEST_NAME)
        items.append(make_element("li", swatch, make_element("span", text, title=title)))
    return make_element("ul", *items, class_="legend")


def _draw_heat(chart: Chart, fitted_chart: FittedChart) -> Iterator[Markup]:
    """Yield a grid whose cells show their number; in a narrow figure, rows and columns are exchanged (page.css)."""
    numbers = [value for one in fitted_chart.series for value in one.values if value is not None]
    at = compute_ticks(0.0, max(numbers), SHADES, FINE_STEPS)
    cells = [make_element("span"), *(_draw_head(label) for label in fitted_chart.labels)]
    for one in fitted_chart.series:
        cells.append(_draw_head(one.name))
        for label, value, text in zip(fitted_chart.labels, one.values, one.texts, strict=True):
            tip = f"{shorten_with_title(one.name)[0]}, {shorten_with_title(label)[0]}: {text}"
            cells.append(
                make_element("span", "?" if value is None else format_short(value), class_=_choose_shade(value, at), title=tip)
            )
    class_ = "grid across" if len(fitted_chart.labels) <= MOST_ACROSS else "grid"
    class_ = f"{class_} {name_size('across', len(fitted_chart.labels))} {name_size('down', len(fitted_chart.labels) + 1)}"
    grid = make_element("div", *cells, class_=class_, tabindex="0", role="img", aria_label=_describe_chart(chart, fitted_chart))
    yield make_element("ul", *_draw_scale(at, chart.unit, unknown=any(fitted_chart.unknown)), class_="legend")
    yield grid


def _draw_head(label: str) -> Markup:
    text, title = shorten_with_title(label, LONGEST_ROW)
    return make_element("span", text, class_="head", title=title)


def _choose_shade(value: float | None, at: tuple[float, ...]) -> str:
    """Return the class of a cell: `h0` for zero, up to `h6` for the largest values.

    The number of classes is the number of intervals of `at`.
    """
    if value is None:
        return "unknown"
    if value <= 0:
        return "h0"
    parts = len(at) - 1
    part = next((n for n in range(1, parts) if value <= at[n]), parts)
    return f"h{round(part * SHADES / parts)}"


def _draw_scale(at: tuple[float, ...], unit: str, *, unknown: bool) -> Iterator[Markup]:
    texts = format_ticks(at, unit)
    for value, text in zip(at[1:], texts[1:], strict=True):
        yield make_element(
            "li", make_element("span", class_=f"swatch {_choose_shade(value, at)}"), make_element("span", f"up to {text}")
        )
    if unknown:
        yield make_element("li", make_element("span", class_="swatch unknown"), make_element("span", f"? {UNKNOWN}"))


def _draw_bars(chart: Chart, fitted_chart: FittedChart) -> Iterator[Markup]:
    """Yield one bar per label, with its name before it and its value after it; the table of numbers is the picture."""
    (one,) = fitted_chart.series
    numbers = [value for value in one.values if value is not None]
    low, high = min(0.0, *numbers), max(0.0, *numbers)
    long = (high - low) or 1.0
    rows = []
    for label, value, text in zip(fitted_chart.labels, one.values, one.texts, strict=True):
        start, end = (low, high) if value is None else (min(0.0, value), max(0.0, value))
        place = {"x": _format_percent((start - low) / long * 100), "width": _format_percent((end - start) / long * 100)}
        bar = make_element("rect", **place, y="0", height="100%", class_="unknown" if value is None else "p1")
        drawn = make_element("td", make_element("span", make_element("svg", bar, aria_hidden="true"), _draw_value(text)))
        name, title = shorten_with_title(label, LONGEST_NAME)
        rows.append(make_element("tr", make_element("th", name, scope="row", title=title), drawn))
    head = make_element("tr", make_element("td"), make_element("th", one.name, scope="col"))
    texts = [part for text in one.texts for part in text.split(" (")]
    longest, widest = (min(LONGEST_NAME, max(map(len, lines))) for lines in (texts, fitted_chart.labels))
    longest += any("%" in text for text in texts)  # wider than a digit
    class_ = f"bars {name_size('value', longest)} {name_size('name', round(widest * CAPITAL_WIDTH_FACTOR))}"
    caption = make_element("caption", chart.title)
    yield make_element("table", caption, make_element("thead", head), make_element("tbody", *rows), class_=class_)


def _draw_value(text: str) -> Markup:
    """Return an amount and its bounds below it: `$12.00 (11.00 to 13.00)` in two lines."""
    short_text, title = shorten_with_title(text, LONGEST_NAME)
    amount, gap, bounds = short_text.partition(" (")
    return make_element("b", amount, *([make_element("small", f"{gap}{bounds}")] if bounds else []), title=title)


def _describe_chart(chart: Chart, fitted_chart: FittedChart, sums: list[float] | None = None) -> str:
    """Return a description of the chart for screen readers."""
    title, series = chart.title, fitted_chart.series
    cells = sums or [value if value is not None else float("-inf") for one in series for value in one.values]
    texts = [format_value(value, chart.unit) for value in sums or ()] or [text for one in series for text in one.texts]
    most = max(range(len(cells)), key=cells.__getitem__)
    row, column = divmod(most, len(fitted_chart.labels))
    where = shorten_with_title(fitted_chart.labels[column])[0]
    if chart.kind == HEAT:
        where = f"{shorten_with_title(series[row].name)[0]}, {where}"
    sentences = [f"{title}.", f"Maximum: {texts[most]} at {where}."]
    missing = sum(map(len, fitted_chart.unknown))
    if missing:
        sentences.append(f"{missing} values are unknown.")
    return " ".join((*sentences, "The table below has all numbers."))


def _get_top(value: float, at: tuple[float, ...]) -> str:
    """Return the distance of `value` from the top, in percent."""
    return _format_length(at[-1] - value, at)


def _format_length(length: float, at: tuple[float, ...]) -> str:
    return _format_percent(100 * (length / (at[-1] - at[0])))


def _format_percent(value: float) -> str:
    return f"{max(value, 0.0):.2f}".rstrip("0").rstrip(".") + "%"


DRAW_BY_KIND: Mapping[str, Callable[[Chart, FittedChart], Iterator[Markup]]] = {
    STACKED: _draw_stacked,
    HEAT: _draw_heat,
    BARS: _draw_bars,
}


MOST_LABELS = {STACKED: 400, HEAT: 48, BARS: 40}
MOST_SERIES = {STACKED: 7, HEAT: 14, BARS: 1}
OTHERS, NAMELESS = "others", "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedChart:
    """A chart within the limits of its kind.

    `unknown`: for each label, the series without a known value. `left_out`: a sentence about what was left out, or "".
    """

    labels: tuple[str, ...]
    series: tuple[ChartSeries, ...]
    unknown: tuple[tuple[str, ...], ...]
    left_out: str


def _fit_chart(chart: Chart) -> FittedChart:
    """Return `chart` limited to the labels and series of its kind."""
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
    """Return `series` with a value (or None) and a text for each of `count` labels."""
    values = tuple(map(clamp_number, (*series.values, *(None,) * count)[:count]))
    texts = (*series.texts, *("",) * count)[:count]
    unit_texts = tuple(format_given_text(text, value, unit) for text, value in zip(texts, values, strict=True))
    return ChartSeries(name=series.name or NAMELESS, values=values, texts=unit_texts)


def _merge_smallest_series(every: tuple[ChartSeries, ...], most: int, unit: str) -> tuple[ChartSeries, ...]:
    """Return the largest series in their original order, plus one series that is the sum of the others."""
    dearest = sorted(every, key=lambda one: -sum(abs(value or 0.0) for value in one.values))[: most - 1]
    largest_series = [one for one in every if any(one is other for other in dearest)]
    rest = [one for one in every if not any(one is other for other in dearest)]
    values = tuple(_sum_known(parts) for parts in zip(*(one.values for one in rest), strict=True))
    texts = tuple(format_value(value, unit) for value in values)
    return (*largest_series, ChartSeries(name=f"{len(rest)} {OTHERS}", values=values, texts=texts))


def _sum_known(parts: tuple[float | None, ...]) -> float | None:
    numbers = [part for part in parts if part is not None]
    return sum(numbers) if numbers else None


def _format_left_out(chart: Chart, count: int, most: int) -> str:
    parts = []
    if count < len(chart.labels):
        parts.append(f"the first {count} of {len(chart.labels):,}")
    if chart.kind != STACKED and len(chart.series) > most:
        parts.append(f"{most} of {len(chart.series):,} series")
    return f"The chart shows {' and '.join(parts)}. The tables, JSON and CSV have the rest." if parts else ""


STEPS = (1, 2, 2.5, 5, 10)
FINE_STEPS = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
"""Steps of an axis, and of shades, which need no grid that the eye can follow."""

AXIS_PARTS_MAX = 4
"""An axis has at most so many parts."""

LARGEST_VALUE = 1e300
SMALLEST_VALUE = 1e-9
"""What is nearer to zero is drawn as zero: less than a nano-dollar is no money."""

SUFFIXES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k"))
"""From this size on, an axis counts in these; `k` is a thousand, and 1,000 to 9,999 are written out."""

SCIENTIFIC, CENT = 1e16, 0.01
THOUSAND, LETTERS = 1000.0, ("", "k", "M", "B", "T")


def clamp_number(value: float | None) -> float | None:
    """Return `value` limited to a range that can be drawn; None if it is None or not finite."""
    if value is None or not math.isfinite(value):
        return None
    value = max(-LARGEST_VALUE, min(LARGEST_VALUE, value))
    return value if abs(value) > SMALLEST_VALUE else 0.0


def compute_ticks(low: float, high: float, parts: int = AXIS_PARTS_MAX, steps: Sequence[float] = STEPS) -> tuple[float, ...]:
    """Return round numbers in equal steps that span `low`, `high` and zero."""
    low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= SMALLEST_VALUE:
        return (0.0, 1.0)
    raw = high / parts - low / parts
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(s * size for s in steps if s * size >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(step * n for n in range(first, last + 1))


def format_ticks(at: Sequence[float], unit: str) -> tuple[str, ...]:
    """Return `at` as texts with the same decimals and the same thousands: `$0`, `$2.5k`, `$5.0k`."""
    most = max(map(abs, at))
    if most >= SCIENTIFIC:
        return tuple(add_unit(f"{v:.2g}", unit) for v in at)
    scale, suffix = next(((1e3 if s == "k" else size, s) for size, s in SUFFIXES if most >= size), (1.0, ""))
    step = min(abs(b - a) for a, b in pairwise(at)) / scale
    places = next((n for n in range(13) if math.isclose(step * 10**n, round(step * 10**n), rel_tol=1e-6)), 12)
    return tuple(add_unit(f"{v / scale:,.{places}f}{suffix if v else ''}", unit) for v in at)


def format_short(value: float) -> str:
    """Return a cell's text of at most five characters, without unit: `~0`, `0.04`, `3.5`, `120`, `4.5k`, `-12k`."""
    size = abs(value)
    if not size:
        return "0"
    if size >= THOUSAND**5:
        return f"{value:.0e}".replace("e+", "e")
    if size < 1:
        return f"{value:.2f}" if size >= 0.005 else "~0"  # noqa: PLR2004 - what two decimals round to nothing
    power = next((n for n in (4, 3, 2, 1) if size >= 0.9995 * THOUSAND**n), 0)
    part = value / THOUSAND**power
    return f"{part:.{int(abs(part) < 9.95)}f}{LETTERS[power]}"  # noqa: PLR2004 - two figures are enough


def format_value(value: float | None, unit: str) -> str:
    """Return a value as text, used if the chart provides no text."""
    number = clamp_number(value)
    if number is None:
        return UNKNOWN
    plain = not number or CENT <= abs(number) < SCIENTIFIC
    return add_unit(f"{number:,.2f}" if plain else f"{number:.4g}", unit)


def add_unit(number: str, unit: str) -> str:
    """Return the number with its unit: `$12`, `-$12`, `$12/h`, `EUR 12`, `12%`, `12 GPU-hours`; a currency comes first."""
    currency = CURRENCY.match(unit)
    if currency is None:
        return f"{number}{unit}" if unit in {"", "%"} else f"{number} {unit}"
    code = currency[1]
    prefix = code if code == "$" else f"{code} "
    minus, digits = ("-", number[1:]) if number.startswith("-") else ("", number)
    return f"{minus}{prefix}{digits}{unit.removeprefix(code)}"


def format_given_text(text: str, value: float | None, unit: str) -> str:
    """Return the chart's own text for a value, with the unit added to a bare number; without a text, format the value."""
    if not text:
        return format_value(value, unit)
    bare = BARE_NUMBER.match(text)
    return f"{add_unit(bare[0], unit)}{text[bare.end() :]}" if bare and unit.strip("/h ") not in text else text


CURRENCY = re.compile(r"(\$|[A-Z]{3})(?=/|$)")
BARE_NUMBER = re.compile(r"-?\d[\d,.]*(?= |$)", re.ASCII)
"""A number at the start of a text, with nothing behind it but other words: `12.34 (11.00 to 13.00)`."""

UNKNOWN = "not known"
