"""Stops that people planned: which one stands, when it is over, and what it may lose."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from costguard.guard.overrides import LEASE, STOP_AT, Override
from costguard.guard.timed_stops import (
    find_timed_stop,
    get_due_time,
    index_timed_stops,
    list_due_policies,
    list_ended_stops,
)
from costguard.metering.observation import Handling
from costguard.values.resource import ENDED, STOPPED
from tests.guard.cases import friday, machine, wish

PLANNED, DUE = friday(16), friday(22)
BOX = machine(started_at=friday(9), created_at=friday(9))


def plan(at: datetime = PLANNED, due: datetime = DUE, **stated: Any) -> Override:  # noqa: ANN401 - any field
    return wish(STOP_AT, BOX, at, **{"subject": due.isoformat(), "value": "", **stated})


def test_the_newest_plan_stands_and_says_its_time() -> None:
    first, second = plan(), plan(at=friday(17), due=friday(20))
    found = find_timed_stop(BOX.observation, (second, first), friday(18))
    assert found == second
    assert get_due_time(second) == friday(20)


@pytest.mark.parametrize("lease_at", [PLANNED, friday(18)])
def test_a_lease_made_after_it_ends_it_for_good_even_once_that_is_lifted(lease_at: datetime) -> None:
    lease = replace(wish(LEASE, BOX, lease_at, friday(19)), lifted_at=friday(18, 30))
    assert find_timed_stop(BOX.observation, (plan(), lease), friday(21)) is None
    assert list_ended_stops((plan(), lease), (BOX,), friday(21)) == [plan()]


def test_a_lease_made_before_it_does_not_end_it() -> None:
    assert find_timed_stop(BOX.observation, (wish(LEASE, BOX, friday(12), friday(18)), plan()), friday(21)) == plan()


def test_a_plan_that_was_lifted_or_is_not_made_yet_does_not_count() -> None:
    lifted = replace(plan(), lifted_at=friday(17))
    assert not index_timed_stops((lifted, plan(at=friday(23))), friday(18))


def test_a_new_run_of_the_machine_is_not_stopped_and_the_plan_is_over() -> None:
    again = replace(BOX, observation=replace(BOX.observation, started_at=friday(19)))
    assert find_timed_stop(again.observation, (plan(),), DUE) is None
    assert not list(list_due_policies(again.observation, (plan(),), DUE))
    assert list_ended_stops((plan(),), (again,), DUE) == [plan()]


@pytest.mark.parametrize("state", [STOPPED, ENDED])
def test_a_stopped_machine_ends_its_plan_so_that_it_is_done_once(state: str) -> None:
    there = replace(BOX, observation=replace(BOX.observation, state=state))
    assert list_ended_stops((plan(),), (there,), DUE) == [plan()]


def test_a_machine_that_is_gone_ends_its_plan_and_one_that_stops_does_not() -> None:
    stopping = replace(BOX, observation=replace(BOX.observation, state="stopping"))
    assert list_ended_stops((plan(),), (), DUE) == [plan()]
    assert list_ended_stops((plan(),), (stopping,), DUE) == []


@pytest.mark.parametrize(
    ("consented", "allowed"),
    [("", False), ("50 GB of container disk", True), ("60 GB of container disk\nlocal SSD", False)],
)
def test_consent_covers_exactly_the_losses_that_were_listed(consented: str, allowed: bool) -> None:  # noqa: FBT001 - a case
    loses = Handling(stops=True, terminates=True, stop_loses=("50 GB of container disk",))
    there = replace(BOX.observation, handling=loses)
    (due,) = list_due_policies(there, (plan(value=consented),), DUE)
    assert due.allow_irreversible is allowed
