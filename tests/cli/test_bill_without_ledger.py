"""A bill is read where there is no ledger and there are no settings: what it holds is said, and nothing is created."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from tests.cli.test_reconcile_files import row, text
from tests.conftest import Command


@pytest.fixture
def bare(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: ARG001 - it empties the folder
    """A folder without settings; homes that do not exist."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere" / name))
    monkeypatch.delenv("COSTGUARD_LEDGER__URL", raising=False)
    return tmp_path


def test_a_bill_is_read_without_a_ledger_and_none_is_created(costguard: Command, bare: Path) -> None:
    rows = [row(number) for number in range(3)]
    rows += [row(800, SubAccountId="444455556666", BilledCost="7", EffectiveCost="7"), row(0, ProviderName="Someone Else")]
    rows += [row(1, ChargeCategory="Credit", BilledCost="-0.5", EffectiveCost="-0.5", ResourceId="")]
    (bare / "bill.csv").write_text(text(rows))
    ran = costguard("reconcile", "--file", "bill.csv", "--json")
    assert (ran.code, ran.data["compared"], ran.data["accounts"]) == (0, False, [])
    found = {(one["account"], one["month"]): one for one in ran.data["bills"]}
    assert set(found) == {("111122223333", "2026-10"), ("444455556666", "2026-11")}
    october = found["111122223333", "2026-10"]
    assert (october["provider"], october["currency"], october["lines"]) == ("aws", "USD", 4)
    assert Decimal(october["amount"]) == Decimal("1.006") * 3 - Decimal("0.5")
    assert {name: Decimal(usd) for name, usd in october["charges"].items()} == {
        "compute": Decimal("3.018"),
        "credit": Decimal("-0.5"),
    }
    assert "nothing to compare it with" in ran.data["notes"][0]
    assert any("1 rows of Someone Else were left out" in note for note in ran.data["notes"])
    assert "nothing to compare it with" in ran.err
    assert sorted(path.name for path in bare.rglob("*")) == ["bill.csv"], "no ledger, no settings, no cache"
    table = costguard("reconcile", "--file", "bill.csv").out
    assert "444455556666" in table
    assert "$7.00" in table


def test_strict_refuses_a_bill_that_is_compared_with_nothing(costguard: Command, bare: Path) -> None:
    (bare / "bill.csv").write_text(text([row()]))
    ran = costguard("reconcile", "--file", "bill.csv", "--strict", "--json")
    assert (ran.code, ran.data["bills"][0]["lines"], "not compared" in ran.err) == (4, 1, True)


def test_a_file_without_an_account_needs_none_where_no_ledger_has_accounts(costguard: Command, bare: Path) -> None:
    hour = {"startTime": "2026-10-01T00:00:00Z", "endTime": "2026-10-01T01:00:00Z"}
    pods = [{**hour, "podId": "p-1", "totalAmount": 1.25, "gpuAmount": 1.25}]
    (bare / "pods.json").write_text(json.dumps(pods))
    (bill,) = costguard("reconcile", "--file", "pods.json", "--json").data["bills"]
    assert (bill["provider"], bill["account"], Decimal(bill["amount"])) == ("runpod", "not stated", Decimal("1.25"))
    (bill,) = costguard("reconcile", "--file", "pods.json", "--account", "team", "--json").data["bills"]
    assert bill["account"] == "team"
