"""docs/METRICS.md lists every family of metrics as the code has it, and the rules and the dashboard ask for no other."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from costguard.reporting.metrics import LedgerCounts, MetricFamily, MetricsInput, build_metrics
from costguard.reporting.status import build_fleet_status
from costguard.values.calendar import find_month

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/METRICS.md"
HEAD = "|---|---|---|---|\n"


def build_families() -> tuple[MetricFamily, ...]:
    """Every family, of an empty fleet."""
    now = datetime(2026, 11, 21, tzinfo=UTC)
    status = build_fleet_status(at=now, month=find_month(now, UTC), zone=UTC, spending=(), live=(), scopes=())
    build = dict.fromkeys(("version", "python", "schema"), "")
    return build_metrics(MetricsInput(status=status, spending=(), counts=LedgerCounts(), build=build))


def format_row(family: MetricFamily) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.help.removesuffix('.')} |\n"


def test_the_page_lists_every_family(request: pytest.FixtureRequest) -> None:
    rows = "".join(map(format_row, build_families()))
    before, head, after = PAGE.read_text().rpartition(HEAD)
    if request.config.getoption("--write-golden"):
        PAGE.write_text(before + head + rows)
        after = rows
    assert after == rows


def test_rules_and_dashboard_ask_for_families_that_exist() -> None:
    names = {family.name for family in build_families()}
    rules = yaml.safe_load((ROOT / "config/prometheus/rules.yml").read_text())
    every = [one for group in rules["groups"] for one in group["rules"]]
    panels = json.loads((ROOT / "config/grafana/costguard.json").read_text())["panels"]
    asked = [one["expr"] for one in every] + [target["expr"] for panel in panels for target in panel.get("targets", ())]
    found = set(re.findall(r"\bcostguard_\w+", " ".join(asked)))
    assert found <= names
    records = {one["record"] for one in every if "record" in one}
    assert set(re.findall(r"\bcostguard:[\w:]+", " ".join(asked))) <= records
