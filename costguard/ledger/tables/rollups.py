"""Sums of closed spans by day, by month and resource, and by hour: derived, and written with the spans."""

from __future__ import annotations

from typing import Annotated

from sqlalchemy import CheckConstraint

from costguard.ledger.types import KeyNumber, KeyWords, LedgerRow, Number, declare_table, refer_to


class DailyRow(LedgerRow, table=True):
    """Closed spans, with their corrections, by day (since 1970, UTC). `us`: microseconds that probably billed."""

    __tablename__ = "daily"
    __table_args__ = (
        CheckConstraint("known IN (0, 1)", name="daily_known"),
        CheckConstraint("0 <= low AND low <= expected AND expected <= high AND us >= 0", name="daily_amounts"),
        declare_table(without_rowid=True),
    )

    day: KeyNumber
    attribution_id: Annotated[int, refer_to("attribution.id", primary_key=True)]
    charge: KeyWords
    currency: KeyWords
    known: KeyNumber
    low: Number
    expected: Number
    high: Number
    us: Number


class MonthlyRow(LedgerRow, table=True):
    """Closed spans, with their corrections, by resource and month (since 1970, UTC). `us`: microseconds that probably billed.

    A price is told apart by its source as well. A row is a sum of the same parts as those of `daily`.
    """

    __tablename__ = "monthly"
    __table_args__ = (
        CheckConstraint("known IN (0, 1)", name="monthly_known"),
        CheckConstraint("0 <= low AND low <= expected AND expected <= high AND us >= 0", name="monthly_amounts"),
        declare_table(without_rowid=True),
    )

    month: KeyNumber
    resource_id: Annotated[int, refer_to("resource.id", primary_key=True)]
    attribution_id: Annotated[int, refer_to("attribution.id", primary_key=True)]
    charge: KeyWords
    currency: KeyWords
    known: KeyNumber
    source: KeyWords
    low: Number
    expected: Number
    high: Number
    us: Number


class HourlyRow(LedgerRow, table=True):
    """The expected cost of closed spans, with their corrections, by hour (since 1970, UTC), spread evenly over each span.

    `cost`: of the spans that fill a part of the hour. `step`: how much more the spans that fill it whole cost than those that
    fill the hour before; it may be negative.
    """

    __tablename__ = "hourly"
    __table_args__ = declare_table(without_rowid=True)

    hour: KeyNumber
    currency: KeyWords
    lane: KeyNumber
    cost: Number
    step: Number
