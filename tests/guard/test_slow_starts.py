"""A machine that its provider has called pending or starting for twenty minutes is told of, and one that runs is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import compute_budget_status
from costguard.guard.alerts.alert import WARNING, Alert
from costguard.guard.alerts.fleet import build_alert_subject
from costguard.guard.alerts.starts import list_slow_start_alerts
from costguard.guard.slow_starts import STARTING_FOR, count_slow_starts, is_slow_start
from costguard.metering.burn import list_burns
from costguard.metering.meter import PriceRange
from costguard.values.money import Money
from tests.books import at, attribution, live, meter, money, spent

BEGAN = at(20, 14)
CREATED, STARTED = {"created_at": BEGAN, "started_at": None}, {"created_at": at(19, 8), "started_at": BEGAN}


def list_told(now: datetime, *, billed: bool, **stated: Any) -> list[Alert]:  # noqa: ANN401 - any field
    """What is told of a machine that its provider calls starting, with a compute line that runs since BEGAN if `billed`."""
    one = live("pod", *([meter(21_520_000_000)] if billed else []), state="starting", **stated)
    one = replace(one, open=tuple(replace(span, start=BEGAN, anchor=BEGAN) for span in one.open))
    one = replace(one, seen_at=now)
    starting = [(one, build_alert_subject(one, "ada", now, topic="starting"))] if is_slow_start(one) else []
    return list(list_slow_start_alerts(starting, now))


@pytest.mark.parametrize(
    ("billed", "stated"),
    [(True, CREATED), (False, CREATED), (False, STARTED), (True, {"created_at": at(19, 8), "started_at": None})],
    ids=["created", "created, free", "started again", "started again, undated"],
)
def test_a_start_is_slow_after_twenty_minutes_of_this_run(billed: bool, stated: dict[str, Any]) -> None:  # noqa: FBT001 - a case
    assert list_told(BEGAN + STARTING_FOR - timedelta(seconds=1), billed=billed, **stated) == []
    [alert] = list_told(BEGAN + STARTING_FOR, billed=billed, **stated)
    assert (alert.severity, alert.topic) == (WARNING, "starting")
    assert "pod" in alert.what
    assert "does not start: starting since 14:00 UTC" in alert.what
    assert any("costguard stop" in text for _, text in alert.facts)


def test_a_machine_that_was_never_dated_counts_from_its_first_sight() -> None:
    seen = at(20, 12, 1)
    assert list_told(seen + STARTING_FOR - timedelta(seconds=1), billed=False, created_at=None, started_at=None) == []
    assert len(list_told(seen + STARTING_FOR, billed=False, created_at=None, started_at=None)) == 1


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({}, "64.56"),
        ({"seen_at": at(20, 15)}, "21.52"),
        ({"seen_at": at(20, 14, 10)}, "0.00"),
        ({"absent_at": at(20, 16)}, "0.00"),
    ],
    ids=["seen now", "seen two hours ago", "seen before it was slow", "not listed"],
)
def test_a_cap_counts_a_slow_start_until_it_was_last_seen(changes: dict[str, Any], counted: str) -> None:
    now = at(20, 17)
    priced = replace(meter(21_520_000_000), price=PriceRange(0, 21_520_000_000, 21_520_000_000))
    one = replace(live("pod", priced, state="starting", created_at=BEGAN, started_at=None), seen_at=now)
    one = replace(one, open=tuple(replace(span, start=BEGAN, anchor=BEGAN) for span in one.open), **changes)
    sums = [spent(money("0", "64.56", "64.56"), attribution())]
    nothing, budget = Money(nano=0), Budget(name="all", cap=Money.parse("50"), hard=True)
    standing = compute_budget_status(budget, sums, list_burns([one], now), holds=nothing, now=now)
    assert standing.spent.low == nothing
    assert count_slow_starts(standing, [one], now).spent.low.format() == counted
