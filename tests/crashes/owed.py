"""The world's own bill beside the ledger's totals: is the truth still inside?"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from costguard_sim.plan import FAILS
from costguard_sim.world import EPOCH

from costguard.ledger.spans.books import SpendingReader
from costguard.metering.accrual import POLL_GAP
from costguard.values.calendar import Period
from costguard.values.instant import from_micros, to_micros
from tests.crashes.story import Story, reached
from tests.providers.sim import worlds
from tests.providers.sim.worlds import LAYERS, WRITTEN_MB, Told

Place = tuple[str, str]
"""(cloud, charge)."""


@dataclass(slots=True)
class Bill:
    """What the world charges for as much of itself as the listings so far have told."""

    story: Story
    told: dict[str, Told] = field(default_factory=dict)
    listed: set[tuple[str, str, str]] = field(default_factory=set)
    heard: int = 0

    def faults(self, path: Path) -> list[str]:
        """Where the ledger's totals leave the truth outside, a sentence each."""
        url = f"sqlite:///{path}"
        self._hear(reached(url, self.story))
        if not self.heard:
            return []
        at = from_micros(max(entry.at_us for entry in self.story.entries[: self.heard]))
        found, rounded = _totals(url, Period(start=EPOCH, end=at)), _half_nanos(path)
        true, unwritten = self._owed(to_micros(at))
        wrong = []
        for place in sorted({*found, *true}):
            low, expected, high = found.get(place, (0, 0, 0))
            amount, half = true.get(place, Fraction(0)), rounded.get(place, Fraction(0))
            if not (low <= expected <= high and low - half <= amount <= high + LAYERS * half + unwritten.get(place, 0)):
                wrong.append(f"{' '.join(place)}: truth {float(amount):.0f}, the ledger says {low} / {expected} / {high}")
        return wrong

    def _hear(self, until: int) -> None:
        """Take in what the listings before `until` told."""
        for entry in self.story.entries[self.heard : until]:
            here = [r for r in self.story.world.resources if (r.cloud, r.account, r.scope) == entry.scope]
            worlds._tell(self.told, here, entry, first=entry.scope not in self.listed, gap=POLL_GAP)
            if entry.fault not in (*FAILS, "page"):
                self.listed.add(entry.scope)
        self.heard = max(self.heard, until)

    def _owed(self, at_us: int) -> tuple[dict[Place, Fraction], dict[Place, Fraction]]:
        """Nano-USD as far as anybody could know of them, and how much traffic need not be written yet."""
        true: dict[Place, Fraction] = {}
        unwritten: dict[Place, Fraction] = {}
        for resource in self.story.world.resources:
            told = self.told.get(resource.id)
            for charge, amount in worlds.owed(resource, told, at_us).items() if told else ():
                place = (resource.cloud, charge)
                true[place] = true.get(place, Fraction(0)) + amount
                if charge == "traffic":
                    unwritten[place] = unwritten.get(place, Fraction(0)) + Fraction(WRITTEN_MB * resource.traffic_nano, 1000)
        return true, unwritten


def _totals(url: str, period: Period) -> dict[Place, tuple[int, int, int]]:
    with SpendingReader(url, rules=worlds.rules()) as books:
        found = books.load_spending(period, period.end)
    sums: dict[Place, tuple[int, int, int]] = {}
    for each in found:
        place = (each.attribution.provider, each.charge)
        low, expected, high = sums.get(place, (0, 0, 0))
        money = each.money
        sums[place] = (low + money.low.nano, expected + money.expected.nano, high + money.high.nano)
    return sums


def _half_nanos(path: Path) -> dict[Place, Fraction]:
    """How far rounding alone may move each sum: half a nano a span."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return {(provider, charge): Fraction(count, 2) for provider, charge, count in connection.execute(_COUNTS)}


_COUNTS = """
SELECT r.provider, s.charge, count(*) FROM span AS s JOIN resource AS r ON r.id = s.resource_id GROUP BY r.provider, s.charge
"""
