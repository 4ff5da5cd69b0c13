"""Store agents, their last messages, and readers' tokens; each change is one transaction.

`begin_transaction` is for many messages at once: messages that arrive within some tenths of a second are one transaction, on
disk when the block ends, and are answered only after that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime

from costguard.ledger.agents import records, tokens
from costguard.ledger.agents.records import AgentMessage
from costguard.ledger.db.codecs import Execute, Query
from costguard.ledger.db.connection import WriteConnection, open_engine
from costguard.ledger.db.session import SqlSession, read_by, write_by
from costguard.ledger.db.store import LedgerStore
from costguard.ledger.guard import guard_state
from costguard.ledger.spans.writer import write_samples
from costguard.values.sample import Sample


class AgentTransaction:
    """An open write transaction."""

    def __init__(self, ask: Query, tell: Execute) -> None:
        self.ask, self.tell = ask, tell

    def _begin_read(self) -> nullcontext[Query]:
        return nullcontext(self.ask)

    def _begin_write(self) -> nullcontext[SqlSession]:
        return nullcontext((self.ask, self.tell))

    load_agent = read_by(records.load_agent)
    load_overrides_since = read_by(guard_state.load_overrides_since)
    add_override = write_by(guard_state.add_override)
    log_refusals = write_by(records.audit_refused_messages)

    def accept_message(  # noqa: PLR0917 - the parts of a message, in their order
        self, agent: str, seq: int, at: datetime, record_ms: int, version: str, troubles: tuple[str, ...]
    ) -> bool:
        """Record a message; return False and change nothing if its number does not increase or its agent is revoked."""
        return records.record_message(self.tell, AgentMessage(agent, seq, at, record_ms, version, troubles))

    def record_samples(self, samples: Sequence[Sample]) -> None:
        """Write samples; those of resources that are not in the ledger are left out."""
        if samples:
            write_samples(self.ask, self.tell, samples)


class AgentStore(LedgerStore):
    """The agents of the ledger at `url`, which is created if missing.

    Close it, or use it in a `with` statement. `begin_transaction` is for one thread at a time; all other methods may be used by
    several. Every method raises LedgerError if the ledger cannot be read or written: then nothing was written.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._pen = WriteConnection(open_engine(url))

    def close(self) -> None:
        """Close the database."""
        self._pen.close()
        super().close()

    @contextmanager
    def begin_transaction(self) -> Iterator[AgentTransaction]:
        """Open one transaction: on disk when the block ends, or rolled back if the block raises."""
        with self._pen.begin_transaction() as (ask, tell):
            yield AgentTransaction(ask, tell)

    load_agents = read_by(records.load_agents)
    load_agent = read_by(records.load_agent)
    load_token = read_by(tokens.load_token)
    load_tokens = read_by(tokens.load_tokens)
    add_code = write_by(records.add_code)
    join = write_by(records.join_agent)
    revoke = write_by(records.revoke_agent)
    add_token = write_by(tokens.add_token)
    revoke_token = write_by(tokens.revoke_token)
