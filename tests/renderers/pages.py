"""Documents for the tests of formats that draw: a team's month, whatever may be in a chart, a company's month."""

from __future__ import annotations

import math

from costguard.views.document import BARS, HEAT, STACKED, Chart, ChartSeries, Document, HeadlineFigure, TableView

DAYS = tuple(f"2026-10-{day:02}" for day in range(1, 32))
HOURS = tuple(str(hour) for hour in range(24))
WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
OWNERS = ("ada", "ben", "chiara", "deniz", "emeka", "fatma", "nobody")
LONG = "a-team-whose-name-goes-on-and-on-" * 4
ODD = (
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0643", "\u6f22\u5b57\u306e\u540d\u524d", "\U0001f525" * 12, LONG, "W" * 60, "x",
    "",
)  # fmt: skip
COLUMNS = ("owner", "GPU", "hours>", "GPU-hours>", "$>", "low>", "high>")


def series(name: str, *values: float | None) -> ChartSeries:
    """Dollars, with their texts."""
    return ChartSeries(
        name=name, values=values, texts=tuple(f"${v:,.2f}" if v is not None and math.isfinite(v) else "" for v in values)
    )


def spend(day: int, owner: int) -> float | None:
    """Made-up dollars that look like a month of work; of the 21st nothing is known, and of one owner not from 11 to 13."""
    if day == 20 or (owner == 3 and 10 <= day <= 12):
        return None
    weekend = 0.4 if day % 7 in (3, 4) else 1.0
    return round(weekend * 300 / (owner + 1) * (1.2 + math.sin(day * (owner + 2))), 2)


def burn(day: int, hour: int) -> float | None:
    """Made-up dollars an hour."""
    if day == 5 and 3 <= hour < 6:
        return None
    return round(max(0.0, (13 if day < 5 else 2) + 9 * math.sin((hour - 6) / 24 * math.tau)), 2)


STACK = Chart(
    title="Spend by day and owner",
    kind=STACKED,
    unit="$",
    labels=DAYS,
    series=tuple(series(owner, *(spend(day, n) for day in range(31))) for n, owner in enumerate(OWNERS)),
    note="Expected amounts, in days of Europe/Berlin.",
)
GRID = Chart(
    title="Burn by hour and weekday",
    kind=HEAT,
    unit="$",
    labels=HOURS,
    series=tuple(series(day, *(burn(n, hour) for hour in range(24))) for n, day in enumerate(WEEK)),
    note="Dollars an hour, on average.",
)
BAR = Chart(
    title="By owner", kind=BARS, unit="$", labels=OWNERS, series=(series("$", 2812.4, 1930.11, 1204, 803.5, None, 33.3, 0),)
)
GPUS = Chart(
    title="By GPU",
    kind=BARS,
    unit="$",
    labels=("H100-SXM", "A100-80GB-SXM", "L40S", "RTX-4090", "V100-16GB"),
    series=(
        ChartSeries(
            name="cost",
            values=(5000.0, 2200.0, 800.5, 120.0, 3.0),
            texts=("5000.00 (4900.00 to 5100.00)", "2200.00 (2100.50 to 2300.00)", "800.50", "120.00", "3.00 (0 to 3.00)"),
        ),
    ),
)
IDLE = Chart(
    title="Idle share by day",
    kind=STACKED,
    unit="%",
    labels=DAYS,
    series=(
        ChartSeries(name="idle", values=tuple(None if n == 5 else (n * 37 % 41) / 1 for n in range(31)), texts=("",) * 31),
    ),
)
MONTH = Document(
    data={},
    lead=(
        "October 2026 (Europe/Berlin), until 2026-10-31 12:00 CET: $9,812.40 (9,640.00 to 9,990.00).",
        "$412.10 of it went to machines that did nothing for hours, $88.00 to the disks of stopped ones.",
        "September was $8,120.33: 21 % more this month.",
    ),
    figures=(
        HeadlineFigure(name="Spent", text="$9,812.40", note="between $9,640.00 and $9,990.00"),
        HeadlineFigure(name="Change to 2026-09", text="+$1,692.07", note="from $8,120.33; +21%"),
        HeadlineFigure(name="Idle", text="not known", note="too little data on machine activity"),
        HeadlineFigure(name="Saved by the guard", text="$204.00"),
    ),
    charts=(STACK, GRID, BAR, GPUS, IDLE),
    tables=(
        TableView(
            title="By owner and GPU",
            columns=COLUMNS,
            rows=(
                *((owner, "H100-SXM", "312.0", "2496.0", "2812.40", "2800.00", "2830.00") for owner in OWNERS),
                ("total", "", "2184.0", "17472.0", "9812.40", "9640.00", "9990.00"),
            ),
            sums=1,
        ),
    ),
    notes=(
        "Not counted: vast: bandwidth is not in the listing.",
        "Not counted: aws/123456789012/us-east-1 was not read completely for 3 h from 2026-10-03 12:00 UTC: timeout.",
    ),
)
"""A team's month with a chart of every kind."""


def chart(kind: str, labels: tuple[str, ...], *parts: ChartSeries, unit: str = "$", title: str = "A chart") -> Chart:
    """A chart of these parts."""
    return Chart(title=title, kind=kind, unit=unit, labels=labels, series=parts)


KINDS = (STACKED, HEAT, BARS)
ANYTHING: tuple[Chart, ...] = tuple(
    one
    for kind in KINDS
    for one in (
        chart(kind, (), title="no label, no series"),
        chart(kind, ("a", "b"), title="no series"),
        chart(kind, (), series("x"), title="no label"),
        chart(kind, ("only",), series("x", 3.5), title="one label"),
        chart(
            kind, tuple(f"day {n}" for n in range(400)), series("x", *(float(n % 90) for n in range(400))), title="400 labels"
        ),
        chart(kind, ("a", "b"), series("x", 0.0, 0.0), title="zeros"),
        chart(kind, ("a", "b"), series("x", None, None), title="nothing known"),
        chart(kind, ("a", "b", "c"), series("x", -5.0, 3.0, -0.0), series("y", 2.0, -1.0, None), title="negative"),
        chart(kind, ("a", "b", "c"), series("x", 1e300, 5e307, 1.0), unit="GPU-hours", title="huge"),
        chart(kind, ("a", "b", "c"), series("x", 1e-9, 5e-324, 3e-5), title="tiny"),
        chart(kind, ("a", "b", "c"), series("x", math.nan, math.inf, -math.inf), title="no numbers"),
        chart(kind, ("a", "b", "c"), ChartSeries(name="x", values=(1.0,), texts=()), title="short of values"),
        chart(kind, ODD, series("x", *range(len(ODD))), title="odd labels"),
        chart(kind, WEEK, *(series(name, *range(7)) for name in ODD), title="odd names"),
        chart(kind, DAYS, *(series(f"team {n}", *range(31)) for n in range(60)), title="many series"),
        chart(kind, WEEK, series("x", *(12_345_678.9 * n for n in range(7))), unit="EUR", title=LONG),
        chart(kind, ("1", "2"), series("x", 4321.0, 1234.5), unit="%", title=""),
    )
)
"""What a chart may hold at its worst, in each kind."""

EDGES = Document(
    data={},
    lead=(LONG + "x" * 5000, "second"),
    charts=ANYTHING,
    tables=(
        TableView(title="", columns=("name", "a>", "b>"), rows=tuple((name, "1", "x" * 40) for name in ODD)),
        TableView(title=LONG, columns=tuple(f"column {n}>" for n in range(16)), rows=(("12.34",) * 16,)),
    ),
    notes=(LONG, "x" * 3000),
    figures=(
        HeadlineFigure(name=LONG, text="$1234567890.12", note=LONG),
        HeadlineFigure(name="", text="W" * 60, note=""),
        HeadlineFigure(name="a", text="b"),
    ),
)


def company() -> Document:
    """The month of a company: 1,000 groups, 31 days, every chart at its fullest."""
    rows = tuple(
        (f"owner-{n:04}-of-a-team", f"project {n % 90}", f"{n / 7:.1f}", f"{n * 8 / 7:.1f}", *(f"{n * 31.7:.2f}",) * 3)
        for n in range(1000)
    )
    every = tuple(series(f"owner-{n:04}-of-a-team", *(1000 / (n + 1) + day for day in range(31))) for n in range(1000))
    return Document(
        data={},
        lead=MONTH.lead,
        charts=(
            chart(STACKED, DAYS, *every),
            GRID,
            chart(BARS, tuple(row[0] for row in rows), series("$", *range(1000))),
            IDLE,
        ),
        tables=(TableView(title="By owner and project", columns=("owner", "project", *COLUMNS[2:]), rows=rows),),
        notes=MONTH.notes * 20,
    )


def hostile(name: str) -> Document:
    """A document whose every text is `name`."""
    one = ChartSeries(name=name, values=(1.0, None), texts=(name, name))
    return Document(
        data={},
        lead=(name, name),
        charts=tuple(
            Chart(title=name, kind=kind, unit=name, labels=(name, name), series=(one, one), note=name) for kind in KINDS
        ),
        figures=(HeadlineFigure(name=name, text=name, note=name or "-"),),
        tables=(TableView(title=name, columns=(name, f"{name}>"), rows=((name, name),)),),
        notes=(name,),
    )
