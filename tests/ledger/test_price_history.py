"""The price history in its file: what costs a row, what is thinned, and what damage, other processes and kills do to it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from costguard.errors import InputError
from costguard.ledger import price_history
from costguard.ledger.price_history import (
    UNSEEN_DAYS_MAX,
    WEEKLY_AFTER_DAYS,
    PriceHistoryReader,
    append_prices,
)
from costguard.quoting.offer import Offer, OfferSelection
from tests import shop

DAY = date(2026, 6, 1)
ALL = OfferSelection()
ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "price_history.sqlite"


def price(usd: str | None, on: date, **more: object) -> Offer:
    return shop.offer("runpod", "H100-SXM", usd, seen=on, **more)  # type: ignore[arg-type]


def record(file: Path, usd: str, *days: int, **more: object) -> int:
    """Record the price on so many days after DAY; return the rows added."""
    dates = [DAY + timedelta(days=day) for day in days]
    return sum(append_prices(file, [price(usd, on, **more)], on) for on in dates)


def runs(file: Path, selection: OfferSelection = ALL) -> list[tuple[int, int, str]]:
    """The rows of every selected machine, as days after DAY and dollars."""
    with PriceHistoryReader(file) as history:
        return [
            ((run.seen_on - DAY).days, (run.last_seen_on - DAY).days, run.rate.format())
            for one in history.list_series(selection)
            for run in one.runs
        ]


def test_an_unchanged_price_costs_no_row(file: Path) -> None:
    assert record(file, "2.99", *range(30)) == 1
    assert runs(file) == [(0, 29, "2.9900")]


def test_a_changed_price_begins_a_row(file: Path) -> None:
    record(file, "2.99", 0, 1)
    assert record(file, "2.69", 2, 3) == 1
    assert record(file, "2.99", 4) == 1
    assert runs(file) == [(0, 1, "2.9900"), (2, 3, "2.6900"), (4, 4, "2.9900")]


def test_a_price_that_nobody_saw_for_long_begins_a_row(file: Path) -> None:
    record(file, "2.99", 0, UNSEEN_DAYS_MAX, 2 * UNSEEN_DAYS_MAX + 1)
    assert [(first, last) for first, last, _ in runs(file)] == [(0, UNSEEN_DAYS_MAX), (2 * UNSEEN_DAYS_MAX + 1,) * 2]


def test_of_one_day_the_last_refresh_counts_and_of_one_refresh_the_cheapest_offer(file: Path) -> None:
    record(file, "2.99", 0)
    assert record(file, "2.79", 0) == 0
    assert runs(file) == [(0, 0, "2.7900")]
    append_prices(file, [price("2.5", DAY + timedelta(1)), price("2.4", DAY + timedelta(1))], DAY + timedelta(1))
    assert runs(file)[-1] == (1, 1, "2.4000")


def test_an_older_copy_changes_nothing_that_a_later_day_confirmed(file: Path) -> None:
    record(file, "2.99", 0, 9)
    late = DAY + timedelta(9)
    assert append_prices(file, [price("1.11", DAY + timedelta(4))], late) == 0
    assert append_prices(file, [price("3.49", DAY - timedelta(30))], late) == 1
    assert runs(file) == [(-30, -30, "3.4900"), (0, 9, "2.9900")]


def test_a_clock_that_ran_ahead_once_does_not_silence_later_prices(file: Path) -> None:
    record(file, "2.99", 0, 10, 30)  # the last by a clock twenty days ahead
    record(file, "2.69", 12)
    assert runs(file) == [(0, 11, "2.9900"), (12, 12, "2.6900")]


def test_machines_are_apart_by_all_that_makes_a_price(file: Path) -> None:
    others = (
        price("1", DAY),
        price("2", DAY, region="eu"),
        price("3", DAY, count=8),
        price("4", DAY, tier="secure"),
        replace(price("5", DAY), drift="bid"),
        replace(price("6", DAY), provider="vast"),
    )
    assert append_prices(file, others, DAY) == len(others)
    assert len(runs(file, OfferSelection(providers=("runpod",)))) == 5
    assert len(runs(file, OfferSelection(gpu_counts=(8,), tiers=("on-demand",), regions=("global",)))) == 1
    assert len(runs(file, OfferSelection(least_gpus=2))) == len(runs(file, OfferSelection(most_gpus=8, least_gpus=8))) == 1
    assert runs(file, OfferSelection(gpus=())) == runs(file, OfferSelection(gpus=("T4",))) == []
    assert runs(file, OfferSelection(observed_since=DAY + timedelta(1))) == []


def test_beyond_a_year_one_row_a_week_is_kept(file: Path) -> None:
    monday = DAY  # 2026-06-01
    assert monday.weekday() == 0
    for day in range(28):
        record(file, f"2.{day:02}", day)
    later = monday + timedelta(WEEKLY_AFTER_DAYS + 14)
    append_prices(file, [price("1", later)], later)
    assert [first for first, _, _ in runs(file)] == [6, 13, *range(14, 28), WEEKLY_AFTER_DAYS + 14]


def test_a_machine_and_the_file_hold_so_many_rows_and_the_oldest_go(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_history, "ROWS_PER_MACHINE_MAX", 5)
    monkeypatch.setattr(price_history, "ROWS_MAX", 8)
    for day in range(10):
        record(file, f"2.{day:02}", day)
    assert [first for first, _, _ in runs(file)] == [5, 6, 7, 8, 9]
    for day in range(10, 16):
        record(file, f"3.{day:02}", day, region="eu")
    assert [first for first, _, _ in runs(file)] == [11, 12, 13, 14, 15, 7, 8, 9]
    monkeypatch.setattr(price_history, "ROWS_MAX", 3)
    record(file, "3.5", 16, region="eu")
    with PriceHistoryReader(file) as history:
        assert history.describe_file() == {
            "path": str(file), "machines": 1, "rows": 3, "oldest": "2026-06-15", "newest": "2026-06-17",
        }  # fmt: skip


def test_the_file_is_for_its_user_only(file: Path) -> None:
    record(file, "1", 0)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + bytes(5000), b"\xff" * 5000])
def test_a_damaged_file_is_named_with_what_to_do(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    for use in (lambda: record(file, "1", 0), lambda: runs(file)):
        with pytest.raises(InputError) as raised:
            use()
        assert raised.value.field == str(file)
        assert "mv price_history.sqlite" in str(raised.value.hint)
    assert file.read_bytes() == content


def test_a_missing_file_names_the_command_that_begins_one(file: Path) -> None:
    with pytest.raises(InputError) as raised:
        PriceHistoryReader(file)
    assert "costguard prices refresh" in str(raised.value.hint)


def test_a_file_that_another_process_holds_is_waited_for_and_not_called_damaged(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(file, "1", 0)
    monkeypatch.setattr(price_history, "BUSY_WAIT_S", 0.05)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError) as raised:
            record(file, "2", 1)
        assert "in use by another costguard" in raised.value.what
        assert "mv" not in str(raised.value.hint)
        assert runs(file) == [(0, 0, "1.0000")]
        other.execute("ROLLBACK")
    assert record(file, "2", 1) == 1


APPENDER = """
import sys
from datetime import date, timedelta
from pathlib import Path
from costguard.ledger.price_history import append_prices
from tests.shop import offer

file, name, days, regions = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for number in range(days):
    on = date(2026, 6, 1) + timedelta(days=number)
    append_prices(file, [offer(name, "T4", f"{number % 7 + 1}", seen=on, region=f"r{n}") for n in range(regions)], on)
    print(number, flush=True)
"""


def start_appender(file: Path, name: str, days: int, regions: int) -> subprocess.Popen[str]:
    path = os.pathsep.join(str(ROOT / part) for part in ("", "agent", "providers"))
    return subprocess.Popen(
        [sys.executable, "-c", APPENDER, str(file), name, str(days), str(regions)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_at_once_lose_nothing(file: Path) -> None:
    children = [start_appender(file, name, 20, 20) for name in ("aws", "gcp")]
    for child in children:
        child.communicate(timeout=60)
        assert child.returncode == 0
    for name in ("aws", "gcp"):
        assert len(runs(file, OfferSelection(providers=(name,)))) == 20 * 20


def append_in_child(file: Path, dies_at: int) -> int:
    """Append a second day in a child process that SIGKILL ends at its `dies_at`th statement; return its exit code."""
    child = os.fork()
    if not child:
        passed = 0

        def trace(_sql: str) -> None:
            nonlocal passed
            passed += 1
            if passed == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)

        def connect(*words: Any, **named: Any) -> sqlite3.Connection:  # noqa: ANN401 - as sqlite3.connect's own
            connection: sqlite3.Connection = opened(*words, **named)
            connection.set_trace_callback(trace)
            return connection

        opened, price_history.sqlite3.connect = sqlite3.connect, connect  # type: ignore[attr-defined]  # in a process that ends
        status = 1
        try:
            append_prices(file, [price(f"{number + 2}", LATER, region=f"r{number}") for number in range(3)], LATER)
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


LATER = DAY + timedelta(days=7)


@pytest.mark.parametrize("begun", [True, False])
def test_an_append_that_is_killed_at_any_statement_is_there_in_whole_or_not_at_all(file: Path, begun: bool) -> None:  # noqa: FBT001
    file.parent.mkdir()
    first = [(0, 0, f"{number + 1}.0000") for number in range(3)] if begun else []
    both = sorted([*first, *((7, 7, f"{number + 2}.0000") for number in range(3))])
    for statement in range(1, 100):
        own = file.with_name(f"{statement}.sqlite")
        if begun:
            append_prices(own, [price(f"{number + 1}", DAY, region=f"r{number}") for number in range(3)], DAY)
        code = append_in_child(own, statement)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        if own.exists() and (begun or own.stat().st_size):
            assert sorted(runs(own)) in (first, both)
        assert append_prices(own, [price(f"{number + 2}", LATER, region=f"r{number}") for number in range(3)], LATER) in (0, 3)
        assert sorted(runs(own)) == both
    assert 10 < statement < 100
