"""What a listing says of the world: each cloud states what its vendor would, and keeps the rest to itself.

sim-aws: creation, start of the last run and (of a stopped or ended machine) its end; the dated prices of a spot machine; a
machine that was deleted stands in the listing for another hour. sim-gcp: creation, the last start and the last stop; today's
price. sim-runpod: creation and the last start. sim-lambda: no time at all. sim-vast: creation, and the host's prices.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from datetime import datetime

from costguard.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.metering.observation import Disk, Observation, Price, TrafficCounter
from costguard.values.money import Rate
from costguard.values.resource import ENDED, INSTANCE, RUNNING, STOPPED, ResourceKey, ScopeKey
from costguard_sim.plan import FAILS, PlannedListing
from costguard_sim.world import DAY_US, SECOND_US, Resource, Run, World, from_us

KEEPS_ENDED_US = 3600 * SECOND_US
"""For so long sim-aws lists a machine that is gone."""
HISTORY_US = 90 * DAY_US
"""So far back go the dated prices of sim-aws."""

STATES_CREATED = ("sim-aws", "sim-gcp", "sim-runpod", "sim-vast")
STATES_STARTED = ("sim-aws", "sim-gcp", "sim-runpod")
ARRIVES = {"sim-aws": "pending"}
"""The word for a machine that is on its way; elsewhere "starting"."""

SAID = {
    "timeout": "no answer within 30 s",
    "500": "the provider answered 500",
    "429": "the provider answered 429: too many requests",
    "page": "page 2 was lost",
}


def make_poll(
    world: World, entry: PlannedListing, hidden: tuple[str, ...] = (), gone: frozenset[ResourceKey] = frozenset()
) -> Poll:
    """The answer to a listing. `hidden`: ids whose price is not stated. `gone`: keys that were looked up and are not there."""
    return Poll(
        scope=ScopeKey(*entry.scope),
        at=from_us(entry.at_us),
        asked_at=from_us(entry.asked_us),
        inventory=_make_inventory(world, entry, hidden),
        gone=gone,
    )


def _make_inventory(world: World, entry: PlannedListing, hidden: tuple[str, ...]) -> Inventory:
    if entry.fault in FAILS:
        return Failed(SAID[entry.fault])
    items: list[Observation] = []
    for resource in world.resources:
        us = entry.find_view_us(resource.id) if (resource.cloud, resource.account, resource.scope) == entry.scope else None
        seen = None if us is None else observe_resource(resource, us, price=resource.id not in hidden)
        if seen is not None:
            items += [seen] * (2 if resource.id in entry.twice else 1)
    if entry.salt:
        random.Random(entry.salt).shuffle(items)  # noqa: S311 - an order is drawn, not secret
    return Partial(tuple(items), SAID["page"]) if entry.fault == "page" else Complete(tuple(items))


def make_key(resource: Resource) -> ResourceKey:
    """What costguard knows the resource by."""
    return ResourceKey(resource.cloud, resource.account, resource.region, resource.id)


def observe_resource(resource: Resource, us: int, *, price: bool = True) -> Observation | None:
    """What the cloud says of the resource at `us`; None: it is not listed. `price` False: it does not say what it costs."""
    state = find_state(resource, us)
    if state is None:
        return None
    run = find_last_run(resource, us)
    shape = resource.shapes[max(0, bisect_right(resource.shapes, us, key=lambda s: s.at_us) - 1)] if resource.shapes else None
    tag = resource.tags[max(0, bisect_right(resource.tags, us, key=lambda t: t.at_us) - 1)]
    return Observation(
        key=make_key(resource),
        state=state,
        kind=resource.kind,
        name=resource.name,
        instance_type=shape.type if shape else "",
        gpu=shape.gpu if shape else "",
        gpu_count=shape.gpus if shape else 0,
        tier=resource.tier,
        owner=tag.owner,
        labels=tag.labels,
        created_at=from_us(resource.created_us) if resource.cloud in STATES_CREATED else None,
        started_at=from_us(run.start_us) if run and resource.cloud in STATES_STARTED else None,
        stopped_at=_find_stopped_at(resource, state, us),
        prices=_list_prices(resource, us) if price and resource.kind == INSTANCE else (),
        disks=tuple(Disk(disk.gb, disk.type, disk.nano) for disk in resource.disks),
        counters=_list_counters(resource, us),
    )


def find_state(resource: Resource, us: int) -> str | None:
    """The state that is shown at `us`; None: it is not listed."""
    if us < resource.created_us:
        return None
    if resource.ended_us is not None and us >= resource.ended_us:
        kept = resource.cloud == "sim-aws" and resource.kind == INSTANCE and us < resource.ended_us + KEEPS_ENDED_US
        return ENDED if kept else None
    run = find_last_run(resource, us)
    if resource.kind != INSTANCE:
        return RUNNING
    return ARRIVES.get(resource.cloud, "starting") if run is None else _find_run_state(run, us)


def _find_run_state(run: Run, us: int) -> str:
    """Of a machine whose last run is `run`."""
    if run.stop_us is not None and us >= run.stop_us:
        return STOPPED
    if run.stop_us is not None and us >= run.stop_us - run.stopping_us:
        return "stopping"
    return "paused" if any(a <= us < b for a, b in run.pauses) else RUNNING


def find_last_run(resource: Resource, us: int) -> Run | None:
    """The run that is on at `us`, or the last one before."""
    count = bisect_right(resource.runs, us, key=lambda run: run.start_us)
    return resource.runs[count - 1] if count else None


def _find_stopped_at(resource: Resource, state: str, us: int) -> datetime | None:
    """The end of the last run that is over, where the cloud tells it; of a machine that is gone, when it went."""
    if resource.cloud == "sim-aws" and state == ENDED and resource.ended_us is not None:
        return from_us(resource.ended_us)
    if resource.cloud != "sim-gcp" and not (resource.cloud == "sim-aws" and state == STOPPED):
        return None
    over = [run.stop_us for run in resource.runs if run.stop_us is not None and run.stop_us <= us]
    return from_us(over[-1]) if over else None


def _list_prices(resource: Resource, us: int) -> tuple[Price, ...]:
    """Today's price; of a spot machine of sim-aws every price of the last 90 days, each with its day."""
    count = max(1, bisect_right(resource.rates, us, key=lambda r: r.at_us))
    if resource.cloud != "sim-aws" or resource.tier != "spot":
        return (Price(Rate(nano_per_hour=resource.rates[count - 1].nano)),)
    oldest = max(1, bisect_right(resource.rates, us - HISTORY_US, key=lambda r: r.at_us)) - 1
    dated = resource.rates[oldest:count]
    return tuple(Price(Rate(nano_per_hour=r.nano), since=from_us(r.at_us), source="spot history") for r in dated)


def _list_counters(resource: Resource, us: int) -> tuple[TrafficCounter, ...]:
    """All traffic since birth."""
    if not resource.traffic:
        return ()
    count = bisect_right(resource.traffic, us, key=lambda t: t[0])
    return (TrafficCounter("traffic", resource.traffic[count - 1][1] if count else 0, resource.traffic_nano),)
