"""Keys of what bills: resource, scope, attribution, incarnation.

A resource is known by (provider, account, region, id). An instance's *run* begins when it starts; the instance together with
that start is its incarnation, to which verdicts, leases and intents bind: a restart is a new incarnation.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from costguard.values.checks import require

INSTANCE, VOLUME, ADDRESS = "instance", "volume", "address"
KINDS = (INSTANCE, VOLUME, ADDRESS)

RUNNING, STOPPED, ENDED, UNKNOWN = "running", "stopped", "ended", "unknown"
STATES = ("pending", "starting", RUNNING, "paused", "stopping", STOPPED, "suspended", "failed", "repairing", ENDED, UNKNOWN)
"""The states every vendor's words are translated to at the door.

pending: asked for, nothing given. starting: given, not usable. paused: frozen, still holding its GPUs. failed: its process or
boot broke, the machine is still held. suspended: memory kept on disk. ended: gone for good. unknown: a word nobody knows."""


class ScopeKey(NamedTuple):
    """The smallest thing one listing covers completely: an AWS region of an account, a GCP project, a RunPod account."""

    provider: str
    account: str
    name: str


class ResourceKey(NamedTuple):
    """One resource for ever: ids are unique within provider, account and region."""

    provider: str
    account: str
    region: str
    id: str


def is_storable(text: str) -> bool:
    """Whether every database can hold `text`: no NUL, no half of a surrogate pair."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text))


def make_storable(text: str) -> str:
    """`text` as every database can hold it: a NUL becomes U+FFFD, and half a surrogate pair, which no name has, `?`."""
    return text if is_storable(text) else text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


GROUPED_LABELS = ("project", "team")
"""Label keys that spending is grouped by, compared in lower case."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """What spending is grouped by. A change of any of these opens a new span. `gpu` is canonical, "" for none.

    `gpu_count` is of the whole resource and may be a fraction (AWS g6f: 0.125), 0 without a GPU. `labels` are sorted pairs of
    the few keys that spending is grouped by (`GROUPED_LABELS`), never all of them: a label of its own for each machine would
    make a group of each machine.
    """

    provider: str
    account: str
    region: str
    kind: str
    gpu: str = ""
    gpu_count: float = 0
    tier: str = ""
    owner: str = ""
    instance_type: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        require(self.kind in KINDS, "kind", f"must be one of {', '.join(KINDS)}, not '{self.kind}'")


SPOT = "spot"


TIERS = ("on-demand", SPOT, "reserved", "community", "secure")
"""How something is rented. `spot` may be taken away; `community` and `secure` are RunPod's two clouds."""


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
