"""Poll: ask every provider what it has, and hand the answers to the ledger.

All are asked at once. A provider that fails is itself a fact, and neither stops nor delays the others: each account is
recorded as soon as it has answered, and what has not answered when the round is over is recorded as not seen. Where a listing
lacks more than half of what was there, or has nothing left of a kind, each that is missing is looked up by itself before
anything is believed.
"""

from __future__ import annotations

from collections.abc import Iterable

from costguard.providers.ports import InstanceSource
from costguard.services.accounts import Ledger
from costguard.services.looked_up import LOOKUPS_MAX, verify_absences
from costguard.services.round import PollCycle, PollCycleResult
from costguard.system.clock import Clock

__all__ = ["LOOKUPS_MAX", "POLL_CYCLE_LIMIT_S", "PollCycleResult", "verify_absences", "poll_sources"]

POLL_CYCLE_LIMIT_S = 75.0
"""How long a round lasts at most: the 60 s that an adapter gives one poll by itself, and time for look-ups."""


def poll_sources(
    sources: Iterable[InstanceSource], ledger: Ledger, clock: Clock, *, limit_s: float = POLL_CYCLE_LIMIT_S
) -> PollCycleResult:
    """One round over every scope of every source, a transaction a source, within `limit_s` seconds. `clock` dates what broke.

    A poll dated ahead of `clock` is refused: once recorded, it would make the ledger ignore every other until then.
    """
    return PollCycle(sources, ledger, clock, limit_s).run()
