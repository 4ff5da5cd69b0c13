"""A disk that keeps what was synced, and of the rest what it likes.

The rules (RELIABILITY.md 3.1): what a file held when it was last synced is there. Of each later write every sector is
there, or is not, or is torn: its beginning is new and its end old; a sector that was written several times may be as old as
it likes. A new length may hold or not, and what no sector filled is noughts or rubbish. A name that was given, moved or
taken away is so for certain only once its folder was synced; before that, any of these may be lost, whatever came after.
What SQLite keeps in memory beside the file (-shm) may be anything.

It does not lie about a sync, and it does not change what it was not asked to write.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from random import Random

from tests.disks.trace import Op

SECTORS = (512, 4096)
TORN = 0.05
Piece = tuple[int, bytes | None]
"""A write at a place, or (None) a new length."""


@dataclass(slots=True)
class Kept:
    """A file. `solid`: what is certain; `pending`: what came since it was synced, in order."""

    solid: bytearray = field(default_factory=bytearray)
    pending: list[Piece] = field(default_factory=list)

    def sync(self) -> None:
        """Have all of it for certain."""
        for piece in self.pending:
            put(self.solid, piece)
        self.pending.clear()

    def whole(self) -> bytes:
        """As a process sees it."""
        if not self.pending:
            return bytes(self.solid)
        content = bytearray(self.solid)
        for piece in self.pending:
            put(content, piece)
        return bytes(content)


def put(content: bytearray, piece: Piece) -> None:
    """Do to `content` what `piece` says."""
    at, data = piece
    end = at if data is None else at + len(data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if data is None:
        del content[at:]
    else:
        content[at:end] = data


@dataclass(frozen=True, slots=True)
class Named:
    """A change of the names in a folder: `name` now stands for `file`, or for nothing (None). `old`: what it was moved from."""

    name: str
    file: Kept | None
    old: str = ""

    @property
    def folder(self) -> str:
        """Whose sync makes it certain."""
        return str(PurePath(self.name).parent)


@dataclass(slots=True)
class Platter:
    """All files, by path. `names`: as a process sees them; `certain`: as they stand on the disk; `loose`: changes since."""

    names: dict[str, Kept] = field(default_factory=dict)
    certain: dict[str, Kept] = field(default_factory=dict)
    loose: list[Named] = field(default_factory=list)
    _open: dict[int, str | Kept] = field(default_factory=dict)

    @classmethod
    def holding(cls, files: Mapping[str, bytes]) -> Platter:
        """One on which `files` are for certain."""
        kept = {name: Kept(bytearray(data)) for name, data in files.items()}
        return cls(dict(kept), dict(kept))

    def take(self, op: Op) -> None:
        """Do what a process did."""
        if op.kind == "O":
            self._opened(op)
        elif op.kind == "C":
            self._open.pop(op.fd, None)
        elif op.kind == "S":
            self._synced(self._open.get(op.fd))
        elif op.kind in ("W", "T"):
            file = self._open.get(op.fd)
            if isinstance(file, Kept):
                file.pending.append((op.at, op.data if op.kind == "W" else None))
        elif op.kind == "U":
            self._name(Named(op.text, None))
        elif op.kind == "R":
            old, new = op.text.split("\n")
            self._name(Named(new, self.names[old], old))

    def _opened(self, op: Op) -> None:
        path = op.text
        if path not in self.names and op.at & os.O_CREAT:
            self._name(Named(path, Kept()))
        file = self.names.get(path)
        if file is not None and op.at & os.O_TRUNC:
            file.pending.append((0, None))
        self._open[op.fd] = path if file is None else file

    def _name(self, change: Named) -> None:
        self.loose.append(change)
        _named(self.names, change)

    def _synced(self, what: str | Kept | None) -> None:
        if isinstance(what, Kept):
            what.sync()
        elif what is not None:
            for change in self.loose:
                if change.folder == what:
                    _named(self.certain, change)
            self.loose = [change for change in self.loose if change.folder != what]

    def whole(self) -> dict[str, bytes]:
        """Every file, where the power stays on."""
        return {name: file.whole() for name, file in self.names.items()}

    def cut(self, chance: Random) -> dict[str, bytes | bytearray]:
        """Every file as it may be found where the power went just now."""
        names = dict(self.certain)
        for change in self.loose if chance.random() < 0.5 else _some(self.loose, chance):
            _named(names, change)
        lucky, unlucky = chance.choice(((0, 0), (0.5, 0.2), (0.2, 0.5), (0.9, 0.05), (0.05, 0.9), (1, 0), (0, 1)))
        found: dict[str, bytes | bytearray] = {}
        for name, file in names.items():
            if name.endswith("-shm"):
                if chance.random() < 0.5:
                    found[name] = chance.randbytes(chance.choice((0, 3, 32768)))
            else:
                found[name] = _left(file, chance, lucky, unlucky) if file.pending else file.solid
        return found


def _named(names: dict[str, Kept], change: Named) -> None:
    """Give, move or take away a name. Where a change before it was lost, it may find nothing to move."""
    if change.file is None:
        names.pop(change.name, None)
    elif not change.old or names.pop(change.old, None) is not None:
        names[change.name] = change.file


def _some(changes: list[Named], chance: Random) -> list[Named]:
    """The first of them, or any of them, in their order."""
    if chance.random() < 0.5:
        return changes[: chance.randrange(len(changes) + 1)]
    return [change for change in changes if chance.random() < 0.5]


def _left(file: Kept, chance: Random, lucky: float, unlucky: float) -> bytearray:
    """What is found of a file with writes that were not synced. Chances: `lucky` of all of a sector, `unlucky` of none."""
    size = chance.choice(SECTORS)
    left, torn = _fates(file, size, chance, lucky, unlucky)
    content, longest = bytearray(file.solid), len(file.solid)
    for at, data in file.pending:
        longest = max(longest, at + len(data or b""))
        if data is not None:
            _fill(content, (at, data), size, left, torn)
        elif chance.random() < 0.5:
            put(content, (at, None))
    if len(content) < longest and chance.random() < 0.5:
        content.extend(chance.choice((bytes, chance.randbytes))(longest - len(content)))
    return content


def _fates(file: Kept, size: int, chance: Random, lucky: float, unlucky: float) -> tuple[dict[int, int], dict[int, int]]:
    """Of each sector, how many of its writes came through; and where the last one of these was torn."""
    touched = Counter(sector for at, data in file.pending if data for sector in _sectors(at, data, size))
    left, torn = dict[int, int](), dict[int, int]()
    for sector, times in touched.items():
        mood = chance.random()
        left[sector] = times if mood < lucky else 0 if mood < lucky + unlucky else chance.randrange(times + 1)
        if left[sector] and chance.random() < TORN:
            torn[sector] = chance.randrange(size)
    return left, torn


def _fill(content: bytearray, write: tuple[int, bytes], size: int, left: dict[int, int], torn: Mapping[int, int]) -> None:
    """Do what came through of one write, and count it off."""
    at, data = write
    for sector in _sectors(at, data, size):
        if not left[sector]:
            continue
        left[sector] -= 1
        begin, end = max(at, sector * size), min(at + len(data), (sector + 1) * size)
        if not left[sector] and sector in torn:
            end = min(end, sector * size + torn[sector])
        if begin < end:
            put(content, (begin, data[begin - at : end - at]))


def _sectors(at: int, data: bytes, size: int) -> range:
    return range(at // size, (at + len(data) - 1) // size + 1)
