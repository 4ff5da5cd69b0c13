"""The price history as a document: `costguard.price_history/1`, one row per line of prices, drawn with block characters.

Trends of one table share a scale, so that a steep one moved more: the middle is the first price of each row, and the largest
move of the table reaches the top or the bottom. Example of a table in which one price fell by 20 % and one never moved:
`▄▄▄▄▁▁▁▁` and `▄▄▄▄▄▄▄▄`. A dot is a time for which no price is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from operator import attrgetter

from costguard.quoting.price_series import PriceLine
from costguard.values.money import Rate
from costguard.views.columns import ColumnFit
from costguard.views.document import Column, Document, TableView, build_record, build_table

SCHEMA = "costguard.price_history/1"
BLOCKS, UNKNOWN = "▁▂▃▄▅▆▇█", "·"
TREND_PARTS = 20
"""Characters of a trend."""
CHART_WIDTH, CHART_HEIGHT, CHARTS_MAX = 60, 10, 6
"""Columns and lines of a chart, and how many are drawn: with its prices a chart fits into 80 columns."""
FITS: Mapping[str, ColumnFit] = {
    "provider": ColumnFit(),
    "GPU": ColumnFit(),
    "tier": ColumnFit(rank=2),
    "region": ColumnFit(rank=8, least=9),
    "first $/h": ColumnFit(rank=5),
    "last $/h": ColumnFit(),
    "low": ColumnFit(rank=6),
    "high": ColumnFit(rank=6),
    "change": ColumnFit(),
    "trend": ColumnFit(rank=1),
    "from": ColumnFit(rank=9),
    "to": ColumnFit(rank=4),
}
"""At 80 columns the days and regions go first; provider, GPU, last price and change always stay."""
SPENT_TITLE = "Prices of what ran"


def build_price_history_document(
    lines: Sequence[PriceLine],
    *,
    start: date,
    end: date,
    history: Mapping[str, object] | None,
    chart: bool = False,
    rows_max: int | None = None,
    notes: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Document:
    """Return the document for `lines` of prices between the days `start` and `end`.

    `history`: facts about the history file; None: there is none. `chart`: draw a chart per line; of one line it is always
    drawn. `rows_max`: rows of the table; None: all.
    """
    records = tuple(build_record(COLUMNS, line) for line in lines)
    shown = lines if rows_max is None else lines[:rows_max]
    charts = shown[:CHARTS_MAX] if chart or len(lines) == 1 else ()
    hidden = (
        f" {len(lines) - len(shown)} more rows: --json has all, a filter such as --gpu H100 fewer." if shown != lines else ""
    )
    data = {
        "schema": SCHEMA,
        "from": start.isoformat(),
        "to": end.isoformat(),
        "history": None if history is None else dict(history),
        "series": [
            {**record, "points": [_build_point_data(day, rate) for day, rate in line.points]}
            for record, line in zip(records, lines, strict=True)
        ],
        "own_drift": [],  # nothing is estimated from the history any more; the schema stays
        "warnings": list(warnings),
    }
    return Document(
        data=data,
        records=tuple({**record, "regions": " ".join(line.regions)} for record, line in zip(records, lines, strict=True)),
        tables=(_build_lines_table(shown, start, end), *(draw_chart(line, start, end) for line in charts)),
        notes=(
            *(f"Warning: {warning}." for warning in warnings),
            *(
                (f"{_format_count(lines)}, each the cheapest of its machines and regions on each day.{hidden}",)
                if lines
                else ()
            ),
            *notes,
        ),
    )


def build_spent_prices_table(lines: Sequence[PriceLine], start: date, end: date) -> TableView:
    """Return the section of a report: how the prices of what ran moved in its period."""
    return _build_lines_table(lines, start, end, title=SPENT_TITLE)


def _format_count(lines: Sequence[PriceLine]) -> str:
    return f"{len(lines)} row{'' if len(lines) == 1 else 's'}"


def _format_gpu(line: PriceLine) -> str:
    return f"{line.gpu} x{line.gpu_count}"


def _format_regions(line: PriceLine) -> str:
    return line.regions[0] if len(line.regions) == 1 else f"{len(line.regions)} regions"


def _format_tier(line: PriceLine) -> str:
    """Return the tier; of a marketplace also whether the price is asked or the least bid."""
    return f"{line.tier} {line.drift}" if line.drift in ("ask", "bid") else line.tier


def _format_change(line: PriceLine) -> str:
    return "0%" if line.first == line.last else f"{line.change:+.1%}"


COLUMNS: tuple[Column[PriceLine], ...] = (
    Column("provider", "provider", lambda line: line.provider),
    Column("gpu", "GPU", lambda line: line.gpu, _format_gpu),
    Column("gpu_count", "", lambda line: line.gpu_count),
    Column("tier", "tier", lambda line: line.tier, _format_tier),
    Column("drift_class", "", lambda line: line.drift),
    Column("regions", "region", lambda line: list(line.regions), _format_regions),
    Column("machines", "", lambda line: line.machines),
    Column("first_usd_per_hour", "first $/h>", lambda line: line.first.format()),
    Column("last_usd_per_hour", "last $/h>", lambda line: line.last.format()),
    Column("change_share", "change>", lambda line: round(line.change, 4), _format_change),
    Column("lowest_usd_per_hour", "low>", lambda line: line.lowest.format()),
    Column("highest_usd_per_hour", "high>", lambda line: line.highest.format()),
    Column("from", "from", lambda line: line.points[0][0].isoformat()),
    Column("to", "to", lambda line: line.points[-1][0].isoformat()),
)


def _build_lines_table(lines: Sequence[PriceLine], start: date, end: date, *, title: str = "") -> TableView:
    first = max(start, min((line.points[0][0] for line in lines), default=start))
    scale = max((_measure_move(line) for line in lines), default=0.0)
    trend: Column[PriceLine] = Column("", "trend", lambda _: None, lambda line: draw_trend(line, first, end, scale))
    table = build_table((*COLUMNS[:-2], trend, *COLUMNS[-2:]), lines, title=title)
    return TableView(title=title, columns=table.columns, rows=table.rows, fits=FITS)


def _measure_move(line: PriceLine) -> float:
    """Return the largest distance from the first price, as a logarithm."""
    first = line.first.nano_per_hour
    return max(abs(math.log(rate.nano_per_hour / first)) for _, rate in line.points)


def draw_trend(line: PriceLine, start: date, end: date, scale: float) -> str:
    """Return the prices between two days in TREND_PARTS block characters. `scale`: the logarithm that reaches top or bottom."""
    first = line.first.nano_per_hour

    def draw_part(rate: Rate | None) -> str:
        if rate is None:
            return UNKNOWN
        change = math.log(rate.nano_per_hour / first) / scale if scale else 0.0
        return BLOCKS[min(len(BLOCKS) - 1, math.floor((change + 1) / 2 * (len(BLOCKS) - 1)))]

    return "".join(map(draw_part, line.sample_rates(start, end, TREND_PARTS)))


def draw_chart(line: PriceLine, start: date, end: date) -> TableView:
    """Return a chart of one line as a table: prices at the left, a column of blocks for each part of the time."""
    first = max(start, line.points[0][0])
    rates = line.sample_rates(first, end, CHART_WIDTH)
    low, high = line.lowest.nano_per_hour, line.highest.nano_per_hour
    bottom = low - max(1, (high - low) // 8, low // 50 if high == low else 0)
    steps = CHART_HEIGHT * len(BLOCKS)
    heights = [None if rate is None else _scale_height(rate.nano_per_hour, bottom, high, steps) for rate in rates]
    rows = [
        (_format_level(bottom, high, level), "".join(_draw_cell(height, level) for height in heights).rstrip())
        for level in reversed(range(CHART_HEIGHT))
    ]
    what = f"{line.provider} {_format_gpu(line)} {_format_tier(line)}, {_format_regions(line)}"
    days = f"{first.isoformat()} {'to':^{max(2, CHART_WIDTH - 22)}} {end.isoformat()}"
    return TableView(title=what, columns=("$/h>", days), rows=tuple(rows), fits={days: ColumnFit(least=20)})


def _scale_height(nano: int, bottom: int, high: int, steps: int) -> int:
    return max(1, round((nano - bottom) / (high - bottom) * steps))


def _format_level(bottom: int, high: int, level: int) -> str:
    """Return the price at the top of a line of the chart; every third line has one."""
    if (CHART_HEIGHT - 1 - level) % 3:
        return ""
    return Rate(nano_per_hour=bottom + (high - bottom) * (level + 1) // CHART_HEIGHT).format()


def _draw_cell(height: int | None, level: int) -> str:
    if height is None:
        return UNKNOWN if level == 0 else " "
    filled = height - level * len(BLOCKS)
    return " " if filled <= 0 else BLOCKS[min(filled, len(BLOCKS)) - 1]


def _build_point_data(day: date, rate: Rate) -> dict[str, object]:
    return {"on": day.isoformat(), "usd_per_hour": rate.format()}


def list_widest_moves(lines: Sequence[PriceLine]) -> Iterator[PriceLine]:
    """Yield the lines, those whose price moved most first: for a table that is too long to be shown whole."""
    yield from sorted(lines, key=lambda line: (-_measure_move(line), *attrgetter("provider", "gpu", "gpu_count", "tier")(line)))
