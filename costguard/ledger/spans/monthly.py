"""Sums by calendar month (UTC) and resource, written in the transaction that changes a daily sum, from the same parts.

Example: a machine at $2 an hour from October 31, 23:30 to November 1, 01:00 adds $1 to October and $2 to November. A report by
resource adds up a month's rows, and takes what lies between the month's edge and its own from spans (`sums.PeriodSums`): July
in Berlin is July in UTC, with the last two hours of June, and without the last two of July.

A correction with parts adds each part, by the price that it has.

`check_months` compares them with their sources: by month with the daily sums, by resource with the spans.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sqlalchemy import func, or_, union_all
from sqlalchemy import select as select_columns
from sqlmodel import col

from costguard.ledger.db.codecs import Query, SqlRow
from costguard.ledger.spans.correction_parts import Rows, join_parts, select_corrected
from costguard.ledger.spans.hourly import format_sums
from costguard.ledger.spans.sums import select_expected_us, sum_split
from costguard.ledger.tables.rollups import DailyRow, MonthlyRow
from costguard.ledger.tables.spans import SpanRow
from costguard.values.calendar import find_month_of_day
from costguard.values.money import NANO

AMOUNTS = ("low", "expected", "high")


def check_months(ask: Query) -> Iterator[str]:
    """Yield the monthly sums that differ from the daily sums, and the resources whose sums differ from their spans."""
    days = defaultdict[SqlRow, list[int]](lambda: [0, 0, 0])
    for day, *rest, low, expected, high in ask(_select_days()):
        sums = days[(find_month_of_day(day), *rest)]
        sums[0], sums[1], sums[2] = sums[0] + low, sums[1] + expected, sums[2] + high
    months = {tuple(row[:5]): _join_sums(row[5:]) for row in ask(_select_months())}
    for place in sorted({*days, *months}):
        says, adds_up_to = months.get(place, [0, 0, 0]), days.get(place, [0, 0, 0])
        if says != adds_up_to:
            month, attribution_id, charge, currency, _ = place
            which = f"{1970 + month // 12}-{month % 12 + 1:02d}, {charge} of attribution {attribution_id} in {currency}"
            both = f"{format_sums(says)} and its days add up to {format_sums(adds_up_to)}"
            yield f"the roll-up by resource of {which} says {both}"
    for resource, attribution_id, charge, currency, _, *amounts, us in ask(_select_differences()):
        over = format_sums([*_join_sums(amounts), int(us)])
        of = f"resource {resource}, {charge} of attribution {attribution_id} in {currency}"
        yield f"the months of {of} differ from its spans by {over} (low / expected / high nano-units / microseconds)"


def _join_sums(parts: SqlRow | list[int]) -> list[int]:
    """Return sums given as whole units and remaining nano-units."""
    values = [int(value) for value in parts]
    return [whole_part * NANO + rest for whole_part, rest in zip(values[::2], values[1::2], strict=True)]


def _select_days() -> Rows:
    return select_columns(*(getattr(DailyRow, name) for name in DailyRow.model_fields if name != "us"))


def _select_months() -> Rows:
    place = [getattr(MonthlyRow, name) for name in ("month", "attribution_id", "charge", "currency", "known")]
    sums = (part for name in AMOUNTS for part in sum_split(getattr(MonthlyRow, name)))
    return select_columns(*place, *sums).group_by(*place)


def _select_differences() -> Rows:
    """Select what the months of a resource have more than its closed spans, where that is anything."""
    names = ("resource_id", "attribution_id", "charge", "currency", "source")
    months = select_columns(*(getattr(MonthlyRow, name) for name in (*names, *AMOUNTS, "us")))
    closed = (col(SpanRow.resource_id), col(SpanRow.attribution_id), col(SpanRow.charge), col(SpanRow.currency))
    amounts = (-select_corrected(name) for name in AMOUNTS)
    spans = join_parts(select_columns(*closed, col(SpanRow.price_source), *amounts, -select_expected_us()))
    sides = union_all(months, spans.where(col(SpanRow.end_us).is_not(None))).subquery().c
    place, us = [sides[name] for name in names], func.sum(sides.us)
    sums = [sum_split(sides[name]) for name in AMOUNTS]
    differs = or_(*(dollars * NANO + rest != 0 for dollars, rest in sums), us != 0)
    rows = select_columns(*place, *(part for pair in sums for part in pair), us).group_by(*place).having(differs)
    return rows.order_by(sides.resource_id)
