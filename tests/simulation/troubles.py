"""What goes wrong in a world, what people do meanwhile, and how all of it comes to an end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from costguard.errors import UnreachableError
from costguard.guard.overrides import ARM, FREEZE, LEASE, PROTECT, SNOOZE
from costguard.guard.policy import NOTIFY
from costguard.testing.cloud import ListingFault
from costguard.testing.machine import OBEYS, SimulatedMachine
from costguard.values.money import Rate
from costguard.values.resource import RUNNING, STOPPED
from tests.simulation.plans import LISTING, ON_WIRE, Happens
from tests.simulation.reading import micros

if TYPE_CHECKING:
    from tests.simulation.world import World

MINUTE = timedelta(minutes=1)
TO_MACHINES = frozenset(
    ("answers", "restart", "stopped", "bounce", "label", "unlabel", "slip", "lease", "snooze", "lift", "price")
)
PAUSE = timedelta(minutes=4)
"""Longer than a turn lasts."""


class Troubles:
    """Those of one world. `mute_until`: no message arrives before. `commits`: so many are left until a watchdog ends.

    `made`: so many were there so far.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.looks, self.commits, self.made = 0, 0, 0
        self.mute_until: datetime | None = None

    def meddle(self, name: str) -> None:
        """Something happens between a look and what it was for."""
        self.looks += 1
        world = self.world
        what, machine = world.plan.meddles.get(self.looks, ""), world.machine(name)
        if not what or machine is None or (what == "paused" and "b" not in world.rooms) or not world.takes(what, machine):
            return
        until = world.clock.now() + timedelta(hours=1)
        world.log.write("meddled", what=what, name=name)
        if what == "label":
            self._label(machine, costguard="never")
            world.log.write(
                "wish",
                id=f"label-{self.looks}",
                what="label",
                at=micros(world.clock.now()),
                until=micros(world.forever),
                name=name,
                started=None,
            )
        elif what == "relabel":
            self._label(machine, arm="other")
        elif what in {"lease", "freeze", "protect"}:
            said = {"lease": LEASE, "freeze": FREEZE, "protect": PROTECT}[what]
            world.wish(said, None if said == FREEZE else machine, until)
        elif what == "restart":
            machine.run(world.truth.now())
        elif what == "paused":
            self._pause()
        elif what == "fails":
            raise UnreachableError("the provider answered 503", provider=machine.key.provider)
        else:
            world.pass_time(timedelta(seconds=6 if what == "slow" else 40))

    def happen(self, event: Happens) -> None:
        """One event of the plan."""
        world, now = self.world, self.world.truth.now()
        machine = world.machine(event.name)
        until, over = now + event.minutes * MINUTE, world.clock.now() + event.minutes * MINUTE
        took = True
        if event.what in {*LISTING, *ON_WIRE}:
            took = event.name in world.clouds
            if took:
                world.clouds[event.name].faults.append(ListingFault(now, until, event.what, polls=3, name=event.how))
        elif machine is not None and event.what in TO_MACHINES:
            took = world.takes(event.what, machine) and self._to(machine, event, over)
        else:
            took = self._to_all(event, until, over)
        if took:
            world.log.write("happened", what=event.what, name=event.name)

    def _to_all(self, event: Happens, until: datetime, over: datetime) -> bool:
        """To everybody, or to a watchdog; whether it took effect."""
        world = self.world
        if event.what == "freeze":
            world.wish(FREEZE, None, over)
        elif event.what == "disarm":
            world.wish(ARM, None, world.forever, subject="idle-gpu", value=NOTIFY)
            if not world.disarmed:
                world.log.write("disarmed", policy="idle-gpu", at=micros(world.clock.now()))
            world.disarmed = True
        elif event.what == "jumps":
            self._jump(timedelta(seconds=float(event.how)))
        elif event.what == "crash":
            world.log.write("ended", where="between runs")
            world.restart("a")
        elif event.what == "dies":
            how, _, count = event.how.partition(" ")
            world.log.end, self.commits = how, int(count or 0)
        elif event.what in {"sleeps", "twin sleeps"}:
            world.asleep["b" if event.what == "twin sleeps" else "a"] = event.at + event.minutes
        elif event.what == "mute":
            self.mute_until = until
        else:
            return False
        return True

    def heal(self) -> None:
        """Nothing is wrong any more: from now on all is as it should be."""
        world = self.world
        for cloud in world.clouds.values():
            cloud.faults.clear()
            for machine in cloud.machines.values():
                machine.answers.append((world.truth.now(), OBEYS, None))
        world.asleep = dict.fromkeys(world.asleep, -1)
        world.log.end, self.commits, self.mute_until = "", 0, None
        off = world.truth.now() - world.clock.now()
        if off:
            self._jump(off)
        world.log.write("healed", clock_at=micros(world.clock.now()))

    def committed(self) -> bool:
        """Whether the watchdog ends right after this commit."""
        self.made += 1
        self.commits -= self.commits > 0
        return self.world.log.end == "commit" and self.commits == 0

    def _jump(self, by: timedelta) -> None:
        world = self.world
        world.clock.jump(by)
        world.jumped = True
        world.log.write("jumped", by_us=by // timedelta(microseconds=1))
        world.log.write("odd", run=world.runs + 1, why="the clock jumped")

    def _pause(self) -> None:
        """The first watchdog stands still in the middle of a deed, and the second one takes its turn."""
        world = self.world
        if world.judging != "a":
            return
        run = world.log.run
        world.pass_time(PAUSE)
        world.judge("b")
        world.judging, world.log.run = "a", run

    def _label(self, machine: SimulatedMachine, **changed: str) -> None:
        labels = {key: value for key, value in {**machine.labels[-1][1], **changed}.items() if value}
        machine.labels.append((self.world.truth.now(), labels))

    def _to(self, machine: SimulatedMachine, event: Happens, over: datetime) -> bool:
        """To one machine; whether it took effect."""
        world, now = self.world, self.world.truth.now()
        here = machine.now(now)
        runs = here is not None and here.state == RUNNING
        if event.what == "answers":
            machine.answers.append((now, event.how, event.minutes if event.minutes < 5 else None))
        elif event.what == "restart":
            machine.run(now)
        elif event.what == "stopped" and runs:
            machine.turn(now, STOPPED)
        elif event.what == "bounce" and runs:
            machine.turn(now + timedelta(seconds=10), STOPPED)
            machine.turn(now + timedelta(seconds=30), RUNNING, started_at=now + timedelta(seconds=30))
        elif event.what in {"label", "unlabel", "slip"}:
            self._label(machine, costguard={"label": "never", "unlabel": "", "slip": "nevr"}[event.what])
        elif event.what == "lease":
            world.wish(LEASE, machine, over)
        elif event.what == "snooze":
            world.wish(SNOOZE, machine, over)
            world.log.write("snoozed", name=machine.key.id)
        elif event.what == "lift":
            world.lift(machine)
        elif event.what == "price":
            rate, _, unsaid = event.how.partition(" ")
            priced = Rate.parse(rate)
            world.clouds[machine.key.provider].reprice(machine.name, priced, said=not unsaid)
            world.log.write("price", name=machine.key.id, nano=priced.nano_per_hour, said=not unsaid)
        else:
            return False
        return True
