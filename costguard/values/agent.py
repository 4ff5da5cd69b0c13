"""An agent as the ledger keeps it, the code it joined with, and tokens of those who read status over HTTP.

Example: `costguard agent enrol train-1` makes a code for the life that train-1 is in. Whoever joins with it within ten minutes
is the agent of that life: it reports about it, asks for it, and about nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.values.resource import Incarnation, ResourceKey

CODE_VALID_FOR = timedelta(minutes=10)
"""How long a code may be used."""
SILENT_AFTER = timedelta(minutes=3)
"""An agent that was not heard for so long is silent: twelve beats. An assumption, 2026-11."""
VIEWER = "viewer"
"""What a token lets its holder do: read status. There is nothing else yet that one could do over HTTP."""
TOKEN_VALID_MAX = timedelta(days=366)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent that joined. `life` None: of `key` through all its lives. `public_key`: base64 of its Ed25519 key.

    `seq`: of its last message. `record_ms`: the end of the last record that counted, by its own clock, in Unix milliseconds.
    `troubles`: what it could not measure, as last told. `revoked_by`: who took it away, or what took its place.
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
        """When it was last heard: its last beat, or its joining."""
        return self.beat_at or self.joined_at


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrollmentCode:
    """A one-time code for `key`, as it is kept: its hash alone. `life`: as of an `Agent`. `used_by`: the agent that joined."""

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
    """Somebody who may read over HTTP, as kept: the hash of a token that was shown once. `name`: whose it is."""

    hash: str
    name: str
    role: str
    who: str
    at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None


def is_token_valid(token: WebToken, now: datetime) -> bool:
    """Whether `token` lets anybody in at `now`."""
    return token.revoked_at is None and token.at <= now < token.expires_at


def is_silent(agent: Agent, now: datetime) -> bool:
    """Whether it was not heard for too long: it is blind then, which says nothing of work."""
    return agent.revoked_at is None and now - agent.heard_at > SILENT_AFTER
