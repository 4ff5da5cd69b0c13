"""Keep the samples of a ledger within bounds: two days one by one, then 400 days as one row an hour, then none.

Example: 100 machines with agents write 2.2 million samples a day. At 12:10 on the 20th those of 11:00 to 12:00 on the 18th
become 1,500 rows with their number, sum, least and greatest value, which is what reports of waste and replays of policies read
of old hours. Two days are as far back as a rule about idle machines looks (`SAMPLE_LOOKBACK`).

Each transaction is short (`ROLL_UP_LINES`, `ROLL_UP_HOURS`) and complete: killed between two, the next run goes on from there.
Other writers get their turn between two of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Delete, Engine, Insert, Text, bindparam, case, delete, func, insert, literal_column
from sqlalchemy import select as select_columns
from sqlmodel import col

from costguard.ledger.db.connection import begin_write
from costguard.ledger.db.free_pages import YIELD_S, give_back_pages
from costguard.ledger.db.session import open_query
from costguard.ledger.spans.correction_parts import Rows
from costguard.ledger.spans.observations import find_next_signal
from costguard.ledger.tables.samples import SampleHourRow, SampleRow
from costguard.ledger.types import BIG_INTEGER
from costguard.values.instant import HOUR_US, to_micros

SAMPLE_RETENTION, HOUR_RETENTION = timedelta(hours=48), timedelta(days=400)
"""How long samples are kept one by one, and how long as hours: a year's report can be made for a month after it ended."""
ROLL_UP_LINES, ROLL_UP_HOURS = 100, 6
"""Signals of machines in one transaction, and hours of them: 36,000 samples where one comes each minute."""

SampleTable = type[SampleRow] | type[SampleHourRow]
Lines = list[dict[str, Any]]


class RetentionResult(NamedTuple):
    """Samples that became hours, hours that were removed, and bytes that went back to the disk."""

    samples: int
    hours: int
    freed_bytes: int


def keep_samples_bounded(engine: Engine, now: datetime) -> RetentionResult:
    """Roll up, remove and give back what is due at `now`. Repeating it changes nothing."""
    return RetentionResult(roll_up_samples(engine, now), delete_old_hours(engine, now), give_back_pages(engine))


def roll_up_samples(engine: Engine, now: datetime) -> int:
    """Replace samples of whole hours older than `SAMPLE_RETENTION` at `now` by one row per hour; return their number."""
    until_us = to_micros(now - SAMPLE_RETENTION) // HOUR_US * HOUR_US
    return _work_off(engine, SampleRow, until_us, HOUR_US, _roll_up_lines)


def delete_old_hours(engine: Engine, now: datetime) -> int:
    """Remove the hours that ended more than `HOUR_RETENTION` before `now`; return their number."""
    return _work_off(engine, SampleHourRow, to_micros(now - HOUR_RETENTION) // HOUR_US, 1, _delete_hours)


def _work_off(engine: Engine, table: SampleTable, until: int, hour: int, apply: Callable[[Connection, Lines], int]) -> int:
    """Call `apply` for all that lies before `until`, some lines and hours a transaction; return the sum of its results.

    `hour`: the length of an hour in the table's unit. A round ends where it went through every line that is due, oldest first.
    """
    count = 0
    while due := _list_due(engine, table, until):
        for first in range(0, len(due), ROLL_UP_LINES):
            batch = due[first : first + ROLL_UP_LINES]
            end = min(until, (batch[0][0] // hour + ROLL_UP_HOURS) * hour)
            lines = [{"resource": resource, "name": signal, "until": end} for oldest, resource, signal in batch if oldest < end]
            with begin_write(engine) as connection:
                count += apply(connection, lines)
            time.sleep(YIELD_S)
    return count


def _list_due(engine: Engine, table: SampleTable, until: int) -> list[tuple[int, int, str]]:
    """Return (oldest, resource, signal) of what has samples before `until`, oldest first."""
    with engine.connect() as connection:
        rows = open_query(connection)(_select_oldest(table))
    return sorted((oldest, resource, signal) for resource, signal, oldest in rows if oldest < until)


def _roll_up_lines(connection: Connection, lines: Lines) -> int:
    connection.execute(_insert_hours(), lines)
    return connection.execute(_delete_before(SampleRow), lines).rowcount


def _delete_hours(connection: Connection, lines: Lines) -> int:
    return connection.execute(_delete_before(SampleHourRow), lines).rowcount


def _get_time(table: Any) -> Any:  # noqa: ANN401 - the column of a class or of an alias of it
    return table.at_us if hasattr(table, "at_us") else table.hour


@cache
def _select_oldest(table: SampleTable) -> Rows:
    """Select (resource, signal, oldest) of each signal of each resource.

    They are found by leaping through the primary key: there are thousands of rows to each.
    """
    none = literal_column("''", Text())
    line = select_columns(func.min(table.resource_id).label("resource_id"), none.label("signal")).cte("line", recursive=True)
    signal = find_next_signal(line, table)
    following = select_columns(func.min(table.resource_id)).where(col(table.resource_id) > line.c.resource_id)
    resource = case((signal.is_(None), following.correlate(line).scalar_subquery()), else_=line.c.resource_id)
    line = line.union_all(select_columns(resource, func.coalesce(signal, none)).where(line.c.resource_id.is_not(None)))
    oldest = select_columns(func.min(_get_time(table))).where(
        col(table.resource_id) == line.c.resource_id, col(table.signal) == line.c.signal
    )
    rows = select_columns(line.c.resource_id, line.c.signal, oldest.correlate(line).scalar_subquery())
    return rows.where(line.c.signal != "")


def _is_due(table: SampleTable) -> tuple[Any, ...]:
    resource, until = bindparam("resource", type_=BIG_INTEGER), bindparam("until", type_=BIG_INTEGER)
    return col(table.resource_id) == resource, col(table.signal) == bindparam("name"), _get_time(table) < until


@cache
def _insert_hours() -> Insert:
    line, value = (col(SampleRow.resource_id), col(SampleRow.signal), col(SampleRow.at_us) // HOUR_US), col(SampleRow.value)
    sums = select_columns(*line, func.count(), func.sum(value), func.min(value), func.max(value))
    return insert(SampleHourRow).from_select(list(SampleHourRow.model_fields), sums.where(*_is_due(SampleRow)).group_by(*line))


@cache
def _delete_before(table: SampleTable) -> Delete:
    return delete(table).where(*_is_due(table))
