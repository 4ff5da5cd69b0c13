"""How one text of SQL is asked of SQLite and of PostgreSQL alike, through SQLAlchemy's connection or a driver's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from costguard.ledger.db.codecs import Row

Ask = Callable[[str, Sequence[Any]], Sequence[Row]]
"""The rows of a statement whose values stand at its question marks."""

Tell = Callable[[str, list[Row]], int]
"""Execute a statement once for each tuple of values, and say how many rows it touched."""

MOST_VALUES = 500
"""Values in one IN list."""

T = TypeVar("T")


def placed(sql: str, *, server: bool) -> str:
    """`sql` with its question marks as the driver wants them; no text of ours holds one, or a percent sign, otherwise."""
    return sql.replace("?", "%s") if server else sql


def marks(values: Sequence[object]) -> str:
    """A question mark for each value."""
    return ", ".join("?" * len(values))


def in_lots(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """`values` in pieces that one IN list holds."""
    for first in range(0, len(values), MOST_VALUES):
        yield values[first : first + MOST_VALUES]
