"""Checkpoints of a run that may be interrupted: the intervals of Young and Daly, and what they cost."""

from __future__ import annotations

import pytest

from costguard.data import ShippedFacts
from costguard.quoting.checkpoints import CheckpointPlan, plan_checkpoints
from costguard.values.money import Rate

STATED = {
    "gigabytes": 112.0,
    "machines": 1,
    "interruptions_per_hour": 0.02,
    "restart_hours": 0.25,
    "work_hours": 100.0,
    "stated_hours": 1.0,
    "rate": Rate.parse("10"),
    "store": None,
}


def plan(**changed: object) -> CheckpointPlan:
    return plan_checkpoints(**(STATED | changed))  # type: ignore[arg-type]  # keywords of a table


def test_the_intervals_are_those_of_the_papers() -> None:
    one = plan()
    assert one.write_hours == pytest.approx(112 / 0.4 / 3600)
    assert one.young_hours == pytest.approx(2.789, abs=0.001)  # sqrt(2 x 0.07778 / 0.02)
    assert one.interval_hours == pytest.approx(2.737, abs=0.001)
    assert one.lost_hours == pytest.approx(100 * (0.07778 / 2.737 + 0.02 * (0.25 + 2.737 / 2)), rel=1e-3)
    assert float(one.usd) == pytest.approx(10 * one.lost_hours, abs=0.01)


@pytest.mark.parametrize("interval", [0.5, 1.0, 2.0, 3.5, 6.0])
def test_no_other_interval_loses_much_less(interval: float) -> None:
    assert plan().lost_hours <= 1.002 * plan(stated_hours=interval).stated_lost_hours


def test_a_run_shorter_than_the_interval_writes_one_at_its_end() -> None:
    assert plan(work_hours=1.5).interval_hours == 1.5


def test_writes_that_take_as_long_as_the_time_between_interruptions_have_daly_s_bound() -> None:
    assert plan(gigabytes=1e6, interruptions_per_hour=0.02).interval_hours == pytest.approx(50)


def test_each_machine_writes_its_part() -> None:
    assert plan(machines=4).write_hours == pytest.approx(plan().write_hours / 4)


def test_keeping_them_is_priced_by_the_months_of_the_store() -> None:
    stores = ShippedFacts().get_object_storage()
    aws, filesystem = (plan(store=stores[name]).store_usd for name in ("aws", "lambda"))
    assert float(aws or 0) == pytest.approx(2 * 112 * 0.023 * 100 / 730, rel=1e-6)
    assert float(filesystem or 0) == pytest.approx(2 * 112 * 0.20 * 100 / 720, rel=1e-6)
    assert all("2026" in store.source for store in stores.values())
