"""What people told the guard: leases, snoozes, protection, arming, freeze. Each is recorded with who, why and when.

Wishes live apart from what listings rewrite: no state of a machine changes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.values.incarnation import Incarnation
from costguard.values.resource import ResourceKey

LEASE, SNOOZE, PROTECT, ARM, FREEZE, APPROVE, ACCEPT, PHASE, DENIED = (
    "lease",
    "snooze",
    "protect",
    "arm",
    "freeze",
    "approve",
    "accept",
    "phase",
    "denied",
)
OVERRIDES = {
    LEASE: "keep it running until then",
    SNOOZE: "be quiet about it until then, and change nothing else",
    PROTECT: "never touch it",
    ARM: "how far a policy may go, from now until then",
    FREEZE: "no acts at all until it is lifted",
    APPROVE: "yes to one act that was asked about",
    ACCEPT: "yes to a plan by its hash, or to an older ledger by the head that was seen",
    PHASE: "a declared phase of work until then (download, compile, evaluate)",
    DENIED: "a run that no budget had room for",
}

ARMED_FOR = timedelta(days=90)
"""After it a policy that was armed for acts only notifies, until somebody arms it again."""
PROTECTION_LASTS = timedelta(hours=24)
"""How long a protection that vanished from a tag goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One wish as recorded. `key`, `life`: of which resource and which life of it; None: of none in particular.

    `subject`: the policy of an arming or a snooze, the hash or head that an acceptance is of, the act of an approval, the name
    of a phase, the budget of a denial. `value`: the level of an arming, the money of a denial. `until` None: until it is
    lifted. `lifted_at`: when somebody took it back.
    """

    id: str
    what: str
    who: str
    why: str
    at: datetime
    until: datetime | None = None
    key: ResourceKey | None = None
    life: Incarnation | None = None
    subject: str = ""
    value: str = ""
    lifted_at: datetime | None = None
    lifted_by: str = ""


def is_override_open(wish: Override, now: datetime) -> bool:
    """Whether it counts at `now`: taken, not lifted, not run out. Half-open: at `until` it counts no more."""
    return wish.at <= now and (wish.lifted_at is None or now < wish.lifted_at) and (wish.until is None or now < wish.until)
