"""What stands beside a resource in a status: its work, whose it is, who keeps it, whether it is protected.

And beside a hard budget: by how much it could be exceeded at worst.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from costguard.guard.alerts.silence import by_key
from costguard.guard.context import Rules, Sight
from costguard.guard.evaluation import foresights_of
from costguard.guard.seat import apply_handling, seats_of
from costguard.guard.work import Work
from costguard.metering.observation import Handling
from costguard.reporting.status import ResourceAnnotations
from costguard.values.money import Money
from costguard.values.resource import RUNNING, ResourceKey


def beside(
    rules: Rules, sight: Sight, works: Mapping[ResourceKey, Work] | None = None
) -> dict[ResourceKey, ResourceAnnotations]:
    """Of each resource of `sight`, as the policy that waits longest for it judges its work. `works`: judged so already."""
    agents = by_key(sight.agents)
    return {
        seat.key: ResourceAnnotations(
            work=(works or {}).get(seat.key) or seat.work(seat.longest(), rules, sight),
            owner=seat.owner,
            lease=seat.lease,
            protected=seat.protection.protected,
            agent=agents.get(seat.key),
        )
        for seat in seats_of(rules, sight)
    }


def overshoots(rules: Rules, sight: Sight, handling: Mapping[ResourceKey, Handling]) -> dict[str, Money]:
    """By how much each hard budget could be exceeded at worst, were the guard to act on it now; by name.

    `handling`: of what was just listed. Empty where something runs whose handling is not known: whether it can be stopped
    decides most of the figure.
    """
    live = [apply_handling(one, handling) for one in sight.live]
    running = {one.observation.key for one in live if one.observation.state == RUNNING and one.absent_at is None}
    if not running <= set(handling):
        return {}
    found = foresights_of(rules, replace(sight, live=tuple(live)))
    return {one.standing.budget.name: one.overshoot for one in found}
