"""What a ledger's file must hold whoever died over it. It reads the file with plain sqlite3, and knows nothing of costguard.

It looks at a copy of the file and its log, so that the next writer finds both as the dead one left them.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Scope = tuple[str, str, str]
Row = tuple[Any, ...]

TABLES = ("scope", "coverage", "resource", "attribution", "observation", "span", "daily", "monthly", "hourly", "correction")
"""What polls leave. `ledger_state` counts transactions, of which two ways to the same rows need not have the same number."""


@contextmanager
def as_left(path: Path, *, by_another: bool = False) -> Iterator[sqlite3.Connection]:
    """The ledger at `path` as it lies there, log and all.

    `by_another`: copied by a process of its own. Whoever closes a file lets go of all locks that its process has on it, so that
    a process with the ledger open must not (sqlite.org/howtocorrupt.html, 2.2).
    """
    for suffix in ("", "-wal"):
        copy = path.with_name(f"copy.db{suffix}")
        copy.unlink(missing_ok=True)
        if path.with_name(path.name + suffix).exists():
            if by_another:
                subprocess.run(["cp", path.with_name(path.name + suffix), copy], check=True)
            else:
                shutil.copy(path.with_name(path.name + suffix), copy)
    with closing(sqlite3.connect(path.with_name("copy.db"))) as connection:
        yield connection


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many rows a number of listings leaves."""

    observations: int = 0
    spans: int = 0
    open: int = 0
    corrections: int = 0


@dataclass(frozen=True, slots=True)
class Truth:
    """What the judge holds a file against.

    `asked_us`: of each scope, when its listings were asked for, in order. `sizes`: the rows that the first so many listings of
    all leave, where nobody dies.
    """

    asked_us: Mapping[Scope, Sequence[int]]
    sizes: Sequence[Sizes]


def faults(path: Path, truth: Truth, acknowledged: Mapping[Scope, int]) -> list[str]:
    """What is wrong, a sentence each. `acknowledged`: up to when each scope is covered, as far as the dead were told."""
    with as_left(path) as connection:
        return [
            *(f"the file is damaged: {said}" for (said,) in connection.execute("PRAGMA integrity_check") if said != "ok"),
            *(f"a row of {row[0]} names none of {row[2]}" for row in connection.execute("PRAGMA foreign_key_check")),
            *_coverage(connection, truth.asked_us, acknowledged),
            *_sizes(connection, truth.sizes),
            *_spans(connection),
        ]


def rows(path: Path) -> dict[str, list[Row]]:
    """Every row that polls left."""
    with as_left(path) as connection:
        return {table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}  # noqa: S608 - ours


def charged(path: Path) -> int:
    """What all closed spans come to, in nano-dollars."""
    with as_left(path) as connection:
        (amount,) = connection.execute("SELECT coalesce(sum(expected), 0) FROM span").fetchone()
        return int(amount)


def _coverage(
    connection: sqlite3.Connection, asked_us: Mapping[Scope, Sequence[int]], acknowledged: Mapping[Scope, int]
) -> Iterator[str]:
    """Nothing that was acknowledged is lost, and no listing counts twice, or without those before it."""
    found = {row[:3]: row[3:] for row in connection.execute(_COVERED)}
    for scope, at_us in acknowledged.items():
        end_us, _ = found.get(scope, (0, 0))
        if end_us < at_us:
            yield f"{'/'.join(scope)} was acknowledged up to {at_us} and is covered up to {end_us}"
    for scope, (end_us, polls) in found.items():
        due = sum(each <= end_us for each in asked_us[scope])
        if polls != due:
            yield f"{'/'.join(scope)} counts {polls} polls up to {end_us}, and there were {due}"


def _sizes(connection: sqlite3.Connection, sizes: Sequence[Sizes]) -> Iterator[str]:
    """Each listing left all of its rows, or none."""
    taken, *found = connection.execute(_SIZES).fetchone()
    if Sizes(*found) != sizes[taken]:
        yield f"{taken} listings left {Sizes(*found)}, where nobody dies they leave {sizes[taken]}"


def _spans(connection: sqlite3.Connection) -> Iterator[str]:
    for one, other in connection.execute(_OVERLAPS):
        yield f"spans {one} and {other} overlap"
    for resource_id, charge, part, count in connection.execute(_OPEN_TWICE):
        yield f"{count} open spans of {charge} {part} of resource {resource_id}"
    for (number,) in connection.execute(_HALF_CLOSED):
        yield f"span {number} is half closed"
    for day, charge, kept, due in connection.execute(_ROLLED_UP):
        yield f"the roll-ups of {charge} come to {kept} and its spans to {due}, from day {day} on"
    for resource_id in connection.execute(_UNTOLD):
        yield f"resource {resource_id} has no observation"


_COVERED = """
SELECT s.provider, s.account, s.name, max(c.end_us), sum(c.polls)
FROM coverage AS c JOIN scope AS s ON s.id = c.scope_id GROUP BY s.id
"""

_SIZES = """
SELECT (SELECT coalesce(sum(polls), 0) FROM coverage), (SELECT count(*) FROM observation), (SELECT count(*) FROM span),
    (SELECT count(*) FROM span WHERE end_us IS NULL), (SELECT count(*) FROM correction)
"""

_OVERLAPS = """
SELECT before_id, id FROM (
    SELECT id, start_us, lag(id) OVER line AS before_id,
        max(coalesce(end_us, 1 << 62)) OVER (line ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_us
    FROM span WHERE end_us IS NULL OR end_us > start_us
    WINDOW line AS (PARTITION BY resource_id, charge, part ORDER BY start_us, id)
) WHERE before_us > start_us
"""

_OPEN_TWICE = """
SELECT resource_id, charge, part, count(*) FROM span WHERE end_us IS NULL GROUP BY resource_id, charge, part HAVING count(*) > 1
"""

_HALF_CLOSED = """
SELECT id FROM span
WHERE (end_us IS NULL) <> (low IS NULL) OR (end_us IS NULL) <> (expected IS NULL) OR (end_us IS NULL) <> (high IS NULL)
    OR (end_us IS NULL) <> (ended_by IS NULL)
"""

_ROLLED_UP = """
SELECT d.day, s.charge, coalesce(d.high, 0), s.high FROM (
    SELECT s.charge, sum(coalesce(c.high, s.high)) AS high
    FROM span AS s LEFT JOIN correction AS c ON c.id = (SELECT max(x.id) FROM correction AS x WHERE x.span_id = s.id)
    WHERE s.end_us IS NOT NULL GROUP BY s.charge
) AS s LEFT JOIN (SELECT charge, min(day) AS day, sum(high) AS high FROM daily GROUP BY charge) AS d ON d.charge = s.charge
WHERE coalesce(d.high, 0) <> s.high
"""

_UNTOLD = "SELECT r.id FROM resource AS r WHERE NOT EXISTS (SELECT 1 FROM observation AS o WHERE o.resource_id = r.id)"
