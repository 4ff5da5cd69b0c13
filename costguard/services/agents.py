"""What the desk where agents report asks of its book and of whoever signs: the ports of the room that agents speak to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # types and no more
    from costguard.guard.overrides import Override
    from costguard.guard.policy import Policy
    from costguard.values.agent import Agent, WebToken
    from costguard.values.incarnation import Incarnation
    from costguard.values.money import Rate
    from costguard.values.sample import Sample


class Seal(Protocol):
    """Signs answers with the watchdog's key, and knows the signatures of others. Keys and signatures are base64."""

    @property
    def public_key(self) -> str:
        """What agents know our answers by."""

    def sign(self, message: bytes) -> str:
        """Our signature of `message`."""

    def is_key(self, public_key: str) -> bool:
        """Whether it is the public half of a key."""

    def verify(self, public_key: str, message: bytes, signature: str) -> bool:
        """Whether `signature` of `message` was made with the secret half of `public_key`."""


class AgentPage(Protocol):
    """A write transaction under way: all of it is on the disk when it ends, or none."""

    def accept_message(  # noqa: PLR0917 - the parts of a message, in their order
        self, agent: str, seq: int, at: datetime, record_ms: int, version: str, troubles: tuple[str, ...]
    ) -> bool:
        """Count a message; False, and nothing changed, where its number does not rise or its agent may not speak any more."""

    def load_agent(self, agent_id: str) -> Agent | None:
        """As it stands in this transaction."""

    def record_samples(self, samples: Sequence[Sample]) -> None:
        """Keep samples of resources that the ledger knows."""

    def load_overrides_since(self, at: datetime) -> list[Override]:
        """Every wish made at or after `at`, whatever became of it."""

    def add_override(self, wish: Override) -> None:
        """Record a wish; one with this id that is there already stays as it is."""

    def log_refusals(self, agent: Agent, count: int, at: datetime) -> None:
        """Note in the audit that so many messages in the name of `agent` were not its own."""


class AgentBook(Protocol):
    """Who may speak. What cannot be read or written raises LedgerError."""

    def begin_transaction(self) -> AbstractContextManager[AgentPage]:
        """One transaction, of one thread at a time."""

    def load_agents(self, *, every: bool = False) -> list[Agent]:
        """Those that may speak; `every`: and those that may not any more."""

    def load_agent(self, agent_id: str) -> Agent | None:
        """The agent of this id, revoked or not; None where there is none."""

    def join(self, code_hash: str, made: Agent) -> Agent | str:
        """Let `made` join by the code of this hash: the agent as it is then, or what refuses it, of `REFUSALS`."""

    def load_token(self, token_hash: str) -> WebToken | None:
        """The token of this hash; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMachine:
    """The machine of an agent as last listed. `policies`: those that concern it. `rate`: what it costs, None: unknown."""

    life: Incarnation
    name: str
    first_seen_at: datetime
    policies: Sequence[Policy] = ()
    rate: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentVerdict:
    """What the last run of the guard says of a machine, for its agent. `kept_until`: the end of its lease, None without one.

    `protected`: whether it may not be ended by anybody but a person (protected, frozen, or a member of what would bring it
    back); None where no run said so. A dead-man switch ends only what was told False.
    """

    state: str = "unknown"
    notices: tuple[str, ...] = field(default=())
    kept_until: datetime | None = None
    protected: bool | None = None
