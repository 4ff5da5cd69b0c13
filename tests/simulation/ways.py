"""What a kind of world does in its own way: which clouds it has, who asks them and how, and what may happen to its machines.

Here as worlds of simulated clouds do it; `wired_world` does it over HTTP.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, cast

from costguard.metering.billing import BillingRule
from costguard.testing.machine import SimulatedMachine
from tests.simulation.clouds import Log, LoggedCloud, LoggedEndingCloud, PlainCloud
from tests.simulation.plans import Box
from tests.simulation.ruling import HOLD
from tests.simulation.staging import put

if TYPE_CHECKING:
    from costguard.providers.ports import InstanceSource
    from costguard.services.guarding.watchdog_context import WatchdogContext
    from costguard.testing import FakeClock

MINUTE = timedelta(minutes=1)
KINDS = (("aws", LoggedCloud), ("runpod", PlainCloud), ("lambda", LoggedEndingCloud))


class Ways:
    """Those of worlds of simulated clouds.

    `lag`: how late each provider measures, `late`: what costguard is told of that. `hold`: how long idleness must last.
    `transit`: how long a request may be on its way. `startless`: providers that do not say when a machine started.
    """

    clouds: dict[str, LoggedEndingCloud]
    rooms: dict[str, WatchdogContext]
    truth: FakeClock
    log: Log
    lag: ClassVar[Mapping[str, timedelta]] = {"aws": 5 * MINUTE}
    late: Mapping[str, timedelta] = {}
    hold: ClassVar[timedelta] = HOLD
    transit: ClassVar[timedelta] = timedelta()
    startless: ClassVar[Collection[str]] = ()

    def found_clouds(self, used: Collection[str]) -> None:
        """Let the clouds be there that are used."""
        for name, kind in KINDS:
            if name in used:
                self.clouds[name] = kind(name, self.truth)
                self.clouds[name].log = self.log

    def id_of(self, box: Box) -> str:
        """What its provider calls it."""
        return f"i-{box.name}"

    def put(self, box: Box) -> None:
        """A machine comes to be there now."""
        put(cast("Any", self), box)

    @property
    def requests(self) -> int:
        """How many requests went over the wire."""
        return 0

    def rule(self, cloud: LoggedEndingCloud) -> BillingRule:
        """How a cloud bills."""
        return cloud.rule()

    def takes(self, what: str, machine: SimulatedMachine) -> bool:  # noqa: ARG002 - all may happen to all here
        """Whether `what` may happen to the machine."""
        return True

    def sources(self, who: str) -> tuple[InstanceSource, ...]:  # noqa: ARG002 - all see the same clouds here
        """Whom a watchdog asks."""
        return tuple(self.clouds.values())

    def polls(self, who: str) -> None:
        """A watchdog asks: one account after the other, so that the same plan gives the same world."""
        for source in self.rooms[who].sources:
            self.rooms[who].poll([source])
