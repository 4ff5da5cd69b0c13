"""Store agents, their last messages, and readers' tokens; each change is one transaction.

`begin_transaction` is for many messages at once: messages that arrive within some tenths of a second are one transaction, on
disk when the block ends, and are answered only after that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

from costguard.guard.overrides import Override
from costguard.ledger.agents import records
from costguard.ledger.agents.records import AgentMessage
from costguard.ledger.db.codecs import Execute, Query
from costguard.ledger.db.connection import WriteConnection, open_engine
from costguard.ledger.db.store import LedgerStore
from costguard.ledger.guard import guard_state
from costguard.ledger.spans.writer import write_samples
from costguard.values.agent import Agent, EnrollmentCode, WebToken
from costguard.values.sample import Sample


class AgentTransaction(NamedTuple):
    """An open write transaction."""

    ask: Query
    tell: Execute

    def accept_message(  # noqa: PLR0917 - the parts of a message, in their order
        self, agent: str, seq: int, at: datetime, record_ms: int, version: str, troubles: tuple[str, ...]
    ) -> bool:
        """Record a message; return False and change nothing if its number does not increase or its agent is revoked."""
        return records.record_message(self.tell, AgentMessage(agent, seq, at, record_ms, version, troubles))

    def load_agent(self, agent_id: str) -> Agent | None:
        """Return the agent as it is in this transaction; None if there is none."""
        return records.load_agent(self.ask, agent_id)

    def record_samples(self, samples: Sequence[Sample]) -> None:
        """Write samples; those of resources that are not in the ledger are left out."""
        if samples:
            write_samples(self.ask, self.tell, samples)

    def load_overrides_since(self, at: datetime) -> list[Override]:
        """Return every override made at or after `at`, in force or not."""
        return guard_state.load_overrides_since(self.ask, at)

    def add_override(self, wish: Override) -> None:
        """Record an override; one whose id already exists stays as it is."""
        guard_state.add_override(self.ask, self.tell, wish)

    def log_refusals(self, agent: Agent, count: int, at: datetime) -> None:
        """Write to the audit log that `count` messages in the name of `agent` had an invalid signature."""
        records.audit_refused_messages(self.ask, self.tell, agent, count, at)


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

    def load_agents(self, *, every: bool = False) -> list[Agent]:
        """Return the agents that are not revoked.

        `every`: the revoked ones, too.
        """
        with self._begin_read() as ask:
            return records.load_agents(ask, every=every)

    def load_agent(self, agent_id: str) -> Agent | None:
        """Return the agent of this id, revoked or not; None if there is none."""
        with self._begin_read() as ask:
            return records.load_agent(ask, agent_id)

    def load_token(self, token_hash: str) -> WebToken | None:
        """Return the token of this hash; None if there is none."""
        with self._begin_read() as ask:
            return records.load_token(ask, token_hash)

    def load_tokens(self) -> list[WebToken]:
        """Return every token ever made."""
        with self._begin_read() as ask:
            return records.load_tokens(ask)

    def add_code(self, code: EnrollmentCode) -> None:
        """Record a new code."""
        with self._begin_write() as (ask, tell):
            records.add_code(ask, tell, code)

    def join(self, code_hash: str, made: Agent) -> Agent | str:
        """Add the agent `made` by the code of this hash; return the stored agent, or a reason of `REFUSALS`."""
        with self._begin_write() as (ask, tell):
            return records.join_agent(ask, tell, code_hash, made)

    def revoke(self, agent_id: str, *, who: str, now: datetime) -> Agent:
        """Revoke an agent, and return it.

        A revoked one stays as it is. Raises InputError if there is none.
        """
        with self._begin_write() as (ask, tell):
            return records.revoke_agent(ask, tell, agent_id, who=who, now=now)

    def add_token(self, token: WebToken) -> None:
        """Record a new token.

        Raises InputError if its name already has a valid one.
        """
        with self._begin_write() as (ask, tell):
            records.add_token(ask, tell, token)

    def revoke_token(self, name: str, *, who: str, now: datetime) -> WebToken:
        """Revoke the token of `name`, and return it.

        Raises InputError if there is none that is not revoked.
        """
        with self._begin_write() as (ask, tell):
            return records.revoke_token(ask, tell, name, who=who, now=now)
