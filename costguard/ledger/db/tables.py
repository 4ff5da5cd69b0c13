"""What the columns of every table are made of: 64-bit numbers, texts, and keys, the same on both databases."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import BigInteger, Double, Integer, MetaData, Text
from sqlalchemy.types import REAL
from sqlmodel import Field, SQLModel

BIG_INTEGER: Any = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits. In SQLite every INTEGER has them, and only INTEGER makes a primary key the row's own number."""
REAL_NUMBER: Any = Double().with_variant(REAL(), "sqlite")
"""Of samples only."""

STRICT: dict[str, Any] = {"sqlite_strict": True}
WITHOUT_ROWID: dict[str, Any] = {
    "sqlite_strict": True,
    "sqlite_with_rowid": False,
}  # rows lie in the order of their primary key, with no copy of it


class LedgerTable(SQLModel):
    """What every table has: this ledger's own metadata, apart from any other program's."""

    metadata: ClassVar[MetaData] = MetaData()


def make_number_field() -> Any:  # noqa: ANN401 - what SQLModel's Field is typed as
    """A number of 64 bits."""
    return Field(sa_type=BIG_INTEGER)


def make_optional_number_field() -> Any:  # noqa: ANN401 - see above
    """A number of 64 bits that may be missing."""
    return Field(default=None, sa_type=BIG_INTEGER, nullable=True)


def make_key_field() -> Any:  # noqa: ANN401 - see above
    """A primary key that the database counts up where none is given."""
    return Field(default=None, primary_key=True, sa_type=BIG_INTEGER)


def make_reference_field(table: str, *, primary_key: bool = False) -> Any:  # noqa: ANN401 - see above
    """The id of a row of `table`."""
    return Field(foreign_key=f"{table}.id", sa_type=BIG_INTEGER, primary_key=primary_key)


def make_text_field() -> Any:  # noqa: ANN401 - see above
    """A text."""
    return Field(sa_type=Text)
