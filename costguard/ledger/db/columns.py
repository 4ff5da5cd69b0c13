"""Column types and the columns that all tables of the ledger are made of.

The columns are 64-bit numbers, texts and keys, the same on both databases. `db.triggers` restricts which columns may change.
Tables stand with their topic: `spans/tables.py`, `guard/tables.py`, `agents/tables.py`, `bills/tables.py`.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Integer, MetaData, Text
from sqlalchemy.types import REAL

BIG_INTEGER: Any = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits. In SQLite every INTEGER has them, and only INTEGER makes a primary key the row's own number."""
REAL_NUMBER: Any = Double().with_variant(REAL(), "sqlite")
"""Of samples only."""

STRICT: dict[str, Any] = {"sqlite_strict": True}
WITHOUT_ROWID: dict[str, Any] = {
    "sqlite_strict": True,
    "sqlite_with_rowid": False,
}  # rows lie in the order of their primary key, with no copy of it


METADATA = MetaData()
"""Of every table. It is separate from any other program's."""

RESOURCE_KEY = ("provider", "account", "region", "external_id")


def make_number_columns(*names: str) -> list[Column[Any]]:
    """Return columns for 64-bit numbers."""
    return [Column(name, BIG_INTEGER, nullable=False) for name in names]


def make_instant_columns(*names: str) -> list[Column[Any]]:
    """Return columns for instants, which may be NULL."""
    return [Column(name, BIG_INTEGER) for name in names]


def make_text_columns(*names: str) -> list[Column[Any]]:
    """Return columns for texts."""
    return [Column(name, Text, nullable=False) for name in names]


def make_id_column() -> Column[Any]:
    """Return the id column, which the database numbers."""
    return Column("id", BIG_INTEGER, primary_key=True)


def make_key_columns(*names: str) -> list[Column[Any]]:
    """Return columns for texts that are parts of the primary key."""
    return [Column(name, Text, primary_key=True) for name in names]


def make_reference_column(table: str, name: str, *, missing: bool = False, primary_key: bool = False) -> Column[Any]:
    """Return a column for the id of a row of `table`."""
    return Column(name, BIG_INTEGER, ForeignKey(f"{table}.id"), nullable=missing, primary_key=primary_key)
