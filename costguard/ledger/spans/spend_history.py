"""What `guard.anomalies` compares the present with: costs by hour, first days, disks that changed, recent holds.

Closed spans are summed by attribution, charge and the hours that they touch. Example: 40 machines of one owner from 09:10 to
17:30, each with a disk, are two rows. A large ledger is read once an hour, 35 days back, by the index of ends.
"""

from __future__ import annotations

from functools import cache

from sqlalchemy import ColumnElement, bindparam, case, func, literal_column
from sqlalchemy import select as select_columns
from sqlalchemy.orm import aliased
from sqlmodel import col, select

from costguard.guard.anomalies import DAY_HOURS, HOURS_BACK, PastCost, SpendHistory
from costguard.ledger.db.codecs import Query
from costguard.ledger.holds import load_recent_holds
from costguard.ledger.spans.correction_parts import RESOURCE, Rows, join_parts, select_corrected
from costguard.ledger.spans.scope_state import load_attributions
from costguard.ledger.tables.rollups import DailyRow
from costguard.ledger.tables.spans import CoverageRow, ResourceRow, SpanRow
from costguard.ledger.types import BIG_INTEGER
from costguard.metering.meter import HOUR as METER_HOUR
from costguard.metering.meter import STORAGE
from costguard.values.instant import HOUR_US, from_micros
from costguard.values.resource import ResourceKey

HOUR: ColumnElement[int] = literal_column(str(HOUR_US), BIG_INTEGER)  # a part of the statement: see `reports.reader.HOUR`
DISK_HOURS_BACK, HOLD_HOURS_BACK = 7 * DAY_HOURS, 2 * DAY_HOURS


def load_spend_history(ask: Query, hour: int) -> SpendHistory:
    """Return the history before `hour` (since 1970, UTC); the present lines, which have no end, are not in it."""
    attributions = load_attributions(ask)
    costs = ask(_sum_closed_hours(), {"since": (hour - HOURS_BACK) * HOUR_US})
    days = ask(select_columns(col(DailyRow.attribution_id), func.min(DailyRow.day)).group_by(col(DailyRow.attribution_id)))
    disks = ask(_select_former_sizes(), {"since": (hour - DISK_HOURS_BACK) * HOUR_US})
    (first_poll_us,) = ask(select(func.min(CoverageRow.start_us)))
    return SpendHistory(
        watched_since=hour if first_poll_us is None else int(first_poll_us) // HOUR_US,
        costs=[
            PastCost(attributions[number], charge, currency, int(first), int(last), int(nano), int(price))
            for number, charge, currency, first, last, nano, price in costs
        ],
        first_days={attributions[number]: int(day) for number, day in days},
        disks={(ResourceKey(*key), part): int(size) for *key, part, size in disks},
        holds=load_recent_holds(ask, from_micros((hour - HOLD_HOURS_BACK) * HOUR_US)),
    )


@cache
def _sum_closed_hours() -> Rows:
    start, end = select_corrected("start_us"), select_corrected("end_us")
    price = case((col(SpanRow.unit) == METER_HOUR, col(SpanRow.price_expected) * col(SpanRow.quantity)), else_=0)
    place = (col(SpanRow.attribution_id), col(SpanRow.charge), col(SpanRow.currency), start // HOUR, (end - 1) // HOUR)
    spans = join_parts(select_columns(*place, func.sum(select_corrected("expected")), func.max(price)))
    return spans.where(col(SpanRow.end_us) > bindparam("since"), end > start).group_by(*place)


@cache
def _select_former_sizes() -> Rows:
    """Select the least size that each disk had since `since` which has another one now."""
    now = aliased(SpanRow)
    is_line = (now.resource_id == SpanRow.resource_id, now.charge == SpanRow.charge, now.part == SpanRow.part)
    changed = select(now.id).where(*is_line, col(now.end_us).is_(None), now.quantity != SpanRow.quantity).exists()
    sizes = select_columns(*RESOURCE, col(SpanRow.part), func.min(SpanRow.quantity)).join_from(
        SpanRow, ResourceRow, col(ResourceRow.id) == col(SpanRow.resource_id)
    )
    old = (col(SpanRow.charge) == STORAGE, col(SpanRow.end_us) > bindparam("since"), changed)
    return sizes.where(*old).group_by(*RESOURCE, col(SpanRow.part))
