"""Forty fleets under hard caps, played with the real guard over virtual hours: a line each, and what is wrong with it.

    python -m tests.simulation caps [--only 7]

Truth is what the simulated clouds billed, and what people read: a page that says "may be exceeded by up to 83.15 USD" allows
that much. A fleet is wrong if its cap was exceeded by more than was said before, if a due stop was late by a run and no message
said so, if more machines stopped than were named, or if a cap that nobody accepted, or a price that one poll showed, stopped
more than [rails] acts allow (3 in 10 min).
"""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from costguard.guard.alerts.alert import PAGE, Alert, Notification
from costguard.guard.overrides import ACCEPT
from costguard.settings import check_settings
from costguard.values.money import NANO
from tests.due import DuePlayer, names, read_notice
from tests.stories import StoryOutcome, StoryStage, parse_story, play_story
from tests.stories.story import StoryEvent

START = datetime(2026, 11, 2, 8, tzinfo=UTC)
TEN_MINUTES, MINUTE = timedelta(minutes=10), timedelta(minutes=1)
PLANNED_AFTER = 20
"""Minutes after new settings begin, when somebody runs `costguard plan` and reads what it says of the cap."""
OVERSHOOT = re.compile(r"exceeded[^.;]*? by (?:up to|at most|about) \$?([\d,]+(?:\.\d+)?)")
LOSES = {"local": 'loses "data on the local disks"', "pod": 'loses "data outside the volume"'}


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """One fleet. `machines`: (kind, dollars an hour or "": unknown, more words). `cap`: dollars; `change`: (minute, cap).

    `accepts`: minutes after the start or the change when somebody accepts what waits; None: nobody does. `nested`: a cap for
    the half with team=vision. `jump`: (minute, whether it stays). `down`: (minute) of ten without a channel.
    """

    number: int
    kind: str
    machines: tuple[tuple[str, str, str], ...]
    cap: float
    hours: float
    poll: int = 1
    change: tuple[int, float] | None = None
    accepts: int | None = 2
    irreversible: bool = True
    period: str = "month"
    nested: float | None = None
    jump: tuple[int, bool] | None = None
    down: int | None = None
    quiet: int = 0

    @property
    def unaccepted(self) -> bool:
        """Whether nobody accepts the cap in force."""
        return self.accepts is None

    def settings(self, cap: float) -> str:
        """The settings with this cap, as TOML."""
        rows = ["hard = true", *(["allow_irreversible = true"] if self.irreversible else [])]
        tables = [f'[[budget]]\nname = "all"\ncap = "{cap:.2f} USD"\nperiod = "{self.period}"', *rows]
        if self.nested is not None:
            match = 'match = { labels = { team = "vision" } }'
            tables += [f'[[budget]]\nname = "vision"\ncap = "{self.nested:.2f} USD"\nperiod = "{self.period}"', match, *rows]
        if self.quiet:
            tables.append('[[policy]]\nname = "idle-gpu"\narm = "notify"\nmatch = { gpu = true }')
            tables.append('when = "state == \'idle\'"\nfor = "45m"\nthen = [{ do = "notify" }]')
        return "\n".join(tables)

    def write_story(self) -> str:
        """The story of it; its settings are put in by the player."""
        rows = [f"title: fleet {self.number}", "hazard: issue 36", "start: 2026-11-02 08:00", f"end: {_clock(self.hours * 60)}"]
        rows += [f"poll: {self.poll}m", "machines"]
        for n, (kind, rate, more) in enumerate(self.machines):
            words = [f"m{n} {'runpod' if kind == 'pod' else 'aws'} H100 {'$' + rate if rate else ''}".strip(), "owner ada"]
            words += ["age 1m", "stops-in 60s", *([LOSES[kind]] if kind in LOSES else []), *([more] if more else [])]
            rows.append("  " + ", ".join(words))
        rows.append("events")
        rows += [f"  08:00 m{n} quiet" for n in range(self.quiet)]
        if self.down is not None:
            rows.append(f"  {_clock(self.down)}-{_clock(self.down + 10)} channel down")
        if self.jump is not None:
            at, stays = self.jump
            priced = [(n, float(rate)) for n, (_, rate, _) in enumerate(self.machines) if rate]
            rows += [f"  {_clock(at)} m{n} costs ${10 * rate:.2f}" for n, rate in priced]
            rows += [] if stays else [f"  {_clock(at + self.poll)} m{n} costs ${rate:.2f}" for n, rate in priced]
        return "\n".join(rows)


def _clock(minutes: float) -> str:
    hours, left = divmod(round(minutes), 60)
    return f"{8 + hours:02d}:{left:02d}"


def draw_fleets() -> list[Fleet]:  # noqa: C901 - a table of fleets
    """All of them, the same each time."""
    chance, fleets = random.Random(36), list[Fleet]()  # noqa: S311 - prices are drawn, not secret

    def add(kind: str, of: str, count: int, to_cap: float = 2.0, **more: object) -> None:
        """A fleet whose burn reaches its cap after `to_cap` hours."""
        rate = chance.choice(("2.99", "3.00", "1.89", "12.29"))
        machines = tuple(((of if of != "mixed" else ("plain", "local", "pod")[n % 3]), rate, "") for n in range(count))
        poll = 5 if count > 24 else chance.choice((2, 3, 5) if count > 10 else (1, 1, 2, 3, 5))
        fields = {"cap": round(to_cap * count * float(rate), 2), "hours": to_cap + 2, "poll": poll, "machines": machines}
        fleets.append(Fleet(number=len(fleets) + 1, kind=kind, **(fields | more)))  # type: ignore[arg-type]

    def mark(words: str, every: int) -> None:
        """Give each so manieth machine of the last fleet more words."""
        last = fleets[-1]
        marked = tuple((k, r, words if n % every == 0 else w) for n, (k, r, w) in enumerate(last.machines))
        fleets[-1] = replace(last, machines=marked)

    for count in (2, 4, 8, 12, 20):
        add("local disks", "local", count)
    for count in (2, 8, 16, 24, 40):
        add("pods", "pod", count)
    for count in (3, 10, 30, 60):
        add("can stop", "plain", count)
    for count in (6, 24, 40):
        add("cap lowered, not accepted", "plain", count, 6, hours=4, accepts=None)
        fleets[-1] = replace(fleets[-1], change=(60, fleets[-1].cap / 4))
    add("pods, cap lowered, not accepted", "pod", 12, 6, hours=4, accepts=None)
    fleets[-1] = replace(fleets[-1], change=(60, fleets[-1].cap / 4))
    for count in (8, 16):
        add("cap lowered, accepted after 20 min", "mixed", count, 6, hours=4, accepts=20)
        fleets[-1] = replace(fleets[-1], change=(30, fleets[-1].cap / 2.5))
    for count in (5, 20, 40):
        add("typo of ten times, not accepted", "plain" if count != 20 else "local", count, 20, hours=4, accepts=None)
        fleets[-1] = replace(fleets[-1], change=(150, fleets[-1].cap / 10))
    for count in (4, 12, 30):
        add(
            "price jumps for one poll",
            "plain" if count != 12 else "pod",
            count,
            3,
            hours=3.5,
            poll=2 if count > 12 else 1,
            jump=(135, False),
        )
    for count in (4, 12, 30):
        add("price jumps and stays", "plain" if count != 12 else "local", count, 12, hours=4, jump=(60, True))
    for count in (6, 18):
        add("unknown prices", "mixed", count)
        last = fleets[-1]
        machines = tuple((k, "" if n % 3 == 2 else r, w) for n, (k, r, w) in enumerate(last.machines))
        fleets[-1] = replace(last, machines=machines, cap=sum(2 * float(r) for _, r, _ in machines if r))
    add("irreversible not allowed", "mixed", 9, irreversible=False)
    add("protected ones", "plain", 8)
    mark("protected stop", 4)
    add("protected ones", "pod", 15)
    mark("protected stop", 5)
    add("idle ones", "plain", 10, 3, quiet=4)
    add("nested caps", "mixed", 12, 3)
    mark("labels team=vision", 2)
    fleets[-1] = replace(fleets[-1], nested=fleets[-1].cap / 4)
    add("nested caps", "plain", 30, 3)
    mark("labels team=vision", 3)
    fleets[-1] = replace(fleets[-1], nested=fleets[-1].cap / 5)
    add("rolling window", "local", 6, period="rolling 1d")
    add("channel down", "plain", 6, 2, poll=1, down=112)
    add("channel down", "pod", 10, 2, poll=1, down=112)
    return fleets


class CapPlayer(DuePlayer):
    """Plays a fleet: puts its settings in, changes them on the way, accepts what waits, and reads what plan says."""

    fleet: Fleet
    plans: list[tuple[datetime, str]]
    """What `costguard plan` said of caps, and when somebody ran it."""

    def __init__(self, stage: StoryStage, fleet: Fleet) -> None:
        self.fleet, self.plans, self.runs = fleet, [], []
        super().__init__(stage)
        self.changed_at, self._next = START, fleet.change
        self._use_settings(fleet.cap)

    def _use_settings(self, cap: float) -> None:
        self.settings = check_settings(self.fleet.settings(cap), "fleet")
        self.crash()

    def poll(self) -> None:
        """Poll; before that, a watchdog with new settings starts where it is time for it."""
        if self._next is not None and self.stage.clock.now() - START >= self._next[0] * MINUTE:
            self.changed_at, cap = self.stage.clock.now(), self._next[1]
            self._next = None
            self._use_settings(cap)
        super().poll()

    def guard(self) -> None:
        """One run, and what people do after it."""
        super().guard()
        now, since = self.stage.clock.now(), self.stage.clock.now() - self.changed_at
        first = self.fleet.change is None or self.changed_at == START
        after = 2 * MINUTE if first else (self.fleet.accepts or 0) * MINUTE
        asked = self.guarded is not None and (self.guarded.unaccepted or since <= after + self.fleet.poll * MINUTE)
        if self.guarded and asked and since >= after and (first or self.fleet.accepts is not None):
            event = StoryEvent(at=now, kind="person", what="accept", line=0)
            self._add(event, ACCEPT, subject=self.guarded.plan_hash)
        if self.guarded and self.guarded.survey and timedelta() <= since - PLANNED_AFTER * MINUTE < self.fleet.poll * MINUTE:
            self.plans += [(now, f"budget {f.standing.budget.name}: {f.short}") for f in self.guarded.survey.foresights]


class Verdict(NamedTuple):
    """What came of a fleet; `wrong`: a sentence each. `spent`, `stated`: dollars."""

    fleet: Fleet
    spent: float
    stated: float
    stops: int
    pages: int
    wrong: tuple[str, ...]
    cpu_s: float

    def __str__(self) -> str:
        """One line of the table."""
        cap = self.fleet.change[1] if self.fleet.change else self.fleet.cap
        over = f"${self.spent:,.2f} of ${cap:,.2f}, said +${self.stated:,.2f}"
        said = "; ".join(self.wrong[:3]) + (f"; and {len(self.wrong) - 3} more" if len(self.wrong) > 3 else "")
        head = f"{self.fleet.number:2d} {len(self.fleet.machines):2d} {self.fleet.kind}, {self.fleet.poll} min: {over}"
        return f"{head}, {self.stops} stops, {self.pages} pages: {f'WRONG: {said}' if self.wrong else 'right'}"


def play_fleet(fleet: Fleet) -> Verdict:
    """Play one, and judge it."""
    began, players = time.process_time(), list[CapPlayer]()

    def open_player(stage: StoryStage) -> CapPlayer:
        players.append(CapPlayer(stage, fleet))
        return players[-1]

    with tempfile.TemporaryDirectory() as folder:
        outcome = play_story(parse_story(fleet.write_story(), source=f"fleet-{fleet.number}"), open_player, Path(folder))
    judge = _Judge(fleet, players[0], outcome)
    wrong = tuple(judge.list_wrongs())
    messages = players[0].stage.notifier.tries
    pages = len({message.id for message in messages if message.severity == PAGE})
    stops = sum(act.done for act in outcome.acts)
    spent, stated = judge.spent("all", outcome.end), judge.find_stated("all")
    return Verdict(fleet, float(spent), float(stated), stops, pages, wrong, time.process_time() - began)


@dataclass
class _Judge:
    fleet: Fleet
    player: CapPlayer
    outcome: StoryOutcome
    messages: Sequence[Notification] = field(init=False)

    def __post_init__(self) -> None:
        self.messages = self.player.stage.notifier.tries
        self.changed_at, self.poll = self.player.changed_at, self.fleet.poll * MINUTE
        last = self.fleet.change[1] if self.fleet.change else self.fleet.cap
        self.caps = {"all": last} | ({"vision": self.fleet.nested} if self.fleet.nested is not None else {})

    def list_wrongs(self) -> Iterator[str]:
        """Everything, a sentence each."""
        yield from self._unasked() if self.fleet.unaccepted else self._exceeded()
        yield from self._late()
        yield from self._unnamed()
        yield from self._beyond_rails()
        yield from self._jumped()

    def spent(self, budget: str, at: datetime, only: Sequence[str] | None = None) -> Fraction:
        """What the budget's machines truly cost until then, in dollars."""
        members = [n for n in self._members(budget) if only is None or n in only]
        clouds = self.player.stage.clouds.values()
        machines = [m for cloud in clouds for m in cloud.machines.values() if m.name in members]
        return sum((m.spent(m.created_at, at) for m in machines), Fraction(0)) / NANO

    def _members(self, budget: str) -> list[str]:
        mine = ((f"m{n}", more) for n, (_, _, more) in enumerate(self.fleet.machines))
        return [name for name, more in mine if budget == "all" or "team=vision" in more]

    def find_stated(self, budget: str) -> float:
        """The most by which a message, or plan, said beforehand that the cap may be exceeded."""
        read = [(m.at, f"{n.subject} {read_notice(n)}") for m in self.messages for n in m.notices]
        read += self.player.plans
        cap = self.caps[budget]
        said = [text for at, text in read if f"budget {budget}" in text and self.spent(budget, at) <= cap]
        return max((float(one.replace(",", "")) for text in said for one in OVERSHOOT.findall(text)), default=0.0)

    def _exceeded(self) -> Iterator[str]:
        """(a) More was spent than the cap and what was said; less what those cost of whom it was said that they run on."""
        for budget, cap in self.caps.items():
            spent, stated = self.spent(budget, self.outcome.end), self.find_stated(budget)
            excused = self.spent(budget, self.outcome.end, self._list_excused())
            if spent - excused > cap + stated:
                yield f"budget {budget} exceeded by ${float(spent) - cap:,.2f}, said ${stated:,.2f}"

    def _list_excused(self) -> list[str]:
        """Machines that must not be stopped, and of which a message said that they run on or are asked about."""
        told = [n for m in self.messages for n in m.notices]
        may_not = [
            f"m{n}"
            for n, (kind, _, more) in enumerate(self.fleet.machines)
            if "protected" in more or (kind in LOSES and not self.fleet.irreversible)
        ]
        words = ("protected", "asked about", "?")
        return [one for one in may_not if any(any(w in read_notice(n) for w in words) and _says(n, one) for n in told)]

    def _unasked(self) -> Iterator[str]:
        """A cap that waits for somebody to accept it is paged at once, with the command."""
        due = [run.at for run in self.player.runs if run.at >= self.changed_at and any(one.budget for one in run.due)]
        asks = [m.at for m in self.messages if "--accept" in " ".join(map(read_notice, m.notices)) and m.at >= self.changed_at]
        if due and (not asks or asks[0] > due[0] + self.poll):  # whoever is not asked is told by the cap that it holds
            yield from (f"{one}, and nobody was asked to accept it" for one in self._exceeded())

    def _late(self) -> Iterator[str]:
        """(b) A stop for a cap was due for more than one run, and no message said so."""
        late = [one for one in self.player.find_unsent(runs_max=2) if "for budget:" in one]
        if late:
            yield f"{len(late)} late without a page: {late[0]}"

    def _unnamed(self) -> Iterator[str]:
        """(c) A machine was stopped of which no message had said so."""
        told = [(m.at, n) for m in self.messages for n in m.notices]
        for act in self.outcome.acts:
            if act.done and not any(at < act.at and names(n, act.key) for at, n in told):
                yield f"{act.name} was stopped at {act.at:%H:%M}, and no message had named it"

    def _beyond_rails(self) -> Iterator[str]:
        if not self.fleet.unaccepted:
            return
        ats = [act.at for act in self.outcome.acts if act.done and act.at >= self.changed_at]
        most = max((sum(at - TEN_MINUTES < one <= at for one in ats) for at in ats), default=0)
        if most > 3:
            yield f"not accepted, and {most} stops in ten minutes"
        if len(ats) > max(20, len(self.fleet.machines) // 2):
            yield f"not accepted, and {len(ats)} stops in a day"

    def _jumped(self) -> Iterator[str]:
        if self.fleet.jump is None:
            return
        at, stays = START + self.fleet.jump[0] * MINUTE, self.fleet.jump[1]
        until = at + (self.poll if stays else TEN_MINUTES)
        hasty = [act.name for act in self.outcome.acts if act.done and at <= act.at < until]
        if hasty:
            yield f"{len(hasty)} stops by a price that one poll showed"


def _says(notice: Alert, name: str) -> bool:
    return bool(re.search(rf"\b(i-)?{name}\b", f"{notice.subject} {read_notice(notice)}"))


def play_caps(say: Callable[[str], object], only: int | None = None) -> int:
    """Play all, or one, a line each; 1 where any is wrong."""
    wrong = 0
    fleets = [fleet for fleet in draw_fleets() if only in (None, fleet.number)]
    for fleet in fleets:
        found = play_fleet(fleet)
        wrong += bool(found.wrong)
        say(f"{found}")
    say(f"{wrong} of {len(fleets)} wrong")
    return 1 if wrong else 0
