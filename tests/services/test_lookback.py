"""The lookback: what a process that stays remembers of samples is what the ledger would say again."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from costguard.guard.policy import Rails
from costguard.guard.signals import SampleColumns
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.services.guarding.guard_snapshot import FULL_READ_EVERY, REREAD_SPAN, SampleWindow
from costguard.values.resource import ResourceKey
from costguard.values.sample import CPU_CORES, GPU_POWER_BUSIEST, GPU_UTIL, HEARTBEAT, NETWORK, Sample
from tests.ledger import fleet
from tests.ledger.fleet import CEILINGS, HOUR, MINUTE, RULES, START, machine, poll

LATEST = timedelta(minutes=15)
"""How late a sample may come: `sample_window.LOOKS_BACK`."""
SIGNALS = (GPU_UTIL, CPU_CORES, NETWORK, HEARTBEAT, GPU_POWER_BUSIEST)
NAMES = ("i-1", "i-2", "i-3")


def plain(columns: Mapping[ResourceKey, SampleColumns]) -> dict[ResourceKey, dict[str, list[tuple[int, float]]]]:
    return {key: {s: list(zip(*line, strict=True)) for s, line in of.items()} for key, of in columns.items()}


class Counting:
    """The book, and how far back each read of it went."""

    def __init__(self, book: GuardStore) -> None:
        self._book, self.reads = book, list[timedelta]()
        self.now = START

    def __getattr__(self, name: str) -> object:
        return getattr(self._book, name)

    def load_columns_since(
        self, at: object, keys: Collection[ResourceKey] | None = None
    ) -> Mapping[ResourceKey, SampleColumns]:
        self.reads.append(self.now - at)  # type: ignore[operator]
        return self._book.load_columns_since(at, keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_what_is_remembered_is_what_a_whole_read_would_say(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - a seed of a trace
    url = f"sqlite:///{tmp_path}/ledger.db"
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger, GuardStore(url, rails=Rails()) as book:
        ledger.record_polls([poll(0, *map(machine, NAMES))])
        said = SampleWindow()
        now, late = START, list[Sample]()
        for _ in range(40):
            now += dice.choice([MINUTE, 5 * MINUTE, 12 * MINUTE, 29 * MINUTE, 40 * MINUTE, 3 * HOUR, 20 * HOUR, -2 * MINUTE])
            for back in range(dice.randint(0, 12)):
                at = now - back * MINUTE - timedelta(microseconds=dice.randrange(10**6))
                made = [
                    Sample(key=fleet.key(name), signal=signal, at=at, value=dice.choice([0.0, 3.0, 97.5]))
                    for name in NAMES
                    for signal in SIGNALS
                    if dice.random() < 0.7
                ]
                late += [one for one in made if dice.random() < 0.1]
                ledger.record_samples([one for one in made if one not in late])
            ledger.record_samples([one for one in late if one.at > now - LATEST])
            late = []
            assert plain(said.read(book, now)) == plain(book.load_columns_since(now - timedelta(hours=48)))


def test_a_run_reads_what_is_new_and_all_of_it_now_and_then(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS), GuardStore(url, rails=Rails()) as book:
        counted, said = Counting(book), SampleWindow()
        for minute in (0, 1, 2, 62, 63):
            counted.now = START + minute * MINUTE
            said.read(counted, counted.now)
        whole = timedelta(hours=48)
        assert counted.reads == [whole, REREAD_SPAN + MINUTE, REREAD_SPAN + MINUTE, whole, REREAD_SPAN + MINUTE]
        for minute in range(64, 84 + int(FULL_READ_EVERY / MINUTE), 10):
            counted.now = START + minute * MINUTE
            said.read(counted, counted.now)
        assert counted.reads[5:].count(whole) == 1
