"""The true history of the simulated clouds: what was rented, when it ran, and its hourly price, to the microsecond.

A world is made from a seed and is plain data: nothing here uses costguard, and nothing here reads a clock. `view.py` defines
what a listing shows of it, `bill.py` what it costs. All times are whole microseconds since 1970 in UTC (`_us`).

The same seed gives the same world under every PYTHONHASHSEED: the only source of randomness is `random.Random(seed)`, and
nothing iterates over a set.

Declared limits. The guard's bounds rest on them; a world that breaks them is outside the fault model:

- sim-aws acts on whole seconds. Every other cloud acts at any microsecond.
- sim-vast states no start and can restart: a machine stays off at least `OFF_LEAST_S["sim-vast"]` = 600 s.
- sim-runpod states no stop: runs and off periods last at least 90 s.
- sim-lambda never restarts: one id is one run.
- Prices that change without `since` (sim-gcp, sim-vast) do so at least `apart_s` (3 days or more) after the resource came,
    after the world's start and after each other. A plan keeps its outages shorter than that.
- Disks keep their size and their type for life. Traffic is priced once. Spot machines are not resized.
- No GPU costs more than `CEILING_NANO` an hour.

The life of each resource is drawn by its kind of life, within these limits.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
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
    """Billed computing from `start_us` to `stop_us`, None: still in progress.

    `boot_us`: the time before the start in which it was booting. `stopping_us`: the time at its end, within the run, in the
    state "stopping" (sim-gcp, which bills it). `pauses`: periods within the run in which the machine was paused and still
    allocated.
    """

    start_us: int
    stop_us: int | None = None
    boot_us: int = 0
    stopping_us: int = 0
    pauses: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """From `at_us` on, the whole resource (computing or an address) costs `nano` nano-USD an hour."""

    at_us: int
    nano: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """From `at_us` on, the resource has this type.

    `gpu` is canonical, "" for none.
    """

    at_us: int
    type: str
    gpu: str = ""
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """From `at_us` on, the resource has this owner and these labels, which are sorted pairs."""

    at_us: int
    owner: str
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """Storage of `gb` GB.

    `nano`: price per GB-month if the host sets it, None: the cloud's list price.
    """

    gb: int
    type: str
    nano: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One billed resource, from `created_us` to `ended_us` (None: it still exists).

    Histories are oldest first; the first entry of `rates`, `shapes` and `tags` is at or before `created_us`. `traffic`: (at_us,
    total MB since creation), increasing, at `traffic_nano` nano-USD per GB.
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
    """All resources, sorted by cloud, scope and id.

    Watching begins at `start_us`; resources may be older.
    """

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
    """Return a world of `size` resources around the `days` days from `start` (aware, UTC).

    `apart_s`: seconds between price changes that no cloud dates; it must be longer than the plan's longest outage.
    """
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
    """Return the microseconds since 1970 of the aware time `at`."""
    return (at - EPOCH) // timedelta(microseconds=1)


def from_us(us: int) -> datetime:
    """Return the time `us` microseconds after 1970, in UTC."""
    return EPOCH + timedelta(microseconds=us)


SHAPES = {
    "sim-aws": (
        ("g5.xlarge", "A10G", 1, 1_006_000_000),
        ("p4d.24xlarge", "A100-40GB-SXM", 8, 21_957_642_000),
        ("p5.48xlarge", "H100-SXM", 8, 55_040_000_000),
        ("c7i.4xlarge", "", 0, 714_000_000),
    ),
    "sim-gcp": (
        ("g2-standard-8", "L4", 1, 853_624_000),
        ("a2-highgpu-1g", "A100-40GB-SXM", 1, 3_673_385_000),
        ("a3-highgpu-8g", "H100-SXM", 8, 88_490_000_117),
        ("n2-standard-8", "", 0, 388_472_000),
    ),
    "sim-runpod": (
        ("NVIDIA GeForce RTX 4090", "RTX4090", 1, 690_000_000),
        ("NVIDIA H100 80GB HBM3", "H100-SXM", 2, 5_980_000_000),
    ),
    "sim-lambda": (("gpu_1x_a10", "A10", 1, 750_000_000), ("gpu_8x_h100_sxm5", "H100-SXM", 8, 23_920_000_000)),
    "sim-vast": (("1x RTX 4090", "RTX4090", 1, 401_851_853), ("4x A100 SXM4", "A100-80GB-SXM", 4, 3_604_074_077)),
}
"""Cloud -> (type, GPU, GPUs, nano-USD an hour) on its list; the machines of one host on sim-vast."""

LIVES = {
    "long": ((8 * 3600, 40 * 86_400), (3600, 2 * 86_400), 2),
    "short": ((1, 59), (5, 7200), 5),
    "restarts": ((60, 6 * 3600), (1, 900), 10),
    "rests": ((3600, 86_400), (86_400, 6 * 86_400), 3),
    "resized": ((1800, 86_400), (1800, 2 * 86_400), 3),
    "brief": ((1, 300), (1, 60), 1),
}
"""Kind of life -> seconds of a run (least, most), seconds between runs (least, most), most runs."""

DISKS = {"sim-aws": "gp3", "sim-gcp": "pd-balanced", "sim-vast": "disk"}
VOLUMES = {"sim-aws": "gp3", "sim-gcp": "pd-balanced", "sim-runpod": "network", "sim-lambda": "filesystem"}
REGIONS = {"sim-gcp": ("us-central1-a", "europe-west4-b"), "sim-runpod": ("EU-RO-1", "US-KS-2"), "sim-lambda": ("us-east-1",)}
TAGS = (
    Tag(at_us=0, owner="ana", labels=(("project", "llm"), ("team", "research"))),
    Tag(at_us=0, owner="ben", labels=(("name-of-run", "sweep-7"), ("project", "vision"))),
    Tag(at_us=0, owner=""),
)
ADDRESS_NANO = 5_000_000


def draw_resource(rng: random.Random, cloud: str, number: int, *, start_us: int, end_us: int, apart_us: int) -> Resource:
    """Return the `number`-th resource of the world, on `cloud`."""
    account, scope = rng.choice(SCOPES[cloud])
    kind = rng.choices((SIM_INSTANCE, SIM_VOLUME, SIM_ADDRESS), (8, 2 * (cloud in VOLUMES), 1 * (cloud == "sim-aws")))[0]
    life = rng.choice(tuple(LIVES)) if kind == SIM_INSTANCE else "kept"
    mark = f"{rng.randrange(16**8):08x}{number:02x}"
    born = Resource(
        cloud=cloud,
        account=account,
        scope=scope,
        region=rng.choice(REGIONS.get(cloud, (scope,))),
        id=f"{ {SIM_INSTANCE: 'i', SIM_VOLUME: 'vol', SIM_ADDRESS: 'ip'}[kind] }-{mark}",
        name=f"{life}-{number}",
        kind=kind,
        created_us=_draw_birth(rng, cloud, life, start_us, end_us),
        life=life,
    )
    one = _draw_machine(rng, born, end_us) if kind == SIM_INSTANCE else _draw_thing(rng, born, end_us)
    one = replace(one, tags=_draw_tags(rng, one, end_us))
    if kind == SIM_INSTANCE:
        one = _draw_prices(rng, one, start_us, end_us, apart_us)
    return _draw_traffic(rng, one, end_us) if cloud == "sim-vast" else one


def _draw_birth(rng: random.Random, cloud: str, life: str, start_us: int, end_us: int) -> int:
    """Return a creation time before or during the watched period; long-lived resources are more often older."""
    if rng.random() < (0.5 if life in ("long", "kept", "rests") else 0.3):
        return _floor_to_second(cloud, start_us - _draw_between(rng, 1, 30 * 86_400) * SECOND_US - rng.randrange(SECOND_US))
    return _floor_to_second(cloud, start_us + int(rng.random() ** 1.5 * (end_us - start_us)))


def _draw_machine(rng: random.Random, born: Resource, end_us: int) -> Resource:
    """Return the instance with its runs, its end and its disks."""
    cloud = born.cloud
    on_s, off_s, most = LIVES[born.life]
    reach = max(60.0, (end_us - born.created_us) / SECOND_US)
    runs: list[Run] = []
    at = born.created_us
    for _ in range(1 if cloud == "sim-lambda" else rng.randint(1, most)):
        boot = _draw_boot_us(rng, cloud, first=not runs)
        start = at + boot
        length = _draw_between(rng, max(on_s[0], RUN_LEAST_S[cloud]), max(RUN_LEAST_S[cloud], min(on_s[1], reach * 1.2)) + 1)
        stop = _floor_to_second(cloud, start + length * SECOND_US + rng.randrange(SECOND_US))
        stopping, pauses = _draw_stopping_us(rng, cloud, stop - start), _draw_pauses(rng, cloud, start, stop)
        runs.append(Run(start_us=start, stop_us=stop, boot_us=boot, stopping_us=stopping, pauses=pauses))
        off = _draw_between(rng, max(off_s[0], OFF_LEAST_S[cloud]), max(off_s[1], OFF_LEAST_S[cloud] * 3) + 2)
        at = _floor_to_second(cloud, stop + off * SECOND_US + rng.randrange(SECOND_US))
        if at > end_us:
            break
    last = runs[-1].stop_us or 0
    fate = rng.random()
    ended: int | None = None
    if cloud == "sim-lambda" or born.life == "brief" or fate < 0.35:  # noqa: PLR2004 - a draw
        ended = last  # it is deleted while it runs
    elif fate < 0.7:  # noqa: PLR2004 - a draw
        ended = at  # it is deleted while it is off
    elif fate < 0.8:  # noqa: PLR2004 - a draw
        runs[-1] = replace(runs[-1], stop_us=None, stopping_us=0, pauses=())
    return replace(born, runs=tuple(runs), ended_us=ended, disks=_draw_disks(rng, cloud))


def _draw_thing(rng: random.Random, born: Resource, end_us: int) -> Resource:
    """Return the volume or address with its end; it often outlives every machine."""
    end = _floor_to_second(
        born.cloud, born.created_us + _draw_between(rng, 30, 40 * 86_400) * SECOND_US + rng.randrange(SECOND_US)
    )
    ended = end if end <= end_us and rng.random() < 0.8 else None  # noqa: PLR2004 - a draw
    if born.kind == SIM_ADDRESS:
        return replace(born, ended_us=ended, rates=(Rate(at_us=born.created_us, nano=ADDRESS_NANO),))
    disk = Disk(gb=_draw_between(rng, 10, 2000), type=VOLUMES[born.cloud])
    return replace(born, ended_us=ended, disks=(disk,))


def _draw_prices(rng: random.Random, one: Resource, start_us: int, end_us: int, apart_us: int) -> Resource:
    """Return the instance with its prices and types over time."""
    cloud, shapes = one.cloud, SHAPES[one.cloud]
    name, gpu, gpus, nano = rng.choice(shapes)
    rates, forms = [Rate(at_us=one.created_us, nano=nano)], [Shape(at_us=one.created_us, type=name, gpu=gpu, gpus=gpus)]
    tier = "on-demand"
    if cloud == "sim-aws" and one.life != "resized" and rng.random() < 0.6:  # noqa: PLR2004 - a draw
        tier, at = "spot", one.created_us - _draw_between(rng, 0, 5 * 86_400) * SECOND_US
        rates = []
        while at < end_us and len(rates) < 60:  # noqa: PLR2004 - a history that a listing can hold
            at = _floor_to_second(cloud, at)
            rates.append(Rate(at_us=at, nano=int(nano * rng.uniform(0.2, 1.0))))
            at += _draw_between(rng, 7 if one.life == "short" else 600, 2 * 86_400) * SECOND_US
    elif one.life == "resized":
        for run, next_run in zip(one.runs, one.runs[1:], strict=False):
            at = _floor_to_second(cloud, ((run.stop_us or 0) + next_run.start_us) // 2)
            if at - rates[-1].at_us >= apart_us and (cloud not in {"sim-gcp", "sim-vast"} or at >= start_us + apart_us):
                name, gpu, gpus, nano = rng.choice(shapes)
                rates.append(Rate(at_us=at, nano=nano))
                forms.append(Shape(at_us=at, type=name, gpu=gpu, gpus=gpus))
    elif cloud in {"sim-gcp", "sim-vast"}:
        at = max(one.created_us, start_us) + apart_us + rng.randrange(5 * DAY_US)
        while at < end_us:
            new_nano = int(rates[-1].nano * (rng.uniform(1.02, 1.6) if rng.random() < 0.7 else rng.uniform(0.5, 0.98)))  # noqa: PLR2004 - a draw
            rates.append(Rate(at_us=at, nano=min(new_nano, CEILING_NANO * max(1, gpus))))
            at += apart_us + rng.randrange(5 * DAY_US)
    return replace(one, tier=tier, rates=tuple(rates), shapes=tuple(forms))


def _draw_tags(rng: random.Random, one: Resource, end_us: int) -> tuple[Tag, ...]:
    """Return the owners over time; sometimes the owner changes."""
    tags = [replace(rng.choice(TAGS), at_us=one.created_us)]
    while rng.random() < 0.25 and end_us > one.created_us:  # noqa: PLR2004 - a draw
        at = tags[-1].at_us + int(rng.random() * (end_us - tags[-1].at_us))
        tags.append(replace(rng.choice(TAGS), at_us=max(at, tags[-1].at_us + 1)))
    return tuple(tags)


def _draw_traffic(rng: random.Random, one: Resource, end_us: int) -> Resource:
    """Return the resource with megabytes of traffic at random times while it runs."""
    lumps: list[tuple[int, int]] = []
    mb = 0
    for run in one.runs:
        stop = min(run.stop_us or end_us, end_us)
        length, count = stop - run.start_us, rng.randint(0, 6)
        if length > 0:
            lumps += [(run.start_us + rng.randrange(length), _draw_between(rng, 1, 500_000)) for _ in range(count)]
    counted = []
    for at, lump in sorted(lumps):
        mb += lump
        counted.append((at, mb))
    return replace(one, traffic=tuple(counted), traffic_nano=rng.randrange(1_000_000, 25_000_000))


def _draw_disks(rng: random.Random, cloud: str) -> tuple[Disk, ...]:
    gb = _draw_between(rng, 20, 1000)
    if cloud == "sim-lambda":
        return ()
    if cloud == "sim-runpod":
        return (Disk(gb=gb, type="container"), Disk(gb=gb // 2, type="volume"))[: rng.randint(1, 2)]
    nano = rng.randrange(20_000_000, 400_000_000) if cloud == "sim-vast" else None
    count = rng.choice((1, 1, 2)) if cloud != "sim-vast" else 1
    return tuple(Disk(gb=gb + 7 * i, type=DISKS[cloud], nano=nano) for i in range(count))


def _draw_boot_us(rng: random.Random, cloud: str, *, first: bool) -> int:
    """Return the microseconds in a pending or starting state before a run."""
    if cloud == "sim-aws":
        return rng.randrange(21) * SECOND_US if first else 0
    longest = {"sim-lambda": 600, "sim-vast": 300}.get(cloud, 0)
    return rng.randrange(1, longest * SECOND_US) if longest and first else 0


def _draw_stopping_us(rng: random.Random, cloud: str, length: int) -> int:
    """Return the microseconds in the state "stopping" at the end of a run, which are billed."""
    return min(rng.randrange(90 * SECOND_US), length // 2) if cloud == "sim-gcp" else 0


def _draw_pauses(rng: random.Random, cloud: str, start: int, stop: int) -> tuple[tuple[int, int], ...]:
    if cloud != "sim-vast" or rng.random() < 0.7:  # noqa: PLR2004 - a draw
        return ()
    a, b = sorted(start + rng.randrange(stop - start) for _ in range(2))
    return ((a, b),) if a < b else ()


def _draw_between(rng: random.Random, least: float, most: float) -> int:
    """Return a whole number from `least` to `most`, equally likely in each power of ten."""
    low = math.log(max(least, 0.5))
    return max(int(least), int(math.exp(low + rng.random() * max(0.0, math.log(max(most, least, 0.5)) - low))))


def _floor_to_second(cloud: str, us: int) -> int:
    """Return `us`, rounded down to the second on a cloud that acts on whole seconds."""
    return us // SECOND_US * SECOND_US if cloud == "sim-aws" else us
