"""An agent as stored in the ledger, its enrolment code, and the tokens of HTTP readers.

Example: `costguard agent enrol train-1` creates a code for the current incarnation of train-1. The agent that joins with it
within ten minutes is the agent of that incarnation: it may report and make requests for it, and for nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.values.resource import Incarnation, ResourceKey

CODE_VALID_FOR = timedelta(minutes=10)
"""How long a code may be used."""
SILENT_AFTER = timedelta(minutes=3)
"""An agent that was not heard for so long is silent: twelve beats. An assumption, 2026-11."""
VIEWER, OPERATOR = "viewer", "operator"
TOKEN_ROLES = (VIEWER, OPERATOR)
"""What a token lets its holder do: read status, figures and activity; an operator also admits runs and ends their holds."""
TOKEN_VALID_MAX = timedelta(days=366)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent that joined. `life` None: it may report for `key` in every incarnation.

    `public_key`: base64 of its Ed25519 key. `seq`: of its last message. `record_ms`: the end of the last record that counted,
    by its own clock, in Unix milliseconds. `troubles`: what it could not measure, as last reported. `revoked_by`: who revoked
    it, or what replaced it.
    """

    id: str
    key: ResourceKey
    public_key: str
    joined_at: datetime
    life: Incarnation | None = None
    seq: int = 0
    record_ms: int = 0
    beat_at: datetime | None = None
    version: str = ""
    troubles: tuple[str, ...] = ()
    revoked_at: datetime | None = None
    revoked_by: str = ""

    @property
    def heard_at(self) -> datetime:
        """Return when it last reported: its last heartbeat, or when it joined."""
        return self.beat_at or self.joined_at


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrollmentCode:
    """A one-time code for `key`, of which only the hash is stored.

    `life`: as in `Agent`. `used_by`: the agent that joined.
    """

    hash: str
    key: ResourceKey
    who: str
    at: datetime
    expires_at: datetime
    life: Incarnation | None = None
    used_at: datetime | None = None
    used_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebToken:
    """A token for HTTP, of which only the hash is stored; it is shown once. `name`: its holder."""

    hash: str
    name: str
    role: str
    who: str
    at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None


def is_token_valid(token: WebToken, now: datetime) -> bool:
    """Return whether `token` grants access at `now`."""
    return token.revoked_at is None and token.at <= now < token.expires_at


def is_silent(agent: Agent, now: datetime) -> bool:
    """Return whether it has not reported for more than SILENT_AFTER.

    A silent agent is no evidence of activity or idleness.
    """
    return agent.revoked_at is None and now - agent.heard_at > SILENT_AFTER
