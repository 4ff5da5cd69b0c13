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


@pytest.mark.parametrize("cloud", ["sim-aws", "sim-gcp"])
def test_a_run_of_ten_seconds_owes_a_minute_from_its_first_instant(cloud: str) -> None:
    world = one(cloud, runs=(ran(5, 15),))  # $3.60 an hour is $0.001 a second
    assert owed(world, 5) == 0
    assert owed(world, 5.000001) == Fraction(60, 1000)
    assert owed(world, 5000) == Fraction(60, 1000)


def test_a_started_second_is_owed_in_full() -> None:
    world = one("sim-gcp", runs=(ran(0, 75.25),))
    assert owed(world, 70) == Fraction(70, 1000)
    assert owed(world, 70.000001) == Fraction(71, 1000)
    assert owed(world, 5000) == Fraction(76, 1000)


def test_each_run_has_its_own_minimum() -> None:
    world = one("sim-aws", runs=(ran(0, 1), ran(10, 90), ran(100, 102)))
    assert owed(world, 5000) == Fraction(60 + 80 + 60, 1000)


def test_a_spot_machine_pays_each_second_at_the_price_of_that_second() -> None:
    world = one("sim-aws", runs=(ran(0, 1000),), nano=((-50, 3_600_000_000), (100, 7_200_000_000), (400, 360_000_000)))
    assert owed(world, 5000) == Fraction(100 * 10 + 300 * 20 + 600 * 1, 10_000)


def test_a_price_that_moves_within_a_second_waits_for_the_next() -> None:
    world = one("sim-gcp", runs=(ran(0, 100),), nano=((0, 3_600_000_000), (79.5, 7_200_000_000)))
    assert owed(world, 5000) == Fraction(80 + 20 * 2, 1000)


def test_the_first_minute_costs_what_it_cost_when_it_began() -> None:
    world = one("sim-aws", runs=(ran(0, 70),), nano=((0, 3_600_000_000), (20, 7_200_000_000)))
    assert owed(world, 30) == Fraction(60, 1000)
    assert owed(world, 5000) == Fraction(60 + 10 * 2, 1000)


def test_runpod_has_no_minimum() -> None:
    assert owed(one("sim-runpod", runs=(ran(0, 90.5),)), 5000) == Fraction(91, 1000)


def test_lambda_counts_started_minutes_of_its_run() -> None:
    world = one("sim-lambda", runs=(ran(30, 30 + 61),), nano=((0, 6_000_000_000),))  # $0.10 a minute
    assert [owed(world, at) for at in (30, 30.5, 90, 90.5, 5000)] == [
        0,
        Fraction(1, 10),
        Fraction(1, 10),
        Fraction(2, 10),
        Fraction(2, 10),
    ]


def test_vast_bills_a_paused_machine_as_a_running_one() -> None:
    run = Run(start_us=us(0), stop_us=us(100), pauses=((us(10), us(90)),))
    assert owed(one("sim-vast", runs=(run,)), 5000) == Fraction(100, 1000)


def test_an_aws_disk_goes_by_the_calendar_month_running_or_not() -> None:
    world = one("sim-aws", runs=(ran(0, 60),), disks=(Disk(gb=100, type="gp3"),), nano=((0, 0),))
    december = datetime(2026, 12, 1, tzinfo=UTC)
    days_left = Fraction(21, 2)  # from noon of the 20th to the end of a November of 30 days
    assert sum_lines(list_owed(world, december)) == 8 * days_left / 30
    assert sum_lines(make_bill(world, december, december + timedelta(days=31))) == 8
    assert sum_lines(make_bill(world, december, december + timedelta(days=1))) == Fraction(8, 31)


def test_an_aws_disk_of_a_deleted_machine_costs_nothing() -> None:
    world = one("sim-aws", ended=3600, disks=(Disk(gb=720, type="gp3"),), nano=((0, 0),))
    assert owed(world, 10**6) == Fraction(720 * 8, 100) / 720


def test_a_gcp_disk_has_months_of_730_hours() -> None:
    world = one("sim-gcp", kind="volume", disks=(Disk(gb=73, type="pd-balanced"),))
    assert owed(world, 100 * 3600) == 1  # 73 GB at $0.10 for 100 of 730 h


def test_a_runpod_volume_costs_twice_as_much_while_its_pod_is_off() -> None:
    disks = (Disk(gb=730, type="container"), Disk(gb=73, type="volume"))
    world = one("sim-runpod", runs=(ran(0, 3600), ran(3 * 3600, 4 * 3600)), disks=disks, nano=((0, 0),))
    container, on, off = Fraction(1, 10), Fraction(1, 100), Fraction(2, 100)  # an hour
    assert owed(world, 3600) == container + on
    assert owed(world, 3 * 3600) == container + on + 2 * off
    assert owed(world, 5 * 3600) == 2 * container + 2 * on + 3 * off


def test_a_network_volume_is_owed_by_started_hours() -> None:
    world = one("sim-runpod", kind="volume", ended=2 * 3600 + 1, disks=(Disk(gb=730, type="network"),))
    assert [owed(world, at) for at in (0, 1, 3600, 3601, 10**6)] == [Fraction(7 * n, 100) for n in (0, 1, 1, 2, 3)]


def test_a_lambda_filesystem_is_owed_by_started_hours() -> None:
    world = one("sim-lambda", kind="volume", disks=(Disk(gb=365, type="filesystem"),))
    assert owed(world, 90 * 60) == Fraction(2, 10)


def test_a_vast_disk_costs_what_its_host_says_in_months_of_720_hours() -> None:
    world = one("sim-vast", runs=(), disks=(Disk(gb=72, type="disk", nano=150_000_000),))
    assert owed(world, 3600) == Fraction(72 * 15, 100) / 720


def test_traffic_is_owed_when_it_flows() -> None:
    world = one("sim-vast", traffic=((us(10), 500), (us(20), 2500)))
    assert [owed(world, at) for at in (10, 10.5, 20.5)] == [0, Fraction(1, 100), Fraction(5, 100)]


def test_an_address_costs_half_a_cent_an_hour() -> None:
    world = one("sim-aws", kind="address", nano=((0, 5_000_000),), ended=7200)
    assert owed(world, 10**6) == Fraction(1, 100)


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
