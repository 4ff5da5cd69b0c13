"""The plan as people and scripts read it. `plan.json` beside this file is its JSON to the letter."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.guard.policy import CANNOT_SAY, DOES_NOT, HOLDS, ConditionResult, Policy, PolicyStep, Proposal, Verdict
from costguard.guard.signals import ACTIVE, IDLE, Activity
from costguard.renderers.table import render
from costguard.values.money import Money
from costguard.values.resource import Incarnation, ResourceKey
from costguard.views.plan import PlanRow, PlanView, build_plan_document

SAMPLE = Path(__file__).with_name("plan.json")
NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
SINCE = NOON - timedelta(minutes=50)


class When:
    """A condition that nobody asks."""

    text = 'state == "idle"'
    names = frozenset({"state"})

    def evaluate(self, facts: object) -> ConditionResult:  # noqa: ARG002 - the signature of the port
        return ConditionResult(value=True)


NOTIFY, STOP = PolicyStep(do="notify"), PolicyStep(do="stop", after=timedelta(minutes=15))
POLICY = Policy(name="idle-gpu", when=When(), then=(NOTIFY, STOP), arm="stop", hold=timedelta(minutes=45))


def row(
    id_: str, finding: str, work: Activity, *, missing: tuple[str, ...] = (), steps: bool = False, **stated: object
) -> PlanRow:
    life = Incarnation(ResourceKey("aws", "123", "us-east-1", id_), NOON - timedelta(hours=9))
    verdict = Verdict(
        policy=POLICY,
        life=life,
        at=NOON,
        finding=finding,
        truth=ConditionResult(value={HOLDS: True, DOES_NOT: False}.get(finding), missing=missing),
        work=work,
        since=SINCE if finding == HOLDS else None,
    )
    held = (("leased", "ada keeps it until 16:00"),)
    proposals = (
        Proposal(verdict=verdict, number=0, step=NOTIFY, due_at=NOON - timedelta(minutes=5)),
        Proposal(verdict=verdict, number=1, step=STOP, due_at=NOON + timedelta(minutes=10), held_by=held),
    )
    return PlanRow(verdict=verdict, proposals=proposals if steps else (), level="stop", **stated)  # type: ignore[arg-type]  # a test's own fields


QUIET = Activity(state=IDLE, confidence=0.9, reasons=("GPU duty 0 % since 11:10", "CPU 0.01 cores"), since=SINCE)
ROWS = (
    row("i-3", DOES_NOT, Activity(state=ACTIVE, confidence=0.9, reasons=("GPU duty 80 %",)), name="busy"),
    row("i-2", CANNOT_SAY, Activity(), missing=("confidence",), owner="ben"),
    row(
        "i-1",
        HOLDS,
        QUIET,
        steps=True,
        name="train-1",
        owner="ada",
        rate=Money.parse("32.77"),
        waste=Money.parse("27.308333333"),
    ),
)
PLAN = PlanView(at=NOON, rows=ROWS, hash="3f9ac1d2", notes=("lambda tells nothing of work",))


def test_the_json_is_the_sample_to_the_letter(request: pytest.FixtureRequest) -> None:
    printed = json.dumps(build_plan_document(PLAN).data, indent=2) + "\n"
    if request.config.getoption("--write-golden"):
        SAMPLE.write_text(printed)
    assert printed == SAMPLE.read_text()


def test_what_holds_stands_first_and_what_does_not_is_only_counted() -> None:
    out = render(build_plan_document(PLAN))
    lines = out.splitlines()
    counts = "3 machines, 1 steps would be done now, 0 are due later, 1 are held back, not measured yet: 1"
    assert lines[0] == f"2026-11-02 12:00 UTC: {counts}. This is a plan: nothing was done."
    assert lines[2] == "Would be done, but is held"
    for words in (
        "aws train-1 (i-1)",
        "notify the owner now; stop in 10 min",
        "ada keeps it until 16:00",
        "GPU duty 0 % since 11:10",
    ):
        assert words in lines[4]
    assert lines[6] == "Not measured yet"
    assert "no data for confidence" in lines[8]
    assert "stop" not in lines[8]
    assert "busy" not in out
    assert "lambda tells nothing of work" in out


def test_disks_are_counted_apart_from_machines() -> None:
    disk = replace(row("vol-1", CANNOT_SAY, Activity()), kind="volume")
    assert ": 3 machines and 1 other resources, 1 steps" in render(build_plan_document(replace(PLAN, rows=(*ROWS, disk))))
