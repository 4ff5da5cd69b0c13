"""A year of a large fleet as a ledger, and what a month of it costs to report.

The rows are written straight and fast; what they come to is reckoned by the ledger's own functions (`span.amounts`, `Daily`),
so that `costguard db check` finds nothing wrong with the file.
"""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bench import fleet
from bench.measured import Measured, cpu, median
from costguard.ledger.db.codecs import decode_span, encode_attribution, encode_observation, encode_span
from costguard.ledger.db.connection import begin_write, open_engine
from costguard.ledger.db.session import open_sql_session
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.posting import DailyRollup
from costguard.metering.billing import list_meters
from costguard.metering.meter import COMPUTE
from costguard.metering.span import Span, compute_amounts, compute_charge, compute_known_until
from costguard.metering.spending import Spending
from costguard.values import calendar
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, HOUR_US, from_micros, to_micros
from costguard.values.resource import Attribution, ResourceKey

Row = tuple[object, ...]
Sums = dict[tuple[str, str, str], tuple[int, int, int]]
"""(provider, owner, GPU) -> low, expected and high nano-units."""

DAYS = 365
UNTIL = fleet.START + timedelta(days=DAYS)
RUNS = 10
LONGEST_RUN_H = 24
MONTHS = {"July": (2026, 7), "the running month": (2026, 12)}
ZONES: tuple[tuple[str, tzinfo], ...] = (("UTC", UTC), ("Europe/Berlin", ZoneInfo("Europe/Berlin")))
OF_GROUP_BY = 1.5
QUERY_MS = 25.0

_LOT = 2000
"""Machines whose spans are worked out before they are written."""


@dataclass(frozen=True, slots=True)
class History:
    """A ledger made here."""

    path: Path
    spans: int
    open: int

    @property
    def url(self) -> str:
        """Where it is."""
        return f"sqlite:///{self.path}"


def written(path: Path, *, instances: int, begun: datetime = fleet.START) -> History:
    """A year of `instances` machines, RUNS or so spans each: runs of up to a day, one after the other; the last may go on."""
    until = begun + timedelta(days=DAYS)
    open_engine(f"sqlite:///{path}").dispose()
    chance = random.Random(7)
    named = fleet.scopes(10)
    daily, attributions, spans, still_open = DailyRollup(), dict[Attribution, int](), 0, 0
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        _insert(connection, "scope", [(n, *scope) for n, scope in enumerate(named, 1)])
        covered = (to_micros(begun), to_micros(until))
        _insert(connection, "coverage", [(n, n, "complete", "", *covered, DAYS * 1440) for n in range(1, len(named) + 1)])
        for first in range(0, instances, _LOT):
            resources: list[Row] = []
            observations: list[Row] = []
            rows: list[Row] = []
            for number in range(first, min(first + _LOT, instances)):
                scope = number % len(named)
                one = fleet.Machine(named[scope].provider, number)
                lived = list(_life(chance, one, begun))
                owner = attributions.setdefault(lived[0].attribution, len(attributions) + 1)
                last = lived[-1]
                seen = one.seen(disk=False, state="stopped" if last.end else "running")
                resources.append((number + 1, scope + 1, *one.key, "instance", to_micros(lived[0].start)))
                times = (None, None) if last.end is None else (to_micros(last.start), to_micros(last.end))
                at_us = to_micros(last.end or last.start)
                said = (seen.state, seen.name, seen.instance_type, seen.owner, *times, encode_observation(seen))
                observations.append((number + 1, number + 1, at_us, None, *said))
                for span in lived:
                    spans += 1
                    still_open += span.end is None
                    amounts = daily.add(span, number + 1, owner) if span.end else None
                    rows.append((spans, *encode_span(span, number + 1, owner, amounts)))
            known = [(number, *encode_attribution(each)) for each, number in attributions.items()]
            connection.executemany(f"INSERT OR IGNORE INTO attribution VALUES ({', '.join('?' * 11)})", known)  # noqa: S608 - marks
            _insert(connection, "resource", resources)
            _insert(connection, "observation", observations)
            _insert(connection, "span", rows)
        connection.execute("UPDATE ledger_state SET revision = 1")
        connection.execute("COMMIT")
    engine = open_engine(f"sqlite:///{path}")
    with begin_write(engine) as written_by:
        daily.write(open_sql_session(written_by)[1])
    engine.dispose()
    return History(path, spans, still_open)


def _life(chance: random.Random, one: fleet.Machine, begun: datetime) -> Iterator[Span]:
    """Runs of up to a day with hours or days between them, from a random day of the year on; most machines end in weeks."""
    seen = one.seen(disk=False)
    meter = list_meters(seen, fleet.rules()[one.provider], fleet.CEILINGS)[COMPUTE, ""]
    at_us = to_micros(begun) + chance.randrange(DAYS * DAY_US)
    end_us = to_micros(begun) + DAYS * DAY_US
    attribution = seen.attribution
    for _ in range(RUNS + chance.randrange(3)):
        start = from_micros(at_us)
        length_us = int(min(chance.expovariate(1 / 6), LONGEST_RUN_H) * HOUR_US) + 1_000_000
        span = Span(key=one.key, attribution=attribution, meter=meter, start=start, anchor=start, why="started_at stated")
        if at_us + length_us >= end_us:
            yield span
            return
        yield replace(span, end=from_micros(at_us + length_us), ended_by="stopped_at stated")
        at_us += length_us + int(chance.expovariate(1 / 18) * HOUR_US) + 1_000_000
        if at_us >= end_us:
            return


def _insert(connection: sqlite3.Connection, table: str, rows: Iterable[Row]) -> None:
    rows = list(rows)
    if rows:
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)  # noqa: S608 - our own names


def history(folder: Path, *, instances: int = 100_000, rounds: int = 9) -> Iterator[Measured]:
    """Books.spending of a past month and of the running one, in two zones, against one GROUP BY over the month's spans."""
    made = written(folder / "history.db", instances=instances)
    size = made.path.stat().st_size / 1e6
    yield Measured(
        what=f"a year of {instances:,} instances, {made.spans:,} spans, {made.open:,} of them open", reached=f"{size:.0f} MB"
    )
    for name, month in MONTHS.items():
        yield from _month(made, name, month, rounds)


def _month(made: History, name: str, month: tuple[int, int], rounds: int) -> Iterator[Measured]:
    as_of = UNTIL - timedelta(hours=3)
    for zone_name, zone in ZONES:
        period = calendar.make_month(*month, zone)
        grouped, asked, queries = list[float](), list[float](), list[float]()
        for _ in range(rounds):
            grouped.append(cpu(lambda period=period: bare(made.path, period))[0])  # type: ignore[misc]  # a lambda with a default
            with SpendingReader(made.url, rules=fleet.rules()) as books:
                seconds, found = cpu(lambda books=books, period=period: books.load_spending(period, as_of))  # type: ignore[misc]  # same
            asked.append(seconds)
            queries.append(query_seconds(made.url, period, as_of))
        if sums(found) != full(made.path, period, as_of):
            raise SystemExit(f"the report of {name} in {zone_name} is not what its spans come to")
        ratio, query = median(a / g for a, g in zip(asked, grouped, strict=True)), median(queries) * 1e3
        yield Measured(
            what=f"report of {name} ({zone_name}), exact to the nano-dollar, of a bare GROUP BY over its spans",
            target=f"<= {OF_GROUP_BY}",
            reached=f"{ratio:.2f} ({median(asked) * 1e3:.0f} against {median(grouped) * 1e3:.0f} ms)",
            met=ratio <= OF_GROUP_BY,
        )
        yield Measured(
            what=f"    its queries alone, with roll-ups kept ({zone_name}), ms",
            target=f"<= {QUERY_MS:.0f}",
            reached=f"{query:.1f}",
            met=query <= QUERY_MS,
        )


def query_seconds(url: str, period: Period, as_of: datetime) -> float:
    """CPU seconds that `Books.spending` spends in the database."""
    spent = 0.0
    with SpendingReader(url, rules=fleet.rules()) as books:
        ask = books._reader._ask  # noqa: SLF001 - the clock goes around it

        def timed(*arguments: Any) -> object:  # noqa: ANN401 - as `Query` takes them
            nonlocal spent
            seconds, rows = cpu(lambda: ask(*arguments))
            spent += seconds
            return rows

        books._reader._ask = timed  # type: ignore[assignment]  # noqa: SLF001 - see above
        books.load_spending(period, as_of)
    return spent


def bare(path: Path, period: Period) -> list[Row]:
    """The yardstick: what the spans that ended in `period` come to by provider, owner and GPU. It cuts none at the edges."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(_GROUP_BY, (to_micros(period.start), to_micros(period.end))).fetchall()


def sums(found: list[Spending]) -> Sums:
    """By provider, owner and GPU."""
    added: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for each in found:
        of, money = each.attribution, each.money
        place = added[of.provider, of.owner, of.gpu]
        for index, amount in enumerate((money.low, money.expected, money.high)):
            place[index] += amount.nano
    return {place: (low, expected, high) for place, (low, expected, high) in added.items()}


def full(path: Path, period: Period, as_of: datetime) -> Sums:
    """The same the slow way: every span of the ledger that touches `period`, each cut and reckoned by itself."""
    start, end = to_micros(period.start), to_micros(period.end)
    added: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    with closing(sqlite3.connect(path)) as connection:
        for provider, account, region, external_id, owner, gpu, at_us, *columns in connection.execute(_TOUCHING, (start, end)):
            key = ResourceKey(provider, account, region, external_id)
            span = decode_span(key, Attribution(provider, account, region, "instance", gpu, owner=owner), columns)
            if span.end is None:
                reach = compute_known_until(
                    start=span.start,
                    complete_at=UNTIL,
                    logged_at=from_micros(at_us),
                    seen_at=None,
                    absent_at=None,
                    lag=timedelta(seconds=fleet.rules()[provider].lag_s),
                    as_of=as_of,
                )
                money = compute_charge(span, period, reach)
                three = (money.low.nano, money.expected.nano, money.high.nano)
            else:
                three = compute_amounts(span, start, end)
            place = added[provider, owner, gpu]
            for index, nano in enumerate(three):
                place[index] += nano
    return {place: (low, expected, high) for place, (low, expected, high) in added.items() if high}


_GROUP_BY = """
SELECT a.provider, a.owner, a.gpu, sum(s.low), sum(s.expected), sum(s.high)
FROM span AS s JOIN attribution AS a ON a.id = s.attribution_id
WHERE s.end_us > ? AND s.end_us <= ? GROUP BY a.provider, a.owner, a.gpu
"""

_COLUMNS = (
    "s.charge, s.part, s.unit, s.quantity, s.quantum_s, s.minimum_s, s.price_low, s.price_expected, s.price_high, s.currency, "
    "s.price_known, s.price_source, s.presence, s.anchor_us, s.start_us, s.why, s.end_us, s.ended_by"
)

_TOUCHING = f"""
SELECT r.provider, r.account, r.region, r.external_id, a.owner, a.gpu, o.at_us, {_COLUMNS}
FROM span AS s JOIN resource AS r ON r.id = s.resource_id JOIN attribution AS a ON a.id = s.attribution_id
JOIN observation AS o ON o.resource_id = r.id
WHERE (s.end_us IS NULL OR s.end_us > ?) AND s.start_us < ?
"""  # noqa: S608 - our own names
