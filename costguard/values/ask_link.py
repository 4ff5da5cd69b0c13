"""Links in messages that answer one question of the guard: whether to stop or terminate a machine.

Example: policy idle-gpu asks on Monday at 09:00 whether to terminate train-3, in a message to env:MAIL and in one to env:CHAT.
Each message has a link of its own. Who got the mail opens its link, sees what would be lost, and clicks Approve: both links are
settled.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.values.resource import ResourceKey

ASK_LINK_VALID_FOR = timedelta(hours=24)
"""A link expires so long after its message was sent, or with its question, whichever is first."""
APPROVED, DENIED = "approved", "denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskLink:
    """A link, of whose secret only the hash is stored.

    `addressee`: the channel or person that the message went to. `policy`, `key`, `act`, `episode`: the question; `episode` is
    that of its alert, so that a link never answers a later question about the same machine. `settled_at`, `answer`: None and
    "" until one of the question's links was answered.
    """

    hash: str
    addressee: str
    policy: str
    key: ResourceKey
    act: str
    episode: str
    at: datetime
    expires_at: datetime
    settled_at: datetime | None = None
    answer: str = ""


def explain_closed(link: AskLink, now: datetime) -> str:
    """Return why the link answers nothing at `now`; "" if it does as long as its question is asked."""
    if link.settled_at is not None:
        return f"was {link.answer} already: the question is closed"
    return "has expired" if now >= link.expires_at else ""
