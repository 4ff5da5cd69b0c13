"""A machine's activity as another watchdog judged it, and what it stands on.

Example: at 18:46:10 the watchdog that polls an account judges a machine idle since 18:05. The watchdog that plans uses that at
18:46:50, if the machine started when the other one thought, if its evidence counts from the same instant, and if no later
sample shows work. It then counts 41 min of idleness and not 41 min 40 s: what came after 18:46:10 is not known (decision 0086).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from costguard.guard.signals import Activity
from costguard.values.agent import Agent
from costguard.values.resource import Incarnation, ResourceKey

ActivityQuery = tuple[timedelta, tuple[str, ...], timedelta]
"""What an activity is asked by: the window, the needs, and how long a machine may be warming."""


class EvidenceTerms(NamedTuple):
    """All that an activity depends on besides samples, the query and the time.

    `since`: what was measured before it does not count. `phase_until`: end of a declared phase; None: none. `lag`: see
    `GuardSnapshot.lags`.
    """

    life: Incarnation
    gpu_count: float
    since: datetime
    phase_until: datetime | None
    lag: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedMachine:
    """The activity of a machine by each query that its policies and its group ask by, as judged at `at`.

    `seen_at`: the listing of which samples had been read. `interval`: how often a sample is due. `bounds`: when its first and
    its last sample was taken; None: there was none. `agent`: see `mark_agents`.
    """

    at: datetime
    terms: EvidenceTerms
    seen_at: datetime
    interval: timedelta
    bounds: tuple[datetime, datetime] | None
    agent: str
    works: Mapping[ActivityQuery, Activity]


def mark_agents(agents: Iterable[Agent]) -> dict[ResourceKey, str]:
    """Return by machine which messages of its agents had been counted: another text means that more have come."""
    found = dict[ResourceKey, str]()
    for one in sorted(agents, key=lambda agent: agent.id):
        if one.revoked_at is None:
            found[one.key] = f"{found.get(one.key, '')}{one.id}:{one.seq} "
    return found
