"""What a month of agents' samples leaves in the ledger: bytes of each table, and for how long a step holds it."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from unittest.mock import patch

from sqlalchemy import Connection, Engine

from bench import fleet
from bench.ledger_polls import ledger
from bench.measured import Measured
from costguard.ledger.db import free_pages
from costguard.ledger.db.connection import begin_write, open_engine
from costguard.ledger.spans import sample_retention
from costguard.values.instant import HOUR_US, to_micros

SIGNALS = {
    "agent_alive": (1, 1),
    "connections": (0, 2),
    "cpu_cores": (0.0, 9.5),
    "cpu_util": (0.0, 40.0),
    "disk_bytes_s": (0.0, 4e7),
    "gpu_busy_count": (0, 1),
    "gpu_memory_used": (1.0, 96.0),
    "gpu_memory_util": (0.0, 60.0),
    "gpu_power_busiest_w": (70.0, 690.0),
    "gpu_power_limit_w": (700, 700),
    "gpu_power_w": (70.0, 690.0),
    "gpu_temperature_c": (30, 80),
    "gpu_util": (0.0, 100.0),
    "memory_used": (3.0, 60.0),
    "network_bytes_s": (1e3, 9e6),
}
"""What an agent sends each minute from a machine with one GPU, and between what; whole numbers take less room."""
SERVER_SIGNALS = {"server_requests": (0, 40), "server_tokens": (10**6, 10**9), "server_cores": (0.0, 2.0)}
"""And of an inference server on it, which two of five machines have (an assumption, 2026-11)."""
LARGEST_MB, LONGEST_HOLD_MS = 250.0, 250.0
MINUTE_US, BATCH = 60_000_000, 10


def samples(folder: Path, *, machines: int = 100, days: int = 30, single_days: int = 3) -> Iterator[Measured]:
    """Size of the ledger of so many machines with agents, kept as the watchdog keeps it.

    Only in the last `single_days` are machines polled and samples written one by one, and rolled up hour by hour. Of the days
    before the hours alone are written, in the order in which a roll-up does.
    """
    path, named, holds = folder / "samples.db", fleet.scopes(5), list[float]()
    fleets = [(scope, [one.seen() for one in fleet.machines(scope, machines // len(named))]) for scope in named]

    @contextmanager
    def timed(engine: Engine) -> Iterator[Connection]:
        begun = time.perf_counter()
        with begin_write(engine) as connection:
            yield connection
        holds.append(time.perf_counter() - begun)

    first, end = (days - single_days) * 24, days * 24
    with ledger(folder, "samples") as book, closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA synchronous = OFF")
        book.record_polls([fleet.polled(scope, first * 60 - 1, items) for scope, items in fleets])
        for hour in range(first):
            _add_hours(raw, hour, machines)
        engine = open_engine(f"sqlite:///{path}")
        for hour in range(first, end):
            for minute in range(hour * 60, hour * 60 + 60, BATCH):
                _add_samples(raw, minute, machines)
                listed = [(scope, at, items) for at in range(minute, minute + BATCH) for scope, items in fleets]
                book.record_polls([fleet.polled(*one) for one in listed])
            if hour == first + 24:
                daily_mb = sum(_measure_tables(raw)["sample"]) / 25 * 24 / 1e6
            with ExitStack() as patches:
                for module in (sample_retention, free_pages):
                    patches.enter_context(patch.object(module, "begin_write", timed))
                    patches.enter_context(patch.object(module, "YIELD_S", 0))
                sample_retention.keep_samples_bounded(engine, fleet.START + (hour + 1) * 60 * fleet.MINUTE)
        engine.dispose()
        tables = _measure_tables(raw)
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    size = path.stat().st_size
    what = f"{machines} machines with agents, {days} days"
    yield Measured(what=f"{what}: the same with no sample removed, MB (from a day of them)", reached=f"{daily_mb * days:.0f}")
    yield Measured(
        what=f"{what}: the ledger, MB",
        target=f"< {LARGEST_MB * machines / 100:.0f}",
        reached=f"{size / 1e6:.1f}",
        met=size / 1e6 < LARGEST_MB * machines / 100,
    )
    for name, (used, unused) in sorted(tables.items(), key=lambda one: -sum(one[1]))[:8]:
        yield Measured(what=f"  {name}, MB", reached=f"{(used + unused) / 1e6:.3f} ({unused / 1e6:.3f} of it empty)")
    yield Measured(
        what=f"{what}: the longest transaction that keeps it so, ms",
        target=f"< {LONGEST_HOLD_MS:.0f}",
        reached=f"{max(holds) * 1e3:.0f} (of {len(holds):,})",
        met=max(holds) * 1e3 < LONGEST_HOLD_MS,
    )


def _list_signals(machine: int) -> dict[str, tuple[float, float]]:
    """What the agent of this machine sends."""
    return SIGNALS | SERVER_SIGNALS if machine % 5 < 2 else SIGNALS


def _add_hours(raw: sqlite3.Connection, hour: int, machines: int) -> None:
    """Add what the samples of an hour would have become."""
    chance, number = random.Random(hour), to_micros(fleet.START) // HOUR_US + hour
    rows = [
        (machine, signal, number, 60, low + (high - low) * 30 * chance.random(), low, high - (high - low) * chance.random())
        for machine in range(1, machines + 1)
        for signal, (low, high) in _list_signals(machine).items()
    ]
    raw.execute("BEGIN IMMEDIATE")
    raw.executemany("INSERT INTO sample_hour VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    raw.execute("COMMIT")


def _add_samples(raw: sqlite3.Connection, first: int, machines: int) -> None:
    """Add `BATCH` minutes of samples in the order in which agents send them."""
    chance = random.Random(first)
    raw.execute("BEGIN IMMEDIATE")
    for minute in range(first, first + BATCH):
        at_us = to_micros(fleet.START) + minute * MINUTE_US
        rows = [
            (number, signal, at_us + number * 1000, low if low == high else _draw(chance, low, high))
            for number in range(1, machines + 1)
            for signal, (low, high) in _list_signals(number).items()
        ]
        raw.executemany("INSERT INTO sample VALUES (?, ?, ?, ?)", rows)
    raw.execute("COMMIT")


def _draw(chance: random.Random, low: float, high: float) -> float:
    if chance.random() < 0.3:
        return low
    value = low + (high - low) * chance.random()
    return round(value, 0 if isinstance(low, int) else 3)


def _measure_tables(raw: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """Return the bytes of each table and index: used, and empty."""
    sums = "SELECT name, sum(pgsize - unused), sum(unused) FROM dbstat WHERE pagetype <> 'none' GROUP BY name"
    return {name: (used, unused) for name, used, unused in raw.execute(sums)}
