"""`GET /metrics` over a real connection: who may read it, and what it says."""

from __future__ import annotations

from pathlib import Path

from tests.web.stations import station

BUDGET = '[[budget]]\nname = "all"\ncap = "100 USD"\n'


def test_metrics_are_read_with_a_token_and_come_from_the_ledger(tmp_path: Path) -> None:
    with station(tmp_path, more=BUDGET) as watchdog:
        assert watchdog.ask("GET", "/metrics").status == 401
        assert watchdog.ask("GET", "/metrics", headers={"Authorization": "Bearer wrong"}).data["error"] == "no_token"
        may = watchdog.token()
        early = watchdog.ask("GET", "/metrics", headers=may)
        assert early.status == 200, early.body
        assert early.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert b"costguard_guard_runs_total 0.0" in early.body
        watchdog.room.run_guard()
        later = watchdog.ask("GET", "/metrics", headers=may).body.decode()
        assert "costguard_guard_runs_total 1.0" in later
        assert 'costguard_budget_limit_usd{budget="all"} 100.0' in later
        assert later.count('state="running"') == 1
        assert watchdog.ask("GET", "/metrics", headers=may).body.decode() == later
