"""What the ledger's tables are made of: the base class of their rows, and the types of their columns.

    class AgentCodeRow(LedgerRow, table=True):
        __tablename__ = "agent_code"
        __table_args__ = declare_table(keeps_rows=True, written_once=True)

        hash: KeyWords
        expires_us: Number
        used_us: LaterOptionalNumber = None

A class is the one declaration of its table: queries, triggers (`db.triggers`), `db check` and Alembic read it. A row has what
the database has: times are microseconds since 1970 UTC, money is nano-units, both 64-bit integers, and true is 1; no column of
either is a float. SQLite's tables are STRICT, so a text in a column of money is refused.

Rows that are built are not validated (SQLModel validates no class with `table=True`): values are checked before.
"""

from __future__ import annotations

from typing import Annotated, Any

from sqlalchemy import BigInteger, Double, Index, Integer, MetaData, Text, TextClause, text
from sqlalchemy.orm import registry
from sqlalchemy.types import REAL
from sqlmodel import Field, SQLModel
from sqlmodel._compat import SQLModelConfig

RESOURCE_KEY = ("provider", "account", "region", "external_id")


class LedgerRow(SQLModel, registry=registry()):
    """The base of every row. Its metadata holds the ledger's tables and no other program's."""

    model_config = SQLModelConfig(defer_build=True)  # no row is validated: pydantic's validators would be a tenth of a class


METADATA: MetaData = LedgerRow.metadata
"""Of the tables whose modules were imported; `tables.load_metadata` imports them all."""

BIG_INTEGER: Any = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits. In SQLite every INTEGER has them, and only INTEGER makes a primary key the row's own number."""
REAL_NUMBER: Any = Double().with_variant(REAL(), "sqlite")
"""Of samples only."""

_LATER = {"info": {"later": True}}
_WRITER_NUMBERS = {"autoincrement": False}

RowNumber = Annotated[int, Field(sa_type=BIG_INTEGER, primary_key=True)]
"""The number of a row, which the database counts up where none is given."""
KeyNumber = Annotated[int, Field(sa_type=BIG_INTEGER, primary_key=True, sa_column_kwargs=_WRITER_NUMBERS)]
"""A part of the primary key that the writer numbers."""
KeyWords = Annotated[str, Field(sa_type=Text, primary_key=True)]
Number = Annotated[int, Field(sa_type=BIG_INTEGER)]
OptionalNumber = Annotated[int | None, Field(sa_type=BIG_INTEGER)]
Words = Annotated[str, Field(sa_type=Text)]
OptionalWords = Annotated[str | None, Field(sa_type=Text)]
Real = Annotated[float, Field(sa_type=REAL_NUMBER)]

LaterNumber = Annotated[int, Field(sa_type=BIG_INTEGER, sa_column_kwargs=_LATER)]
LaterOptionalNumber = Annotated[int | None, Field(sa_type=BIG_INTEGER, sa_column_kwargs=_LATER)]
LaterWords = Annotated[str, Field(sa_type=Text, sa_column_kwargs=_LATER)]
LaterOptionalWords = Annotated[str | None, Field(sa_type=Text, sa_column_kwargs=_LATER)]
"""Columns of rows that are written once, which may change all the same."""


def refer_to(column: str, *, primary_key: bool = False, later: bool = False) -> Any:  # noqa: ANN401 - as SQLModel's Field
    """Declare the number of a row of another table ("span.id")."""
    more = (_WRITER_NUMBERS if primary_key else {}) | (_LATER if later else {})
    return Field(sa_type=BIG_INTEGER, foreign_key=column, primary_key=primary_key, sa_column_kwargs=more)


def refer_to_words(column: str, *, primary_key: bool = False) -> Any:  # noqa: ANN401 - as SQLModel's Field
    """Declare the id of a row of another table whose id is a text ("hold.id")."""
    return Field(sa_type=Text, foreign_key=column, primary_key=primary_key)


def fill_older_rows(value: str, kind: Any = Text) -> Any:  # noqa: ANN401 - as SQLModel's Field
    """Declare a column that a migration added: rows of before have `value`, in SQL."""
    return Field(sa_type=kind, sa_column_kwargs={"server_default": text(value)})


def index_where(name: str, *columns: str, where: TextClause, unique: bool = False) -> Index:
    """Declare an index of the rows that are as `where` says.

    `tables.load_metadata` says the same for PostgreSQL, whose dialect is 28 modules: whoever names it here imports it.
    """
    return Index(name, *columns, unique=unique, sqlite_where=where)


def declare_table(*, keeps_rows: bool = False, written_once: bool = False, without_rowid: bool = False) -> dict[str, Any]:
    """Return the options of a table.

    `keeps_rows`: no row is ever removed. `written_once`: its columns never change, but for those declared as later ones.
    `without_rowid`: SQLite stores the rows in the order of their primary key, with no copy of it.
    """
    more = {"sqlite_with_rowid": False} if without_rowid else {}
    return {"sqlite_strict": True, "info": {"kept": keeps_rows, "written_once": written_once}, **more}
