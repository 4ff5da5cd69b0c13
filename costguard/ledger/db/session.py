"""Query and execute in one transaction: statements made of the classes of `ledger.tables`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from contextvars import ContextVar
from functools import cache, wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from costguard.ledger.db.codecs import Execute, Query, SqlRow

if TYPE_CHECKING:  # types and no more: SQLAlchemy is loaded by whoever opens a ledger
    from sqlalchemy import Connection, Engine, Executable

SqlSession = tuple[Query, Execute]
_NO_VALUES: Mapping[str, Any] = MappingProxyType({})


def open_sql_session(connection: Connection) -> SqlSession:
    """Return the functions that query and execute in the transaction of `connection`, which has begun."""
    return open_query(connection), _open_execute(connection)


def open_query(connection: Connection) -> Query:
    """Return the function that queries in the transaction of `connection`."""

    def ask(statement: str | Executable, values: Mapping[str, Any] = _NO_VALUES) -> Sequence[Any]:
        if isinstance(statement, str):  # a PRAGMA
            return list(map(tuple, connection.exec_driver_sql(statement)))
        return _ask_classes(connection, statement, dict(values))

    return ask


def _ask_classes(connection: Connection, statement: Executable, values: dict[str, Any]) -> Sequence[Any]:
    """Return objects of `select(AgentRow)`, values of `select(AgentRow.id)`, and plain rows of anything else.

    Only objects need SQLAlchemy's `Session`: values and rows take a third of its time without one. Rows come from the driver's
    cursor: SQLAlchemy's own take 1.6 times as long, and hand on integers, texts and floats as they are (2026-11).
    """
    from sqlmodel import Session
    from sqlmodel.sql.expression import SelectOfScalar

    if not isinstance(statement, SelectOfScalar):
        with closing(connection.execute(statement, values)) as result:
            rows: Sequence[SqlRow] = result.cursor.fetchall()
        return rows
    if isinstance(statement.column_descriptions[0]["expr"], type):
        with Session(connection, autoflush=False) as session:
            return session.exec(statement, params=values).all()
    return connection.execute(statement, values).scalars().all()


def _open_execute(connection: Connection) -> Execute:
    options = {"preserve_rowcount": True}  # else the count of an INSERT is -1 on PostgreSQL

    def tell(statement: Executable, rows: Sequence[Mapping[str, Any]] | None = None) -> int:
        if rows is not None and not rows:
            return 0  # SQLAlchemy would execute the statement once, without values
        return connection.execute(statement, rows, execution_options=options).rowcount

    return tell


_driver: ContextVar[object] = ContextVar("driver")
"""The driver's connection for `_get_engine`."""


def wrap_driver(dialect: str, driver: object) -> Connection:
    """Return SQLAlchemy's connection over `driver`, the driver's own, which whoever opened it closes."""
    _driver.set(driver)
    return _get_engine(dialect).connect()


@cache
def _get_engine(dialect: str) -> Engine:
    """Return the engine of all such connections, so that a statement is compiled once in a process and not once an opening."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    engine = create_engine(
        f"{dialect}://", creator=_driver.get, poolclass=NullPool, pool_reset_on_return=None, hide_parameters=True
    )
    # else SQLAlchemy replaces a lost connection by whatever `_driver` holds by then: another ledger's
    engine.dialect.is_disconnect = lambda *_: False  # type: ignore[method-assign]
    return engine


class _Reader(Protocol):
    def _begin_read(self) -> AbstractContextManager[Query]: ...


class _Writer(Protocol):
    def _begin_write(self) -> AbstractContextManager[SqlSession]: ...


P = ParamSpec("P")
T = TypeVar("T")


def read_by(load: Callable[Concatenate[Query, P], T]) -> Callable[Concatenate[_Reader, P], T]:
    """Return `load` as a method of a store: it reads in a transaction of its own."""

    @wraps(load)
    def read(store: _Reader, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with store._begin_read() as ask:  # noqa: SLF001 - a method of the store
            return load(ask, *args, **kwargs)

    return read


def write_by(change: Callable[Concatenate[Query, Execute, P], T]) -> Callable[Concatenate[_Writer, P], T]:
    """Return `change` as a method of a store: it is one transaction."""

    @wraps(change)
    def write(store: _Writer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with store._begin_write() as (ask, tell):  # noqa: SLF001 - a method of the store
            return change(ask, tell, *args, **kwargs)

    return write
