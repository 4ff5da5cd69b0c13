"""Keys of billed things: resource, scope, attribution, incarnation.

A resource is identified by (provider, account, region, id). A *run* of an instance begins when it starts; the instance together
with that start is its incarnation, to which verdicts, leases and intents are bound. A restart creates a new incarnation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from costguard.values.checks import require
from costguard.values.instant import to_micros

INSTANCE, VOLUME, ADDRESS, ENTERED = "instance", "volume", "address", "entered"
KINDS = (INSTANCE, VOLUME, ADDRESS, ENTERED)
"""`entered`: a cost that a person entered by hand."""

RUNNING, STOPPED, ENDED, UNKNOWN = "running", "stopped", "ended", "unknown"
STATES = ("pending", "starting", RUNNING, "paused", "stopping", STOPPED, "suspended", "failed", "repairing", ENDED, UNKNOWN)
"""The states every vendor's words are translated to at the door.

pending: asked for, nothing given. starting: given, not usable. paused: frozen, still holding its GPUs. failed: its process or
boot broke, the machine is still held. suspended: memory kept on disk. ended: gone for good. unknown: a word nobody knows."""
ARRIVING_STATES = ("pending", "starting")


class ScopeKey(NamedTuple):
    """The smallest unit that one listing covers completely: an AWS region of an account, a GCP project, a RunPod account."""

    provider: str
    account: str
    name: str


class ResourceKey(NamedTuple):
    """The permanent key of a resource: ids are unique within provider, account and region."""

    provider: str
    account: str
    region: str
    id: str

    @property
    def path(self) -> str:
        """Return provider/account/region/id."""
        return "/".join(self)


SHORT_ID_CHARS = 6
"""Least characters of a short id: of 1,000 machines two share it with a probability of 3 %, and both are shown longer."""


def compute_key_digest(key: ResourceKey) -> str:
    """Return the digest of `key`, whose beginning is its short id, as git's: the same in every table and on every day."""
    from hashlib import sha256  # no start-up pays for it: most commands show no short id

    return sha256(key.path.encode("utf-8", "replace")).hexdigest()


def list_short_ids(keys: Sequence[ResourceKey]) -> tuple[str, ...]:
    """Return the short id of each of `keys`: as long as it must be to tell all of them apart.

    Example: `4f2c9a` for the machine aws/123/us-east-1/i-0a1; a command takes it in the place of the machine's name.
    """
    digests, chars = [compute_key_digest(key) for key in keys], SHORT_ID_CHARS
    while chars < len(digests[0] if digests else "") and len({one[:chars] for one in digests}) < len(set(digests)):
        chars += 1
    return tuple(one[:chars] for one in digests)


def parse_resource_key(text: str) -> ResourceKey | None:
    """Return the key that is written as provider/account/region/id; None if `text` has another form."""
    parts = text.strip().split("/", 3)
    return ResourceKey(*parts) if len(parts) == len(ResourceKey._fields) and parts[0] and parts[3] else None


def is_within_region(place: str, region: str) -> bool:
    """Return whether `place`, as a key states it, is `region` or a zone of it: Google's us-central1-a is within us-central1."""
    return place == region or (region[-1:].isdigit() and place.startswith(f"{region}-"))


def is_storable(text: str) -> bool:
    """Return whether every database can store `text`: no NUL and no unpaired surrogate."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text))


def make_storable(text: str) -> str:
    """Return `text` in a form that every database can store: NUL becomes U+FFFD, an unpaired surrogate becomes `?`."""
    return text if is_storable(text) else text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


GROUPED_LABELS = ("project", "team")
"""Label keys that spending is grouped by, compared in lower case."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """The attributes by which spending is grouped. A change of any of them opens a new span.

    `gpu` is canonical, "" for none. `gpu_count` is of the whole resource and may be a fraction (AWS g6f: 0.125), 0 without a
    GPU. `labels` are sorted pairs of the few keys of `GROUPED_LABELS`, never all labels: a label that differs for each machine
    would make a group of each machine.
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


COMMUNITY = "community"
TIERS = ("on-demand", SPOT, "reserved", COMMUNITY, "secure")
"""How something is rented. `spot` may be taken away; `community` and `secure` are RunPod's two clouds."""


class Incarnation(NamedTuple):
    """`key` since `started_at`; None: its provider states no start, and only `created_at` separates incarnations."""

    key: ResourceKey
    started_at: datetime | None
    created_at: datetime | None = None


def format_life(life: Incarnation) -> str:
    """Return the starts of `life` as one word for a form; an unknown start is empty."""
    return "_".join(str(to_micros(at)) if at else "" for at in life[1:])


def is_same_life(one: Incarnation, other: Incarnation) -> bool:
    """Return whether both are the same incarnation of one resource.

    Their starts are compared if both are known, else their creation times.
    """
    if one.key != other.key:
        return False
    if one.started_at and other.started_at:
        return one.started_at == other.started_at
    return not (one.created_at and other.created_at) or one.created_at == other.created_at
