"""Words for where this machine is and how it can be ended from inside. Pure; nothing here holds a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

STOP, TERMINATE = "stop", "terminate"
ACTS = (STOP, TERMINATE)
ACCEPTED, REFUSED, UNKNOWN = "accepted", "refused", "unknown"
RUNNING, ENDED = "running", "ended"


class MachineIdentity(NamedTuple):
    """`provider` "" where it is unknown; `id` as the provider calls this machine; `why`: why nothing ends it from inside."""

    provider: str
    id: str = ""
    why: str = ""
    facts: Mapping[str, Any] = {}


class ShutdownWay(NamedTuple):
    """One way to end this machine. `certain`: what it does here is known, and all was tried but the act; else `why` not."""

    act: str
    how: str
    keeps: str
    loses: str
    bills_after: str
    certain: bool
    why: str = ""
    place: MachineIdentity = MachineIdentity("")


class ShutdownOutcome(NamedTuple):
    """What became of the one request: accepted; refused, so nothing happened; unknown, so look before anything else."""

    result: str
    text: str
