"""The ledger's benchmark measures what it says: the same rows, the same sums, sizes of the right file. Never how fast."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from bench import fleet, ledger_history, ledger_month, ledger_polls, ledger_raw
from bench.measured import Measured, table
from costguard.ledger.db import maintenance
from costguard.ledger.spans.books import SpendingReader
from costguard.values import calendar


def counts(path: Path, *tables: str) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables]  # noqa: S608 - our own names


@pytest.mark.proof
def test_an_unchanged_poll_is_measured_over_the_whole_fleet(tmp_path: Path) -> None:
    per_scope, per_instance, _ = ledger_polls.unchanged(tmp_path, instances=100, rounds=3)
    assert "100 unchanged instances in 10 scopes" in per_scope.what
    assert {per_scope.met, per_instance.met} <= {True, False}
    assert counts(tmp_path / "unchanged-100.db", "resource", "observation", "coverage") == [100, 100, 10]
    assert counts(tmp_path / "unchanged-10.db", "resource", "observation", "coverage") == [10, 10, 10]


@pytest.mark.proof
def test_a_changed_poll_and_its_yardstick_write_the_same_rows(tmp_path: Path) -> None:
    raw, writes, whole, *undated = ledger_polls.changed(tmp_path, instances=20, rounds=2)
    # 20 closings, 20 new spans, 20 observations; a row of coverage a scope, one of state; the rest are roll-ups
    assert int(raw.what.split("), ")[1].split(" rows")[0]) > 20 + 20 + 20 + 10 + 1
    assert {writes.target, whole.target} == {">= 0.33"}
    assert [line.met for line in (raw, *undated)] == [None] * 4
    assert counts(tmp_path / "changed-aws.db", "span", "observation") == [20 * 3, 20 * 3]
    assert counts(tmp_path / "changed-gcp.db", "span", "observation") == [20 * 5, 20 * 3]
    ledger_raw.same_rows(tmp_path / "changed-gcp.db", tmp_path / "before.db")


@pytest.mark.proof
def test_a_yardstick_that_leaves_rows_out_is_found_out(tmp_path: Path) -> None:
    list(ledger_polls.changed(tmp_path, instances=10, rounds=1))
    with closing(sqlite3.connect(tmp_path / "before.db")) as connection, connection:
        connection.execute("UPDATE daily SET us = us + 1 WHERE day = (SELECT max(day) FROM daily)")
    with pytest.raises(SystemExit, match="other rows of daily"):
        ledger_raw.same_rows(tmp_path / "before.db", tmp_path / "after.db")


def test_the_history_is_a_sound_ledger_and_its_reports_are_exact(tmp_path: Path) -> None:
    made = ledger_history.written(tmp_path / "history.db", instances=60)
    assert made.spans > 300
    assert made.open > 0
    assert maintenance.check_ledger(made.url) == []
    as_of = ledger_history.UNTIL - timedelta(hours=3)
    for _, zone in ledger_history.ZONES:
        period = calendar.make_month(2026, 7, zone)
        with SpendingReader(made.url, rules=fleet.rules()) as books:
            found = ledger_history.sums(books.load_spending(period, as_of))
        assert found == ledger_history.full(made.path, period, as_of)
        bare = ledger_history.bare(made.path, period)
        assert abs(sum(int(str(row[4])) for row in bare) / sum(expected for _, expected, _ in found.values()) - 1) < 0.2


def test_a_month_of_polls_counts_every_poll(tmp_path: Path) -> None:
    (line,) = ledger_month.month(tmp_path, instances=10, minutes=300, together=7)
    with closing(sqlite3.connect(tmp_path / "month.db")) as connection:
        assert connection.execute("SELECT scope_id, sum(polls) FROM coverage GROUP BY scope_id").fetchall() == [
            (scope, 300) for scope in range(1, 6)
        ]
        (most,) = connection.execute(
            "SELECT max(n) FROM (SELECT count(*) AS n FROM observation GROUP BY resource_id)"
        ).fetchone()
    assert most == 1 + 2 * ledger_month.RESTARTS
    assert line.reached == f"{(tmp_path / 'month.db').stat().st_size / 1e6:.2f}"
    assert maintenance.check_ledger(f"sqlite:///{tmp_path}/month.db") == []


def test_the_table_prints_the_target_and_what_was_reached_and_counts_misses(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        Measured(what="a poll, ms", target="<= 1", reached="0.5", met=True),
        Measured(what="a report, ms", target="<= 2", reached="3", met=False),
        Measured(what="a yardstick", reached="7"),
    ]
    assert table(lines) == 1
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.split() == ["a", "poll,", "ms", "<=", "1", "0.5", "meets"]
    assert second.endswith("MISSES")
    assert third.split() == ["a", "yardstick", "7"]
