"""A simulated provider: five clouds with a hidden true history, for the demo, the tests, and trying costguard.

`[providers.sim]` in the settings enables it: no account, no network, no cost. `SimClouds` answers as a provider does: it lists
scopes and looks up single resources. It uses a world (`world.py`: what really happens), a plan (`plan.py`: when listings fail,
and how) and a view (`view.py`: what each cloud states). `bill.py` computes what the clouds would charge, independently of all
of costguard, in exact rationals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from costguard.bills.bill_line import BillLines
from costguard.metering.inventory import Poll
from costguard.metering.observation import Observation
from costguard.providers.ports import InstanceSource
from costguard.system.clock import Clock
from costguard.values.calendar import Period
from costguard.values.provider import (
    CHECK_GOOD,
    CREDENTIALS_CHECK,
    REACHABLE_CHECK,
    WHOLE_SETTING,
    HealthCheck,
    ProviderManifest,
    ProviderSetting,
    check_provider_table,
)
from costguard.values.resource import ResourceKey, ScopeKey
from costguard_sim.plan import PlannedListing, WatchPlan
from costguard_sim.view import make_key, make_poll, observe_resource
from costguard_sim.world import SCOPES, World, make_world, to_us

if TYPE_CHECKING:  # importing a plug-in imports no network
    from costguard.providers.transport import ProviderContext

START = datetime(2026, 11, 20, tzinfo=UTC)
"""When a world begins that was not told otherwise: its fortnight crosses the end of a month."""
DAYS = 14
QUARTER_DAYS, QUARTER_SIZE = 92, 60
"""What `[providers.sim]` draws: a world a quarter, so that whoever asks again in a week finds the machines of last week."""

MANIFEST = ProviderManifest(
    measures=("duty", "cpu", "io"),
    name="sim",
    title="Five simulated clouds",
    credentials=(),
    abilities={
        "list": "machines with what they cost, of five clouds that do not exist",
        "volumes": "their disks and addresses",
        "bill": "worked out apart from costguard, in exact rationals",
    },
    settings=(
        ProviderSetting(
            name="seed", told="which world is drawn; the same number gives the same one", kind=WHOLE_SETTING, example="1"
        ),
    ),
)


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
        held = {(resource.cloud, resource.account, resource.scope) for resource in self.world.resources}
        every = [(cloud, account, name) for cloud, names in SCOPES.items() for account, name in names]
        return [ScopeKey(*scope) for scope in every if scope in held]

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
        from costguard_sim.view import make_billed

        return make_billed(self.world.resources, period, self.clock.now())

    def examine(self) -> Sequence[HealthCheck]:
        """Return good checks: a simulation needs no credentials or network."""
        told = f"{len(self.list_scopes())} scopes of {len(self.providers)} clouds"
        return (
            HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_GOOD, told="it needs none"),
            HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_GOOD, told=told),
        )


class SimPlugin:
    """The provider `sim`."""

    @property
    def manifest(self) -> ProviderManifest:
        """Return the plug-in's manifest."""
        return MANIFEST

    def open(self, table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
        """Return the five clouds of the current quarter, drawn from the seed in `table`."""
        seed = check_provider_table(table, MANIFEST.settings, "providers.sim").get("seed", 1)
        assert isinstance(seed, int)  # noqa: S101 - checked just now; for the type checker
        today = around.clock.now()
        quarter = datetime(today.year, (today.month - 1) // 3 * 3 + 1, 1, tzinfo=UTC)
        drawn = seed * 100_000 + quarter.year * 12 + quarter.month
        return (SimClouds(clock=around.clock, world=make_world(drawn, start=quarter, days=QUARTER_DAYS, size=QUARTER_SIZE)),)


provider = SimPlugin()
