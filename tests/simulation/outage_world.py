"""A day in which providers cannot be asked, or lie, while machines stop, start, end and come.

There are five clouds by the names of the real ones, and each bills and tells as that one does.

A `Day` says which clouds are out and how; everything else is the same in each. Nothing is drawn. All instants are whole
minutes, so that every cloud's steps and minimums are.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar, NamedTuple

from costguard.data import ShippedFacts
from costguard.metering.billing import BillingRule
from costguard.metering.observation import Observation
from costguard.testing import SimulatedCloud
from costguard.testing.cloud import STALE, ListingFault, TerminateOnlyCloud
from costguard.testing.machine import SimulatedMachine
from costguard.values.resource import ENDED, RUNNING, STOPPED
from tests.simulation.clouds import LoggedCloud, LoggedEndingCloud
from tests.simulation.plans import STORM, Box, Does, Plan
from tests.simulation.reading import micros
from tests.simulation.world import World

MINUTE = timedelta(minutes=1)
AWS, GCP, RUNPOD, LAMBDA, VAST = CLOUDS = ("aws", "gcp", "runpod", "lambda", "vast")
DOWN, EMPTY, OLD, PART = KINDS = ("down", "empty", "stale", "partial")
BEFORE, LASTS, AFTER = 40, 24 * 60, 40
"""Minutes of a day: before an outage, of it, after it."""
NEAR, SELDOM = 60, 24
"""From so many minutes after an outage began until so many before it ends, there is a poll only every so many minutes."""
RATE = "2.99"


class Tells(NamedTuple):
    """What a cloud says of its machines, as the adapters of the real ones find it: docs of each in `providers/`."""

    created: bool
    started: bool
    stopped: bool
    dated: bool
    """Whether a price comes with its day."""
    ended: bool
    """Whether what is gone is listed for another hour."""


TELLS = {
    AWS: Tells(created=True, started=True, stopped=True, dated=True, ended=True),
    GCP: Tells(created=True, started=True, stopped=True, dated=False, ended=False),
    RUNPOD: Tells(created=True, started=True, stopped=False, dated=False, ended=False),
    LAMBDA: Tells(created=False, started=False, stopped=False, dated=False, ended=False),
    VAST: Tells(created=True, started=False, stopped=False, dated=False, ended=False),
}
OFF = (10 - BEFORE, STOPPED)
"""Stopped half an hour before the outage."""
ROLES: dict[str, tuple[tuple[float, str], ...]] = {
    "stays": (),
    "stops": ((3 / 24, STOPPED),),
    "rests": (OFF,),
    "starts": (OFF, (5 / 24, RUNNING)),
    "cycles": ((6 / 24, STOPPED), (8 / 24, RUNNING)),
    "ends": ((10 / 24, ENDED),),
    "ends late": ((1, ENDED),),
    "comes": (),
    "idles": (),
    "tires": (),
}
"""What becomes of a machine, at which part of the outage; `OFF` in minutes. `idles` has nothing to do all along, and `tires`
since a moment before the outage: a guard that sees it may stop it, and one that does not see it must not."""
QUIET = {"idles": 0, "tires": BEFORE - 8}
COMES_AT, LATE = 12 / 24, 30
"""`ends late` ends so many minutes before the outage does."""
WITHOUT_STOP = ("stays", "ends", "comes", "tires")
"""Lambda has no stop: its machines run until they are gone."""


@dataclass(frozen=True, slots=True)
class Day:
    """`out`: the clouds that are out, and how; nothing for a day without. `tick`: minutes between two polls.

    `lasts`: minutes of the outage, a multiple of 24. `seldom`: between two polls in the middle of it.
    """

    out: tuple[str, ...] = ()
    how: str = ""
    tick: int = 4
    lasts: int = LASTS
    seldom: int = SELDOM

    @property
    def name(self) -> str:
        """For people."""
        return f"{'+'.join(self.out)} {self.how}" if self.out else "none"

    def minute(self, part: float) -> int:
        """The minute of the world at which so much of the outage is over."""
        return BEFORE + round(part * self.lasts)


def plan_of(day: Day) -> Plan:
    """The same machines in each."""
    boxes = tuple(
        Box(
            f"{cloud}-{role.replace(' ', '-')}",
            cloud,
            RATE,
            (Does(0, "busy"), *((Does(QUIET[role], "quiet"),) if role in QUIET else ())),
            age_min=0 if role == "comes" else 24 * 60,
            at=day.minute(COMES_AT) if role == "comes" else 0,
        )
        for cloud in CLOUDS
        for role in ROLES
        if cloud != LAMBDA or role in WITHOUT_STOP
    )
    rails = {"acts_per_10m": 5, "fleet_share_10m": 1.0, "fleet_share_day": 1.0, "breaker_least": 50}
    return Plan(0, STORM, BEFORE + day.lasts + AFTER, boxes, (), rails)


class Shown(SimulatedMachine):
    """A machine that shows what its cloud tells, and no more."""

    def observation(self, at: datetime) -> Observation | None:
        """See the module."""
        tells, seen = TELLS[self.key.provider], SimulatedMachine.observation(self, at)
        if seen is None or (seen.state == ENDED and not tells.ended):
            return None
        return replace(
            seen,
            created_at=seen.created_at if tells.created else None,
            started_at=seen.started_at if tells.started else None,
            stopped_at=seen.stopped_at if tells.stopped else None,
            prices=seen.prices if tells.dated else tuple(replace(price, since=None) for price in seen.prices),
        )


class Telling(TerminateOnlyCloud):
    """An account whose old listings stay as old as they were when the outage began."""

    _asked: list[datetime]

    def add(self, name: str, **stated: object) -> SimulatedMachine:
        machine = super().add(name, **stated)  # type: ignore[arg-type] # as it takes them
        told = {field.name: getattr(machine, field.name) for field in fields(SimulatedMachine)}
        self.machines[name] = shown = Shown(**told)
        return shown

    def poll(self, scope):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - as it is there
        self._asked = [*getattr(self, "_asked", ()), self._clock.now()]
        return super().poll(scope)

    def _at_work(self, at: datetime) -> list[ListingFault]:
        asked = getattr(self, "_asked", ())
        return [
            one._replace(polls=sum(one.start <= before for before in asked)) if one.what == STALE else one
            for one in super()._at_work(at)
        ]


class StoppingCloud(LoggedCloud, Telling, SimulatedCloud):
    """One that can stop machines."""


class LambdaCloud(LoggedEndingCloud, Telling):
    """One that cannot."""


class OutageWorld(World):
    """`day` in `folder`."""

    startless: ClassVar = (LAMBDA, VAST)
    lag: ClassVar = {}

    def __init__(self, day: Day, folder: Path) -> None:
        self.day = day
        self.billing = ShippedFacts().get_billing_rules()
        super().__init__(plan_of(day), folder)
        begins, ends = (self.start + day.minute(part) * MINUTE for part in (0, 1))
        self.rules = replace(self.rules, interval=max(day.tick, day.seldom) * MINUTE)
        self.log.write("outage", **{"out": list(day.out), "how": day.how, "from": micros(begins), "until": micros(ends)})
        for name in day.out:
            self.clouds[name].faults.append(ListingFault(begins, ends, day.how))

    def found_clouds(self, used: object) -> None:  # noqa: ARG002 - all of them
        """See `World`."""
        for name in CLOUDS:
            cloud = (LambdaCloud if name == LAMBDA else StoppingCloud)(name, self.truth)
            cloud.log = self.log
            self.clouds[name] = cloud

    def rule(self, cloud: LoggedEndingCloud) -> BillingRule:
        """As the shipped table has it."""
        return self.billing[cloud.providers[0]]

    def put(self, box: Box) -> None:
        """A machine, with all that will become of it."""
        super().put(box)
        role = box.name.partition("-")[2].replace("-", " ")
        machine = self.machine(box.name)
        for when, state in ROLES[role]:
            minute = BEFORE + when if when < 0 else self.day.minute(when) - (LATE if when == 1 else 0)
            at = self.start + minute * MINUTE
            if machine:
                machine.turn(at, state, started_at=at if state == RUNNING else None)
        if machine:
            machine.stops_in = timedelta()  # what is on its way down bills differently from cloud to cloud
            tells = TELLS[box.cloud]
            self.log.write("role", name=machine.key.id, cloud=box.cloud, role=role, **tells._asdict())

    def _watched(self, who: str) -> None:
        """Every `tick` minutes, or `seldom`, and each minute once all is well again."""
        since = (self.truth.now() - self.start) // MINUTE
        middle = BEFORE + NEAR <= since < BEFORE + self.day.lasts - NEAR
        if since % (self.day.seldom if middle else self.day.tick) == 0 or since > self.plan.minutes:
            super()._watched(who)
