"""Puts a story's machines on their clouds, and makes happen to them what the story says."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from math import exp, log

from costguard.errors import InputError
from costguard.system.clock import Clock
from costguard.testing.cloud import EndingCloud, PrepaidCloud, SimulatedCloud
from costguard.testing.faults import Fault
from costguard.testing.machine import EVERY, Machine
from costguard.testing.samples import SILENT, Rule, Value, busy, computing, hanging, quiet, transfer
from costguard.testing.story import ANSWER, LABEL, LISTING, MEASURES, REPLACED, TURNS, Cast, CloudCast, Event, Story
from costguard.values.resource import ENDED, STOPPED
from costguard.values.sample import CONNECTIONS, INPUT_AGE, QUEUE_JOBS

OFTEN = 1.645
"""Of the normal distribution: 95 % lie below so many deviations."""


def clouds_of(story: Story, clock: Clock, seed: int = 0) -> Mapping[str, EndingCloud]:
    """Provider -> its cloud, with the machines that are there from the start. `seed`: of what takes a random time."""
    special: dict[str, list[CloudCast]] = {}
    for one in story.clouds:
        special.setdefault(one.provider, []).append(one)
    clouds = dict[str, EndingCloud]()
    for cast in story.cast:
        if cast.provider not in clouds:
            clouds[cast.provider] = _cloud(story, cast, special.get(cast.provider, []), clock, seed)
        if not cast.later:
            put(clouds[cast.provider], cast, story)
    return clouds


def put(cloud: EndingCloud, cast: Cast, story: Story, event: Event | None = None) -> Machine:
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
    machine.cores, machine.families = cast.cores, frozenset(cast.families) or EVERY
    machine.stops_in = machine.stops_in if cast.stops_in is None else cast.stops_in
    if cast.stopped:
        machine.turn(story.start, STOPPED)
    return machine


def happen(event: Event, story: Story, clouds: Mapping[str, EndingCloud]) -> None:
    """Let `event` happen to its machine or its cloud."""
    if event.kind == LISTING:
        if event.until is None:
            raise InputError("needs an end", field=f"line {event.line}")
        clouds[event.name].faults.append(Fault(event.at, event.until, event.what, polls=int(event.amount), name=event.text))
        return
    cloud = next((one for one in clouds.values() if event.name in one.machines), None)
    if cloud is None:
        raise InputError(f"'{event.name}' is not there yet", field=f"line {event.line}", hint="let it be replaced first")
    machine = cloud.machines[event.name]
    if event.kind == MEASURES:
        _measure(cloud, machine, event)
    elif event.kind == TURNS:
        _turn(machine, event)
    elif event.kind == ANSWER:
        machine.answers.append((event.at, event.what, int(event.amount) or None))
    elif event.kind == LABEL:
        _label(machine, event)
    elif event.kind == REPLACED:
        machine.turn(event.at, ENDED)
        put(cloud, next(one for one in story.cast if one.name == event.text), story, event)


def _cloud(story: Story, cast: Cast, special: list[CloudCast], clock: Clock, seed: int) -> EndingCloud:
    kind: type[EndingCloud] = SimulatedCloud if all(one.can_stop for one in special) else EndingCloud
    paid = next((one.paid for one in special if one.paid), None)
    cloud = (PrepaidCloud if paid else kind)(cast.provider, clock, account=cast.account, delay=_delay(special, seed))
    if paid and isinstance(cloud, PrepaidCloud):
        cloud.paid, cloud.since = paid, story.start
    return cloud


def _delay(special: list[CloudCast], seed: int) -> Callable[[], timedelta] | None:
    """How long an act takes: log-normal around `half`, never over `p95`."""
    found = next((one for one in special if one.half and one.p95), None)
    if found is None or found.half is None or found.p95 is None:
        return None
    half, p95 = found.half.total_seconds(), found.p95.total_seconds()
    drawn, spread = random.Random(seed), log(p95 / half) / OFTEN  # noqa: S311 - a delay is drawn, not secret
    return lambda: timedelta(seconds=round(min(p95, half * exp(drawn.gauss(0, spread)))))


def _measure(cloud: EndingCloud, machine: Machine, event: Event) -> None:
    if event.what in ("connected", "alone", "types", "queue"):
        machine.more += _beside(event)
        return
    gpus, held = max(machine.gpus, 1), 50.0 if event.text == "holding" else 0.0
    rules: Mapping[str, Callable[[], Rule]] = {
        "busy": lambda: busy(gpus=gpus),
        "quiet": lambda: quiet(gpus=gpus, memory=held),
        "gpu": lambda: busy(gpus=gpus, duty=event.amount),
        "busy on": lambda: busy(gpus=gpus, working=event.amount),
        "io": lambda: transfer(event.amount, gpus=gpus),
        "cpu": lambda: computing(event.amount, cores=machine.cores, gpus=gpus),
        "hang": lambda: hanging(event.amount, gpus=gpus),
        "no signal": lambda: SILENT,
    }
    cloud.measures(machine.name, rules[event.what](), at=event.at)


def _beside(event: Event) -> list[tuple[datetime, str, Value | None]]:
    """What people and schedulers add to whatever the machine does."""
    if event.what == "queue":
        return [(event.at, QUEUE_JOBS, event.amount)]
    there: list[tuple[datetime, str, Value | None]] = [(event.at, CONNECTIONS, 0.0 if event.what == "alone" else 1.0)]
    typed = event.at
    return [*there, (event.at, INPUT_AGE, lambda at: (at - typed).total_seconds())] if event.what == "types" else there


def _turn(machine: Machine, event: Event) -> None:
    if event.what in ("restarts", "starts"):
        machine.run(event.at)
    else:
        machine.turn(event.at, STOPPED if event.what == "stops" else ENDED)


def _label(machine: Machine, event: Event) -> None:
    labels = dict(machine.labels[-1][1]) if machine.labels else {}
    if event.what == "unlabel":
        labels.pop(event.text, None)
    else:
        labels |= dict(pair.split("=", 1) for pair in event.text.split("\n"))
    machine.labels.append((event.at, labels))
