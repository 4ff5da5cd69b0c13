"""A world whose clouds are the five fakes, asked by costguard's own adapters over its own HTTP client, in this process.

    python -m tests.simulation replay wired:7

Nothing sleeps: whoever waits lets the world's time pass (`costguard.system.clock`). Accounts are polled at the same time, as a
watchdog does: each from the same moment on, and the world goes on when the last one has answered.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

from costguard.budgets.budget import ResourceFilter
from costguard.data import ShippedFacts
from costguard.guard.policy import NOTIFY, STOP, Policy, PolicyStep, PolicyTarget
from costguard.metering.billing import BillingRule, TimeRule
from costguard.metering.observation import Observation
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import Transport
from costguard.settings.conditions import read_condition
from costguard.system.clock import use_simulated_clock
from costguard.testing import FakeClock
from costguard.testing.machine import SimulatedMachine
from costguard.values.resource import RUNNING, STOPPED, ResourceKey
from tests.simulation.outage_world import TELLS
from tests.simulation.plans import Box, Plan
from tests.simulation.reading import Record
from tests.simulation.ruling import GRACE
from tests.simulation.wired_clouds import WiredCloud
from tests.simulation.wired_net import InProcess
from tests.simulation.wired_vendors import VENDORS, numbered
from tests.simulation.world import World

IDLE = read_condition('state == "idle" && confidence >= 0.6', "the wired worlds")
"""GPU duty alone proves 0.6: EC2's agent tells no more."""
FREE = ("stopped", "pending", "starting", "stopping", "suspended", "repairing")


class WiredWorld(World):
    """See the module."""

    lag: ClassVar[Mapping[str, timedelta]] = {name: vendor.lag for name, vendor in VENDORS.items() if vendor.lag}
    hold: ClassVar[timedelta] = timedelta(minutes=18)
    """Long enough that measures which are fifteen minutes late, as CloudWatch's are, lie inside."""
    transit: ClassVar[timedelta] = timedelta(seconds=30)
    """An intent expires after so long, so that no request is on its way for longer."""
    startless: ClassVar[Collection[str]] = tuple(name for name, vendor in VENDORS.items() if not vendor.starts)
    clouds: dict[str, WiredCloud]  # type: ignore[assignment] # what World asks of its clouds, these can do

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._transports: dict[str, Transport] = {}
        super().__init__(plan, folder)
        self.late = {name: _plugin(cloud).manifest.measures_late for name, cloud in self.clouds.items()}

    def armed_policies(self) -> tuple[Policy, ...]:
        return (_policy("idle-gpu", STOP, "yes"), _policy("watched", NOTIFY, "no"))

    def play(self) -> Record:
        chance = random.getstate()
        random.seed(self.plan.seed)
        try:
            with use_simulated_clock(self):
                return super().play()
        finally:
            random.setstate(chance)

    # Time, for whoever waits in costguard

    def monotonic(self) -> float:
        """Seconds since the world began."""
        return self.truth.boottime().total_seconds()

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass, at least a microsecond."""
        self.pass_time(timedelta(microseconds=max(1, ceil(seconds * 10**6))))

    # What there is

    def found_clouds(self, used: Collection[str]) -> None:
        for name in VENDORS:
            if name in used:
                self.clouds[name] = WiredCloud(name, self.truth, self.log, self.broken)

    def id_of(self, box: Box) -> str:
        return VENDORS[box.cloud]().key(numbered([box.name])[box.name]).id

    def put(self, box: Box) -> None:
        super().put(box)
        cloud = self.clouds[box.cloud]
        cloud.vendor.put(cloud, numbered([box.name])[box.name], cloud.machines[box.name], box.guard)
        self.log.write("role", name=self.id_of(box), cloud=box.cloud, **TELLS[box.cloud]._asdict())

    def machine(self, name: str) -> SimulatedMachine | None:
        for cloud in self.clouds.values():
            if name in cloud.machines:
                return cloud.machines[name]
            found = next((plain for plain, key in cloud.keys.items() if key.id == name), None)
            if found is not None:
                return cloud.machines[found]
        return None

    def takes(self, what: str, machine: SimulatedMachine) -> bool:
        vendor, now = self.clouds[machine.key.provider].vendor, self.truth.now()
        here = machine.now(now)
        if what in {"label", "unlabel", "slip"}:
            return vendor.labels
        if what == "price":
            return vendor.redated
        if what == "bounce":
            return vendor.starts and vendor.off_least < 10
        if what == "stopped":
            return vendor.stops
        if what == "restart":
            rested = here is not None and here.state == STOPPED and (now - here.at).total_seconds() >= vendor.off_least
            return vendor.starts and here is not None and (here.state == RUNNING or rested)
        return True

    @property
    def requests(self) -> int:
        return sum(cloud.requests for cloud in self.clouds.values())

    def rule(self, cloud: WiredCloud) -> BillingRule:  # type: ignore[override] # its clouds are wired ones
        """As its vendor bills, without what is rounded up."""
        made = ShippedFacts().get_billing_rules()[cloud.provider]
        return replace(made, compute=TimeRule(bills=("running",), free=FREE))

    # Who watches

    def sources(self, who: str) -> tuple[InstanceSource, ...]:
        network = InProcess({cloud.vendor.port: cloud.serve for cloud in self.clouds.values()})
        self._transports[who] = Transport(network=network)
        return tuple(self._opened(who, cloud) for cloud in self.clouds.values())

    def _opened(self, who: str, cloud: WiredCloud) -> InstanceSource:
        """Its one account. People meddle as it looks."""
        rig = cloud.vendor.rig
        rig.clock = self.clock  # type: ignore[assignment] # the watchdog's, which may be wrong
        base = f"http://127.0.0.1:{cloud.vendor.port}"
        (source,) = rig.accounts(base, self._transports[who], self.folder, **cloud.vendor.table())
        open_: Any = source
        look: Callable[[ResourceKey], Observation | None] = open_.look_up

        def looked(key: ResourceKey) -> Observation | None:
            self.log.meddle(key.id)
            return look(key)

        open_.look_up = looked
        return source

    def _shut(self, who: str) -> None:
        super()._shut(who)
        self._transports[who].close()

    def polls(self, who: str) -> None:
        """All at the same time, and until a second is full: vendors bill by the second, and the judge counts none begun."""
        began, ends = _hands(self.truth, self.clock), []
        for cloud, source in zip(self.clouds.values(), self.rooms[who].sources, strict=True):
            _turn(began, self.truth, self.clock)
            at, clock_at = self.truth.now(), self.clock.now()
            cloud.begins()
            self.rooms[who].poll([source])
            cloud.polled(at, clock_at)
            ends.append(_hands(self.truth, self.clock))
        _turn(max(ends, key=lambda one: one[0]), self.truth, self.clock)
        self.pass_time(timedelta(microseconds=-self.truth.now().microsecond % 10**6))


def _plugin(cloud: WiredCloud) -> Any:  # noqa: ANN401 - each plug-in is a class of its own
    return cloud.vendor.rig.plugin()


def _policy(name: str, arm: str, mark: str) -> Policy:
    """As those of `ruling`, by a label that every vendor has, and with consent to lose what a stop wipes."""
    steps = (PolicyStep(do=NOTIFY), PolicyStep(do=STOP, after=GRACE))
    target = PolicyTarget(match=ResourceFilter(labels=(("project", (mark,)),)))
    return Policy(name=name, when=IDLE, then=steps, arm=arm, hold=WiredWorld.hold, target=target, allow_irreversible=True)


Hands = tuple[timedelta, tuple[Any, ...]]


def _hands(*clocks: FakeClock) -> Hands:
    """Where the hands of clocks stand."""
    return clocks[0].boottime(), tuple((one._now, one._up) for one in clocks)


def _turn(hands: Hands, *clocks: FakeClock) -> None:
    """Set the hands so."""
    for clock, (now, up) in zip(clocks, hands[1], strict=True):
        clock._now, clock._up = now, up
