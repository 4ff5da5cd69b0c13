"""A plan played and judged in a folder that is gone afterwards, and the hash of all that it left."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.simulation.books import BooksWorld
from tests.simulation.judge import violations
from tests.simulation.plans import BOOKS, Plan
from tests.simulation.reading import LOG, Record
from tests.simulation.sometimes import effects, machine_hours, sometimes
from tests.simulation.world import World

TABLES = (
    "SELECT resource_id, charge, part, start_us, end_us, presence, low, expected, high FROM span ORDER BY id",
    "SELECT id, external_id FROM resource ORDER BY id",
    "SELECT external_id, life, act, policy, rule, state, created_us, moved_us, sends, sent_us, outcome FROM intent ORDER BY id",
    "SELECT at_us, moved_from, moved_to, why, epoch FROM intent_event ORDER BY id",
    "SELECT at_us, tries, next_us, sent_us, gave_up_us, json_remove(payload, '$.audit') FROM outbox ORDER BY id",
    "SELECT seq, at_us, kind, body FROM audit WHERE seq > 1 ORDER BY seq",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a world. `ticks`: runs of its guard. `hours`: of machines that were watched. `took`: seconds.

    `requests`: that went over the wire, in a wired world.
    """

    wrong: tuple[str, ...]
    hash: str
    ticks: int
    hours: float
    took: float
    sometimes: Counter[str]
    effects: Counter[str]
    asked: int
    commits: int
    requests: int = 0


@contextmanager
def folder() -> Iterator[Path]:
    """In memory where there is such a place: a world commits some thousand times."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


def world_of(plan: Plan, made: Path) -> World:
    """The world of `plan` in the empty folder `made`; what the adapters need is imported for a wired one alone."""
    if plan.kind == BOOKS:
        return BooksWorld(plan, made)
    if not plan.wired:
        return World(plan, made)
    from tests.simulation.wired_world import WiredWorld

    return WiredWorld(plan, made)


def played(plan: Plan) -> Played:
    """`plan` played once."""
    began = time.monotonic()
    with folder() as made:
        world = world_of(plan, made)
        record = world.play()
        return Played(
            wrong=(*violations(record), *world.broken),
            hash=hash_of(record, made),
            ticks=world.runs,
            hours=machine_hours(record),
            took=time.monotonic() - began,
            sometimes=sometimes(record),
            effects=effects(record),
            asked=len(record.asked),
            commits=world.troubles.made,
            requests=world.requests,
        )


def wrong_with(plan: Plan) -> tuple[str, ...]:
    """What must not be in the world of `plan`; a world that cannot be played to its end is wrong, too."""
    try:
        return played(plan).wrong
    except Exception as error:  # noqa: BLE001 - whatever broke, it must not
        return (f"{type(error).__name__}: {error}",)


def hash_of(record: Record, made: Path) -> str:
    """Of every line of the clouds' log, and of what the ledger holds in the end: spans, intents, messages and the audit.

    Left out is the name that a ledger gives itself when it is made, and what is chained to it: the heads of the audit.
    """
    found = hashlib.sha256()
    for line in (made / LOG).read_text(encoding="utf-8").splitlines():
        if '"e":"head"' not in line:
            found.update(line.encode())
    for sql in TABLES:
        found.update(json.dumps(record.rows(sql)).encode())
    return found.hexdigest()
