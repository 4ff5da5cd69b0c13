"""A day of the simulated world over the fake, the real adapter, the real ledger: what is charged holds what was billed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from costguard_gcp import provider
from costguard_gcp.account import GcpAccount
from costguard_sim.bill import charge_resource, name_disks
from costguard_sim.view import find_last_run
from costguard_sim.world import SIM_INSTANCE, Resource, make_world, to_us

from costguard.data import ShippedFacts
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.providers.transport import ProviderContext, Transport
from costguard.services.poll.poll import poll_sources
from costguard.values.money import NANO, MoneyInterval
from costguard.values.resource import ResourceKey
from tests.contract.rig import BILLS, NAMES, NoCache
from tests.fakes.gcp import FakeGCP, number_of, project_of
from tests.fakes.server import Hands, serving

START = datetime(2026, 11, 20, tzinfo=UTC)
END = START + timedelta(days=1)
EVERY = timedelta(minutes=5)
MICRO = Fraction(1, 10**6)
SEEDS = (1, 2)
LEAST_POINTS = 2
"""What ends between two listings, or was seen STOPPING (which may bill or not), is an interval; the rest is a point."""


def _world(seed: int) -> list[Resource]:
    """The world, each resource in a region of its own, so that each can have its own price; disks cost the same there."""
    drawn = make_world(seed, start=START, days=1, size=8, clouds=("sim-gcp",)).resources
    apart = [replace(one, region=f"us-central1x{n}-a") for n, one in enumerate(drawn)]
    seen_from = to_us(START)
    return [one for one in apart if one.ended_us is None or one.ended_us > seen_from]


@contextmanager
def _watched(fake: FakeGCP, clock: Hands, home: Path) -> Iterator[GcpAccount]:
    transport = Transport()
    with serving(fake) as base:
        around = ProviderContext(
            transport=transport, clock=clock, gpus=NAMES, bills=BILLS, cache=NoCache(), environ={}, home=home
        )
        table = {"projects": ["acme-lab", "acme-prod"], "api_endpoint": base, "anonymous": True}
        (account,) = provider.open(table, around)
        assert isinstance(account, GcpAccount)
        account.catalogue.keep = timedelta(0)
        yield account
    transport.close()


@dataclass(frozen=True, slots=True)
class Compared:
    """One machine or disk: what was billed, and what was charged, in dollars."""

    key: ResourceKey
    low: Fraction
    high: Fraction
    billed: Fraction


def _played(seed: int, home: Path) -> list[Compared]:
    """The day, and one listing after its end, which tells what still ran then."""
    clock, rules = Hands(at=START), ShippedFacts().get_billing_rules()
    world = [told for one in _world(seed) if (told := _told(one)) is not None]
    fake, url = FakeGCP(clock, world), f"sqlite:///{home / 'ledger.db'}"
    with _watched(fake, clock, home) as account, LedgerWriter(url, rules=rules, ceilings={}) as ledger:
        for at in _times():
            clock.at = at
            polled = poll_sources([account], ledger, clock)
            assert not polled.unseen, polled.unseen
    with SpendingReader(url, rules=rules) as books:
        spent = {one.key: one.money for one in books.spent(END)}
    return [_compared(one, part, key, spent) for one in world for part, key in _keys(one)]


def _times() -> list[datetime]:
    return [START + n * EVERY for n in range(int((END - START) / EVERY) + 2)]


def _told(one: Resource) -> Resource | None:
    """The resource with the runs that some listing could tell of: Google states the last start alone. None: never listed."""
    listings = [to_us(at) for at in _times()]
    seen = [us for us in listings if one.created_us <= us and (one.ended_us is None or us < one.ended_us)]
    runs = {run for us in seen if (run := find_last_run(one, us)) is not None}
    return replace(one, runs=tuple(run for run in one.runs if run in runs)) if seen else None


def _keys(one: Resource) -> list[tuple[str, ResourceKey]]:
    """What the ledger knows of the machine ("compute") and of each of its disks (its part of the bill)."""
    own = [("compute", one.id)] if one.kind == SIM_INSTANCE else []
    disks = [
        (part, one.id if one.kind != SIM_INSTANCE else f"{one.id}/{n}") for n, (part, _) in enumerate(name_disks(one.disks))
    ]
    return [(part, ResourceKey("gcp", project_of(one), one.region, number_of(name))) for part, name in (*own, *disks)]


def _compared(one: Resource, part: str, key: ResourceKey, spent: Mapping[ResourceKey, MoneyInterval]) -> Compared:
    lines = charge_resource(one, 0, to_us(END))
    billed = sum((line.amount for line in lines if part in (line.charge, line.part)), Fraction(0))
    money = spent.get(key)
    low, high = (Fraction(0), Fraction(0)) if money is None else (Fraction(m.nano, NANO) for m in (money.low, money.high))
    return Compared(key, low, high, billed)


@pytest.mark.proof
@pytest.mark.parametrize("seed", SEEDS)
def test_a_day_of_the_world_is_charged_as_it_was_billed(seed: int, tmp_path: Path) -> None:
    compared = _played(seed, tmp_path)
    for one in compared:
        assert one.low - MICRO <= one.billed <= one.high + MICRO, one
    points = [one for one in compared if one.low == one.high]
    assert len(points) >= LEAST_POINTS, (len(points), len(compared))
    assert all(abs(one.billed - one.low) <= MICRO for one in points)
