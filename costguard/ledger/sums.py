"""Sums of a period, each part of it from where it is cheapest to read: whole days from the roll-ups, the rest from spans.

Example: November in Berlin is 2026-10-31T23:00Z to 2026-11-30T23:00Z. One hour of October 31 comes from the spans that touch
it, 29 days from the roll-ups, 23 hours of November 30 from spans again. A span that lies whole in such an edge is summed by the
database, one that reaches out of it is cut here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from costguard.core.instant import DAY_US, instant, micros
from costguard.core.metering.meter import COMPUTE
from costguard.core.metering.resource import INSTANCE, Attribution, ResourceKey
from costguard.core.metering.span import Reach, Span, amounts, expected_us
from costguard.core.money import NANO, Money, MoneyInterval
from costguard.core.period import Period
from costguard.core.spending import Spending
from costguard.ledger.asking import Ask
from costguard.ledger.rows import SPAN, Amounts, Row, moment, span_of

Reaches = Callable[[int, datetime, datetime, datetime | None, datetime | None], Reach]
"""The reach of a span: of a scope's row, from its start; when its resource was logged, last seen, and found absent."""

NOBODY = ResourceKey("", "", "", "")
"""Sums do not ask whose a span is."""


class Sums:
    """What a period comes to, by attribution, charge, currency, and whether the price is known."""

    def __init__(self, ask: Ask, attributions: dict[int, Attribution]) -> None:
        self._ask, self._attributions = ask, attributions
        self._found: dict[tuple[int, str, str, int], list[int]] = {}

    def closed(self, period: Period) -> None:
        """Add what closed spans come to in `period`."""
        start, end = micros(period.start), micros(period.end)
        first, last = -(-start // DAY_US), end // DAY_US
        if first >= last:
            self._edge(start, end)
            return
        self._edge(start, first * DAY_US)
        self._add(self._ask(_DAYS, (first, last)))
        self._edge(last * DAY_US, end)

    def open(self, period: Period, reach: Reaches) -> None:
        """Add what open spans come to in `period`, as far as they are known to reach."""
        start, end = micros(period.start), micros(period.end)
        for scope_id, attribution_id, at_us, seen_us, absent_us, *columns in self._ask(_OPEN, (end,)):
            span = span_of(NOBODY, self._attributions[attribution_id], columns)
            far = reach(scope_id, span.start, instant(at_us), moment(seen_us), moment(absent_us))
            self._take(attribution_id, span, *reached(span, start, end, far))

    def unheard(self, period: Period, spans: Iterable[Span]) -> None:
        """Add what `spans`, which no ledger holds, may come to in `period`."""
        start, end = micros(period.start), micros(period.end)
        numbers = {attribution: number for number, attribution in self._attributions.items()}
        for span in spans:
            number = numbers.setdefault(span.attribution, -1 - len(numbers))  # what never billed has no row of its own
            self._attributions.setdefault(number, span.attribution)
            self._take(number, span, amounts(span, start, end), expected_us(span, start, end))

    def spending(self) -> list[Spending]:
        """The sums, but for those of nothing."""
        found = []
        for (attribution_id, charge, currency, known), (low, expected, high, us) in sorted(self._found.items()):
            attribution = self._attributions[attribution_id]
            billed_us = us if charge == COMPUTE and attribution.kind == INSTANCE else 0
            if high or billed_us:
                money = interval((low, expected, high), currency)
                one = Spending(attribution=attribution, charge=charge, money=money, us=billed_us, known=bool(known))
                found.append(one)
        return found

    def _edge(self, start: int, end: int) -> None:
        """Add what closed spans come to in a part of a day or two."""
        if start >= end:
            return
        self._add(self._ask(_WITHIN, (start, end, start)))
        for attribution_id, *columns in self._ask(_ACROSS, (start, end, end, start, end, end, end)):
            span = span_of(NOBODY, self._attributions[attribution_id], columns)
            self._take(attribution_id, span, amounts(span, start, end), expected_us(span, start, end))

    def _add(self, rows: Iterable[Row]) -> None:
        """Add sums as the database made them: of whole units and of the nano-units left, since 64 bits hold no more."""
        for attribution_id, charge, currency, known, low, expected, more, high, most, us in rows:
            place = (attribution_id, charge, currency, known)
            self._sum(place, (int(low), int(expected) * NANO + int(more), int(high) * NANO + int(most)), int(us))

    def _take(self, attribution_id: int, span: Span, money: Amounts, us: int) -> None:
        price = span.meter.price
        self._sum((attribution_id, span.meter.charge, price.currency, int(price.known)), money, us)

    def _sum(self, place: tuple[int, str, str, int], money: Amounts, us: int) -> None:
        sums = self._found.setdefault(place, [0, 0, 0, 0])
        for index, added in enumerate((*money, us)):
            sums[index] += added


def reached(span: Span, start_us: int, end_us: int, reach: Reach) -> tuple[Amounts, int]:
    """What an open span comes to in [start, end) as far as it reaches, and the microseconds that it probably billed."""
    probably, most = min(end_us, micros(reach.expected)), min(end_us, micros(reach.high))
    low, _, _ = amounts(span, start_us, min(end_us, micros(reach.low)))
    high = amounts(span, start_us, most)
    expected = high if probably == most else amounts(span, start_us, probably)
    return (low, expected[1], high[2]), expected_us(span, start_us, probably)


def interval(money: Amounts, currency: str) -> MoneyInterval:
    """Three amounts as one value."""
    low, expected, high = (Money(nano=nano, currency=currency) for nano in money)
    return MoneyInterval(low=low, expected=expected, high=high)


def _split(amount: str) -> str:
    """SQL for the sum of `amount` as whole units and nano-units: the bounds of a fleet without prices pass 64 bits."""
    return f"sum({amount} / {NANO}), sum({amount} - {amount} / {NANO} * {NANO})"


def counted(column: str) -> str:
    """SQL for a column of span `s` as its last correction `c`, if there is one, has it."""
    return f"coalesce(c.{column}, s.{column})"


CORRECTED = "LEFT JOIN correction AS c ON c.id = (SELECT max(x.id) FROM correction AS x WHERE x.span_id = s.id)"
"""The last correction `c` of each span `s`."""

_DAYS = f"""
SELECT attribution_id, charge, currency, known, sum(low), {_split("expected")}, {_split("high")}, sum(us)
FROM daily WHERE day >= ? AND day < ? GROUP BY attribution_id, charge, currency, known
"""  # noqa: S608 - our own column names

_WITHIN = f"""
SELECT s.attribution_id, s.charge, s.currency, s.price_known, sum({counted("low")}), {_split(counted("expected"))},
    {_split(counted("high"))},
    sum((s.end_us - s.start_us) / CASE {counted("presence")} WHEN 'edge' THEN 2 ELSE 1 END
        * CASE {counted("presence")} WHEN 'maybe' THEN 0 ELSE 1 END)
FROM span AS s {CORRECTED}
WHERE s.end_us > ? AND s.end_us <= ? AND s.start_us >= ?
GROUP BY s.attribution_id, s.charge, s.currency, s.price_known
"""  # noqa: S608 - our own column names

_COUNTED_SPAN = SPAN.replace("s.presence", counted("presence"))

_LONG_US = 8 * DAY_US
"""The index `span_long` holds the spans that are longer (`tables.LONG`; a test holds the two together)."""

_ACROSS = f"""
SELECT s.attribution_id, {_COUNTED_SPAN} FROM span AS s {CORRECTED}
WHERE s.end_us > ? AND s.end_us <= ? + {_LONG_US} AND s.start_us < ? AND NOT (s.start_us >= ? AND s.end_us <= ?)
UNION ALL
SELECT s.attribution_id, {_COUNTED_SPAN} FROM span AS s {CORRECTED}
WHERE s.end_us - s.start_us > {_LONG_US} AND s.end_us > ? + {_LONG_US} AND s.start_us < ?
"""  # noqa: S608 - our own column names
"""Spans that reach out of [start, end): those that end soon after it, and the long ones that end later."""

_OPEN = f"""
SELECT r.scope_id, s.attribution_id, o.at_us, o.seen_us, CASE o.state WHEN 'absent' THEN o.at_us END, {SPAN}
FROM span AS s
JOIN resource AS r ON r.id = s.resource_id
JOIN observation AS o ON o.id = (SELECT max(x.id) FROM observation AS x WHERE x.resource_id = s.resource_id)
WHERE s.end_us IS NULL AND s.start_us < ?
"""  # noqa: S608 - our own column names
