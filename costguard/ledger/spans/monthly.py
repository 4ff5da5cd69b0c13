"""Sums by calendar month (UTC) and resource, written in the transaction that changes a daily sum, from the same parts.

Example: a machine at $2 an hour from October 31, 23:30 to November 1, 01:00 adds $1 to October and $2 to November. A report by
resource adds up a month's rows, and takes what lies between the month's edge and its own from spans (`sums.PeriodSums`): July
in Berlin is July in UTC, with the last two hours of June, and without the last two of July.

A correction with parts adds each part, by the price that it has.

`check_months` compares them with their sources: by month with the daily sums, by resource with the spans.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from costguard.ledger.db.codecs import KEY_COLUMNS, NanoAmounts, Query, SqlRow, decode_span
from costguard.ledger.spans.hourly import HourlyRollup
from costguard.ledger.spans.scope_state import load_attributions
from costguard.ledger.spans.sums import CORRECTED_SPAN_COLUMNS, EXPECTED_US_SQL, JOIN_CORRECTION, format_corrected_column
from costguard.metering.span import Span, split_by_day
from costguard.values.calendar import find_month_of_day
from costguard.values.money import NANO
from costguard.values.resource import ResourceKey

MonthPlace = tuple[int, ResourceKey, int, str, str, int, str]
"""Month since 1970 in UTC, resource, attribution, charge, currency, 1 where the price is known, and the price's source."""

DayPart = tuple[int, NanoAmounts, int]
"""A day since 1970 (UTC), what a span costs on it, and its expected microseconds, as `split_by_day` returns them."""

REBUILD_SPANS = 20_000
"""Spans that are held in memory at a time while the sums are made anew."""


class MonthlyRollup:
    """The amounts that one transaction adds to each row of `monthly`."""

    def __init__(self) -> None:
        self._sums: dict[MonthPlace, list[int]] = {}

    def add_day(self, span: Span, attribution_id: int, part: DayPart, sign: int = 1) -> None:
        """Add a day's `part` of `span`; subtract it if `sign` is -1."""
        day, amounts, us = part
        price = span.meter.price
        place = (
            find_month_of_day(day),
            span.key,
            attribution_id,
            span.meter.charge,
            price.currency,
            int(price.known),
            span.meter.source,
        )
        sums = self._sums.get(place)
        if sums is None:
            sums = self._sums[place] = [0, 0, 0, 0]
        for index, added in enumerate((*amounts, us)):
            sums[index] += sign * added

    def write(self, write: Callable[[str, list[SqlRow]], object]) -> None:
        """Write the sums by `write`, which takes a statement and its rows; the resources must be in the ledger."""
        added, changed = list[SqlRow](), list[SqlRow]()
        for (month, key, *place), sums in sorted(self._sums.items()):
            low, expected, high, us = sums
            if 0 <= low <= expected <= high and us >= 0:
                added.append((month, *key, *place, *sums))
            elif any(sums):  # a correction can lower one amount and not another: the row exists
                changed.append((*sums, month, *key, *place))
        write(_INSERT_MONTHLY, added)
        write(_UPDATE_MONTHLY, changed)
        self._sums.clear()


def rebuild_rollups(ask: Query, tell: Callable[[str, list[SqlRow]], object]) -> None:
    """Add every closed span to `monthly` and `hourly`, which must be empty, in bounded memory, in an open transaction."""

    def write(sql: str, rows: list[SqlRow]) -> None:
        if rows:
            tell(sql, rows)

    attributions, months, hours = load_attributions(ask), MonthlyRollup(), HourlyRollup()
    ((last,),) = ask("SELECT coalesce(max(id), 0) FROM span", ())
    for first in range(0, last, REBUILD_SPANS):
        for attribution_id, *row in ask(_CLOSED, (first, first + REBUILD_SPANS)):
            span = decode_span(ResourceKey(*row[:4]), attributions[attribution_id], row[4:])
            expected = 0
            for part in split_by_day(span):
                months.add_day(span, attribution_id, part)
                expected += part[1][1]
            hours.add(span, expected)
        months.write(write)
        hours.write(write)


def check_months(ask: Query) -> Iterator[str]:
    """Yield the monthly sums that differ from the daily sums, and the resources whose sums differ from their spans."""
    days = defaultdict[SqlRow, list[int]](lambda: [0, 0, 0])
    for day, *rest, low, expected, high in ask(_DAILY, ()):
        sums = days[(find_month_of_day(day), *rest)]
        sums[0], sums[1], sums[2] = sums[0] + low, sums[1] + expected, sums[2] + high
    months = {tuple(row[:5]): _join_sums(row[5:]) for row in ask(_MONTHLY, ())}
    for place in sorted({*days, *months}):
        says, adds_up_to = months.get(place, [0, 0, 0]), days.get(place, [0, 0, 0])
        if says != adds_up_to:
            month, attribution_id, charge, currency, _ = place
            which = f"{1970 + month // 12}-{month % 12 + 1:02d}, {charge} of attribution {attribution_id} in {currency}"
            yield f"the roll-up by resource of {which} says {_format(says)} and its days add up to {_format(adds_up_to)}"
    for resource, attribution_id, charge, currency, _, *found, us in ask(_DIFFERENT_RESOURCES, ()):
        over = _format([*_join_sums(found), int(us)])
        of = f"resource {resource}, {charge} of attribution {attribution_id} in {currency}"
        yield f"the months of {of} differ from its spans by {over} (low / expected / high nano-units / microseconds)"


def _join_sums(parts: SqlRow | list[int]) -> list[int]:
    """Return sums given as whole units and remaining nano-units."""
    values = [int(value) for value in parts]
    return [whole * NANO + rest for whole, rest in zip(values[::2], values[1::2], strict=True)]


def _format(values: list[int]) -> str:
    return " / ".join(str(value) for value in values)


_RESOURCE_ID = f"(SELECT id FROM resource WHERE {' AND '.join(f'{name} = ?' for name in KEY_COLUMNS.split(', '))})"  # noqa: S608 - our own names
_PLACE = "month, resource_id, attribution_id, charge, currency, known, source"

_INSERT_MONTHLY = f"""
INSERT INTO monthly ({_PLACE}, low, expected, high, us) VALUES (?, {_RESOURCE_ID}, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT ({_PLACE}) DO UPDATE SET low = monthly.low + excluded.low, expected = monthly.expected + excluded.expected,
    high = monthly.high + excluded.high, us = monthly.us + excluded.us
"""  # noqa: S608 - our own names
_UPDATE_MONTHLY = f"""
UPDATE monthly SET low = low + ?, expected = expected + ?, high = high + ?, us = us + ? WHERE month = ?
    AND resource_id = {_RESOURCE_ID} AND attribution_id = ? AND charge = ? AND currency = ? AND known = ? AND source = ?
"""  # noqa: S608 - our own names

_CLOSED = f"""
SELECT s.attribution_id, r.provider, r.account, r.region, r.external_id, {CORRECTED_SPAN_COLUMNS}
FROM span AS s {JOIN_CORRECTION} JOIN resource AS r ON r.id = s.resource_id
WHERE s.id > ? AND s.id <= ? AND s.end_us IS NOT NULL
"""  # noqa: S608 - our own column names

_DAILY = "SELECT day, attribution_id, charge, currency, known, low, expected, high FROM daily"


def _split(amount: str) -> str:
    return f"sum({amount} / {NANO}), sum({amount} - {amount} / {NANO} * {NANO})"


def _format_differs(amount: str) -> str:
    return f"sum({amount} / {NANO}) * {NANO} + sum({amount} - {amount} / {NANO} * {NANO}) <> 0"


_MONTHLY = f"""
SELECT month, attribution_id, charge, currency, known, {", ".join(map(_split, ("low", "expected", "high")))}
FROM monthly GROUP BY month, attribution_id, charge, currency, known
"""  # noqa: S608 - our own names

_DIFFERENT_RESOURCES = f"""
SELECT resource_id, attribution_id, charge, currency, source, {", ".join(map(_split, ("low", "expected", "high")))}, sum(us)
FROM (
    SELECT resource_id, attribution_id, charge, currency, source, low, expected, high, us FROM monthly
    UNION ALL
    SELECT s.resource_id, s.attribution_id, s.charge, s.currency, s.price_source,
        {", ".join(f"-{format_corrected_column(name)}" for name in ("low", "expected", "high"))}, -({EXPECTED_US_SQL})
    FROM span AS s {JOIN_CORRECTION} WHERE s.end_us IS NOT NULL
) AS both_sides
GROUP BY resource_id, attribution_id, charge, currency, source
HAVING {_format_differs("low")} OR {_format_differs("expected")} OR {_format_differs("high")} OR sum(us) <> 0
ORDER BY resource_id
"""  # noqa: S608 - our own names
