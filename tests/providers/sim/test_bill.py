"""The bill against sums done by hand, one small world for each cloud's manner."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from costguard_sim.bill import InvoiceLine, list_owed, make_bill, sum_lines
from costguard_sim.world import Disk, Rate, Resource, Run, World, to_us

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
LATER = datetime(2027, 6, 1, tzinfo=UTC)
DOLLAR = 10**9


def after(seconds: float) -> datetime:
    return NOON + timedelta(microseconds=round(seconds * 10**6))


def us(seconds: float) -> int:
    return to_us(after(seconds))


def ran(start: float, stop: float | None) -> Run:
    return Run(start_us=us(start), stop_us=None if stop is None else us(stop))


def one(
    cloud: str,
    *,
    kind: str = "instance",
    ended: float | None = None,
    runs: tuple[Run, ...] = (),
    nano: tuple[tuple[float, int], ...] = ((0, 3_600_000_000),),
    disks: tuple[Disk, ...] = (),
    traffic: tuple[tuple[int, int], ...] = (),
) -> World:
    resource = Resource(
        cloud=cloud,
        account="a",
        scope="s",
        region="r",
        id="x",
        name="x",
        kind=kind,
        created_us=us(0),
        ended_us=None if ended is None else us(ended),
        runs=runs,
        rates=tuple(Rate(at_us=us(at), nano=price) for at, price in nano),
        disks=disks,
        traffic=traffic,
        traffic_nano=20_000_000,
    )
    return World(seed=0, start_us=us(0), end_us=to_us(LATER), resources=(resource,))


def owed(world: World, seconds: float) -> Fraction:
    return sum_lines(list_owed(world, after(seconds)))


HOUR, MOVING = 3600, ((0, 3_600_000_000), (20, 7_200_000_000))
PAUSED = Run(start_us=us(0), stop_us=us(100), pauses=((us(10), us(90)),))
POD_DISKS = (Disk(gb=730, type="container"), Disk(gb=73, type="volume"))
POD_RUNS = (ran(0, HOUR), ran(3 * HOUR, 4 * HOUR))
NETWORK = one("sim-runpod", kind="volume", ended=2 * HOUR + 1, disks=(Disk(gb=730, type="network"),))
SPOT = ((-50, 3_600_000_000), (100, 7_200_000_000), (400, 360_000_000))
OWED: dict[str, tuple[World, dict[float, Fraction]]] = {
    # of $3.60 an hour, which is $0.001 a second, where nothing else is stated
    "a run of ten seconds owes a minute from its first instant, at AWS": (
        one("sim-aws", runs=(ran(5, 15),)),
        {5: Fraction(0), 5.000001: Fraction(60, 1000), 5000: Fraction(60, 1000)},
    ),
    "and at Google": (one("sim-gcp", runs=(ran(5, 15),)), {5: Fraction(0), 5.000001: Fraction(60, 1000)}),
    "a started second is owed in full": (
        one("sim-gcp", runs=(ran(0, 75.25),)),
        {70: Fraction(70, 1000), 70.000001: Fraction(71, 1000), 5000: Fraction(76, 1000)},
    ),
    "each run has its own minimum": (
        one("sim-aws", runs=(ran(0, 1), ran(10, 90), ran(100, 102))),
        {5000: Fraction(60 + 80 + 60, 1000)},
    ),
    "a spot machine pays each second at the price of that second": (
        one("sim-aws", runs=(ran(0, 1000),), nano=SPOT),
        {5000: Fraction(100 * 10 + 300 * 20 + 600 * 1, 10_000)},
    ),
    "a price that moves within a second waits for the next": (
        one("sim-gcp", runs=(ran(0, 100),), nano=((0, 3_600_000_000), (79.5, 7_200_000_000))),
        {5000: Fraction(80 + 20 * 2, 1000)},
    ),
    "the first minute costs what it cost when it began": (
        one("sim-aws", runs=(ran(0, 70),), nano=MOVING),
        {30: Fraction(60, 1000), 5000: Fraction(60 + 10 * 2, 1000)},
    ),
    "RunPod has no minimum": (one("sim-runpod", runs=(ran(0, 90.5),)), {5000: Fraction(91, 1000)}),
    "Lambda counts started minutes of its run, here of $0.10": (
        one("sim-lambda", runs=(ran(30, 30 + 61),), nano=((0, 6_000_000_000),)),
        {30: Fraction(0), 30.5: Fraction(1, 10), 90: Fraction(1, 10), 90.5: Fraction(2, 10), 5000: Fraction(2, 10)},
    ),
    "Vast bills a paused machine as a running one": (one("sim-vast", runs=(PAUSED,)), {5000: Fraction(100, 1000)}),
    "an AWS disk of a deleted machine costs nothing": (
        one("sim-aws", ended=HOUR, disks=(Disk(gb=720, type="gp3"),), nano=((0, 0),)),
        {10**6: Fraction(720 * 8, 100) / 720},
    ),
    "a Google disk has months of 730 hours, here 100 h of 73 GB at $0.10": (
        one("sim-gcp", kind="volume", disks=(Disk(gb=73, type="pd-balanced"),)),
        {100 * HOUR: Fraction(1)},
    ),
    "a RunPod volume costs twice as much while its pod is off, its container disk nothing": (
        one("sim-runpod", runs=POD_RUNS, disks=POD_DISKS, nano=((0, 0),)),
        {HOUR: Fraction(11, 100), 3 * HOUR: Fraction(15, 100), 5 * HOUR: Fraction(28, 100)},
    ),
    "a network volume is owed by started hours": (
        NETWORK,
        {at: Fraction(7 * hours, 100) for at, hours in ((0, 0), (1, 1), (HOUR, 1), (HOUR + 1, 2), (10**6, 3))},
    ),
    "a Lambda filesystem too": (
        one("sim-lambda", kind="volume", disks=(Disk(gb=365, type="filesystem"),)),
        {90 * 60: Fraction(2, 10)},
    ),
    "a Vast disk costs what its host says in months of 720 hours": (
        one("sim-vast", runs=(), disks=(Disk(gb=72, type="disk", nano=150_000_000),)),
        {HOUR: Fraction(72 * 15, 100) / 720},
    ),
    "traffic is owed when it flows": (
        one("sim-vast", traffic=((us(10), 500), (us(20), 2500))),
        {10: Fraction(0), 10.5: Fraction(1, 100), 20.5: Fraction(5, 100)},
    ),
    "an address costs half a cent an hour": (
        one("sim-aws", kind="address", nano=((0, 5_000_000),), ended=7200),
        {10**6: Fraction(1, 100)},
    ),
}  # fmt: skip
"""What a cloud bills -> a world of one resource, and what is owed after so many seconds."""


@pytest.mark.parametrize("rule", OWED)
def test_the_simulated_bill_keeps_this_rule(rule: str) -> None:
    world, due = OWED[rule]
    assert {at: owed(world, at) for at in due} == due


def test_an_aws_disk_goes_by_the_calendar_month_running_or_not() -> None:
    world = one("sim-aws", runs=(ran(0, 60),), disks=(Disk(gb=100, type="gp3"),), nano=((0, 0),))
    december = datetime(2026, 12, 1, tzinfo=UTC)
    days_left = Fraction(21, 2)  # from noon of the 20th to the end of a November of 30 days
    assert sum_lines(list_owed(world, december)) == 8 * days_left / 30
    assert sum_lines(make_bill(world, december, december + timedelta(days=31))) == 8
    assert sum_lines(make_bill(world, december, december + timedelta(days=1))) == Fraction(8, 31)


def test_two_disks_of_one_type_are_two_lines() -> None:
    world = one("sim-gcp", kind="volume", disks=(Disk(gb=73, type="pd-balanced"), Disk(gb=730, type="pd-balanced")))
    lines = list_owed(world, after(3600))
    assert [(line.part, line.amount) for line in lines] == [
        ("pd-balanced", Fraction(1, 100)),
        ("pd-balanced#2", Fraction(1, 10)),
    ]


def test_a_line_says_whose_it_is() -> None:
    assert list_owed(one("sim-runpod", runs=(ran(0, 3600),)), after(10**6)) == [
        InvoiceLine(provider="sim-runpod", account="a", region="r", id="x", charge="compute", part="", amount=Fraction(36, 10))
    ]
