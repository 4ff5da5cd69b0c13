"""The simulated cloud: what it does, what it says, and what it truly costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from costguard.errors import InputError
from costguard.metering.inventory import Complete, Failed, Partial
from costguard.testing import FakeClock, PrepaidCloud, SimulatedCloud
from costguard.testing.cloud import ListingFault
from costguard.testing.machine import SILENT, SimulatedDisk, make_busy_rule, make_quiet_rule
from costguard.values import sample as signals
from costguard.values.calendar import Period
from costguard.values.money import Money

NOON = datetime(2026, 11, 6, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
def cloud(clock: FakeClock) -> SimulatedCloud:
    cloud = SimulatedCloud("aws", clock)
    store = SimulatedDisk(gb=730, running=10**9, stopped=2 * 10**9)
    cloud.add("box", rate="3.60", gpu="A100-80GB-SXM", gpus=8, stores=(store,))
    return cloud


def test_a_stop_takes_its_time_and_is_billed_until_it_is_down(cloud: SimulatedCloud, clock: FakeClock) -> None:
    box = cloud.machines["box"]
    box.stops_in = 2 * MINUTE
    clock.advance(HOUR)
    assert cloud.stop(box.key).said == "accepted"
    seen = cloud.look_up(box.key)
    assert seen is not None
    assert seen.state == "stopping"
    clock.advance(HOUR)
    assert box.spent(NOON, clock.now(), ("compute",)) == Fraction(62 * 60 * 10**6)
    seen = cloud.look_up(box.key)
    assert seen is not None
    assert (seen.state, seen.stopped_at) == ("stopped", NOON + 62 * MINUTE)


def test_a_stopped_disk_costs_what_it_says(cloud: SimulatedCloud, clock: FakeClock) -> None:
    box = cloud.machines["box"]
    box.stops_in = timedelta()
    clock.advance(HOUR)
    cloud.stop(box.key)
    assert box.spent(NOON, NOON + 2 * HOUR, ("disk",)) == 10**9 + 2 * 10**9


@pytest.mark.parametrize(
    ("how", "said", "done"),
    [
        ("obeys", "accepted", True),
        ("deaf", "accepted", False),
        ("lost", "unclear", True),
        ("unclear", "unclear", False),
        ("refuses", "refused", False),
    ],
)
def test_an_act_is_answered_as_it_was_told(cloud: SimulatedCloud, clock: FakeClock, how: str, said: str, *, done: bool) -> None:
    box = cloud.machines["box"]
    box.answers.append((NOON, how, 1))
    assert cloud.stop(box.key).said == said
    assert [(act.said, act.done) for act in cloud.acts] == [(said, done)]
    clock.advance(HOUR)
    seen = cloud.look_up(box.key)
    assert seen is not None
    assert (seen.state == "stopped") is done


def test_a_restart_is_a_new_run_of_the_same_id_and_outlives_the_old_stop(cloud: SimulatedCloud, clock: FakeClock) -> None:
    box = cloud.machines["box"]
    box.stops_in = 5 * MINUTE
    cloud.stop(box.key)
    clock.advance(2 * MINUTE)
    box.run(clock.now())
    clock.advance(HOUR)
    seen = cloud.look_up(box.key)
    assert seen is not None
    assert (seen.state, seen.started_at, seen.created_at) == ("running", NOON + 2 * MINUTE, NOON)


def test_listings_lie_as_they_are_told(cloud: SimulatedCloud, clock: FakeClock) -> None:
    cloud.add("other", rate="1")
    for number, what in enumerate(("down", "partial", "empty", "hides", "stale")):
        start = NOON + number * MINUTE
        cloud.faults.append(ListingFault(start, start + MINUTE, what, polls=1, name="box"))
    found = []
    for _ in range(6):
        found.append(cloud.poll(cloud.scope).inventory)
        clock.advance(MINUTE)
    assert isinstance(found[0], Failed)
    assert isinstance(found[1], Partial)
    assert found[2] == Complete(())
    assert isinstance(found[3], Complete)
    assert [one.name for one in found[3].items] == ["other"]
    assert isinstance(found[5], Complete)
    assert len(found[5].items) == 2


def test_samples_follow_their_rule_and_the_machine(cloud: SimulatedCloud, clock: FakeClock) -> None:
    cloud.measures("box", make_busy_rule(gpus=8))
    cloud.measures("box", make_quiet_rule(gpus=8), at=NOON + 10 * MINUTE)
    cloud.measures("box", SILENT, at=NOON + 20 * MINUTE)
    seen = cloud.look_up(cloud.machines["box"].key)
    assert seen is not None
    found = cloud.fetch_utilization((seen,), Period(start=NOON, end=clock.advance(30 * MINUTE)))
    duty = [one.value for one in found.samples if one.signal == signals.GPU_UTIL]
    assert duty == [92.0] * 10 + [0.0] * 10
    steps = [one.value for one in found.samples if one.signal == signals.STEP]
    assert steps == [60.0 * number for number in range(11)] + [600.0] * 9
    assert cloud.fetch_utilization((seen,), Period(start=NOON, end=clock.now())).samples == ()


def test_a_balance_falls_by_what_is_truly_spent(clock: FakeClock) -> None:
    cloud = PrepaidCloud("runpod", clock)
    cloud.paid, cloud.since = Money.parse("41.20"), NOON
    for number in range(4):
        cloud.add(f"pod{number}", rate="2.99")
    clock.advance(HOUR)
    assert cloud.fetch_balance().amount == Money.parse("29.24")
    cloud.unknown = "503"
    assert cloud.fetch_balance().amount is None


def test_a_clock_that_jumps_leaves_boot_time_alone(clock: FakeClock) -> None:
    clock.advance(MINUTE)
    clock.jump(-HOUR)
    assert (clock.now(), clock.boottime()) == (NOON + MINUTE - HOUR, MINUTE)
    with pytest.raises(InputError, match="back"):
        clock.advance(-MINUTE)
