"""`status`, `plan` and `watch` say the same state of work of each machine: what is known is built in one place.

Over five fake clouds in processes of their own, two of which publish their measures late; and in this process over the ledgers
of stories, at many moments: after leases, gaps and hang-ups, and where machines work in groups.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import MISSING, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.guard.context import GuardSnapshot
from costguard.guard.replay.history import ReplaySetup
from costguard.guard.signals import ACTIVE, HUNG, IDLE, UNKNOWN
from costguard.ledger.db import maintenance
from costguard.services.guarding.guard_inputs import PollResults, read_measurement_lags
from costguard.services.poll import configured_providers
from costguard.services.report import ledger_answers
from tests import warm
from tests.campaign import FULL
from tests.cli.watched import Before, Five, five_clouds
from tests.conftest import Command
from tests.stories.guard_player import GuardPlayer
from tests.stories.parser import parse_story
from tests.stories.player import StoryStage, play_story

MINUTE = timedelta(minutes=1)
STEP = 5 * MINUTE
STATED = """
[watch]
interval = "5m"
[[policy]]
name = "runs"
when = 'power == "running"'
for = "45m"
then = [{ do = "record" }]
"""
MEASURED = ("aws", "gcp", "runpod", "vast")
COMMANDS = (("status", "--json"), ("plan", "--json"), ("watch", "--once", "--dry-run"))
SCENARIOS = Path(__file__).parents[1] / "scenarios"
MIXED = """
title: A group that idles as one, a lease that ends, and a watchdog that was down
hazard: GUARD 2, GUARD 4, GUARD 6
start: 2026-11-02 08:00
end: 12:30
machines
  n0    gcp 8xH100-SXM $88.00, owner ada, labels cluster=big
  n1    gcp 8xH100-SXM $88.00, owner ada, labels cluster=big
  box   aws 8xA100-80GB-SXM $32.77, owner ada
policies
  idle-gpu  arm notify, gpu, when idle, for 45m, lease 2h x 3, notify
events
  08:00  n0 busy
  08:00  n1 busy
  08:00  box busy
  08:10  n1 quiet
  08:10  box quiet
  09:00  keep box for 1h why "mine" by ada
  09:30  n0 quiet
  11:00-11:20  watchdog down
expect
  never act
"""
TOLD = re.compile(r"(\S+): running, (\w+) \(")
States = dict[str, str]
"""A machine that runs -> its state of work."""


def states_of(command: str, said: str) -> States:
    """What a command's output says of each machine that runs, as far as the command speaks of it."""
    if command == "watch":
        return dict(TOLD.findall(said))
    data = json.loads(said)
    if command == "plan":
        return {row["id"]: row["work"]["state"] for row in data["rows"]}
    running = [row for row in data["resources"] if (row["kind"], row["state"]) == ("instance", "running")]
    return {row["id"]: row["work"]["state"] for row in running}


@pytest.mark.parametrize("known", [GuardSnapshot, PollResults, ReplaySetup])
def test_nothing_that_decides_has_a_default_so_that_none_of_it_can_be_forgotten(known: type) -> None:
    assert [one.name for one in fields(known) if (one.default, one.default_factory) != (MISSING, MISSING)] == []


@dataclass
class Watched:
    """Five clouds that a watchdog has watched every five minutes for two hours, the last time at `at`."""

    five: Five
    at: datetime


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    at = datetime.now(UTC).replace(second=0, microsecond=0)
    at -= timedelta(minutes=at.minute % 5)  # when CloudWatch's period begins: in its last minute AWS's newest sample is too old
    born = at - 120 * MINUTE
    with five_clouds(tmp_path_factory.mktemp("five"), born) as made, ExitStack() as stack:
        before = Before(made, made.write(STATED), born, STEP, stack)
        before.watch_until(at)
        before.give_turn()
        yield Watched(made, at)


def said(watched: Watched, *flags: str) -> dict[str, States]:
    """What each command says a minute after the watchdog's last look, each on a copy of the ledger."""
    five, at = watched.five, watched.at + MINUTE
    five.set_clocks(at)
    copies = [five.folder / f"{words[0]}{'-'.join(flags)}.db" for words in COMMANDS]
    for copy in copies:
        maintenance.backup_ledger(five.ledger, copy)
    environs = [{**five.environ, "COSTGUARD_LEDGER__URL": f"sqlite:///{copy}"} for copy in copies]
    ended = warm.run(*((*flags, *words) for words in COMMANDS), cwd=five.folder, environs=environs, at=at)
    for copy in copies:
        copy.unlink()
    assert [one.returncode for one in ended] == [0, 0, 0], [one.stderr.decode() for one in ended]
    return {words[0]: states_of(words[0], one.stdout.decode()) for words, one in zip(COMMANDS, ended, strict=True)}


@pytest.mark.parametrize("flags", [(), ("--offline",)])
def test_all_commands_say_the_same_of_the_machines_of_five_clouds(watched: Watched, flags: tuple[str, ...]) -> None:
    found, five = said(watched, *flags), watched.five
    idle = {name: found["watch"][five.victim(name)] for name in five.ids}
    assert idle == {**dict.fromkeys(MEASURED, IDLE), "lambda": UNKNOWN}
    busy = {name: {found["watch"][one] for one in ids if one != five.victim(name)} for name, ids in five.ids.items()}
    assert busy == {**{name: {ACTIVE} for name in MEASURED}, "lambda": {UNKNOWN}}
    found["plan"] = {key: state for key, state in found["plan"].items() if key in found["watch"]}  # it has disks, too
    assert found == dict.fromkeys(("status", "plan", "watch"), found["watch"])


class Asking(GuardPlayer):
    """Costguard in a story, and people who ask all commands what it knows, twice an hour or more after its guard run."""

    command: Command
    compared: list[States]

    def _latest(self) -> PollResults:
        return replace(super()._latest(), lags=read_measurement_lags())

    def guard(self) -> None:
        super().guard()
        if self.stage.clock.now().minute % (15 if FULL else 30) or self.guarded is None or self.guarded.survey is None:
            return
        live = [one.observation for one in self.guarded.sight.live] if self.guarded.sight else []
        works = self.guarded.survey.works
        found = {one.key.id: works[one.key].state for one in live if (one.kind, one.state) == ("instance", "running")}
        for words in COMMANDS:
            ran = self.command("--offline", *words)
            assert ran.code == 0, ran.err
            told = states_of(words[0], ran.out)
            if words[0] == "plan":  # it speaks only of machines of which a policy finds something, and of those at rest too
                told = {key: told.get(key, state) for key, state in found.items()}
            assert told == found, (words, self.stage.clock.now())
        self.compared.append(found)


@pytest.mark.sampled(2, first=1)
@pytest.mark.parametrize(
    ("story", "states"), [(MIXED, {ACTIVE, IDLE, UNKNOWN}), ((SCENARIOS / "05-hang.story").read_text(), {ACTIVE, HUNG})]
)
def test_all_commands_say_the_same_at_many_moments_of_a_story(
    costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story: str, states: set[str]
) -> None:
    compared = list[States]()

    def asking(stage: StoryStage) -> Asking:
        poll = f'[watch]\ninterval = "{stage.story.poll.total_seconds():.0f}s"\n[ledger]\nurl = "{stage.ledger_url}"\n'
        (tmp_path / "costguard.toml").write_text(poll + stage.config)
        monkeypatch.setattr(ledger_answers, "get_now", stage.clock.now)
        monkeypatch.setattr(configured_providers.SystemClock, "now", lambda _: stage.clock.now())
        made = Asking(stage)
        made.command, made.compared = costguard, compared
        return made

    play_story(parse_story(story), asking, tmp_path)
    assert len(compared) >= 5
    assert states <= {state for found in compared for state in found.values()}
