"""What stands in a world as it begins: its rules as the judge is told them, its machines, its cap."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from costguard.budgets.budget import DAY, Budget
from costguard.metering.observation import Handling
from costguard.values.money import Money
from tests.simulation.plans import CAP, Box, Plan
from tests.simulation.reading import micros
from tests.simulation.ruling import DOES, GRACE, WHY_NOT

if TYPE_CHECKING:
    from tests.simulation.world import World

MINUTE, MICRO = timedelta(minutes=1), timedelta(microseconds=1)


def write_rules(world: World) -> None:
    """What the judge goes by: the plan's rails and rules, and what must never be touched, with why."""
    plan = world.plan
    untouchable = {world.id_of(box): WHY_NOT[box.guard] for box in plan.boxes if box.guard}
    untouchable |= {world.id_of(box): "its provider has no stop" for box in plan.boxes if box.cloud == "lambda"}
    world.log.write(
        "world",
        kind=plan.kind,
        hold_us=world.hold // MICRO,
        grace_us=GRACE // MICRO,
        rails=dict(plan.rails),
        cap=_cap(plan) if plan.kind == CAP else "",
        untouchable=untouchable,
        transit_us=world.transit // MICRO,
        unstarted=[world.id_of(box) for box in plan.boxes if box.cloud in world.startless],
        lag={world.id_of(box): world.lag[box.cloud] // MICRO for box in plan.boxes if box.cloud in world.lag},
    )


def put(world: World, box: Box) -> None:
    """A machine comes to be there now."""
    cloud, now = world.clouds[box.cloud], world.truth.now()
    labels = {"arm": "no" if box.guard == "unarmed" else "yes"}
    labels |= {"costguard": "never"} if box.guard == "label" else {"protcted": "yes"} if box.guard == "slip" else {}
    handling = Handling(
        stops=cloud.can_stop and box.guard != "unstoppable",
        terminates=True,
        controller="auto-scaling group train" if box.guard == "controller" else "",
        protected=("stop",) if box.guard == "handling" else (),
        stop_loses=("the local disk",) if box.guard == "loses" else (),
    )
    began = now - box.age_min * MINUTE
    machine = cloud.add(box.name, rate=box.rate, gpu="H100-SXM", at=began, labels=labels, handling=handling, owner="ada")
    machine.families = frozenset({"duty"} if box.few else {"duty", "cpu", "io", "agent"})
    key, nano = machine.key.id, machine.rate.nano_per_hour if machine.rate else 0
    world.log.write("machine", name=key, cloud=box.cloud, at=micros(began), nano=nano, few=box.few)
    for number, does in enumerate(box.does):
        at = began if number == 0 else max(world.start + does.at * MINUTE, now)
        cloud.measures(box.name, DOES[does.what], at=at)
        world.log.write("does", name=key, at=micros(at), what=does.what)


def budgets_of(plan: Plan) -> tuple[Budget, ...]:
    """A hard cap on the day, where the plan has one."""
    if not plan.cap_hours:
        return ()
    return (Budget(name="all", cap=Money.parse(_cap(plan)), period=DAY, hard=True),)


def _cap(plan: Plan) -> str:
    burn = sum(float(box.rate) for box in plan.boxes)
    already = sum(float(box.rate) * box.age_min / 60 for box in plan.boxes)
    return f"{already + burn * plan.cap_hours:.2f}"
