"""A policy with what is the same for all machines of a guard run: how far it is armed, and what its schedule wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from costguard.guard.overrides import (
    ArmedLevel,
)
from costguard.guard.policy import Policy, ScheduleState, evaluate_schedule
from costguard.guard.policy_evaluation import BUDGET_FACTS, LOOKED_UP_FACTS
from costguard.metering.observation import Observation
from costguard.values.resource import ScopeKey


def is_started_after_hours(seen: Observation, wanted: ScheduleState) -> bool:
    """Return whether its run began within an off period (`wanted`) of its schedule, so the start was deliberate."""
    return wanted.off and wanted.since is not None and seen.started_at is not None and seen.started_at > wanted.since


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPolicy:
    """A policy with what is the same for all resources of a run. `level`, `limited`: how far it is armed, and what limits that.

    `wanted`: what its schedule wants now; None: it has none. `claimed_in`: see `is_claimed`. `asks_more`: its condition uses
    facts of budgets, costs or groups.
    """

    policy: Policy
    level: str
    limited: str
    wanted: ScheduleState | None
    claimed_in: Callable[[ScopeKey], bool]
    asks_more: bool

    @classmethod
    def of(cls, policy: Policy, level: ArmedLevel, claimed_in: Callable[[ScopeKey], bool], now: datetime) -> PreparedPolicy:
        """Prepare `policy` for a run at `now`."""
        names = policy.when.names
        return cls(
            policy=policy,
            level=level.level,
            limited=level.explain(),
            wanted=evaluate_schedule(policy.schedule, now) if policy.schedule is not None else None,
            claimed_in=cache(claimed_in),
            asks_more=not names.isdisjoint({*BUDGET_FACTS, *LOOKED_UP_FACTS, "group_state"}),
        )

    def find_off_since(self, seen: Observation, *, own_start: bool = False) -> datetime | None:
        """Return since when its schedule wants the resource off; None: it wants it on, or there is no schedule.

        A machine that a person started after the schedule turned off is left on until the schedule's next turn. `own_start`:
        costguard started it.
        """
        wanted = self.wanted
        if wanted is None or not wanted.off:
            return None
        return wanted.since if own_start or not is_started_after_hours(seen, wanted) else None
