"""Samples of signals, and their sums by hour once they are too old to be stored singly. The only floats of the ledger."""

from __future__ import annotations

from typing import Annotated

from sqlalchemy import CheckConstraint

from costguard.ledger.types import KeyNumber, KeyWords, LedgerRow, Number, Real, declare_table, refer_to


class SampleRow(LedgerRow, table=True):
    """A signal's value at an instant.

    A missing value has no row.
    """

    __tablename__ = "sample"
    __table_args__ = declare_table(without_rowid=True)

    resource_id: Annotated[int, refer_to("resource.id", primary_key=True)]
    signal: KeyWords
    at_us: KeyNumber
    value: Real


class SampleHourRow(LedgerRow, table=True):
    """Count, sum and extremes of the samples of an hour (since 1970, UTC), once these are too old to be stored singly."""

    __tablename__ = "sample_hour"
    __table_args__ = (
        CheckConstraint("count >= 1 AND lowest <= highest", name="sample_hour_in_order"),
        declare_table(without_rowid=True),
    )

    resource_id: Annotated[int, refer_to("resource.id", primary_key=True)]
    signal: KeyWords
    hour: KeyNumber
    count: Number
    sum: Real
    lowest: Real
    highest: Real
