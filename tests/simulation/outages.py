"""A day of outage of each of five providers, of each pair, and of all, in each way there is to be out: `days` and their table.

    aws down: 3 acts, 0 wrong; 34 of 34 exact, 4 of 4 within bounds, 2 polls, notices (1, 1, 1), $318.29 of doubt

Every day is played against the same day without an outage (`judge_outages`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from multiprocessing import get_context
from typing import Any

import pytest

from costguard.ledger.spans import writer
from costguard.metering.accrual import accrue_poll
from costguard.metering.inventory import Complete, Failed, Poll
from costguard.metering.scope_state import AccrualResult, ScopeState
from tests.simulation.campaign import commit_now
from tests.simulation.judge_outages import Outcome, judged
from tests.simulation.outage_world import CLOUDS, KINDS, Day, OutageWorld
from tests.simulation.playing import folder
from tests.simulation.reading import Record

BOUND = 3
"""None in n tries: at most so many in n are to be expected, with 95 % (RELIABILITY 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one day. `took`: seconds of CPU; `polls`: of a watchdog."""

    day: Day
    outcome: Outcome
    polls: int
    took: float

    @property
    def line(self) -> str:
        """For people."""
        one = self.outcome
        return (
            f"{self.day.name}: {one.stops[0]} acts, {one.stops[1]} wrong; {one.exact[1]} of {one.exact[0]} exact, "
            f"{one.bounded[1]} of {one.bounded[0]} within bounds, {one.ticks} polls, notices {one.notices}, "
            f"${one.width:.2f} of doubt"
        )


def days(tick: int) -> list[Day]:
    """Each, each pair, and all, in each way."""
    sets = [*combinations(CLOUDS, 1), *combinations(CLOUDS, 2), CLOUDS]
    return [Day(out, how, tick) for out in sets for how in KINDS]


def results(chosen: list[Day], jobs: int) -> Iterator[Result]:
    """Each day played, in its order."""
    if jobs <= 1:
        yield from map(result, chosen)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(result, chosen)


def result(day: Day) -> Result:
    """One day, and the one without an outage beside it."""
    began = time.process_time()
    with ExitStack() as stack:
        record, polls = _played(day, stack)
        outcome = judged(record, calm(replace(day, out=(), how="")))
    return Result(day=day, outcome=outcome, polls=polls, took=time.process_time() - began)


@cache
def calm(day: Day) -> Record:
    """A day without an outage, played once; its folder stays as long as this process."""
    return _played(day, _KEPT)[0]


_KEPT = ExitStack()


def _played(day: Day, stack: ExitStack) -> tuple[Record, int]:
    world = OutageWorld(day, stack.enter_context(folder()))
    record = world.play()
    if world.broken:
        raise AssertionError(world.broken[0])
    return record, world.runs


def taking_outages_for_the_end(patch: pytest.MonkeyPatch) -> None:
    """A ledger that takes a scope that cannot be asked for an empty one."""

    def hasty(state: ScopeState, poll: Poll, *rest: Any, **more: Any) -> AccrualResult:  # noqa: ANN401 - as it is there
        nothing = replace(poll, inventory=Complete(()), gone=frozenset(state.resources))
        return accrue_poll(state, nothing if isinstance(poll.inventory, Failed) else poll, *rest, **more)

    patch.setattr(writer, "accrue_poll", hasty)


def outages(jobs: int, tick: int, only: str, say: Callable[[str], object]) -> int:
    """The command: a line for each day, and the sum. 1 where something was that must not be."""
    chosen = [day for day in days(tick) if only in day.name]
    say(f"commit {commit_now()}: {len(chosen)} days of which 24 h are out, a poll every {tick} min; one again: --only NAME")
    wrong = acts = polls = machines = 0
    for one in results(chosen, jobs):
        say(one.line)
        for sentence in one.outcome.wrong[:5]:
            say(f"  {sentence}")
        wrong, acts, polls = wrong + len(one.outcome.wrong), acts + one.outcome.stops[0], polls + one.polls
        machines += one.outcome.exact[0] + one.outcome.bounded[0]
    most = BOUND / max(1, len(chosen))
    say(f"{wrong} wrong in {len(chosen)} days (95 %: below {most:.3f} a day), {polls} polls, {acts} acts, {machines} machines")
    return 1 if wrong else 0
