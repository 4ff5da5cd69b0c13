"""Money that was paid in advance, as the provider states it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from costguard.values.money import Money, Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepaidBalance:
    """What is left at `at`. `amount` None: unknown, and `why` says so; it may be negative. Unknown is never zero.

    `burn`: what the provider says it takes an hour now. `burn_limit`: the most an hour that it allows. None: it does not say.
    """

    provider: str
    account: str
    at: datetime
    amount: Money | None
    burn: Rate | None = None
    burn_limit: Rate | None = None
    why: str = ""
