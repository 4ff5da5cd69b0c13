"""The hidden truth of the simulated clouds: what was rented, when it ran, and what it cost an hour, to the microsecond.

A world is made from a seed and is plain data: nothing here knows costguard, and nothing here reads a clock. What a listing
says of it is `view.py`'s business, what it costs is `bill.py`'s. All times are whole microseconds since 1970 in UTC (`_us`).

The same seed gives the same world under every PYTHONHASHSEED: the one source of chance is `random.Random(seed)`, and nothing
iterates over a set.

Declared limits. The guard's bounds rest on them; a world that breaks them is outside the fault model:

- sim-aws acts on whole seconds. Every other cloud acts at any microsecond.
- sim-vast states no start and can restart: a machine stays off at least `OFF_LEAST_S["sim-vast"]` = 600 s.
- sim-runpod states no stop: runs and off periods last at least 90 s.
- sim-lambda never restarts: one id is one run.
- Prices that change without `since` (sim-gcp, sim-vast) change at least `apart_s` (3 days or more) after the resource came,
  after the world's start and after each other. A plan keeps its outages shorter than that.
- Disks keep their size and their type for life. Traffic is priced once. Spot machines are not resized.
- No GPU costs more than `CEILING_NANO` an hour.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

CLOUDS = ("sim-aws", "sim-gcp", "sim-runpod", "sim-lambda", "sim-vast")
SCOPES = {
    "sim-aws": (("111122223333", "us-east-1"), ("111122223333", "eu-west-1")),
    "sim-gcp": (("acme", "lab"), ("acme", "prod")),
    "sim-runpod": (("main", "pods"),),
    "sim-lambda": (("main", "cloud"),),
    "sim-vast": (("main", "contracts"),),
}
"""Cloud -> (account, name) of its scopes."""

LAG_S = {"sim-aws": 30, "sim-gcp": 0, "sim-runpod": 0, "sim-lambda": 0, "sim-vast": 0}
"""How old what a listing says may be when the listing is asked for."""
RUN_LEAST_S = {"sim-aws": 1, "sim-gcp": 1, "sim-runpod": 90, "sim-lambda": 1, "sim-vast": 1}
OFF_LEAST_S = {"sim-aws": 1, "sim-gcp": 1, "sim-runpod": 90, "sim-lambda": 0, "sim-vast": 600}
APART_S = 3 * 86_400
CEILING_NANO = 16 * 10**9
"""Nano-USD per GPU-hour."""

SIM_INSTANCE, SIM_VOLUME, SIM_ADDRESS = "instance", "volume", "address"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Billed computing from `start_us` to `stop_us`, None: it goes on. `boot_us`: how long before the start it was on its way.

    `stopping_us`: for how long at its end, inside the run, the word was "stopping" (sim-gcp, where that bills).
    `pauses`: stretches inside the run in which the machine was frozen and still held.
    """

    start_us: int
    stop_us: int | None = None
    boot_us: int = 0
    stopping_us: int = 0
    pauses: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """From `at_us` on, computing (or an address) costs `nano` nano-USD an hour, for the whole resource."""

    at_us: int
    nano: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """From `at_us` on, the resource is of this type. `gpu` is canonical, "" for none."""

    at_us: int
    type: str
    gpu: str = ""
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """From `at_us` on, the resource is somebody's. `labels` are sorted pairs."""

    at_us: int
    owner: str
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """Storage of `gb` GB. `nano` per GB-month where the host sets the price, else None: the cloud's list."""

    gb: int
    type: str
    nano: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One thing that bills, from `created_us` to `ended_us` (None: it is still there).

    Histories are oldest first; the first entry of `rates`, `shapes` and `tags` lies at or before `created_us`. `traffic` is
    (at_us, MB counted from birth until then), rising, at `traffic_nano` nano-USD per GB.
    """

    cloud: str
    account: str
    scope: str
    region: str
    id: str
    name: str
    kind: str
    created_us: int
    ended_us: int | None = None
    tier: str = "on-demand"
    runs: tuple[Run, ...] = ()
    rates: tuple[Rate, ...] = ()
    shapes: tuple[Shape, ...] = ()
    tags: tuple[Tag, ...] = ()
    disks: tuple[Disk, ...] = ()
    traffic: tuple[tuple[int, int], ...] = ()
    traffic_nano: int = 0
    life: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything that exists, sorted by cloud, scope and id. Watching begins at `start_us`; things may be older."""

    seed: int
    start_us: int
    end_us: int
    resources: tuple[Resource, ...]


def make_world(
    seed: int,
    *,
    start: datetime,
    days: float,
    size: int = 16,
    clouds: tuple[str, ...] = CLOUDS,
    apart_s: int = APART_S,
) -> World:
    """`size` resources that live around the `days` days from `start` (aware, UTC).

    `apart_s`: seconds between price changes that no cloud dates; make it longer than the plan's longest outage.
    """
    from costguard_sim.lives import draw_resource

    rng = random.Random(seed)  # noqa: S311 - a world is drawn, not secret
    start_us = to_us(start) // SECOND_US * SECOND_US
    end_us = start_us + max(1, int(days * 86_400)) * SECOND_US
    resources = [
        draw_resource(rng, cloud, number, start_us=start_us, end_us=end_us, apart_us=max(apart_s, APART_S) * SECOND_US)
        for number, cloud in enumerate(clouds[rng.randrange(len(clouds))] for _ in range(size))
    ]
    ordered = sorted(resources, key=lambda r: (r.cloud, r.account, r.scope, r.id))
    return World(seed=seed, start_us=start_us, end_us=end_us, resources=tuple(ordered))


def to_us(at: datetime) -> int:
    """Microseconds since 1970 of the aware instant `at`."""
    return (at - EPOCH) // timedelta(microseconds=1)


def from_us(us: int) -> datetime:
    """The instant `us` microseconds after 1970, in UTC."""
    return EPOCH + timedelta(microseconds=us)
