"""Plays a story: every poll of it, with costguard as whoever is plugged in, and says what was not as expected.

    outcome = play(read(text), PollPlay, tmp_path)
    assert not outcome.faults, outcome.report()

`PollPlay` polls with the real ledger and guards nothing; a subclass of it that has `guard`, `wish` and `seen` plays all of it.
Whatever plays, the ledger is held against the truth at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from costguard.guard.action_intents import Intent
from costguard.guard.work import Activity
from costguard.metering.billing import BillingRule
from costguard.testing.cloud import ReceivedAction, TerminateOnlyCloud
from costguard.testing.doubles import FakeClock
from costguard.testing.recording import RecordedNotification, RecordingNotifier
from costguard.testing.staging import _apply_event, _build_clouds
from costguard.testing.story import PERSON, SURROUNDINGS, Story, StoryEvent
from costguard.values.instant import EPOCH
from costguard.values.resource import ResourceKey


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


class StoryPlayer(Protocol):
    """Costguard in a story. `guard` follows each `poll`; both go by `Stage.clock`."""

    def poll(self) -> None:
        """One round of polls into the ledger."""

    def guard(self) -> None:
        """One guard run."""

    def wish(self, event: StoryEvent) -> StoryReply:
        """What a person says: `event.what` is the verb, of those in `happening`."""

    def seen(self) -> GuardResult:
        """What it makes of things now."""

    def crash(self) -> None:
        """It ends without a word, and starts again on the same ledger."""

    def fill(self, *, full: bool) -> None:
        """From now on the ledger's disk is full, or not."""

    def close(self) -> None:
        """The story is over."""


class PollPlayer:
    """Polls and measures with the real flows and the real ledger, guards nothing, and refuses what people want.

    `ledger`: open for writing. `polled`: the last round.
    """

    def __init__(self, stage: StoryStage) -> None:
        self.stage = stage
        self._open()

    def poll(self) -> None:
        """See `Play`."""
        from costguard.services.measured import measure_activity
        from costguard.services.poll import poll_sources

        self.polled = poll_sources(self.stage.clouds.values(), self.ledger, self.stage.clock)
        measure_activity(self.polled.seen, self.ledger, self.stage.clock.now())

    def guard(self) -> None:
        """Nothing."""

    def wish(self, event: StoryEvent) -> StoryReply:
        """Always no."""
        return StoryReply(done=False, text=f"nobody listens to '{event.what}'")

    def seen(self) -> GuardResult:
        """Nothing is seen."""
        return GuardResult()

    def crash(self) -> None:
        """Open the ledger anew."""
        self.ledger.close()
        self._open()

    def fill(self, *, full: bool) -> None:
        """Nothing: the disk stays as it is."""

    def close(self) -> None:
        """Let go of the ledger."""
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
    story: Story, opened: Callable[[StoryStage], StoryPlayer], folder: Path, *, seed: int = 0, ledger_url: str = ""
) -> StoryOutcome:
    """Play `story` to its end, with its ledger at `ledger_url`, or in `folder`. `seed`: of what takes a random time."""
    from costguard.testing.story_checks import find_faults

    truth, clock = FakeClock(story.start), FakeClock(story.start)
    notifier = RecordingNotifier(clock)
    stage = StoryStage(
        story=story,
        clock=clock,
        clouds=_build_clouds(story, truth, seed),
        notifier=notifier,
        ledger_url=ledger_url or f"sqlite:///{folder}/story.db",
    )
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


def _dispatch_event(event: StoryEvent, run: StoryPlayer, outcome: StoryOutcome) -> None:
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


def _update_disk(run: StoryPlayer, story: Story, at: datetime, *, was: bool) -> bool:
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
