"""A connection to PostgreSQL that waits for no answer for ever.

A server or a network that takes what it is sent and never answers gives no error, and TCP may take hours to doubt it: so every
wait for an answer has an end, after which the connection is closed. What was asked may have been done or not, commits too;
whoever asks again looks first, as everything here does.
"""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

T = TypeVar("T")

ANSWER_SECONDS_MAX = 120.0
"""How long one answer may take: a lock is waited for 30 s (`opening.PATIENCE_S`), a statement takes milliseconds, one of a
migration perhaps a minute. An assumption, 2026-11."""
INTERRUPT_POLL_SECONDS = 0.1
"""How often a wait looks whether it was interrupted: psycopg's own."""


def connect_for_reading(conninfo: str, timeout_s: int) -> ImpatientConnection:
    """A connection whose transactions only read, each of one snapshot, and begin by themselves with the first question.

    `timeout_s`: seconds for connecting. OperationalError where the server cannot be reached.
    """
    connection = ImpatientConnection.connect(conninfo, connect_timeout=timeout_s, application_name="costguard")
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    return connection


class ImpatientConnection(psycopg.Connection[Any]):
    """A connection that is closed where an answer takes longer than ANSWER_S."""

    def wait(self, gen: PQGen[T], interval: float = INTERRUPT_POLL_SECONDS, timeout: float | None = None) -> T:
        """As psycopg's; OperationalError where it takes too long. With a `timeout` it is the caller's."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, ANSWER_SECONDS_MAX)
        except psycopg.errors._WaitTimeout:  # noqa: SLF001 - what `wait` is documented to raise
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer for {ANSWER_SECONDS_MAX:g} s: the connection was given up") from None
