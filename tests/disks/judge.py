"""What a ledger must be after a power cut. It looks with plain sqlite3, and shares no code with the product.

Which states there are is learnt from the same trace where the power stays on: after each acknowledgement and each sync, the
ledger byte for byte as SQLite hands it out, log and all. A cut must leave one of those: none before the last
acknowledgement, and none beyond what was under way. Anything else was lost, made up or mixed.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tests.disks.platter import Platter
from tests.disks.trace import Op

PARTS = ("", "-wal", "-shm", "-journal")
NONE = b""
"""The digest of a ledger that is not there."""
LOST, DAMAGED, MIXED, COPY = "lost", "damaged", "mixed", "copy"

Files = Mapping[str, bytes | bytearray]


@dataclass(frozen=True, slots=True)
class Promise:
    """An acknowledgement: `at`, in operations; a question to the ledger that is true from then on, or a copy that is whole."""

    at: int
    sql: str
    values: tuple[Any, ...]
    file: str


@dataclass(slots=True)
class Course:
    """What a trace leads to where the power stays on. `looks`: (operations done, digest), in order.

    `copies`: name -> its bytes. `versions`: digest -> the schema that it has.
    """

    ledger: str
    promises: list[Promise] = field(default_factory=list)
    looks: list[tuple[int, bytes]] = field(default_factory=list)
    copies: dict[str, bytes] = field(default_factory=dict)
    versions: dict[bytes, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def allowed(self, done: int) -> set[bytes]:
        """The digests that a cut after `done` operations may leave."""
        told = bisect_right([promise.at for promise in self.promises], done)
        since = self.promises[told - 1].at if told else 0
        first = bisect_left(self.looks, (since, b""))
        last = bisect_left(self.looks, (done, b""))
        return {digest for _, digest in self.looks[first : last + 1]}

    def kept(self, done: int) -> list[Promise]:
        """What had been acknowledged after `done` operations."""
        return self.promises[: bisect_right([promise.at for promise in self.promises], done)]


def course(ops: Sequence[Op], start: Files, ledger: str, folder: Path) -> Course:
    """Go through `ops` once, in peace; each state is checked as a whole, and answers every question asked so far."""
    found, platter = Course(ledger), Platter.holding({name: bytes(data) for name, data in start.items()})
    _look(found, platter, 0, folder)
    for number, op in enumerate(ops, start=1):
        platter.take(op)
        if op.kind == "N" and op.text.startswith("ack "):
            told = json.loads(op.text[4:])
            found.promises.append(Promise(number, told["sql"], tuple(told["values"]), told["file"]))
        if op.kind in "NSUR":
            _look(found, platter, number, folder)
    found.copies = {name: data for name, data in platter.whole().items() if _is_copy(name)}
    return found


def _is_copy(name: str) -> bool:
    return ".copy-" in name or ".before-" in name


def _look(found: Course, platter: Platter, number: int, folder: Path) -> None:
    names = [name for part in ("", "-wal", "-journal") if (name := found.ledger + part) in platter.names]
    path = laid({name: platter.names[name].whole() for name in names}, found.ledger, folder)
    if path is None:
        found.looks.append((number, NONE))
        return
    with opened(path) as connection:
        found.looks.append((number, digest := digest_of(connection)))
        if digest not in found.versions:
            ((found.versions[digest],),) = connection.execute("SELECT version_num FROM alembic_version")
            found.faults += damage(connection)
            found.faults += broken(connection, found.promises[-20:])


def laid(files: Files, ledger: str, folder: Path) -> Path | None:
    """The ledger of `files` and what belongs to it, put into `folder`; None where there is none."""
    path = folder / "ledger.db"
    for part in PARTS:
        data, beside = files.get(ledger + part), path.with_name(path.name + part)
        if data is None:
            beside.unlink(missing_ok=True)
        else:
            beside.write_bytes(data)
    return path if ledger in files else None


def opened(path: Path) -> closing[sqlite3.Connection]:
    """A connection that reads, and leaves the log where it is."""
    return closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None))


def digest_of(connection: sqlite3.Connection) -> bytes:
    """Of all bytes of the database, as they would be with the log moved into it."""
    return blake2b(connection.serialize(), digest_size=16).digest()


def damage(connection: sqlite3.Connection) -> list[str]:
    """What SQLite itself finds."""
    said = [text for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
    return said or [f"a row of {row[0]} names none of {row[2]}" for row in connection.execute("PRAGMA foreign_key_check")]


def broken(connection: sqlite3.Connection, promises: Sequence[Promise]) -> list[str]:
    """The questions to which the answer is no."""
    answers = ((one, connection.execute(one.sql, one.values).fetchone()) for one in promises)
    return [f"{one.sql} {one.values}" for one, answer in answers if not answer or not all(answer)]


def faults(found: Course, files: Files, done: int, folder: Path, *, closely: bool) -> Iterator[tuple[str, str]]:
    """What is wrong where the power went after `done` operations and left `files`: its kind, and a sentence."""
    path, digest, allowed = laid(files, found.ledger, folder), NONE, found.allowed(done)
    kept = found.kept(done)
    if path is not None:
        try:
            with opened(path) as connection:
                digest = digest_of(connection)
                if digest not in allowed:
                    yield _sort(found, connection, digest, kept)
                elif closely:
                    yield from ((DAMAGED, said) for said in damage(connection))
                    yield from ((LOST, said) for said in broken(connection, kept))
        except sqlite3.Error as error:
            yield DAMAGED, f"it cannot be read: {error}"
            return
    elif NONE not in allowed:
        yield LOST, "the ledger itself is gone"
    due = {promise.file for promise in kept if promise.file}
    if found.versions.get(digest) != found.versions.get(found.looks[0][1]):
        due |= {name for name in found.copies if ".before-" in name}
    yield from ((COPY, f"{name} is not whole") for name in sorted(due) if bytes(files.get(name, b"")) != found.copies[name])


def _sort(found: Course, connection: sqlite3.Connection, digest: bytes, kept: Sequence[Promise]) -> tuple[str, str]:
    """What kind of fault a state is that should not be."""
    said = damage(connection)
    if said:
        return DAMAGED, said[0]
    if digest in found.versions:
        missing = broken(connection, kept)
        return LOST, missing[0] if missing else "an older or a later state"
    return MIXED, "a state that never was"
