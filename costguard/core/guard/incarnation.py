"""One life of an instance: what verdicts, leases and intents bind to, never a name and never an id alone."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from costguard.core.metering.observation import Observation
from costguard.core.metering.resource import ResourceKey


class Incarnation(NamedTuple):
    """`key` since `started_at`; None where its provider states no start, and then only `created_at` tells two lives apart."""

    key: ResourceKey
    started_at: datetime | None
    created_at: datetime | None = None


def incarnation_of(seen: Observation) -> Incarnation:
    """The life that `seen` is in."""
    return Incarnation(seen.key, seen.started_at, seen.created_at)
