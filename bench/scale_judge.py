"""What one guard run costs the watchdog that plans, alone and with what others judged. Part of `bench.scale`.

    python -m bench.scale_judge [INSTANCES [HOURS]]

The fleet is `bench.fleet`'s under the policies of `bench.guard_judge`, with a sample of two signals each five minutes. All runs
are of one process, in turn; CPU is this process's own, without that of PostgreSQL. Samples are read as by a watchdog that goes
on: the first read of all of them is not counted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import fleet
from bench.guard_judge import BUSY, QUIET, checked, judged, ruled
from bench.measured import Measured, cpu, median, table
from bench.scale_town import Server, open_server
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.judged_machine import JudgedMachine
from costguard.guard.policy import Rails
from costguard.ledger.duties import DutyStore
from costguard.ledger.duty_records import Lease
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.judgements import AccountReader, JudgementStore
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.services.guard_inputs import PollResults
from costguard.services.guard_snapshot import SampleWindow, build_guard_snapshot, read_previous_runs
from costguard.services.judgements import AccountJudge, JudgementLoader
from costguard.system.logs import get_log
from costguard.testing.doubles import FakeClock
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import CPU_UTIL, GPU_UTIL

ACCOUNTS, MINUTES, STEP_S = 20, 60, 300
SHARERS = (2, 4)
NOW = fleet.START + MINUTES * fleet.MINUTE
OLD = fleet.START - timedelta(days=3)
HELD_FOR = timedelta(hours=1)
LATEST = PollResults(handling={}, sources={}, balances=(), members=(), lags={}, measures=(), agents=())


def measure(*, instances: int = 20_000, hours: int = 12, rounds: int = 2) -> Iterator[Measured]:
    """CPU seconds of a guard run alone and with judgements, and of judging the accounts after their polls."""
    with TemporaryDirectory() as folder, open_server(Path(folder) / "server") as server:
        rules, scopes = ruled(Path(folder)), fleet.scopes(ACCOUNTS)
        fill(server, scopes, instances, hours)
        with DutyStore(server.url, "bench") as duties:
            names = ["/".join(scope) for scope in scopes]
            duties.announce(names, HELD_FOR)
            leases = {lease.account: lease for lease, _ in duties.take(names, len(names), HELD_FOR)}
            each = f"{instances:,} instances x {len(rules.policies)} policies, {hours} h of samples, PostgreSQL"
            yield from compare(
                server,
                rules,
                {leases[name]: scope for name, scope in zip(names, scopes, strict=True)},
                each=each,
                rounds=rounds,
            )


def compare(
    server: Server, rules: GuardConfig, scopes: Mapping[Lease, ScopeKey], *, each: str, rounds: int
) -> Iterator[Measured]:
    """Run all in turn. `scopes`: that of the account of each lease."""
    url, accounts = server.url, [lease.account for lease in scopes]
    store, reader = JudgementStore(url), AccountReader(url)
    judge = AccountJudge(reader=reader, store=store, rules=lambda: rules, lags={}, agents=tuple, clock=FakeClock(NOW))
    load = partial(JudgementLoader(store=store, accounts=accounts, every=fleet.MINUTE, log=get_log()).load, rules, {}, NOW)
    alone_window, shared_window = SampleWindow(), SampleWindow()
    alone, planned, worked = list[float](), list[float](), list[float]()
    for _ in range(rounds + 1):  # the first reads all samples
        work_s, _ = cpu(lambda: [judge.judge(lease, [scope]) for lease, scope in scopes.items()])
        worked.append(work_s)
        renew(server)
        plan_s, found = cpu(lambda: judged(rules, look(url, rules, shared_window, load)))
        planned.append(plan_s)
        alone_s, by_itself = cpu(lambda: judged(rules, look(url, rules, alone_window, dict)))
        alone.append(alone_s)
        checked(found, sum(key.id.startswith("i-") for key in found.works))
        if (found.works, found.cases, found.proposals) != (by_itself.works, by_itself.cases, by_itself.proposals):
            raise SystemExit("what others judged gives another plan")
    judge.close()
    alone_s, plan_s, work_s = (median(times[1:]) for times in (alone, planned, worked))
    yield Measured(what=f"{each}: a guard run alone, CPU s", reached=f"{alone_s:.2f}")
    yield Measured(what="the same with all accounts judged by others, CPU s", reached=f"{plan_s:.2f}")
    yield Measured(what="judging all accounts after their polls, in all watchdogs together, CPU s", reached=f"{work_s:.2f}")
    for count in SHARERS:
        own_s = plan_s + work_s / count
        yield Measured(
            what=f"the planner of {count} watchdogs, with judging its own accounts, CPU s",
            reached=f"{own_s:.2f} ({own_s / alone_s:.2f} of alone)",
        )


def renew(server: Server) -> None:
    """Let all judgements be of this moment: the clocks of this fleet stand still."""
    import psycopg

    with psycopg.connect(server.plain_url) as connection:
        connection.execute("UPDATE poll_judgement SET read_us = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")


def look(
    url: str, rules: GuardConfig, window: SampleWindow, load: Callable[[], Mapping[ResourceKey, JudgedMachine]]
) -> GuardSnapshot:
    """What a guard run reads."""
    with SpendingReader(url, rules=fleet.rules()) as books, GuardStore(url, rails=Rails(), rules=fleet.rules()) as book:
        return build_guard_snapshot(
            now=NOW,
            rules=rules,
            books=books,
            records=book,
            latest=LATEST,
            holds=(),
            wishes=(),
            before=read_previous_runs(None, rules, NOW, guarded_until=None),
            held=(),
            lookback=window,
            judged=load(),
        )


def fill(server: Server, scopes: Sequence[ScopeKey], instances: int, hours: int) -> None:
    """A ledger of the fleet, whose samples the server makes."""
    import psycopg

    with LedgerWriter(server.url, rules=fleet.rules(), ceilings=fleet.CEILINGS) as ledger:
        for scope in scopes:
            machines = fleet.machines(scope, instances // len(scopes))
            for minute in (0, MINUTES):
                ledger.record_polls(
                    [fleet.polled(scope, minute, (one.seen(created_at=OLD, started_at=OLD) for one in machines))]
                )
    first, last = NOW - timedelta(hours=hours), NOW
    with psycopg.connect(server.plain_url) as connection:
        for signal in (GPU_UTIL, CPU_UTIL):
            values = (signal, QUIET[signal], BUSY[signal], micros(first), micros(last), STEP_S * 1_000_000)
            connection.execute(_SAMPLES, values)
        connection.execute("ANALYZE")


def micros(at: datetime) -> int:
    """Microseconds since 1970."""
    return int(at.timestamp() * 1_000_000)


_SAMPLES = """
INSERT INTO sample (resource_id, signal, at_us, value)
SELECT r.id, %s, t + r.id %% 20 * 1000000 - 20000000,
    CASE WHEN ('x' || substring(r.external_id FROM 3))::bit(32)::int %% 10 < 3 THEN %s::float8 ELSE %s::float8 END
FROM resource AS r, generate_series(%s::bigint, %s::bigint, %s::bigint) AS t
WHERE r.external_id LIKE 'i-%%'
"""


def main() -> int:
    """Print the table."""
    numbers = [int(word) for word in sys.argv[1:]]
    return table(measure(**dict(zip(("instances", "hours"), numbers, strict=False))))


if __name__ == "__main__":
    sys.exit(main())
