"""The head of a status: one line, what needs somebody, and what holds a machine; acts only where the plan can judge."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from typing import Any

import pytest

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import compute_budget_status
from costguard.errors import InputError
from costguard.guard.overrides import LEASE
from costguard.guard.policy import CANNOT_SAY, Proposal
from costguard.reporting.status import FleetStatus, ResourceAnnotations, build_fleet_status
from costguard.reporting.status_filter import StatusFilter
from costguard.values.calendar import find_month
from costguard.values.money import Money, MoneyInterval
from costguard.views.status import build_status_document
from costguard.views.status_summary import DueActs, format_hold, list_head_lines, select_due_acts
from tests.books import NOW
from tests.guard.cases import idle, judged, machine, minutes, policy, wish

DUE_AT = NOW + minutes(15)
TRAIN, REST = (
    machine("i-1", name="train"),
    machine("i-2", name="rest", state="stopped", owner="ada", stopped_at=NOW - timedelta(days=14)),
)


def stated(**beside: Any) -> FleetStatus:  # noqa: ANN401 - any annotation
    annotations = {TRAIN.observation.key: ResourceAnnotations(**beside)}
    return build_fleet_status(
        at=NOW, month=find_month(NOW, UTC), zone=UTC, spending=(), live=[TRAIN, REST], scopes=(), annotations=annotations
    )


def proposal(**stated: Any) -> Proposal:  # noqa: ANN401 - any field
    rule = policy()
    verdict = judged(TRAIN, rule, idle(NOW - minutes(60)), NOW)
    return Proposal(**{"verdict": verdict, "number": 1, "step": rule.then[1], "due_at": DUE_AT, **stated})


def test_an_act_of_the_plan_is_in_the_head_and_beside_its_machine() -> None:
    one = proposal()
    due, status = select_due_acts([one.verdict], [one]), stated()
    head, *needs = list_head_lines(status, due, 0)
    assert head.startswith("LOOK  $")
    assert head.endswith(f"  1 act due {DUE_AT:%H:%M} UTC")
    assert f"stop train {DUE_AT:%H:%M} UTC (policy idle-gpu)" in needs
    held = {one.live.observation.name: format_hold(one, due, NOW) for one in status.resources}
    assert held == {"train": f"stops {DUE_AT:%H:%M} UTC", "rest": "-"}


def test_nothing_is_due_where_something_holds_it_or_the_plan_cannot_judge() -> None:
    one = proposal()
    unjudged = replace(one.verdict, finding=CANNOT_SAY)
    for act in (replace(one, held_by=(("lease", "it is kept"),)), replace(one, verdict=unjudged)):
        due = select_due_acts([act.verdict], [act])
        assert not due.by_key
        assert next(iter(list_head_lines(stated(), due, 0))).endswith("  nothing due")
    assert select_due_acts([unjudged], []).unmeasured == 1
    assert select_due_acts([unjudged, one.verdict], []).unmeasured == 0


def test_what_keeps_a_machine_stands_beside_it() -> None:
    lease = wish(LEASE, TRAIN, NOW - minutes(60), NOW + minutes(120))
    (train, _) = stated(lease=lease, protected=True, stops_at=DUE_AT).resources
    assert format_hold(train, DueActs(by_key={}), NOW) == f"kept 2 h, protected, stops {DUE_AT:%H:%M} UTC"


def test_a_stopped_machine_is_stopped_for_so_long_and_not_up() -> None:
    (table,) = build_status_document(stated()).tables
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(row["state"], row["up>"]) for row in rows if row["resource"].startswith("rest")] == [("stopped 14 d", "-")]


def test_a_filter_chooses_machines_and_leaves_the_sums_of_the_fleet() -> None:
    status = stated(work=idle(NOW - minutes(60)))
    for chosen, names in (
        (StatusFilter(states=("idle",)), ["train"]),
        (StatusFilter(states=("stopped",), owners=("ADA",)), ["rest"]),
        (StatusFilter(sort="name"), ["rest", "train"]),
    ):
        document = build_status_document(status, shown=chosen.select_machines(status))
        assert [one["name"] for one in document.records] == names
        assert document.data["burn_usd_per_hour"] == build_status_document(status).data["burn_usd_per_hour"]
    for wrong in ({"states": ("idel",)}, {"sort": "cost"}):
        with pytest.raises(InputError):
            StatusFilter(**wrong)
    with pytest.raises(InputError, match="no machine is of 'eve'"):
        StatusFilter(owners=("eve",)).select_machines(status)


@pytest.mark.parametrize(
    ("low", "head", "need"),
    [
        ("87", "LOOK", "Budget all may be over its cap: all $123.00 of $100.00 (123 %) is expected, between 87 and 653 %."),
        ("101", "OVER BUDGET", "Budget all is over its cap: all $123.00 of $100.00 (123 %)."),
    ],
)
def test_a_budget_is_over_its_cap_only_where_the_low_end_is(low: str, head: str, need: str) -> None:
    budget = Budget(name="all", cap=Money.parse("100"), period="month")
    standing = compute_budget_status(budget, (), (), holds=Money(nano=0), now=NOW)
    spent = MoneyInterval(low=Money.parse(low), expected=Money.parse("123"), high=Money.parse("653"))
    status = replace(stated(), budgets=(replace(standing, spent=spent),))
    lines = list(list_head_lines(status, DueActs(by_key={}), 0))
    assert lines[0].startswith(f"{head}  ")
    assert need in lines
