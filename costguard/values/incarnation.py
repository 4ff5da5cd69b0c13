"""One life of an instance: what verdicts, leases and intents bind to, never a name and never an id alone."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from costguard.values.resource import ResourceKey


class Incarnation(NamedTuple):
    """`key` since `started_at`; None where its provider states no start, and then only `created_at` tells two lives apart."""

    key: ResourceKey
    started_at: datetime | None
    created_at: datetime | None = None


def is_same_life(one: Incarnation, other: Incarnation) -> bool:
    """Whether both are one life: the same start where both know it, else the same creation; of one resource in any case."""
    if one.key != other.key:
        return False
    if one.started_at and other.started_at:
        return one.started_at == other.started_at
    return not (one.created_at and other.created_at) or one.created_at == other.created_at
