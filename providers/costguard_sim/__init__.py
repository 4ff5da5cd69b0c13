"""A simulated provider: five clouds with a hidden true history, for the demo, the tests, and trying costguard.

`[providers.sim]` in the settings enables it: no account, no network, no cost. `clouds.py` answers as a provider does: it lists
scopes and looks up single resources. It uses a world (`world.py`: what really happens), a plan (`plan.py`: when listings fail,
and how) and a view (`view.py`: what each cloud states). `bill.py` computes what the clouds would charge, independently of all
of costguard, in exact rationals. A listing of the plug-ins reads the manifest and imports none of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from costguard.providers.ports import InstanceSource
from costguard.values.provider import (
    WHOLE_SETTING,
    ProviderManifest,
    ProviderSetting,
    check_provider_table,
)

if TYPE_CHECKING:  # importing a plug-in imports no network
    from costguard.providers.transport import ProviderContext
    from costguard.system.clock import Clock
    from costguard_sim.clouds import SimClouds

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
        return (draw_quarter(seed, around.clock),)


def draw_quarter(seed: int, clock: Clock) -> SimClouds:
    """Return the five clouds of the quarter at the time of `clock`, drawn from `seed`."""
    from costguard_sim.clouds import SimClouds
    from costguard_sim.world import make_world

    today = clock.now()
    quarter = datetime(today.year, (today.month - 1) // 3 * 3 + 1, 1, tzinfo=UTC)
    drawn = seed * 100_000 + quarter.year * 12 + quarter.month
    return SimClouds(clock=clock, world=make_world(drawn, start=quarter, days=QUARTER_DAYS, size=QUARTER_SIZE))


provider = SimPlugin()
