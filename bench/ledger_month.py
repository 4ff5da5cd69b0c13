"""What a month of polls leaves behind: in the file, and in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from bench import fleet
from bench.ledger_polls import ledger
from bench.measured import Measured, resident_mib
from costguard.metering.observation import Observation

MINUTES = 43_200
"""Of 30 days."""
RESTARTS = 3
"""Of each machine in them."""
OFF_MINUTES = 45
LARGEST_MB = 10.0
LARGEST_GROWTH_MIB = 1.0


def month(folder: Path, *, instances: int = 1000, minutes: int = MINUTES, together: int = 10) -> Iterator[Measured]:
    """The size of the ledger once every scope was polled each minute. `together`: minutes of polls in one transaction.

    Any grouping of polls leaves the same rows (tests/ledger/test_writing.py).
    """
    named = fleet.scopes(5)
    fleets = [fleet.machines(scope, instances // len(named)) for scope in named]
    listed = [[one.seen() for one in machines] for machines in fleets]
    changes = _restarts(instances // len(named), len(named), minutes)
    with ledger(folder, "month") as book:
        for first in range(0, minutes, together):
            polls = []
            for minute in range(first, min(first + together, minutes)):
                for scope, place, running in changes.get(minute, ()):
                    listed[scope][place] = _restarted(listed[scope][place], minute, running=running)
                polls += [fleet.polled(scope, minute, items) for scope, items in zip(named, listed, strict=True)]
            book.record_polls(polls)
    size = (folder / "month.db").stat().st_size / 1e6
    moved = sum(map(len, changes.values()))
    yield Measured(
        what=f"{instances:,} instances in 5 scopes polled {minutes:,} times, {moved:,} stops and starts: the ledger, MB",
        target=f"< {LARGEST_MB:.0f}",
        reached=f"{size:.2f}",
        met=size < LARGEST_MB,
    )


def _restarts(machines: int, scopes: int, minutes: int) -> dict[int, list[tuple[int, int, bool]]]:
    """Minute -> (scope, place in it, whether it runs from now on): each machine stops RESTARTS times, each in its own part."""
    chance = random.Random(7)
    found: dict[int, list[tuple[int, int, bool]]] = {}
    part = minutes // RESTARTS
    for scope in range(scopes):
        for place in range(machines):
            for number in range(RESTARTS):
                stop = number * part + 1 + chance.randrange(max(1, part - OFF_MINUTES - 2))
                found.setdefault(stop, []).append((scope, place, False))
                found.setdefault(stop + OFF_MINUTES, []).append((scope, place, True))
    return found


def _restarted(seen: Observation, minute: int, *, running: bool) -> Observation:
    """Half a minute before it is seen, where its provider tells that at all."""
    at = fleet.START + minute * fleet.MINUTE - timedelta(seconds=30)
    told = seen.started_at is not None
    if running:
        return replace(seen, state="running", started_at=at if told else None, stopped_at=None)
    return replace(seen, state="stopped", stopped_at=at if told else None)


def memory(
    folder: Path, *, polls: int = 100_000, warm_up: int = 60_000, instances: int = 30, together: int = 5
) -> Iterator[Measured]:
    """How this process grows over so many polls, in which machines come, live two days, and go.

    `warm_up`: polls before them, until SQLite's cache of 2 MB holds as many pages as it ever will.
    """
    (scope,) = fleet.scopes(1)
    first, lives = fleet.machines(scope, 1)[0].number, 2880
    held = dict[int, float]()
    with ledger(folder, "memory") as book:
        for begun in range(0, warm_up + polls, together):
            if begun in (together, warm_up):
                held[begun] = resident_mib()
            minutes = range(begun, begun + together)
            book.record_polls([fleet.polled(scope, minute, _living(first, minute, instances, lives)) for minute in minutes])
        late = resident_mib()
    growth = late - held[warm_up]
    yield Measured(
        what=f"memory over {polls:,} polls, machines coming and going, once SQLite's cache is full: MiB",
        target=f"< {LARGEST_GROWTH_MIB:.0f}",
        reached=f"{growth:+.2f} (at {late:.1f}; {held[warm_up] - held[together]:+.1f} in the {warm_up:,} polls before)",
        met=growth < LARGEST_GROWTH_MIB,
    )


def _living(first: int, minute: int, instances: int, lives: int) -> list[Observation]:
    """`instances` machines, each for `lives` minutes and then followed by another one; their turns lie apart evenly."""
    turns = [(minute + place * lives // instances) // lives for place in range(instances)]
    return [fleet.Machine("aws", first + place + turn * instances).seen() for place, turn in enumerate(turns)]
