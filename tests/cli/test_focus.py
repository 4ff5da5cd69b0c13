"""FOCUS exports of a simulated fleet: no finding by the standard's rules, the report's sums, and no drift from the ledger."""

from __future__ import annotations

import csv
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from costguard.ledger.db import maintenance
from costguard.reporting.focus.columns import VERSIONS
from costguard.services.report import ledger_answers
from costguard.testing import demo
from tests.cells import parse_json
from tests.conftest import Command
from tests.reporting.focus_rules.validator import check_focus_file

END = datetime(2026, 11, 3, tzinfo=UTC)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledger of four days, whole in one file."""
    path = tmp_path_factory.mktemp("fleet") / "ledger.db"
    demo.play_world(f"sqlite:///{path}", seed=41, end=END, days=4, size=10)
    maintenance.backup_ledger(f"sqlite:///{path}", path.with_name("copy.db"))
    return path.with_name("copy.db")


def test_a_simulated_fleet_is_exported_without_a_finding_in_every_version_and_to_the_nano(
    costguard: Command, fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", f"sqlite:///{shutil.copy(fleet, tmp_path / 'ledger.db')}")
    monkeypatch.setattr(ledger_answers, "get_now", lambda: END)
    for month in ("2026-10", "2026-11"):
        expected = costguard("report", "--month", month, "--json").data["totals"]["expected"]
        for version in VERSIONS:
            flags = ("--format", "focus", "--focus-version", version, "--output", str(tmp_path / "f.csv"), "--force")
            assert costguard("report", "--month", month, *flags).code == 0
            with (tmp_path / "f.csv").open() as file:
                header, *lines = csv.reader(file, strict=True)
            assert check_focus_file(header, enumerate(lines, 2), parse_json, version).findings == ()
            rows = [dict(zip(header, line, strict=True)) for line in lines]
            assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal(expected) > 0
            assert {row["BillingPeriodStart"] for row in rows} == {f"{month}-01T00:00:00Z"}
        loader = pytest.importorskip("beancount.loader", reason="pip install '.[dev]' brings beancount")
        entries, errors, _ = loader.load_string(costguard("report", "--month", month, "--format", "beancount").out)
        postings = [posting for entry in entries for posting in getattr(entry, "postings", ())]
        booked = sum(posting.units.number for posting in postings if posting.account.startswith("Expenses"))
        assert (errors, booked) == ([], Decimal(expected))


def test_an_export_held_against_the_ledger_that_it_came_from_drifts_by_nothing(
    costguard: Command, fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", f"sqlite:///{shutil.copy(fleet, tmp_path / 'ledger.db')}")
    own = str(tmp_path / "own.csv")
    assert costguard("report", "--month", "2026-10", "--zone", "UTC", "--format", "focus", "--output", own).code == 0
    ran = costguard("reconcile", "--month", "2026-10", "--file", own, "--json")
    assert ran.code == 0, ran
    held = {one["provider"]: (one["outcome"], Decimal(one["unexplained"])) for one in ran.data["accounts"]}
    assert len(held) > 2, "each cloud is held by itself, also those that one plug-in speaks for"
    assert set(held.values()) == {("within", Decimal(0))}
    assert {part["cause"] for one in ran.data["accounts"] for part in one["causes"]} <= {"late", "doubt"}
