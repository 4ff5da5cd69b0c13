"""A connection to PostgreSQL with a time limit on every answer.

A server or network that accepts requests and never answers raises no error, and TCP may take hours to detect it. So every wait
for an answer has a limit, after which the connection is closed. The statement may have been executed or not, commits included;
callers check before they repeat it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

T = TypeVar("T")

ANSWER_SECONDS_MAX = 120.0
"""How long one answer may take: a lock is waited for 30 s (`connection.LOCK_PATIENCE_S`), a statement takes milliseconds, one
of a migration perhaps a minute. An assumption, 2026-11."""
INTERRUPT_POLL_SECONDS = 0.1
"""How often a wait looks whether it was interrupted: psycopg's own."""


def connect_for_reading(conninfo: str, timeout_s: int) -> ImpatientConnection:
    """Connect with read-only transactions, each of one snapshot, which begin with the first query.

    `timeout_s`: seconds for connecting. Raises OperationalError if the server cannot be reached.
    """
    connection = ImpatientConnection.connect(conninfo, connect_timeout=timeout_s, application_name="costguard")
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    return connection


class ImpatientConnection(psycopg.Connection[Any]):
    """A connection that is closed if an answer takes longer than `ANSWER_SECONDS_MAX`."""

    def wait(self, gen: PQGen[T], interval: float = INTERRUPT_POLL_SECONDS, timeout: float | None = None) -> T:
        """Wait as psycopg does, but raise OperationalError after `ANSWER_SECONDS_MAX`.

        A given `timeout` is used instead.
        """
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, ANSWER_SECONDS_MAX)
        except psycopg.errors._WaitTimeout:  # noqa: SLF001 - what `wait` is documented to raise
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer for {ANSWER_SECONDS_MAX:g} s: the connection was given up") from None
