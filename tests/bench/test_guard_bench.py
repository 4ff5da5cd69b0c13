"""The guard's benchmark measures what it says: the fleet as it was made, answers that clients can read. Never how fast."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import guard_custodian, guard_judge
from costguard.guard.evaluation import evaluate_snapshot


def test_judging_judges_the_fleet_as_it_was_made() -> None:
    whole, judged = guard_judge.judge(instances=100, rounds=1)
    assert "100 instances x 20 policies" in whole.what
    assert whole.met in {True, False}
    assert float(judged.reached) <= float(whole.reached)


def test_a_survey_that_found_other_states_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = evaluate_snapshot
    monkeypatch.setattr(guard_judge, "evaluate_snapshot", lambda rules, sight: replace(real(rules, sight), works={}))
    with pytest.raises(SystemExit, match="30 idle"):
        list(guard_judge.judge(instances=100, rounds=1))


def test_without_custodian_the_comparison_is_left_out_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_custodian, "installed", lambda: (None, "there is no network"))
    line = next(iter(guard_custodian.custodian()))
    assert line.reached == "skipped: there is no network"
    assert line.met is None
