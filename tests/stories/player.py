"""Plays a story: every poll of it, with costguard as whoever is plugged in, and says what was not as expected.

    outcome = play(read(text), PollPlay, tmp_path)
    assert not outcome.faults, outcome.report()

`PollPlay` polls with the real ledger and guards nothing; a subclass of it that has `guard`, `wish` and `seen` plays all of it.
Whatever plays, the ledger is held against the truth at the end.

Puts a story's machines on their clouds, and makes happen to them what the story says.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import exp, log
from pathlib import Path

from costguard.errors import InputError
from costguard.guard.action_intents import Intent
from costguard.guard.signals import Activity
from costguard.metering.billing import BillingRule
from costguard.system.clock import Clock
from costguard.testing.cloud import ListingFault, PrepaidCloud, ReceivedAction, SimulatedCloud, TerminateOnlyCloud
from costguard.testing.doubles import FakeClock, RecordedNotification, RecordingNotifier
from costguard.testing.machine import (
    ALL_FAMILIES,
    SILENT,
    SampleRule,
    SignalValue,
    SimulatedMachine,
    make_busy_rule,
    make_cpu_rule,
    make_hang_rule,
    make_quiet_rule,
    make_transfer_rule,
)
from costguard.values.instant import EPOCH
from costguard.values.money import Rate
from costguard.values.resource import ENDED, STOPPED, ResourceKey
from costguard.values.sample import (
    CONNECTIONS,
    CPU_CORES,
    GPU_BUSY_COUNT,
    GPU_POWER_BUSIEST,
    GPU_UTIL,
    INPUT_AGE,
    NETWORK,
    QUEUE_JOBS,
)
from tests.stories.story import (
    ANSWER,
    LABEL,
    LISTING,
    LOOK,
    MEASURES,
    PERSON,
    PRICE,
    REPLACED,
    SURROUNDINGS,
    TURNS,
    Story,
    StoryCloud,
    StoryEvent,
    StoryMachine,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryStage:
    """What a story gives costguard. `clock` may jump where the story says so; the clouds go by a right one."""

    story: Story
    clock: FakeClock
    clouds: Mapping[str, TerminateOnlyCloud]
    notifier: RecordingNotifier
    ledger_url: str

    @property
    def config(self) -> str:
        """Policies, budgets and rails as TOML."""
        return self.story.config

    @property
    def rules(self) -> Mapping[str, BillingRule]:
        """How each cloud bills."""
        return {provider: cloud.rule() for provider, cloud in self.clouds.items()}

    def key(self, name: str) -> ResourceKey:
        """The key of a machine by its name in the story."""
        return next(cloud.machines[name].key for cloud in self.clouds.values() if name in cloud.machines)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryReply:
    """What a person was told: `done`, or refused; `text` as they read it."""

    done: bool
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardResult:
    """What costguard makes of it after a guard run: the state of work of each machine, and every intent there ever was."""

    works: Mapping[ResourceKey, Activity] = field(default_factory=dict)
    intents: Sequence[Intent] = ()


class PollPlayer:
    """Polls and measures with the real flows and the real ledger, guards nothing, and refuses what people want.

    `ledger`: open for writing. `polled`: the last round.
    """

    def __init__(self, stage: StoryStage) -> None:
        self.stage = stage
        self._open()

    def poll(self) -> None:
        """One round of polls into the ledger."""
        from costguard.services.poll.poll import measure_activity, poll_sources

        self.polled = poll_sources(self.stage.clouds.values(), self.ledger, self.stage.clock)
        measure_activity(self.polled.seen, self.ledger, self.stage.clock.now())

    def guard(self) -> None:
        """One guard run, after each `poll`; here nothing."""

    def wish(self, event: StoryEvent) -> StoryReply:
        """What a person says: `event.what` is the verb, of those in `events`; here always no."""
        return StoryReply(done=False, text=f"nobody listens to '{event.what}'")

    def seen(self) -> GuardResult:
        """What it makes of things now; here nothing."""
        return GuardResult()

    def crash(self) -> None:
        """It ends without a word, and starts again on the same ledger."""
        self.ledger.close()
        self._open()

    def fill(self, *, full: bool) -> None:
        """From now on the ledger's disk is full, or not; here it stays as it is."""

    def close(self) -> None:
        """The story is over."""
        self.ledger.close()

    def _open(self) -> None:
        from costguard.ledger.spans.writer import LedgerWriter

        self.ledger = LedgerWriter(self.stage.ledger_url, rules=self.stage.rules, ceilings={})


@dataclass(slots=True, kw_only=True)
class StoryOutcome:
    """What came of it. `works`, `intents`: what changed, when, by the name of the machine.

    `faults`: what was not as it should be, a sentence each; empty is good. `end`: when the last poll was due.
    """

    stage: StoryStage
    replies: list[tuple[datetime, StoryEvent, StoryReply]] = field(default_factory=list)
    works: list[tuple[datetime, str, Activity]] = field(default_factory=list)
    intents: list[tuple[datetime, str, Intent]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    polls: int = 0
    end: datetime = EPOCH

    @property
    def acts(self) -> list[ReceivedAction]:
        """Every act that any cloud received, in order of time."""
        return sorted((act for cloud in self.stage.clouds.values() for act in cloud.acts), key=lambda act: act.at)

    @property
    def told(self) -> list[RecordedNotification]:
        """Every message that arrived."""
        return self.stage.notifier.told

    def report(self) -> str:
        """The faults, and what happened instead."""
        zone = self.stage.story.zone
        lines = [f"{self.stage.story.title}: {len(self.faults)} not as expected", *self.faults, "", "what happened:"]
        rows = [(act.at, f"{act.act} {act.name}: {act.said}, {'done' if act.done else 'not done'}") for act in self.acts]
        rows += [(one.at, f"{one.message.severity} ({one.message.why_now}): {one.message.title}") for one in self.told]
        rows += [(at, f"{name} is {work.state}: {'; '.join(work.reasons)}") for at, name, work in self.works]
        rows += [(at, f"intent to {one.act} {name}: {one.state} {one.outcome}") for at, name, one in self.intents]
        rows += [(at, f"{event.what} {event.name}: {reply.text}") for at, event, reply in self.replies]
        lines += [f"  {at.astimezone(zone):%a %d %b %H:%M:%S}  {text}" for at, text in sorted(rows, key=lambda row: row[0])]
        return "\n".join(lines)


def play_story(
    story: Story, opened: Callable[[StoryStage], PollPlayer], folder: Path, *, seed: int = 0, ledger_url: str = ""
) -> StoryOutcome:
    """Play `story` to its end, with its ledger at `ledger_url`, or in `folder`. `seed`: of what takes a random time."""
    from tests.stories.checks import find_faults

    truth, clock = FakeClock(story.start), FakeClock(story.start)
    notifier = RecordingNotifier(clock)
    stage = StoryStage(
        story=story,
        clock=clock,
        clouds=_build_clouds(story, truth, seed),
        notifier=notifier,
        ledger_url=ledger_url or f"sqlite:///{folder}/story.db",
    )
    for cloud in stage.clouds.values():
        cloud.pass_time = lambda by: [one.advance(by) for one in (truth, clock)]
    outcome, run, left = StoryOutcome(stage=stage), opened(stage), list(story.events)
    try:
        at, full = story.start, False
        while at <= story.end:
            while left and left[0].at <= at:
                _advance_clocks((truth, clock), left[0].at)
                _dispatch_event(left.pop(0), run, outcome)
            _advance_clocks((truth, clock), at)
            full = _update_disk(run, story, at, was=full)
            if not _is_watchdog_down(story, at):
                run.poll()
                run.guard()
                outcome.polls += 1
                _record_changes(run.seen(), outcome, at)
            outcome.end = at
            at += story.poll
    finally:
        run.close()
    outcome.faults += find_faults(outcome)
    return outcome


def _advance_clocks(clocks: tuple[FakeClock, FakeClock], at: datetime) -> None:
    """Let time pass on both clocks until the right one, which is the first, says `at`."""
    by = max(timedelta(), at - clocks[0].now())
    for one in clocks:
        one.advance(by)


def _dispatch_event(event: StoryEvent, run: PollPlayer, outcome: StoryOutcome) -> None:
    stage = outcome.stage
    if event.kind == PERSON:
        outcome.replies.append((event.at, event, run.wish(event)))
    elif event.kind != SURROUNDINGS:
        _apply_event(event, stage.story, stage.clouds)
    elif event.what == "jumps" and event.length:
        stage.clock.jump(event.length)
    elif event.what == "crashes":
        run.crash()
    elif event.name == "channel" and event.until:
        stage.notifier.fail_between(event.at, event.until)


def _update_disk(run: PollPlayer, story: Story, at: datetime, *, was: bool) -> bool:
    """Whether the ledger's disk is full at `at`; `run` is told where that is new."""
    full = any(one.what == "full" and one.until and one.at <= at < one.until for one in story.events)
    if full != was:
        run.fill(full=full)
    return full


def _is_watchdog_down(story: Story, at: datetime) -> bool:
    """Whether the watchdog is down at `at`."""
    return any(one.name == "watchdog" and one.until and one.at <= at < one.until for one in story.events)


def _record_changes(sight: GuardResult, outcome: StoryOutcome, at: datetime) -> None:
    """Write down what changed since the last guard run."""
    names = {one.key: name for cloud in outcome.stage.clouds.values() for name, one in cloud.machines.items()}
    last_work = {name: work for _, name, work in outcome.works}
    last_state = {one.id: one.state for _, _, one in outcome.intents}
    for key, work in sight.works.items():
        name = names.get(key, key.id)
        if name not in last_work or last_work[name].state != work.state:
            outcome.works.append((at, name, work))
    for intent in sight.intents:
        if last_state.get(intent.id) != intent.state:
            outcome.intents.append((at, names.get(intent.life.key, intent.life.key.id), intent))


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


def _apply_event(  # noqa: C901 - a table of kinds
    event: StoryEvent, story: Story, clouds: Mapping[str, TerminateOnlyCloud]
) -> None:
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
    elif event.kind == LOOK:
        machine.looks.append((event.at, int(event.amount), event.length))
    elif event.kind == LABEL:
        _apply_labels(machine, event)
    elif event.kind == PRICE:
        machine.rates.append((event.at, Rate.parse(event.text)))
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
        "starved": lambda: _make_weak_rule(gpus, {GPU_UTIL: 3.0, GPU_POWER_BUSIEST: 85.0, CPU_CORES: 0.15, NETWORK: 5e5}),
        "jumps": lambda: _make_weak_rule(
            gpus, {GPU_UTIL: lambda at: 2.0 if at.minute % 3 else 97.0, GPU_BUSY_COUNT: float(gpus), CPU_CORES: 1.0}
        ),
        "no signal": lambda: SILENT,
    }
    cloud.measures(machine.name, rules[event.what](), at=event.at)


def _make_weak_rule(gpus: float, values: Mapping[str, SignalValue]) -> SampleRule:
    """A job that mostly waits: what a machine at rest shows, but for `values`."""
    return SampleRule(values={**make_quiet_rule(gpus=gpus).values, **values})


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
