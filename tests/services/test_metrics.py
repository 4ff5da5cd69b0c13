"""Metrics of a real ledger: what promtool says of them, how often they are computed, and who waits meanwhile."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from costguard.budgets.budget import RATE_THRESHOLDS, Budget
from costguard.budgets.budget_status import compute_budget_status
from costguard.errors import LedgerError
from costguard.guard.policy import Rails
from costguard.guard.run_facts import GuardRun
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.burn import list_burns
from costguard.metering.inventory import Complete, Failed, Poll
from costguard.reporting.metrics import LedgerCounts, MetricFamily, MetricsInput, build_metrics
from costguard.reporting.status import build_fleet_status
from costguard.services.report.metrics import AGE_MAX_S, build_metrics_board
from costguard.services.report.run_board import RunBoard
from costguard.values.calendar import find_month
from costguard.values.money import Money
from tests.books import live, meter
from tests.conftest import Command
from tests.metering.stories import SCOPE, machine

PROMTOOL = shutil.which("promtool")


def fill(url: str) -> None:
    now = datetime.now(UTC)
    with LedgerWriter(url, rules={}, ceilings={}) as ledger:
        for minutes in (3, 2, 1):
            at = now - timedelta(minutes=minutes)
            items = (machine("i-1", started_at=now - timedelta(hours=1)),)
            inventory = Failed(why="no answer") if minutes == 2 else Complete(items=items)
            ledger.record_polls([Poll(scope=SCOPE, at=at, asked_at=at, inventory=inventory)])


def test_the_command_prints_what_promtool_accepts(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    fill(url)
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", url)
    ran = costguard("metrics")
    assert ran.code == 0, ran.err
    assert f'costguard_polls_total{{outcome="failed",provider="{SCOPE.provider}"}} 1.0' in ran.out
    written = tmp_path / "costguard.prom"
    again = costguard("metrics", "--output", str(written))
    assert (again.code, again.out) == (0, "")
    assert "costguard_build_info" in written.read_text()
    refused = costguard("metrics", "--output", str(written))
    assert refused.code == 2
    if PROMTOOL is None:
        pytest.skip("promtool is not installed, so the conventions of names were not checked")
    judged = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=ran.out, capture_output=True, text=True, check=False, timeout=60
    )
    assert (judged.returncode, judged.stdout + judged.stderr) == (0, "")


def test_a_health_check_says_whether_the_guard_ran_lately(
    costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    fill(url)
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", url)
    never = costguard("metrics", "--guard-within", "5m")
    assert (never.code, "has not run" in never.err) == (3, True)
    began = datetime.now(UTC) - timedelta(minutes=2)
    with GuardStore(url, rails=Rails.unlimited()) as store:
        epoch = store.acquire_leader_lease("me", began, timedelta(minutes=5))
        assert epoch is not None
        assert store.record_run(GuardRun(id="r", at=began, epoch=epoch, interval=timedelta(minutes=1)))
    assert costguard("metrics", "--guard-within", "5m").code == 0
    late = costguard("metrics", "--guard-within", "1m")
    assert (late.code, "2m ago" in late.err) == (3, True), late.err
    assert costguard("metrics", "--guard-within", "5").code == 2


class Ledger:
    """Counts how often it is read. `run`: the number of its newest guard run."""

    def __init__(self) -> None:
        self.run, self.made, self.at_s = 1, 0, 0.0
        self.open = threading.Event()
        self.reading = threading.Event()
        self.open.set()

    def make(self) -> bytes:
        self.reading.set()
        assert self.open.wait(30)
        self.made += 1
        return f"{self.made}".encode()

    def board(self) -> RunBoard:
        return build_metrics_board(lambda: self.run, self.make, lambda: self.at_s)


def test_figures_are_computed_anew_after_a_while_where_no_guard_runs() -> None:
    ledger = Ledger()
    board = ledger.board()
    assert board.read_text() == b"1"
    ledger.at_s = AGE_MAX_S - 1
    assert board.read_text() == b"1"
    ledger.at_s = AGE_MAX_S
    assert board.read_text() == b"2"


def test_a_scrape_during_the_computation_gets_the_previous_figures_at_once() -> None:
    ledger = Ledger()
    board = ledger.board()
    board.read_text()
    ledger.run = 2
    ledger.open.clear()
    ledger.reading.clear()
    slow = threading.Thread(target=board.read_text)
    slow.start()
    assert ledger.reading.wait(30)
    assert board.read_text() == b"1"
    ledger.open.set()
    slow.join(30)
    assert board.read_text() == b"2"


def test_a_ledger_that_cannot_be_read_fails_the_scrape_and_repeats_no_old_figures() -> None:
    ledger = Ledger()
    board = ledger.board()
    board.read_text()

    def fail() -> bytes:
        raise LedgerError("is gone", field="ledger")

    ledger.run = 2
    board.render = fail
    with pytest.raises(LedgerError):
        board.read_text()


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


def test_a_cap_an_hour_has_families_of_its_own() -> None:
    """So that no sum over budgets adds dollars and dollars an hour."""
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    ada = Budget(name="ada", cap=Money.parse("12"), period="hour", warn=RATE_THRESHOLDS)
    burns = list_burns([live("i-1", meter(8 * 10**9))], now)
    standing = compute_budget_status(ada, (), burns, holds=Money.parse("0"), now=now)
    status = build_fleet_status(
        at=now, month=find_month(now, UTC), zone=UTC, spending=(), live=(), scopes=(), budgets=(standing,)
    )
    families = build_metrics(MetricsInput(status=status, spending=(), counts=LedgerCounts(), build={"version": ""}))
    samples = {one.name: dict(one.samples) for one in families if "budget" in one.name and one.samples}
    assert samples == {
        "costguard_budget_hourly_limit_usd": {("ada",): 12},
        "costguard_budget_hourly_usd": {("ada", bound): 8 for bound in ("low", "expected", "high")},
    }
