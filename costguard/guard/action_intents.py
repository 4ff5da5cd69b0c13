"""Intents: the row before the deed. One instance, one act, one life of it, an expiry, and a state that only moves forward.

    PLANNED -> GRACE -> READY -> EXECUTING -> VERIFYING -> DONE | CANCELLED(why) | FAILED(why) | UNCONFIRMED

PLANNED: the plan holds it. GRACE: its notice is out and the grace runs. READY: due. EXECUTING: committed, about to be sent or
sent; after a crash nobody knows which, so it is looked at. VERIFYING: the provider took it, and the listing must prove it.
UNCONFIRMED: not proven within ten minutes: paged, and looked at until it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.errors import InputError
from costguard.values.checks import require_one_of
from costguard.values.incarnation import Incarnation

PLANNED, GRACE, READY, EXECUTING, VERIFYING = "planned", "grace", "ready", "executing", "verifying"
DONE, CANCELLED, FAILED, UNCONFIRMED = "done", "cancelled", "failed", "unconfirmed"
TRANSITIONS: dict[str, tuple[str, ...]] = {
    PLANNED: (GRACE, READY, CANCELLED),
    GRACE: (READY, CANCELLED),
    READY: (EXECUTING, CANCELLED),
    EXECUTING: (VERIFYING, READY, DONE, CANCELLED, FAILED, UNCONFIRMED),
    VERIFYING: (EXECUTING, DONE, CANCELLED, FAILED, UNCONFIRMED),
    UNCONFIRMED: (VERIFYING, EXECUTING, DONE, FAILED, CANCELLED),
    DONE: (),
    CANCELLED: (),
    FAILED: (),
}
"""From which state to which. EXECUTING goes back to READY only where looking shows that nothing was sent."""
OPEN_STATES = (PLANNED, GRACE, READY, EXECUTING, VERIFYING, UNCONFIRMED)
DOUBTFUL_STATES = (EXECUTING, VERIFYING, UNCONFIRMED)
"""Something may have been sent."""

SEND_WITHIN = timedelta(seconds=30)
"""From the commit of EXECUTING to the last moment at which its request may be sent."""
CONFIRM_WITHIN = timedelta(minutes=10)
RETRY_DELAYS = (timedelta(minutes=1), timedelta(minutes=2), timedelta(minutes=4))
"""After a send that the listing contradicts: how long until the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What is going to be done, or was. `act`: stop or terminate. `lose`: what may be lost, in the words of its Handling.

    `evidence`: JSON of the facts it rests on, with their age. `epoch`: of the acting watchdog that wrote it. `sends`: how
    often a request may have gone out; `sent_at`: the last time. `expires_at`: of the present EXECUTING. `rule`: of its policy.
    """

    id: str
    life: Incarnation
    act: str
    policy: str
    rule: str
    why: str
    evidence: str
    state: str
    created_at: datetime
    moved_at: datetime
    epoch: int = 0
    lose: tuple[str, ...] = ()
    irreversible: bool = False
    sends: int = 0
    sent_at: datetime | None = None
    expires_at: datetime | None = None
    outcome: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.state, tuple(TRANSITIONS), "intent.state")


def require_transition(old: str, new: str) -> None:
    """InputError where an intent cannot go from `old` to `new`."""
    if new not in TRANSITIONS[old]:
        raise InputError(
            f"cannot go from {old} to {new}", field="intent", hint=f"it may go to {', '.join(TRANSITIONS[old]) or 'nothing'}"
        )
