"""A small fleet for the ledger's tests: scopes, resources, and polls that say anything about them in any order."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from hypothesis import strategies as st

from costguard.ledger.db.codecs import Query, SqlRow
from costguard.ledger.db.connection import open_engine
from costguard.ledger.db.reader import LedgerReader
from costguard.metering.billing import BillingRule, StorageRule, TimeRule
from costguard.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.metering.meter import GB_MONTH, PriceRange
from costguard.metering.observation import Disk, Observation, Price, TrafficCounter
from costguard.values.money import Rate
from costguard.values.resource import ResourceKey, ScopeKey

START = datetime(2026, 10, 31, 22, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
HERE, THERE = ScopeKey("acme", "lab", "west"), ScopeKey("acme", "lab", "all")
STRANGE = ScopeKey("nobody", "lab", "west")
Answer = TypeVar("Answer")
TABLES = ("scope", "coverage", "resource", "attribution", "observation", "span", "daily", "monthly", "hourly", "correction")

RULES = {
    "acme": BillingRule(
        provider="acme",
        source="a test",
        observed_on="2026-11",
        lag_s=30,
        restarts="unstated",
        compute=TimeRule(bills=("running",), free=("stopped", "pending"), minimum_s=60),
        storage=(
            StorageRule(
                part="disk",
                type="ssd",
                running=PriceRange.exactly(80_000_000),
                stopped=PriceRange.exactly(160_000_000),
                unit=GB_MONTH,
            ),
        ),
        traffic=PriceRange.exactly(20_000_000),
    )
}
CEILINGS = {"H100-SXM": 20 * 10**9}


def key(name: str, provider: str = "acme") -> ResourceKey:
    return ResourceKey(provider, "lab", "west-1", name)


def machine(name: str = "i-1", state: str = "running", *, usd: str | None = "2", **more: Any) -> Observation:  # noqa: ANN401 - any field
    said: dict[str, Any] = {
        "key": key(name),
        "instance_type": "h1",
        "gpu": "H100-SXM",
        "gpu_count": 1,
        "prices": () if usd is None else (Price(Rate.parse(usd)),),
    }
    return Observation(state=state, **said | more)


def poll(
    minutes: float,
    *items: Observation,
    scope: ScopeKey = HERE,
    partial: str = "",
    failed: str = "",
    **more: Any,  # noqa: ANN401 - any field
) -> Poll:
    """What was listed `minutes` after START."""
    said: Inventory = Failed(failed) if failed else Partial(items, partial) if partial else Complete(items)
    return Poll(scope=scope, at=START + timedelta(minutes=minutes), inventory=said, **more)


TIMES = st.none() | st.integers(-600, 6000).map(lambda minutes: START + timedelta(minutes=minutes))


def machines(provider: str = "acme") -> st.SearchStrategy[Observation]:
    """Any of a few machines, as anything at all may be said of it."""
    return st.builds(
        machine,
        key=st.sampled_from([key(name, provider) for name in ("i-1", "i-2", "i-3")]),
        state=st.sampled_from(["running", "stopped", "ended", "pending", "unknown"]),
        usd=st.sampled_from(["2", "2", "3.33", None]),
        owner=st.sampled_from(["", "ada"]),
        created_at=TIMES,
        started_at=TIMES,
        stopped_at=TIMES,
        disks=st.sampled_from([(), (Disk(100, "ssd"),), (Disk(7, "odd", 10**8),)]),
        counters=st.sampled_from([(), (TrafficCounter("traffic", 500),), (TrafficCounter("traffic", 9000),)]),
    )


@st.composite
def histories(draw: st.DrawFn, most: int = 12) -> list[Poll]:
    """Polls of three scopes as time goes on; two of them list the same machines, and some come too late."""
    found, minutes = [], 0.0
    for _ in range(draw(st.integers(1, most))):
        minutes += draw(st.sampled_from([0.5, 1, 1, 3, 60, 1500, 4000]))
        scope = draw(st.sampled_from([HERE, HERE, HERE, THERE, STRANGE]))
        items = draw(st.lists(machines(scope.provider), max_size=3))
        outcome = draw(st.sampled_from([{}, {}, {}, {"partial": "a page was lost"}, {"failed": "503"}]))
        gone = frozenset(draw(st.lists(st.sampled_from([key("i-1"), key("i-2")]), max_size=1)))
        late = draw(st.sampled_from([0, 0, 0, 0, 5]))
        asked = START + timedelta(minutes=minutes - late, seconds=-draw(st.sampled_from([0, 5])))
        found.append(poll(minutes - late, *items, scope=scope, gone=gone, asked_at=asked, **outcome))
    return found


@contextmanager
def copies(url: str) -> Iterator[Callable[[], str]]:
    """A function that makes an empty ledger, and another one each time: copies of the one at `url`, which is made here."""
    open_engine(url).dispose()
    numbers, made = count(1), list[str]()
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        yield lambda: f"sqlite:///{shutil.copy(path, f'{path}.{next(numbers)}')}"
        return
    import psycopg

    parts = urlsplit(url.replace("+psycopg", ""))
    template, server = parts.path[1:], urlunsplit(parts._replace(path="/postgres"))
    with psycopg.connect(server, autocommit=True) as connection:

        def copy() -> str:
            made.append(f"{template}_{next(numbers)}")
            connection.execute(f'CREATE DATABASE "{made[-1]}" TEMPLATE "{template}"'.encode())
            return urlunsplit(parts._replace(scheme="postgresql+psycopg", path=f"/{made[-1]}"))

        yield copy
        for name in made:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def asked(url: str, question: Callable[[Query], Answer]) -> Answer:
    """What `question` finds in the ledger at `url`."""
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        return question(ask)


REFERENCES = {
    "scope": ("scope",),
    "coverage": ("coverage", "scope"),
    "resource": ("resource", "scope"),
    "attribution": ("attribution",),
    "observation": ("observation", "resource"),
    "span": ("span", "resource", "attribution"),
    "daily": ("", "attribution"),
    "monthly": ("", "resource", "attribution"),
    "correction": ("correction", "span"),
}
"""Table -> the tables whose ids are in its first columns."""


def rows(url: str) -> dict[str, list[SqlRow]]:
    """Every row that polls left in the ledger at `url`, numbered anew: a sequence leaves out what a failed transaction took."""

    def all_rows(ask: Query) -> dict[str, list[SqlRow]]:
        return {table: sorted(tuple(row) for row in ask(f"SELECT * FROM {table}", ())) for table in TABLES}  # noqa: S608 - our own names

    found = asked(url, all_rows)
    numbers = {
        table: {row[0]: number for number, row in enumerate(found[table], 1)}
        for table, of in REFERENCES.items()
        if of[0] == table
    }

    def numbered(row: SqlRow, of: tuple[str, ...]) -> SqlRow:
        return (*(numbers[table][one] if table else one for table, one in zip(of, row, strict=False)), *row[len(of) :])

    return {table: sorted(numbered(row, REFERENCES.get(table, ())) for row in kept) for table, kept in found.items()}
