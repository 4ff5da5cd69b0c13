"""The book of agents: who joined, what they said last, who may read over HTTP; each change one transaction.

`writing` is for many messages at once: what came in within some tenths of a second is one transaction, on the disk when the
block ends, and only then is any of it answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import NamedTuple, Self

from costguard.guard.overrides import Override
from costguard.ledger.agents import records
from costguard.ledger.agents.records import AgentMessage
from costguard.ledger.db.address import translate_ledger_errors
from costguard.ledger.db.codecs import Execute, Query
from costguard.ledger.db.connection import WriteConnection, begin_write, open_engine, open_sql_session
from costguard.ledger.guard import guard_state
from costguard.ledger.spans.writer import write_samples
from costguard.values.agent import Agent, EnrollmentCode, WebToken
from costguard.values.sample import Sample


class AgentTransaction(NamedTuple):
    """A write transaction under way."""

    ask: Query
    tell: Execute

    def accept_message(  # noqa: PLR0917 - the parts of a message, in their order
        self, agent: str, seq: int, at: datetime, record_ms: int, version: str, troubles: tuple[str, ...]
    ) -> bool:
        """Count a message; False, and nothing changed, where its number does not rise or its agent may not speak any more."""
        return records.record_message(self.tell, AgentMessage(agent, seq, at, record_ms, version, troubles))

    def load_agent(self, agent_id: str) -> Agent | None:
        """As it stands in this transaction."""
        return records.load_agent(self.ask, agent_id)

    def record_samples(self, samples: Sequence[Sample]) -> None:
        """Keep samples of resources that the ledger knows."""
        if samples:
            write_samples(self.ask, self.tell, samples)

    def load_overrides_since(self, at: datetime) -> list[Override]:
        """Every wish made at or after `at`, whatever became of it."""
        return guard_state.load_overrides_since(self.ask, at)

    def add_override(self, wish: Override) -> None:
        """Record a wish; one with this id that already exists stays as it is."""
        guard_state.add_override(self.ask, self.tell, wish)

    def log_refusals(self, agent: Agent, count: int, at: datetime) -> None:
        """Note in the audit that so many messages in the name of `agent` had an invalid signature."""
        records.audit_refused_messages(self.ask, self.tell, agent, count, at)


class AgentStore:
    """The agents of the ledger at `url`, which is made where there is none. Close it, or use it in a `with` statement.

    `writing` is for one thread at a time; everything else may be used by several. Every method raises LedgerError where the
    ledger cannot be read or written: then nothing was written.
    """

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)
        self._pen = WriteConnection(open_engine(url))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        self._pen.close()
        self._engine.dispose()

    @contextmanager
    def begin_transaction(self) -> Iterator[AgentTransaction]:
        """One transaction: all of it is on the disk when the block ends, or none where it raises."""
        with self._pen.begin_transaction() as (ask, tell):
            yield AgentTransaction(ask, tell)

    def load_agents(self, *, every: bool = False) -> list[Agent]:
        """Those that may speak; `every`: and those that may not any more."""
        with self._begin_read() as ask:
            return records.load_agents(ask, every=every)

    def load_agent(self, agent_id: str) -> Agent | None:
        """The agent of this id, revoked or not; None where there is none."""
        with self._begin_read() as ask:
            return records.load_agent(ask, agent_id)

    def load_token(self, token_hash: str) -> WebToken | None:
        """The token of this hash; None where there is none."""
        with self._begin_read() as ask:
            return records.load_token(ask, token_hash)

    def load_tokens(self) -> list[WebToken]:
        """Every token that was ever made."""
        with self._begin_read() as ask:
            return records.load_tokens(ask)

    def add_code(self, code: EnrollmentCode) -> None:
        """Record a code that was just made."""
        with self._begin_write() as (ask, tell):
            records.add_code(ask, tell, code)

    def join(self, code_hash: str, made: Agent) -> Agent | str:
        """Let `made` join by the code of this hash: the agent as it is then, or what refuses it, of `REFUSALS`."""
        with self._begin_write() as (ask, tell):
            return records.join_agent(ask, tell, code_hash, made)

    def revoke(self, agent_id: str, *, who: str, now: datetime) -> Agent:
        """Take an agent away; one that was revoked stays as it is. InputError where there is none."""
        with self._begin_write() as (ask, tell):
            return records.revoke_agent(ask, tell, agent_id, who=who, now=now)

    def add_token(self, token: WebToken) -> None:
        """Record a token that was just made. InputError where its name has one that counts."""
        with self._begin_write() as (ask, tell):
            records.add_token(ask, tell, token)

    def revoke_token(self, name: str, *, who: str, now: datetime) -> WebToken:
        """Take the token of `name` away; InputError where it has none."""
        with self._begin_write() as (ask, tell):
            return records.revoke_token(ask, tell, name, who=who, now=now)

    @contextmanager
    def _begin_read(self) -> Iterator[Query]:
        with (
            translate_ledger_errors(self._engine.get_execution_options()["ledger"].where),
            self._engine.connect() as connection,
        ):
            yield open_sql_session(connection)[0]

    @contextmanager
    def _begin_write(self) -> Iterator[tuple[Query, Execute]]:
        with begin_write(self._engine) as connection:
            yield open_sql_session(connection)
