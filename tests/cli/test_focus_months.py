"""FOCUS Parquet partitioned by month, as docs/EXPORTS.md has it: its sums are the report's to the nano-dollar."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from costguard.testing import demo
from tests.conftest import Command

dataset = pytest.importorskip("pyarrow.dataset", reason="pip install 'gpu-costguard[parquet]' brings pyarrow")
AMOUNTS = ("x_CostLow", "EffectiveCost", "x_CostHigh")


def test_sums_of_partitioned_months_are_those_of_the_report(
    costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    demo.play_world(url, seed=41, end=datetime(2026, 10, 3, tzinfo=UTC), days=4, size=10)
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", url)
    for month in ("2026-09", "2026-10"):
        folder = tmp_path / "focus" / f"billing_period={month}"
        folder.mkdir(parents=True)
        words = ("report", "--month", month, "--zone", "UTC", "--format", "focus", "--output", f"{folder}/costguard.parquet")
        for flags in ((), ("--force",)):
            ran = costguard(*words, *flags)
            assert ran.code == 0, ran.err

    sums: dict[tuple[str, ...], list[Decimal]] = defaultdict(lambda: [Decimal(0)] * len(AMOUNTS))
    for row in dataset.dataset(tmp_path / "focus", partitioning="hive").to_table().to_pylist():
        key = (row["billing_period"], row["SubAccountId"], row["x_GpuModel"] or "", row["x_ChargeKind"])
        sums[key] = [total + row[name] for total, name in zip(sums[key], AMOUNTS, strict=True)]
    for month in ("2026-09", "2026-10"):
        groups = costguard("report", "--month", month, "--zone", "UTC", "--by", "account,gpu,charge", "--json").data["groups"]
        reported = {
            (month, *(value or "" for value in one["by"].values())): [
                Decimal(one["usd"][end]) for end in ("low", "expected", "high")
            ]
            for one in groups
        }
        assert reported == {key: amounts for key, amounts in sums.items() if key[0] == month}
        assert any(sum(amounts) for amounts in reported.values())
