"""How one text of SQL is asked of SQLite and of PostgreSQL alike, through SQLAlchemy's connection or a driver's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from costguard.ledger.db.codecs import SqlRow

Query = Callable[[str, Sequence[Any]], Sequence[SqlRow]]
"""The rows of a statement whose values stand at its question marks."""

Execute = Callable[[str, list[SqlRow]], int]
"""Execute a statement once for each tuple of values, and say how many rows it touched."""

BATCH_VALUES_MAX = 500
"""Values in one IN list."""

T = TypeVar("T")


def adapt_placeholders(sql: str, *, server: bool) -> str:
    """`sql` with its question marks as the driver wants them; no text of ours holds one, or a percent sign, otherwise."""
    return sql.replace("?", "%s") if server else sql


def format_placeholders(values: Sequence[object]) -> str:
    """A question mark for each value."""
    return ", ".join("?" * len(values))


def split_batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """`values` in pieces that one IN list holds."""
    for first in range(0, len(values), BATCH_VALUES_MAX):
        yield values[first : first + BATCH_VALUES_MAX]
