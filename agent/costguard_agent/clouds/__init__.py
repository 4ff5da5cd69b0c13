"""End this machine from inside: for the dead-man switch, and for `costguard run --then stop|terminate`.

    place = locate_machine()
    for way in list_shutdown_ways(place):   # [] if it cannot be ended from inside: place.why is the reason
        print(way.act, way.how, way.keeps, way.loses, way.bills_after, way.certain, way.why)
    outcome = end_machine(way)              # accepted | refused (nothing happened) | unknown (check, do not repeat at once)

The request is sent once, within seconds, with a key that is valid for this machine alone. A stop never replaces a terminate or
the other way round, and a way that is not certain is refused. Addresses can be set by variables (COSTGUARD_AWS_METADATA,
COSTGUARD_GCP_METADATA, COSTGUARD_RUNPOD_REST, COSTGUARD_RUNPOD_GRAPHQL, COSTGUARD_VAST_API), the shutdown command by
COSTGUARD_SHUTDOWN.

There is one file per supported cloud, each with the same four functions. A machine of another cloud is not ended from inside.
"""

from __future__ import annotations

from typing import Protocol

from costguard_agent.clouds import aws, gcp, lambda_, runpod, vast
from costguard_agent.host import HostView
from costguard_agent.shutdown import (
    ACTS,
    REFUSED,
    UNKNOWN,
    MachineIdentity,
    ShutdownOutcome,
    ShutdownWay,
    save_shutdown_meaning,
)

__all__ = (
    "MachineIdentity",
    "ShutdownOutcome",
    "ShutdownWay",
    "choose_shutdown_way",
    "end_machine",
    "list_shutdown_ways",
    "locate_machine",
    "read_machine_state",
    "save_shutdown_meaning",
)

NOWHERE = MachineIdentity(
    "", "", "this is not a known machine of RunPod, Vast, AWS or GCP: no way to end it from inside is known"
)


def locate_machine(around: HostView | None = None) -> MachineIdentity:
    """Return the cloud and id of this machine; queries the metadata service if there is one."""
    view = around or HostView.real()
    places = (one.detect_machine(view) for one in CLOUDS.values())
    return next((place for place in places if place is not None), NOWHERE)


def list_shutdown_ways(place: MachineIdentity, around: HostView | None = None) -> list[ShutdownWay]:
    """Return the ways to end it from inside, certain or not; sends queries, ends nothing."""
    if place.provider not in CLOUDS:
        return []
    return CLOUDS[place.provider].list_ways(place, around or HostView.real())


def choose_shutdown_way(place: MachineIdentity, act: str, around: HostView | None = None) -> tuple[ShutdownWay | None, str]:
    """Return a certain way of `act`, and ""; or None and the reason."""
    if act not in ACTS:
        return None, f"{act!r} is not an act: write stop or terminate"
    every = list_shutdown_ways(place, around)
    same = [way for way in every if way.act == act]
    certain = next((way for way in same if way.certain), None)
    if certain is not None:
        return certain, ""
    if same:
        return None, same[0].why or f"the effect of a {act} here is not certain"
    certain_acts = ", ".join(sorted({way.act for way in every if way.certain}))
    return None, place.why or f"there is no {act} from inside here{f' (there is: {certain_acts})' if certain_acts else ''}"


def end_machine(way: ShutdownWay, around: HostView | None = None) -> ShutdownOutcome:
    """End this machine now; refused if the way is not certain."""
    if not way.certain or way.place.provider not in CLOUDS:
        return ShutdownOutcome(REFUSED, way.why or "this way is uncertain")
    return CLOUDS[way.place.provider].send_shutdown(way, around or HostView.real())


def read_machine_state(place: MachineIdentity, around: HostView | None = None) -> str:
    """Return the provider's state of the machine: running, ended or unknown; an open attempt is settled by it."""
    if place.provider not in CLOUDS or not place.id:
        return UNKNOWN
    return CLOUDS[place.provider].read_state(place, around or HostView.real())


class CloudPlugin(Protocol):
    """The functions of each file of this folder; none of them raises."""

    NAME: str

    def detect_machine(self, around: HostView) -> MachineIdentity | None:
        """Return this machine if it belongs to this provider, else None."""

    def list_ways(self, place: MachineIdentity, around: HostView) -> list[ShutdownWay]:
        """Return the ways to end it from inside; queries the provider, ends nothing."""

    def send_shutdown(self, way: ShutdownWay, around: HostView) -> ShutdownOutcome:
        """Send the request once."""

    def read_state(self, place: MachineIdentity, around: HostView) -> str:
        """Return the provider's state of the machine: running, ended or unknown."""


CLOUDS: dict[str, CloudPlugin] = {one.NAME: one for one in (runpod, vast, aws, gcp, lambda_)}
"""Rented containers first: they run on machines of anybody's."""
