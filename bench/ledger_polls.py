"""What a poll costs the ledger: of a fleet in which nothing changed, and of one in which everything did."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench import fleet
from bench.ledger_raw import copied, difference, replayed, same_rows
from bench.measured import Measured, cpu, median
from costguard.ledger.spans import writer
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.accrual import accrue_poll
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Observation, Price
from costguard.metering.scope_state import AccrualResult
from costguard.values.money import Rate
from costguard.values.resource import ScopeKey

SCOPES = 10
PER_SCOPE_MS = 0.1
PER_INSTANCE_US = 0.1
"""A tenth of what comparing one instance costs: nothing, as far as this can be told."""
OF_RAW = 1 / 3


def ledger(folder: Path, name: str) -> LedgerWriter:
    """A fresh one."""
    return LedgerWriter(f"sqlite:///{folder}/{name}.db", rules=fleet.rules(), ceilings=fleet.CEILINGS)


def unchanged(folder: Path, *, instances: int = 10_000, rounds: int = 41) -> Iterator[Measured]:
    """What Ledger.record costs beyond `accrue`, for a large fleet and for a tenth of it."""
    large, comparing, wall = _beyond(folder, instances, rounds)
    small, _, _ = _beyond(folder, instances // 10, rounds)
    per_scope_ms, per_instance_us = large * 1e3 / SCOPES, (large - small) * 1e6 / (instances * 0.9)
    what = f"poll of {instances:,} unchanged instances"
    yield Measured(
        what=f"{what} in {SCOPES} scopes: the ledger beyond comparing, ms a scope",
        target=f"<= {PER_SCOPE_MS}",
        reached=f"{per_scope_ms:.3f} (small fleet: {small * 1e3 / SCOPES:.3f})",
        met=per_scope_ms <= PER_SCOPE_MS,
    )
    yield Measured(
        what=f"{what}: the ledger beyond comparing, us an instance",
        target="0",
        reached=f"{per_instance_us:.4f} (comparing: {comparing * 1e6 / instances:.2f})",
        met=per_instance_us <= PER_INSTANCE_US,
    )
    yield Measured(what=f"{what}: all of it, with the disk's own time, ms", reached=f"{wall * 1e3:.1f}")


def _beyond(folder: Path, instances: int, rounds: int) -> tuple[float, float, float]:
    """CPU seconds of one poll of the fleet beyond accruing, of accruing, and wall seconds of all: medians."""
    each = instances // SCOPES
    named = [(scope, fleet.machines(scope, each)) for scope in fleet.scopes(SCOPES)]
    beyond, comparing, wall = list[float](), list[float](), list[float]()
    with ledger(folder, f"unchanged-{instances}") as book:
        for number in range(rounds):
            polls = [fleet.polled(scope, number, (one.seen() for one in machines)) for scope, machines in named]
            begun = time.perf_counter()
            with _timed_accrue() as inside:
                total, found = cpu(lambda polls=polls: book.record_polls(polls))  # type: ignore[misc]  # a lambda with a default
            wall.append(time.perf_counter() - begun)
            if number and any(one.opened or one.closed or one.logged for one in found):
                raise SystemExit("a poll of unchanged instances changed something")
            beyond.append(total - sum(inside))
            comparing.append(sum(inside))
    return median(beyond[1:]), median(comparing[1:]), median(wall[1:])


@contextmanager
def _timed_accrue() -> Iterator[list[float]]:
    """CPU seconds of every `accrue` that the ledger calls meanwhile."""
    spent: list[float] = []

    def timed(*arguments: Any, **named: Any) -> AccrualResult:  # noqa: ANN401 - whatever the ledger passes
        begun = time.process_time()
        found = accrue_poll(*arguments, **named)
        spent.append(time.process_time() - begun)
        return found

    with patch.object(writer, "accrue_poll", timed):
        yield spent


def changed(folder: Path, *, instances: int = 10_000, rounds: int = 5) -> Iterator[Measured]:
    """A poll in which every price moved, against the same rows written by sqlite3 alone; once dated, once not."""
    yield from _changed(folder, "aws", instances, rounds, target=True)
    yield from _changed(folder, "gcp", instances, rounds, target=False)


def _changed(folder: Path, provider: str, instances: int, rounds: int, *, target: bool) -> Iterator[Measured]:
    whole, writes, raw, count = list[float](), list[float](), list[float](), 0
    with ledger(folder, f"changed-{provider}") as book:
        book.record_polls(_priced(provider, 0, instances))
        for number in range(1, rounds + 1):
            before = copied(folder / f"changed-{provider}.db", folder / "before.db")
            polls = _priced(provider, number, instances)
            with _timed_accrue() as inside:
                seconds, _ = cpu(lambda polls=polls: book.record_polls(polls))  # type: ignore[misc]  # a lambda with a default
            after = copied(folder / f"changed-{provider}.db", folder / "after.db")
            changes = difference(before, after)
            raw.append(cpu(lambda before=before, changes=changes: replayed(before, changes))[0])  # type: ignore[misc]  # the same
            same_rows(before, after)
            whole.append(seconds)
            writes.append(seconds - sum(inside))
            count = changes.count
    dated = "dated by the provider" if provider == "aws" else "not dated"
    yield Measured(
        what=f"poll in which {instances:,} prices changed ({dated}), {count:,} rows: sqlite3.executemany, rows/s",
        reached=f"{count / median(raw):,.0f}",
    )
    for what, ours in (("the ledger beyond accruing", writes), ("all of Ledger.record", whole)):
        ratio = median(plain / seconds for plain, seconds in zip(raw, ours, strict=True))
        yield Measured(
            what=f"    {what}, of that",
            target=f">= {OF_RAW:.2f}" if target else "",
            reached=f"{ratio:.2f} ({count / median(ours):,.0f} rows/s)",
            met=ratio >= OF_RAW if target else None,
        )


def _priced(provider: str, number: int, instances: int) -> list[Poll]:
    """The fleet in minute `number`, each at a price of its own that it has had for 20 s; the last three are told."""
    return [
        Poll(
            scope=scope,
            at=fleet.START + number * fleet.MINUTE,
            inventory=Complete(tuple(_at_price(one, number, provider) for one in fleet.machines(scope, instances // SCOPES))),
        )
        for scope in _scopes(provider)
    ]


def _scopes(provider: str) -> list[ScopeKey]:
    return fleet.scopes(SCOPES, (provider,))


def _at_price(one: fleet.Machine, number: int, provider: str) -> Observation:
    base = 1_000_000_000 + one.number % 1_000_000
    numbers = range(max(0, number - 2), number + 1) if provider == "aws" else (number,)
    prices = tuple(
        Price(
            Rate(nano_per_hour=base + 1_000_000 * n),
            since=fleet.START + n * fleet.MINUTE - timedelta(seconds=20) if provider == "aws" else None,
        )
        for n in numbers
    )
    return one.seen(disk=False, tier="spot" if provider == "aws" else "on-demand", prices=prices)
