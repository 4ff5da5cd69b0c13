"""A day on the fake: what is charged holds the truth at every step, for each resource.

The truth is written out here by hand: seconds in billed states, times the price; nothing of costguard computes it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from costguard.data import ShippedFacts
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.services.poll.poll import poll_sources
from tests.fakes.azure import DISK_PRICES, PRICES, SIZE, FakeMachine, make_disk
from tests.providers.azure.rig import AzureRig

STEP = timedelta(minutes=5)
BILLS = ("running", "stopping", "stopped")
USD = Fraction(str(PRICES[SIZE]))
MICRO = Fraction(1, 10**6)
PLAN: dict[str, list[tuple[int, str]]] = {
    "steady": [(0, "running")],
    "forgotten": [(0, "running"), (130, "stopped")],  # shut down from inside: it bills on
    "saved": [(0, "running"), (200, "stopped"), (305, "deallocating"), (307, "deallocated")],
    "again": [(0, "running"), (121, "deallocated"), (400, "starting"), (402, "running"), (700, "gone")],
    "evicted": [(0, "running"), (333, "deallocated")],
    "late": [(500, "running"), (900, "gone")],
}
"""Machine -> minutes of the day, and Azure's word from then on."""


def make_machine(name: str, created: datetime) -> FakeMachine:
    return FakeMachine(name=name, created=created, priority="Spot" if name == "evicted" else "Regular")


def find_word(name: str, minute: Fraction) -> str:
    return next((word for at, word in reversed(PLAN[name]) if at <= minute), "gone")


def compute_truth(name: str, minutes: int) -> tuple[Fraction, Fraction]:
    """The least and the most that a machine has cost: nobody knows whether `starting` bills."""
    rate = USD * (Fraction(3, 10) if name == "evicted" else 1)
    edges = [*PLAN[name], (10**6, "gone")]
    spans = [(word, max(0, min(end, minutes) - at)) for (at, word), (end, _) in pairwise(edges)]
    surely = sum(length for word, length in spans if word in BILLS)
    perhaps = sum(length for word, length in spans if word == "starting")
    return rate * surely / 60, rate * (surely + perhaps) / 60


def test_a_day_is_charged_as_azure_bills_it(tmp_path: Path) -> None:
    rig, rules = AzureRig(), ShippedFacts().get_billing_rules()
    start: datetime = rig.clock.at
    machines = {name: make_machine(name, start + timedelta(minutes=changes[0][0])) for name, changes in PLAN.items()}
    rig.fake.disks = [make_disk("data", "Premium_LRS", 1000, start)]
    url = f"sqlite:///{tmp_path}/ledger.db"
    with rig.opened(tmp_path) as source, LedgerWriter(url, rules=rules, ceilings={}) as ledger:
        for step in range(24 * 12 + 1):
            rig.clock.at = start + step * STEP
            play(rig, machines, step * 5)
            polled = poll_sources([source], ledger, rig.clock)
            assert not polled.unseen, polled.unseen
            with SpendingReader(url, rules=rules) as books:
                spent = {one.key.id: one.money for one in books.spent(rig.clock.at)}
            for name in PLAN:
                low, high = compute_truth(name, step * 5)
                money = spent.get(f"lab/{name}")
                ours = (
                    (Fraction(money.low.nano, 10**9), Fraction(money.high.nano, 10**9)) if money else (Fraction(0), Fraction(0))
                )
                assert ours[0] - MICRO <= low, (name, step, ours, low)
                assert ours[1] + MICRO >= high, (name, step, ours, high)
            steady = spent["lab/steady"]
            assert steady.high.nano - steady.low.nano <= float(USD) * 62 / 3600 * 10**9, "more than its listing may lag"
    disk = spent["lab/disks/data"]
    truth = Fraction(str(DISK_PRICES["P30 LRS"])) * 24 / 730
    assert Fraction(disk.low.nano, 10**9) - MICRO <= truth <= Fraction(disk.high.nano, 10**9) + MICRO
    assert spent["lab/forgotten"].low.nano > 0.99 * float(USD) * 23.5 * 10**9, "a stopped machine goes on billing"
    assert spent["lab/saved"].high.nano < 1.1 * float(USD) * 307 / 60 * 10**9, "a deallocated one does not"


def play(rig: AzureRig, machines: dict[str, FakeMachine], minute: int) -> None:
    """Let the machines be what the plan says now."""
    words = {name: find_word(name, Fraction(minute)) for name in PLAN}
    rig.fake.resources[:] = [one for name, one in machines.items() if words[name] != "gone"]
    for name, one in machines.items():
        one.power = words[name]
