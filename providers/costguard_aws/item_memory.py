"""Items of EC2's lists that were translated before, recognised by their text.

What an observation says follows from the text, and from what was looked up for it: its type, its price. Each look-up is
repeated for an item that is known, and where one has another result the item is translated anew. Its notes are told again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Generic, TypeVar

from costguard.metering.observation import Observation

Facts = TypeVar("Facts")


@dataclass(frozen=True, slots=True)
class KnownItem(Generic[Facts]):
    """`seen`: the observation. `notes`: what was told of it. `facts`: what was looked up, and what a poll asks of the item."""

    seen: Observation
    notes: tuple[str, ...]
    facts: Facts


def compute_digest(piece: bytes) -> bytes:
    """Return 128 bits by which an item is recognised: nobody can make two texts that have the same."""
    return blake2b(piece, digest_size=16).digest()


@dataclass(slots=True)
class ItemMemory(Generic[Facts]):
    """The items of one list in one region: those of the last poll, and those of the poll under way."""

    _before: dict[bytes, KnownItem[Facts]] = field(default_factory=dict)
    _now: dict[bytes, KnownItem[Facts]] = field(default_factory=dict)

    def begin(self) -> None:
        """Begin a poll: forget what the last one that saw anything did not see."""
        if self._now:
            self._before, self._now = self._now, {}

    def find(self, digest: bytes) -> KnownItem[Facts] | None:
        """Return the item with this text; None if it was not in the last poll."""
        return self._before.get(digest)

    def keep(self, digest: bytes, item: KnownItem[Facts]) -> None:
        """Remember `item` for the next poll."""
        self._now[digest] = item
