"""What is recorded while the process dies: every listing of some simulated days, in order, the same in each life."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from pathlib import Path

from costguard_sim.clouds import START
from costguard_sim.plan import PlannedListing, WatchPlan, make_plan
from costguard_sim.view import keep_knowable, make_poll
from costguard_sim.world import World, make_world

from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Poll
from costguard.metering.scope_state import AccrualResult
from costguard.values.instant import to_micros
from tests.providers.sim import worlds

APART_S = 240
"""Between two listings of a scope, from half of it to twice as much: some lie further apart than a gap, most do not."""
LONGEST_S = 3600.0
"""Without a clean listing."""
LOT = 500
"""Polls of one transaction where nothing is about to die."""


@dataclass(frozen=True, slots=True)
class Story:
    """A world, and the listings of it in their order."""

    world: World
    plan: WatchPlan

    @property
    def entries(self) -> tuple[PlannedListing, ...]:
        """When each scope is listed, and what goes wrong with it."""
        return self.plan.entries

    def poll(self, number: int) -> Poll:
        """The listing that stands at `number`."""
        return make_poll(self.world, self.entries[number], self.plan.hidden)

    def save(self, path: Path) -> Path:
        """For the processes that record it."""
        path.write_bytes(pickle.dumps(self))
        return path


def read(path: Path) -> Story:
    """What `save` wrote."""
    found = pickle.loads(path.read_bytes())  # noqa: S301 - our own file, of this test
    assert isinstance(found, Story)
    return found


def make_story(seed: int, *, polls: int, size: int = 40) -> Story:
    """The days in which each scope is listed `polls` times, within the declared limits of the simulated clouds."""
    world = make_world(seed, start=START, days=polls * APART_S / 86_400, size=size)
    plan = make_plan(seed, world, polls=polls, pace_s=(APART_S / 2, 2 * APART_S), longest_s=LONGEST_S)
    plan = replace(plan, entries=tuple(replace(entry, looked=False) for entry in plan.entries))
    return Story(keep_knowable(world, plan), plan)


def open_ledger(url: str) -> LedgerWriter:
    """The real one, with the rules that are shipped."""
    return LedgerWriter(url, rules=worlds.rules(), ceilings=worlds.CEILINGS)


def reached(url: str, story: Story) -> int:
    """The first listing that the ledger does not hold, by its own word."""
    with SpendingReader(url, rules=worlds.rules()) as books:
        covered = {tuple(found.scope): to_micros(found.at) for found in books.list_scopes()}
    lacking = (n for n, entry in enumerate(story.entries) if entry.asked_us > covered.get(entry.scope, 0))
    return next(lacking, len(story.entries))


def record_rest(url: str, story: Story) -> list[AccrualResult]:
    """Every listing that the ledger does not hold yet, in peace; what each of them changed."""
    changes: list[AccrualResult] = []
    with open_ledger(url) as ledger:
        for first in range(reached(url, story), len(story.entries), LOT):
            changes += ledger.record_polls([story.poll(n) for n in range(first, min(first + LOT, len(story.entries)))])
    return changes
