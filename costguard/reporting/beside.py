"""What stands beside a resource in a status: its work, whose it is, who keeps it, whether it is protected.

And beside a hard budget: by how much it could be exceeded at worst.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from costguard.guard.alerts.silence import index_agents
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.evaluation import forecast_snapshot_caps
from costguard.guard.seat import apply_handling, build_contexts
from costguard.guard.work import Activity
from costguard.metering.observation import Handling
from costguard.reporting.status import ResourceAnnotations
from costguard.values.money import Money
from costguard.values.resource import RUNNING, ResourceKey


def annotate_resources(
    rules: GuardConfig, sight: GuardSnapshot, works: Mapping[ResourceKey, Activity] | None = None
) -> dict[ResourceKey, ResourceAnnotations]:
    """Of each resource of `sight`, as the policy that waits longest for it judges its work. `works`: judged so already."""
    agents = index_agents(sight.agents)
    return {
        seat.key: ResourceAnnotations(
            work=(works or {}).get(seat.key) or seat.classify(seat.find_longest_policy(), rules, sight),
            owner=seat.owner,
            lease=seat.lease,
            protected=seat.protection.protected,
            agent=agents.get(seat.key),
        )
        for seat in build_contexts(rules, sight)
    }


def forecast_overshoots(rules: GuardConfig, sight: GuardSnapshot, handling: Mapping[ResourceKey, Handling]) -> dict[str, Money]:
    """By how much each hard budget could be exceeded at worst, were the guard to act on it now; by name.

    `handling`: of what was just listed. Empty where something runs whose handling is not known: whether it can be stopped
    decides most of the figure.
    """
    live = [apply_handling(one, handling) for one in sight.live]
    running = {one.observation.key for one in live if one.observation.state == RUNNING and one.absent_at is None}
    if not running <= set(handling):
        return {}
    found = forecast_snapshot_caps(rules, replace(sight, live=tuple(live)))
    return {one.standing.budget.name: one.overshoot for one in found}
