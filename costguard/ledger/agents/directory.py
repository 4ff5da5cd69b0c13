"""What the HTTP server reads of the ledger for every request: agents, codes, tokens, the last run; it cannot write.

One connection, opened when it is first needed, and again after an error or when the file was replaced.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from costguard.agents.messages import BAD_CODE, EXPIRED_CODE, USED_CODE
from costguard.errors import CostguardError, LedgerError
from costguard.ledger.agents import records, tokens
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.db.session import read_by
from costguard.ledger.guard import guard_state


class AgentDirectory:
    """Reads the ledger at `url`. Thread-safe; every method raises LedgerError if the ledger cannot be read."""

    def __init__(self, url: str) -> None:
        self._url, self._lock = url, threading.Lock()
        self._reader: LedgerReader | None = None
        self._file: tuple[int, int] | None = None

    def close(self) -> None:
        """Close the connection; the next question opens another one."""
        with self._lock:
            self._drop()

    load_agent = read_by(records.load_agent)
    load_token = read_by(tokens.load_token)
    load_last_run = read_by(guard_state.load_last_run)

    def explain_code(self, code_hash: str, public_key: str, now: datetime) -> str:
        """Return why the code of this hash lets no agent with this key join, as a name of `REFUSALS`; "" if it may.

        The answer to a join may have been lost: the same key may come with a used code again.
        """
        with self._begin_read() as ask:
            code = records.load_code(ask, code_hash)
            if code is None:
                return BAD_CODE
            if now >= code.expires_at:
                return EXPIRED_CODE
            if code.used_at is None:
                return ""
            agent = records.load_agent(ask, code.used_by)
            return "" if agent is not None and agent.public_key == public_key else USED_CODE

    @contextmanager
    def _begin_read(self) -> Iterator[Query]:
        with self._lock:
            try:
                if self._reader is not None and self._file != self._identify():
                    self._drop()
                if self._reader is None:
                    self._reader = LedgerReader(self._url, any_thread=True)
                    self._file = self._identify()
                with self._reader.snapshot() as ask:
                    yield ask
            except LedgerError:
                self._drop()
                raise
            except CostguardError as error:  # there is no ledger yet, or it has an older schema
                self._drop()
                raise LedgerError(error.what, field=error.field, hint=error.hint) from None

    def _identify(self) -> tuple[int, int] | None:
        path = self._reader.where.path if self._reader is not None else None
        if path is None:
            return None
        with suppress(OSError):
            status = path.stat()
            return status.st_dev, status.st_ino
        return None

    def _drop(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
