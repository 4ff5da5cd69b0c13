"""The report's benchmark measures what it says: whole processes over a sound ledger with samples. Never how fast."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import ledger_history, report
from costguard.ledger.db import maintenance


def test_a_report_and_its_floor_are_run_over_the_same_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ledger_history.written(tmp_path / "year.db", instances=60)
    rows = report.measured(made.path)
    assert rows > 0
    assert report.measured(made.path) == rows, "what is there stays"
    assert maintenance.check_ledger(made.url) == []
    monkeypatch.setattr(report, "ASKED", report.ASKED[:1])
    time, memory = report.reports(made.path, tmp_path, rounds=1)
    assert "of a bare GROUP BY" in time.reached
    assert {time.met, memory.met} <= {True, False}
