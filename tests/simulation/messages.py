"""How many messages four days of 42 machines and nine people send, by topic: what a new kind of alert costs whoever reads them.

    python -m tests.simulation messages

The settings are those of `costguard init --guard`, armed: a notice after 45 idle minutes, a stop 15 minutes later, default
rails, one channel. Notebooks work by day, trainings end at night, some hang, some are measured badly, and whoever finds their
machine stopped in the morning starts it again.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

from costguard.values.resource import STOPPED
from tests.due import DuePlayer
from tests.stories import StoryOutcome, StoryStage, parse_story, play_story

OWNERS = ("ada", "bob", "cleo", "dan", "eve", "finn", "gus", "hana", "ivo")
DAYS = ("2026-11-02", "2026-11-03", "2026-11-04", "2026-11-05")
KINDS = ("notebook",) * 14 + ("training",) * 14 + ("serving",) * 6 + ("hung",) * 4 + ("blind",) * 4
SHAPES = (
    "aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08",
    "aws 1xL4 $0.80, disk 100 GB $0.08",
    "gcp 2xL4 $1.60, disk 200 GB $0.10",
)
POD = 'runpod H100-SXM $2.99, disk 200 GB $0.10/$0.20 volume, loses "data outside the volume"'


def write_story() -> str:
    """The four days, the same each time."""
    chance = random.Random(42)  # noqa: S311 - habits are drawn, not secret
    rows = [
        "title: Four days of 42 machines",
        "hazard: GUARD 7",
        "start: 2026-11-02 00:00",
        "end: 2026-11-05 23:55",
        "poll: 5m",
    ]
    rows.append("machines")
    for n, kind in enumerate(KINDS):
        shape = POD if n % 3 == 2 else chance.choice(SHAPES)
        families = ", measures duty power cpu" if kind == "blind" and n % 2 else ""
        rows.append(f"  m{n} {shape}, owner {OWNERS[n % len(OWNERS)]}{families}")
    rows += [
        "budgets",
        "  all $60000 month",
        "policies",
        "  idle-gpu arm stop, gpu, when idle, for 45m, notify, +15m stop",
        "events",
    ]
    events = [event for n, kind in enumerate(KINDS) for event in _list_events(f"m{n}", kind, chance)]
    return "\n".join([*rows, *sorted(events)])


def _list_events(name: str, kind: str, chance: random.Random) -> Iterator[str]:
    yield f"  2026-11-02 00:00 {name} {'no signal' if kind == 'blind' and int(name[1:]) % 2 == 0 else 'busy'}"
    for number, day in enumerate(DAYS):
        if kind == "notebook":
            start, lunch, end = 8 * 60 + chance.randrange(90), 11 * 60 + chance.randrange(120), 17 * 60 + chance.randrange(180)
            yield f"  {_at(day, start)} {name} busy"
            yield f"  {_at(day, lunch)} {name} quiet holding"
            yield f"  {_at(day, lunch + 20 + chance.randrange(90))} {name} busy"
            yield f"  {_at(day, end)} {name} quiet holding"
        elif kind == "training":
            yield f"  {_at(day, 9 * 60 + chance.randrange(240))} {name} busy"
            yield f"  {_at(day, 19 * 60 + chance.randrange(280))} {name} quiet"
        elif kind == "hung" and number % 2 == int(name[1:]) % 2:
            yield f"  {_at(day, 60 * chance.randrange(1, 12))} {name} hang 80 W"
            yield f"  {_at(day, 60 * chance.randrange(13, 20))} {name} busy"
        elif kind == "blind" and int(name[1:]) % 2:
            yield f"  {_at(day, 60 * chance.randrange(10, 14))} {name} quiet"
            yield f"  {_at(day, 60 * chance.randrange(15, 22))} {name} busy"


def _at(day: str, minutes: int) -> str:
    return f"{day} {minutes // 60:02d}:{minutes % 60 // 5 * 5:02d}"


class LabPlayer(DuePlayer):
    """Plays the four days: at 08:00 and at 09:30 people start what they find stopped."""

    def poll(self) -> None:
        """Poll, after people came in."""
        now = self.stage.clock.now()
        if (now.hour, now.minute) in ((8, 0), (9, 30)):
            for machine in (one for cloud in self.stage.clouds.values() for one in cloud.machines.values()):
                here = machine.now(now)
                if here is not None and here.state == STOPPED:
                    machine.run(now)
        super().poll()


def play_days() -> tuple[StoryOutcome, LabPlayer]:
    """All four days."""
    players = list[LabPlayer]()

    def open_player(stage: StoryStage) -> LabPlayer:
        players.append(LabPlayer(stage))
        return players[-1]

    with tempfile.TemporaryDirectory() as folder:
        return play_story(parse_story(write_story(), source="messages"), open_player, Path(folder)), players[0]


def count_messages(say: Callable[[str], object]) -> int:
    """Print how many there were of each topic and severity; 1 where a wanted act was neither sent nor told."""
    outcome, player = play_days()
    kinds = Counter[tuple[str, str, str]]()
    for one in outcome.told:
        topics = {notice.topic.partition(":")[0] for notice in one.message.notices}
        kinds["+".join(sorted(topics)), one.message.severity, one.message.why_now] += 1
    for (topic, severity, why), count in sorted(kinds.items()):
        say(f"{count:5d}  {topic} {severity} ({why})")
    unsent = [*player.find_unsent(), *player.find_doubles()]
    say(
        f"{kinds.total():5d}  messages in {timedelta(minutes=5) * outcome.polls}, {sum(act.done for act in outcome.acts)} stops"
    )
    for sentence in unsent[:5]:
        say(f"       {sentence}")
    say(f"{len(unsent):5d}  wanted acts neither sent nor told, or told twice")
    return 1 if unsent else 0
