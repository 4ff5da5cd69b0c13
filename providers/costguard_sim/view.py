"""What a listing shows of the world: each cloud states what its real counterpart states.

sim-aws: creation, start of the last run and (of a stopped or ended machine) its end; the dated prices of a spot machine; a
deleted machine stays in the listing for another hour. sim-gcp: creation, the last start and the last stop; today's price.
sim-runpod: creation and the last start. sim-lambda: no time at all. sim-vast: creation, and the host's prices.

Also the part of a world that the listings of a plan can show, which a ledger is checked against. A machine that started and
ended between two listings, in a cloud that states only the last start, is in the bill and in no listing. No tool that polls the
clouds can detect it, so the comparison leaves it out, and costguard's report states that.

Also the world's own bill in the form of a provider's: a line per day for each charge of each resource, to the nano-dollar.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from costguard.bills.bill_line import BillLine, BillLines
from costguard.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.metering.observation import Disk, Observation, Price, TrafficCounter
from costguard.values.calendar import Period
from costguard.values.money import Money, Rate
from costguard.values.resource import ENDED, INSTANCE, RUNNING, STOPPED, ResourceKey, ScopeKey
from costguard_sim.bill import NANO, charge_resource
from costguard_sim.plan import FAILS, PlannedListing, WatchPlan
from costguard_sim.world import DAY_US, SECOND_US, SIM_INSTANCE, Resource, Run, World, from_us, to_us

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
    world: World, entry: PlannedListing, hidden: tuple[str, ...] = (), missing_keys: frozenset[ResourceKey] = frozenset()
) -> Poll:
    """Return the answer to a listing.

    `hidden`: ids whose price is not stated. `missing_keys`: keys that were looked up and do not exist.
    """
    return Poll(
        scope=ScopeKey(*entry.scope),
        at=from_us(entry.at_us),
        asked_at=from_us(entry.asked_us),
        inventory=_make_inventory(world, entry, hidden),
        gone=missing_keys,
        proven=True,  # a scope of the world is one account
    )


def _make_inventory(world: World, entry: PlannedListing, hidden: tuple[str, ...]) -> Inventory:
    if entry.fault in FAILS:
        return Failed(SAID[entry.fault])
    items: list[Observation] = []
    for resource in world.resources:
        us = entry.find_view_us(resource.id) if (resource.cloud, resource.account, resource.scope) == entry.scope else None
        observation = None if us is None else observe_resource(resource, us, price=resource.id not in hidden)
        if observation is not None:
            items += [observation] * (2 if resource.id in entry.twice else 1)
    if entry.salt:
        random.Random(entry.salt).shuffle(items)  # noqa: S311 - an order is drawn, not secret
    return Partial(tuple(items), SAID["page"]) if entry.fault == "page" else Complete(tuple(items))


def make_key(resource: Resource) -> ResourceKey:
    """Return costguard's key of the resource."""
    return ResourceKey(resource.cloud, resource.account, resource.region, resource.id)


def observe_resource(resource: Resource, us: int, *, price: bool = True) -> Observation | None:
    """Return what the cloud states of the resource at `us`; None if it is not listed.

    `price` False: without its price.
    """
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
    """Return the state that is shown at `us`; None if it is not listed."""
    if us < resource.created_us:
        return None
    if resource.ended_us is not None and us >= resource.ended_us:
        is_listed = resource.cloud == "sim-aws" and resource.kind == INSTANCE and us < resource.ended_us + KEEPS_ENDED_US
        return ENDED if is_listed else None
    run = find_last_run(resource, us)
    if resource.kind != INSTANCE:
        return RUNNING
    return ARRIVES.get(resource.cloud, "starting") if run is None else _find_run_state(run, us)


def _find_run_state(run: Run, us: int) -> str:
    """Return the state of a machine whose last run is `run`."""
    if run.stop_us is not None and us >= run.stop_us:
        return STOPPED
    if run.stop_us is not None and us >= run.stop_us - run.stopping_us:
        return "stopping"
    return "paused" if any(a <= us < b for a, b in run.pauses) else RUNNING


def find_last_run(resource: Resource, us: int) -> Run | None:
    """Return the run in progress at `us`, or the last one before."""
    count = bisect_right(resource.runs, us, key=lambda run: run.start_us)
    return resource.runs[count - 1] if count else None


def _find_stopped_at(resource: Resource, state: str, us: int) -> datetime | None:
    """Return the end of the last completed run if the cloud states it; for a deleted machine, the time of its deletion."""
    if resource.cloud == "sim-aws" and state == ENDED and resource.ended_us is not None:
        return from_us(resource.ended_us)
    if resource.cloud != "sim-gcp" and not (resource.cloud == "sim-aws" and state == STOPPED):
        return None
    over = [run.stop_us for run in resource.runs if run.stop_us is not None and run.stop_us <= us]
    return from_us(over[-1]) if over else None


def _list_prices(resource: Resource, us: int) -> tuple[Price, ...]:
    """Return today's price; for a spot machine of sim-aws every dated price of the last 90 days."""
    count = max(1, bisect_right(resource.rates, us, key=lambda r: r.at_us))
    if resource.cloud != "sim-aws" or resource.tier != "spot":
        return (Price(Rate(nano_per_hour=resource.rates[count - 1].nano)),)
    oldest = max(1, bisect_right(resource.rates, us - HISTORY_US, key=lambda r: r.at_us)) - 1
    dated = resource.rates[oldest:count]
    return tuple(Price(Rate(nano_per_hour=r.nano), since=from_us(r.at_us), source="spot history") for r in dated)


def _list_counters(resource: Resource, us: int) -> tuple[TrafficCounter, ...]:
    """Return all traffic since creation."""
    if not resource.traffic:
        return ()
    count = bisect_right(resource.traffic, us, key=lambda t: t[0])
    return (TrafficCounter("traffic", resource.traffic[count - 1][1] if count else 0, resource.traffic_nano),)


TELLS_START = ("sim-aws", "sim-gcp", "sim-runpod")


def keep_knowable(world: World, plan: WatchPlan) -> World:
    """Return the world without the runs, and without the resources, that no listing of the plan could show.

    If starts are stated, only the last start between two listings of a machine is known. Otherwise a run is known if it was in
    progress at some listing. A machine of sim-aws that was never seen stopped is deleted while it runs.
    """
    return replace(world, resources=tuple(one for r in world.resources if (one := _keep_knowable_runs(r, plan)) is not None))


def _keep_knowable_runs(resource: Resource, plan: WatchPlan) -> Resource | None:
    sights = list_shown_instants(resource, plan)
    if resource.kind != SIM_INSTANCE or not sights:
        return resource if sights else None
    if resource.cloud in TELLS_START:
        edges = [-1, *sights]
        groups = [[run for run in resource.runs if a < run.start_us <= b] for a, b in pairwise(edges)]
        runs = [group[-1] for group in groups if group] + [run for run in resource.runs if run.start_us > sights[-1]]
    else:
        runs = [run for run in resource.runs if any(is_on_at(run, us) for us in sights) or run.start_us > sights[-1]]
    one = replace(resource, runs=tuple(runs))
    last = one.runs[-1] if one.runs else None
    stop, end = last.stop_us if last else None, one.ended_us
    if one.cloud == "sim-aws" and end and stop and stop < end and not any(stop <= us < end for us in sights):
        one = replace(one, ended_us=stop)
        return one if list_shown_instants(one, plan) == sights else _keep_knowable_runs(one, plan)
    return one


def is_on_at(run: Run, us: int) -> bool:
    """Return whether the run is in progress at `us`."""
    return run.start_us <= us and (run.stop_us is None or us < run.stop_us)


def list_shown_instants(resource: Resource, plan: WatchPlan) -> list[int]:
    """Return the times whose state the listings show for the resource, in order."""
    scope = (resource.cloud, resource.account, resource.scope)
    instants = (entry.find_view_us(resource.id) for entry in plan.entries if entry.scope == scope)
    return sorted({us for us in instants if us is not None and find_state(resource, us) is not None})


def describe_as_listed(world: World, plan: WatchPlan) -> World:
    """Return `world`, which must be the result of `keep_knowable`, as all listings of `plan` show it.

    A ledger is checked against the result.
    """
    return replace(world, resources=tuple(_describe_resource(r, plan) for r in world.resources))


def _describe_resource(resource: Resource, plan: WatchPlan) -> Resource:
    polls = [entry for entry in plan.entries if entry.scope == (resource.cloud, resource.account, resource.scope)]
    shown = [(entry, us) for entry in polls if (us := entry.find_view_us(resource.id)) is not None and find_state(resource, us)]
    if not shown:
        return resource
    first = shown[0][0]
    looked_before = any(entry.clean and entry.at_us < first.at_us for entry in polls)
    return clip_before(truncate_after(resource, max(us for _, us in shown)), None if looked_before else first.at_us)


def truncate_after(resource: Resource, last_us: int) -> Resource:
    """Return the resource as if nothing had happened after it was last seen at `last_us`, except its ends."""
    return replace(
        resource,
        runs=tuple(run for run in resource.runs if run.start_us <= last_us),
        rates=tuple(rate for i, rate in enumerate(resource.rates) if rate.at_us <= last_us or not i),
        traffic=tuple(counted for counted in resource.traffic if counted[0] <= last_us),
    )


def clip_before(resource: Resource, since_us: int | None) -> Resource:
    """For a cloud that states no start, return the resource as if it or its run had begun at its scope's first listing.

    `since_us`: the time of that listing; None: the resource came later, and all of it counts.
    """
    if since_us is None or resource.cloud in TELLS_START:
        return resource
    runs = tuple(
        replace(r, start_us=max(r.start_us, since_us)) for r in resource.runs if r.stop_us is None or r.stop_us > since_us
    )
    born = max(resource.created_us, since_us) if resource.cloud == "sim-lambda" else resource.created_us
    return replace(resource, runs=runs, created_us=born)


DAY = timedelta(days=1)
SETTLES = timedelta(hours=1)
SOURCE = "the simulated clouds' own bill"


def make_billed(resources: Iterable[Resource], period: Period, now: datetime) -> BillLines:
    """Return what became owed in the past part of `period`, by UTC days."""
    end = min(period.end, now)
    return BillLines(lines=tuple(line for resource in resources for line in _make_lines(resource, period.start, end, now)))


def _make_lines(resource: Resource, start: datetime, end: datetime, now: datetime) -> Iterable[BillLine]:
    while start < end:
        midnight = start.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
        until = min(midnight, end)
        for owed in charge_resource(resource, to_us(start), to_us(until)):
            yield BillLine(
                id=f"{owed.region}/{owed.id}/{start:%Y-%m-%d}/{owed.charge}/{owed.part}",
                provider=owed.provider,
                account=owed.account,
                start=start.replace(hour=0, minute=0, second=0, microsecond=0),
                end=midnight,
                amount=Money(nano=round(owed.amount * NANO), currency=owed.currency),
                charge=owed.charge,
                resource_id=owed.id,
                region=owed.region,
                estimated=now < midnight + SETTLES,
                source=SOURCE,
                description=owed.part,
            )
        start = until
