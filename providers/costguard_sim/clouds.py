"""The five simulated clouds: they list scopes and look up single resources as a provider does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from costguard.bills.bill_line import BillLines
from costguard.metering.inventory import Poll
from costguard.metering.observation import Observation
from costguard.system.clock import Clock
from costguard.values.calendar import Period
from costguard.values.provider import CHECK_GOOD, CREDENTIALS_CHECK, REACHABLE_CHECK, HealthCheck
from costguard.values.resource import ResourceKey, ScopeKey
from costguard_sim.plan import PlannedListing, WatchPlan
from costguard_sim.view import make_billed, make_key, make_poll, observe_resource
from costguard_sim.world import SCOPES, World, make_world, to_us

START = datetime(2026, 11, 20, tzinfo=UTC)
"""When a world begins that was not told otherwise: its fortnight crosses the end of a month."""
DAYS = 14


class SimClouds:
    """The five clouds of one world, at the time of `clock`.

    `world`: what happens, None: two weeks drawn from `seed`. `plan`: its faults apply to listings made at exactly its times;
    all other listings are clean. The prices that the plan hides are hidden in every listing.
    """

    def __init__(self, *, clock: Clock, seed: int = 0, world: World | None = None, plan: WatchPlan | None = None) -> None:
        self.clock = clock
        self.world = world or make_world(seed, start=START, days=DAYS)
        self.plan = plan or WatchPlan(seed=seed, entries=())
        self._planned = {(entry.scope, entry.at_us): entry for entry in self.plan.entries}
        self._by_key = {make_key(resource): resource for resource in self.world.resources}

    @property
    def providers(self) -> Sequence[str]:
        """The five clouds."""
        return tuple(SCOPES)

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Return every scope of the clouds that ever contains a resource."""
        used_scopes = {(resource.cloud, resource.account, resource.scope) for resource in self.world.resources}
        every = [(cloud, account, name) for cloud, names in SCOPES.items() for account, name in names]
        return [ScopeKey(*scope) for scope in every if scope in used_scopes]

    def poll(self, scope: ScopeKey) -> Poll:
        """Return a listing of `scope` at the current time."""
        now = to_us(self.clock.now())
        name = (scope.provider, scope.account, scope.name)
        clean = PlannedListing(scope=name, at_us=now, asked_us=now, view_us=now)
        return make_poll(self.world, self._planned.get((name, now), clean), self.plan.hidden)

    def look_up(self, key: ResourceKey) -> Observation | None:
        """Return the current resource; None if it does not exist."""
        resource = self._by_key.get(key)
        if resource is None:
            return None
        return observe_resource(resource, to_us(self.clock.now()), price=resource.id not in self.plan.hidden)

    def fetch_bill_lines(self, period: Period) -> BillLines:
        """Return the clouds' charges by day."""
        return make_billed(self.world.resources, period, self.clock.now())

    def examine(self) -> Sequence[HealthCheck]:
        """Return good checks: a simulation needs no credentials or network."""
        text = f"{len(self.list_scopes())} scopes of {len(self.providers)} clouds"
        return (
            HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_GOOD, told="it needs none"),
            HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_GOOD, told=text),
        )
