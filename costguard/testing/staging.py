"""Puts a story's machines on their clouds, and makes happen to them what the story says."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from math import exp, log

from costguard.errors import InputError
from costguard.system.clock import Clock
from costguard.testing.cloud import PrepaidCloud, SimulatedCloud, TerminateOnlyCloud
from costguard.testing.faults import ListingFault
from costguard.testing.machine import ALL_FAMILIES, SimulatedMachine
from costguard.testing.samples import (
    SILENT,
    SampleRule,
    SignalValue,
    make_busy_rule,
    make_cpu_rule,
    make_hang_rule,
    make_quiet_rule,
    make_transfer_rule,
)
from costguard.testing.story import (
    ANSWER,
    LABEL,
    LISTING,
    MEASURES,
    REPLACED,
    TURNS,
    Story,
    StoryCloud,
    StoryEvent,
    StoryMachine,
)
from costguard.values.resource import ENDED, STOPPED
from costguard.values.sample import CONNECTIONS, INPUT_AGE, QUEUE_JOBS

P95_DEVIATIONS = 1.645
"""Of the normal distribution: 95 % lie below so many deviations."""


def _build_clouds(story: Story, clock: Clock, seed: int = 0) -> Mapping[str, TerminateOnlyCloud]:
    """Provider -> its cloud, with the machines that are there from the start. `seed`: of what takes a random time."""
    special: dict[str, list[StoryCloud]] = {}
    for one in story.clouds:
        special.setdefault(one.provider, []).append(one)
    clouds = dict[str, TerminateOnlyCloud]()
    for cast in story.cast:
        if cast.provider not in clouds:
            clouds[cast.provider] = _build_cloud(story, cast, special.get(cast.provider, []), clock, seed)
        if not cast.later:
            _place_machine(clouds[cast.provider], cast, story)
    return clouds


def _place_machine(
    cloud: TerminateOnlyCloud, cast: StoryMachine, story: Story, event: StoryEvent | None = None
) -> SimulatedMachine:
    """The machine of `cast` on its cloud: since its age, or since the `event` that brings it."""
    machine = cloud.add(
        cast.name,
        rate=cast.rate,
        gpu=cast.gpu,
        gpus=cast.gpus,
        stores=cast.stores,
        at=event.at if event else story.start - cast.age,
        labels=dict(cast.labels),
        owner=cast.owner,
        region=cast.region,
        tier=cast.tier,
    )
    if cast.handling:
        stops = None if cast.handling.stops is None else cast.handling.stops and cloud.can_stop
        machine.handling = type(cast.handling)(
            controller=cast.handling.controller,
            stops=stops,
            terminates=True,
            protected=cast.handling.protected,
            stop_loses=cast.handling.stop_loses,
            terminate_loses=cast.handling.terminate_loses,
        )
    machine.cores, machine.families = cast.cores, frozenset(cast.families) or ALL_FAMILIES
    machine.stops_in = machine.stops_in if cast.stops_in is None else cast.stops_in
    if cast.stopped:
        machine.turn(story.start, STOPPED)
    return machine


def _apply_event(event: StoryEvent, story: Story, clouds: Mapping[str, TerminateOnlyCloud]) -> None:
    """Let `event` happen to its machine or its cloud."""
    if event.kind == LISTING:
        if event.until is None:
            raise InputError("needs an end", field=f"line {event.line}")
        clouds[event.name].faults.append(
            ListingFault(event.at, event.until, event.what, polls=int(event.amount), name=event.text)
        )
        return
    cloud = next((one for one in clouds.values() if event.name in one.machines), None)
    if cloud is None:
        raise InputError(f"'{event.name}' is not there yet", field=f"line {event.line}", hint="let it be replaced first")
    machine = cloud.machines[event.name]
    if event.kind == MEASURES:
        _apply_measurement(cloud, machine, event)
    elif event.kind == TURNS:
        _apply_power_change(machine, event)
    elif event.kind == ANSWER:
        machine.answers.append((event.at, event.what, int(event.amount) or None))
    elif event.kind == LABEL:
        _apply_labels(machine, event)
    elif event.kind == REPLACED:
        machine.turn(event.at, ENDED)
        _place_machine(cloud, next(one for one in story.cast if one.name == event.text), story, event)


def _build_cloud(story: Story, cast: StoryMachine, special: list[StoryCloud], clock: Clock, seed: int) -> TerminateOnlyCloud:
    kind: type[TerminateOnlyCloud] = SimulatedCloud if all(one.can_stop for one in special) else TerminateOnlyCloud
    paid = next((one.paid for one in special if one.paid), None)
    cloud = (PrepaidCloud if paid else kind)(cast.provider, clock, account=cast.account, delay=_build_delay(special, seed))
    if paid and isinstance(cloud, PrepaidCloud):
        cloud.paid, cloud.since = paid, story.start
    return cloud


def _build_delay(special: list[StoryCloud], seed: int) -> Callable[[], timedelta] | None:
    """How long an act takes: log-normal around `half`, never over `p95`."""
    found = next((one for one in special if one.half and one.p95), None)
    if found is None or found.half is None or found.p95 is None:
        return None
    half, p95 = found.half.total_seconds(), found.p95.total_seconds()
    drawn, spread = random.Random(seed), log(p95 / half) / P95_DEVIATIONS  # noqa: S311 - a delay is drawn, not secret
    return lambda: timedelta(seconds=round(min(p95, half * exp(drawn.gauss(0, spread)))))


def _apply_measurement(cloud: TerminateOnlyCloud, machine: SimulatedMachine, event: StoryEvent) -> None:
    if event.what in ("connected", "alone", "types", "queue"):
        machine.more += _list_extra_signals(event)
        return
    gpus, held = max(machine.gpus, 1), 50.0 if event.text == "holding" else 0.0
    rules: Mapping[str, Callable[[], SampleRule]] = {
        "busy": lambda: make_busy_rule(gpus=gpus),
        "quiet": lambda: make_quiet_rule(gpus=gpus, memory=held),
        "gpu": lambda: make_busy_rule(gpus=gpus, duty=event.amount),
        "busy on": lambda: make_busy_rule(gpus=gpus, working=event.amount),
        "io": lambda: make_transfer_rule(event.amount, gpus=gpus),
        "cpu": lambda: make_cpu_rule(event.amount, cores=machine.cores, gpus=gpus),
        "hang": lambda: make_hang_rule(event.amount, gpus=gpus),
        "no signal": lambda: SILENT,
    }
    cloud.measures(machine.name, rules[event.what](), at=event.at)


def _list_extra_signals(event: StoryEvent) -> list[tuple[datetime, str, SignalValue | None]]:
    """What people and schedulers add to whatever the machine does."""
    if event.what == "queue":
        return [(event.at, QUEUE_JOBS, event.amount)]
    there: list[tuple[datetime, str, SignalValue | None]] = [(event.at, CONNECTIONS, 0.0 if event.what == "alone" else 1.0)]
    typed = event.at
    return [*there, (event.at, INPUT_AGE, lambda at: (at - typed).total_seconds())] if event.what == "types" else there


def _apply_power_change(machine: SimulatedMachine, event: StoryEvent) -> None:
    if event.what in ("restarts", "starts"):
        machine.run(event.at)
    else:
        machine.turn(event.at, STOPPED if event.what == "stops" else ENDED)


def _apply_labels(machine: SimulatedMachine, event: StoryEvent) -> None:
    labels = dict(machine.labels[-1][1]) if machine.labels else {}
    if event.what == "unlabel":
        labels.pop(event.text, None)
    else:
        labels |= dict(pair.split("=", 1) for pair in event.text.split("\n"))
    machine.labels.append((event.at, labels))
