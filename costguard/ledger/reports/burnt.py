"""What began and ended to burn in each hour: what the chart of the hours of a week is drawn from.

Example: a span of $2 from 23:30 to 00:30 burns $2 an hour: it begins in hour 23, half an hour in, and ends in hour 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from costguard.ledger.db.asking import Query
from costguard.ledger.spans.scope_state import load_attributions
from costguard.ledger.spans.sums import (
    JOIN_CORRECTION,
    ReachFunction,
    choose_scan,
    compute_open_amounts,
    drop_unused_corrections,
    format_corrected_column,
    iterate_open_spans,
)
from costguard.reporting.statement.history import HourlyRateChanges
from costguard.values.instant import DAY_US, HOUR_US, to_micros
from costguard.values.period import Period

BATCH_SPANS = 50_000
"""So many spans of the ledger are looked through at once: a year of a large fleet has a million."""
DEFAULT_CURRENCY = "USD"
"""The currency that is drawn."""


def load_hourly_rates(ask: Query, period: Period, reach: ReachFunction) -> dict[int, HourlyRateChanges]:
    """The rates that began and ended in each hour of `period` (since 1970), each span's dollars spread evenly over it."""
    start, end = to_micros(period.start), to_micros(period.end)
    first = start // HOUR_US
    began, began_at, ended, ended_at = ([0.0] * (-(-end // HOUR_US) - first + 1) for _ in range(4))
    for spans in _iterate_spans(ask, start, end, reach):
        for begun, until, nano in spans:
            rate = nano / (until - begun)
            begin, finish = begun if begun > start else start, until if until < end else end  # noqa: FURB136 - a fleet's spans
            if finish > begin:
                hour = begin // HOUR_US
                began[hour - first] += rate
                began_at[hour - first] += rate * (begin - hour * HOUR_US)
                hour = finish // HOUR_US
                ended[hour - first] += rate
                ended_at[hour - first] += rate * (finish - hour * HOUR_US)
    rates = zip(began, began_at, ended, ended_at, strict=True)
    return {hour: HourlyRateChanges(*sums) for hour, sums in enumerate(rates, first) if any(sums)}


def _iterate_spans(ask: Query, start: int, end: int, reach: ReachFunction) -> Iterator[Iterable[tuple[int, int, int]]]:
    """Start, end and expected nano-dollars of each span that touches [start, end), some at a time."""
    ((last,),) = ask("SELECT coalesce(max(id), 0) FROM span", ())
    scan = choose_scan(ask, start, end)
    sql = drop_unused_corrections(ask, _SPANS_BY_ID.format(scan=scan, index="" if scan else "+"))
    lot = BATCH_SPANS if scan else max(last, 1)
    for number in range(0, last, lot):
        yield ask(sql, (number, number + lot, start, end, end, DEFAULT_CURRENCY))
    yield ask(drop_unused_corrections(ask, _LONG_SPANS), (end, end, DEFAULT_CURRENCY))
    for _, _, span, far in iterate_open_spans(ask, load_attributions(ask), end, reach):
        begun, until = to_micros(span.start), to_micros(far.expected)
        if until > begun and span.meter.price.currency == DEFAULT_CURRENCY:
            yield [(begun, until, compute_open_amounts(span, begun, until, far)[0][1])]


_LONG_US = 8 * DAY_US
"""As in `sums._ACROSS`: the index `span_long` holds the spans that are longer."""

_SPANS_BY_ID = f"""
SELECT s.start_us, s.end_us, {format_corrected_column("expected")} FROM span AS s {JOIN_CORRECTION}
WHERE {{index}}s.id > ? AND {{index}}s.id <= ?
    AND {{scan}}s.end_us > ? AND {{scan}}s.end_us <= ? + {_LONG_US} AND {{scan}}s.start_us < ?
    AND s.currency = ? AND s.end_us > s.start_us
"""  # noqa: S608 - our own column names

_LONG_SPANS = f"""
SELECT s.start_us, s.end_us, {format_corrected_column("expected")} FROM span AS s {JOIN_CORRECTION}
WHERE s.end_us - s.start_us > {_LONG_US} AND s.end_us > ? + {_LONG_US} AND s.start_us < ? AND s.currency = ?
"""  # noqa: S608 - our own column names
