"""The part of a world that the listings of a plan can tell of: what a ledger can be held to.

A machine that started and was gone between two looks, in a cloud that states only the last start, is in the bill and in no
listing. No tool that asks the clouds can know of it, so the comparison leaves it out; costguard's statement says so, too.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from costguard_sim.plan import WatchPlan
from costguard_sim.view import find_state
from costguard_sim.world import SIM_INSTANCE, Resource, Run, World

TELLS_START = ("sim-aws", "sim-gcp", "sim-runpod")


def keep_knowable(world: World, plan: WatchPlan) -> World:
    """The world without the runs that no listing of the plan could tell of, and without what none of them ever held.

    Where starts are told, one start between two sights of a machine is told of: the last. Elsewhere a run is told of where it
    was on at some sight. A machine of sim-aws that was never seen stopped is deleted while it runs.
    """
    return replace(world, resources=tuple(kept for r in world.resources if (kept := _keep_knowable_runs(r, plan)) is not None))


def _keep_knowable_runs(resource: Resource, plan: WatchPlan) -> Resource | None:
    sights = list_shown_instants(resource, plan)
    if resource.kind != SIM_INSTANCE or not sights:
        return resource if sights else None
    if resource.cloud in TELLS_START:
        edges = [-1, *sights]
        groups = [[run for run in resource.runs if a < run.start_us <= b] for a, b in pairwise(edges)]
        told = [group[-1] for group in groups if group] + [run for run in resource.runs if run.start_us > sights[-1]]
    else:
        told = [run for run in resource.runs if any(is_on_at(run, us) for us in sights) or run.start_us > sights[-1]]
    one = replace(resource, runs=tuple(told))
    last = one.runs[-1] if one.runs else None
    stop, end = last.stop_us if last else None, one.ended_us
    if one.cloud == "sim-aws" and end and stop and stop < end and not any(stop <= us < end for us in sights):
        one = replace(one, ended_us=stop)
        return one if list_shown_instants(one, plan) == sights else _keep_knowable_runs(one, plan)
    return one


def is_on_at(run: Run, us: int) -> bool:
    """Whether the run is on at `us`."""
    return run.start_us <= us and (run.stop_us is None or us < run.stop_us)


def list_shown_instants(resource: Resource, plan: WatchPlan) -> list[int]:
    """The instants as of which listings show the resource, in order."""
    scope = (resource.cloud, resource.account, resource.scope)
    seen = (entry.find_view_us(resource.id) for entry in plan.entries if entry.scope == scope)
    return sorted({us for us in seen if us is not None and find_state(resource, us) is not None})


def describe_as_listed(world: World, plan: WatchPlan) -> World:
    """`world`, which must be `knowable`, as the listings of `plan` have told it by the end: what a ledger can be held to."""
    return replace(world, resources=tuple(_describe_resource(r, plan) for r in world.resources))


def _describe_resource(resource: Resource, plan: WatchPlan) -> Resource:
    here = [entry for entry in plan.entries if entry.scope == (resource.cloud, resource.account, resource.scope)]
    shown = [(entry, us) for entry in here if (us := entry.find_view_us(resource.id)) is not None and find_state(resource, us)]
    if not shown:
        return resource
    first = shown[0][0]
    looked_before = any(entry.clean and entry.at_us < first.at_us for entry in here)
    return clip_before(truncate_after(resource, max(us for _, us in shown)), None if looked_before else first.at_us)


def truncate_after(resource: Resource, last_us: int) -> Resource:
    """The resource as if nothing had happened since the last sight of it at `last_us`, but for its ends."""
    return replace(
        resource,
        runs=tuple(run for run in resource.runs if run.start_us <= last_us),
        rates=tuple(rate for i, rate in enumerate(resource.rates) if rate.at_us <= last_us or not i),
        traffic=tuple(counted for counted in resource.traffic if counted[0] <= last_us),
    )


def clip_before(resource: Resource, since_us: int | None) -> Resource:
    """Where no start is told, the resource as if it had come, or its run had begun, when its scope was first listed.

    `since_us`: when that was; None: it came later, and all of it counts.
    """
    if since_us is None or resource.cloud in TELLS_START:
        return resource
    runs = tuple(
        replace(r, start_us=max(r.start_us, since_us)) for r in resource.runs if r.stop_us is None or r.stop_us > since_us
    )
    born = max(resource.created_us, since_us) if resource.cloud == "sim-lambda" else resource.created_us
    return replace(resource, runs=runs, created_us=born)
