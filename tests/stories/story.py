"""What a story holds once it is read: plain values, each with the line it stands on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from costguard.metering.observation import Handling
from costguard.testing.machine import SimulatedDisk
from costguard.values.money import Money

MEASURES, TURNS, LABEL, ANSWER, LISTING = "measures", "turns", "label", "answer", "listing"
PERSON, SURROUNDINGS, REPLACED, PRICE = "person", "surroundings", "replaced", "price"
"""Kinds of events: what a machine measures, that it is started or stopped by hand, its labels, how it takes acts, what is wrong
with a listing, what a person says, what is wrong around costguard, that a controller brings up another one, what it costs."""
LOOK = "look"
"""A look at a machine that fails or takes long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryMachine:
    """A machine of the story. `age`: since when it existed, counted back from the start. `later`: it appears by an event."""

    name: str
    provider: str
    line: int
    account: str = "acme"
    rate: str | None = None
    gpu: str = ""
    gpus: int = 1
    stores: tuple[SimulatedDisk, ...] = ()
    handling: Handling | None = None
    labels: tuple[tuple[str, str], ...] = ()
    owner: str = ""
    region: str = "east"
    tier: str = "on-demand"
    age: timedelta = timedelta(days=1)
    cores: float = 32
    stops_in: timedelta | None = None
    families: tuple[str, ...] = ()
    stopped: bool = False
    later: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryCloud:
    """What is special of a provider: whether it can stop, what was paid in advance, how long an act takes (half, p95)."""

    provider: str
    line: int
    can_stop: bool = True
    paid: Money | None = None
    half: timedelta | None = None
    p95: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryEvent:
    """Something that happens at `at`, or from `at` to `until`. `what`: the word of its kind; `name`: of what or whom.

    `text`, `length`, `amount`, `who`: what else was said (a reason or command, for how long, how much, by whom).
    """

    at: datetime
    kind: str
    what: str
    line: int
    name: str = ""
    text: str = ""
    until: datetime | None = None
    length: timedelta | None = None
    amount: float = 0
    money: Money | None = None
    who: str = "ada"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryExpectation:
    """What must be so, or never so: `what` of `name` at `at`, or from `at` to `until`; None: at any time of the story.

    `topic`: of a notice, a state, or what spending counts. `text`: what must be said. `times`: how often; None: at least once.
    `money`: to the cent; `most`: at most so much.
    """

    what: str
    line: int
    text_of_line: str
    at: datetime | None = None
    until: datetime | None = None
    name: str = ""
    topic: str = ""
    text: str = ""
    times: int | None = None
    money: Money | None = None
    most: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All of it. `config`: the TOML of policies, budgets, rails, as costguard reads it. `poll`: between two polls."""

    title: str
    hazard: str
    start: datetime
    end: datetime
    zone: tzinfo
    poll: timedelta
    cast: tuple[StoryMachine, ...]
    clouds: tuple[StoryCloud, ...]
    config: str
    events: tuple[StoryEvent, ...]
    expectations: tuple[StoryExpectation, ...]
    source: str = ""
