"""A day of each cloud on its fake: its adapter over real HTTP into a real ledger, held against the simulated world's own bill.

The bill shares nothing with costguard. What is charged must hold it, and be it to the micro-dollar where it is a point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from costguard_sim.bill import MONTH_HOURS, NANO, charge_resource, name_disks
from costguard_sim.plan import PlannedListing, WatchPlan
from costguard_sim.view import describe_as_listed, find_state, keep_knowable, list_shown_instants
from costguard_sim.world import (
    CEILING_NANO,
    DAY_US,
    SIM_INSTANCE,
    SIM_VOLUME,
    Rate,
    Resource,
    Run,
    Shape,
    World,
    from_us,
    make_world,
    to_us,
)

from costguard.data import ShippedFacts
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.providers.transport import TokenBucket
from costguard.services.poll.poll import poll_sources
from costguard.values.money import MoneyInterval
from tests.contract.rig import Rig
from tests.fakes import aws_ec2_xml, lambda_, runpod, vast
from tests.fakes.aws import FakeAws
from tests.fakes.gcp import FakeGCP, number_of
from tests.fakes.lambda_ import FakeLambda
from tests.providers.aws.rig import AwsRig
from tests.providers.gcp.rig import GcpRig
from tests.providers.lambda_.rig import LambdaRig
from tests.providers.runpod.rig import RunpodRig
from tests.providers.vast.rig import VastRig

START = datetime(2026, 11, 20, tzinfo=UTC)
MICRO = Fraction(1, 10**6)
AWS_RATES = {"g5.xlarge": "1.006", "p4d.24xlarge": "21.957642", "p5.48xlarge": "55.04", "c7i.4xlarge": "0.714"}
AWS_REGIONS = ("us-east-1", "eu-west-1")

Parts = Iterator[tuple[str, set[str]]]
"""A kind of charge, or a part of the bill, "" for all of it; and the ids under which the ledger holds it."""


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """How a cloud's day is played. `shown`: the world as it can be there. `fake`: it stands behind the rig.

    `parts`: of a resource. `as_told`: what of the world its listings tell; `lag_s`: in place of the rule's. `points`: figures
    without any doubt that there are at least.
    """

    name: str
    seed: int
    rig: Callable[[], Rig]
    fake: Callable[[Any, World], object]
    parts: Callable[[Any, Resource], Parts]
    shown: Callable[[World], World] = lambda world: world
    as_told: Callable[[World, WatchPlan], World] = lambda world, plan: describe_as_listed(keep_knowable(world, plan), plan)
    settings: Mapping[str, Any] = field(default_factory=dict)
    pace: timedelta = timedelta(minutes=5)
    lag_s: int | None = None
    points: int = 1


@dataclass(frozen=True, slots=True)
class Compared:
    """What was charged for a part of a resource until then, and what was billed, in dollars."""

    resource: str
    part: str
    until: datetime
    low: Fraction
    high: Fraction
    truth: Fraction
    pending: Fraction
    """What less than a GB of traffic costs: it is written down when it is a GB."""

    @property
    def is_point(self) -> bool:
        return self.low == self.high

    @property
    def is_right(self) -> bool:
        beside = MICRO if self.is_point else MICRO + self.pending
        return self.low - MICRO <= self.truth <= self.high + beside


def aws_parts(_rig: Rig, one: Resource) -> Parts:
    """A machine and its disks are billed apart."""
    own = aws_ec2_xml.wire_id(one.id)
    if one.kind != SIM_INSTANCE:
        yield "storage" if one.kind == SIM_VOLUME else "address", {own}
        return
    yield "compute", {own}
    yield "storage", {aws_ec2_xml.disk_id(one.id, n) for n, _ in enumerate(one.disks)}


def gcp_parts(_rig: Rig, one: Resource) -> Parts:
    """A machine and each of its disks."""
    if one.kind == SIM_INSTANCE:
        yield "compute", {number_of(one.id)}
    for n, (part, _) in enumerate(name_disks(one.disks)):
        yield part, {number_of(one.id if one.kind != SIM_INSTANCE else f"{one.id}/{n}")}


def aws_fake(rig: Any, world: World) -> None:  # noqa: ANN401 - an AwsRig
    rig.fake = FakeAws(rig.clock, list(world.resources))
    for (kind, rate), region in ((item, region) for item in AWS_RATES.items() for region in AWS_REGIONS):
        rig.fake.pricing.rates.setdefault((kind, region), Decimal(rate))


def lambda_fake(rig: Any, world: World, *, log: bool) -> None:  # noqa: ANN401 - a LambdaRig
    rig.fake = FakeLambda(rig.clock, resources=list(world.resources))
    rig.fake.log = log


def put(make: Callable[..., object]) -> Callable[[Any, World], object]:
    """The rig's fake made of the world's resources."""

    def stand(rig: Any, world: World) -> None:  # noqa: ANN401 - a Rig
        rig.fake = make(rig.clock, resources=list(world.resources))

    return stand


def each(change: Callable[[int, Resource], Resource]) -> Callable[[World], World]:
    return lambda world: replace(world, resources=tuple(change(n, one) for n, one in enumerate(world.resources)))


def below_a_terabyte(_: int, one: Resource) -> Resource:
    """RunPod's network volumes above 1 TB cost less, and the simulated cloud's do not: none is larger."""
    return replace(one, disks=tuple(replace(disk, gb=min(disk.gb, 1000)) for disk in one.disks))


def as_runpod_tells(world: World, plan: WatchPlan) -> World:
    """RunPod never says when a network volume was made: one that is there at the first look counts from then."""
    told = describe_as_listed(keep_knowable(world, plan), plan)
    since = world.start_us
    return each(lambda _, r: r if r.kind == SIM_INSTANCE else replace(r, created_us=max(r.created_us, since)))(told)


def with_steady(world: World) -> World:
    """And what is the same all day long at Vast: a machine, a frozen and a stopped one, a volume.

    Vast states no start, so what ran before it was first seen is from nothing to all: these begin when the watch does.
    """
    begun = to_us(START)
    usual: dict[str, Any] = {"created_us": begun, "rates": (Rate(at_us=begun, nano=401_851_853),)}
    shapes = (Shape(at_us=begun, type="1x RTX 4090", gpu="RTX-4090", gpus=1),)
    runs = Run(start_us=begun), Run(start_us=begun, pauses=((begun, begun + 10 * DAY_US),)), Run(start_us=begun, stop_us=begun)
    machines = (vast.machine(9000 + n, **usual, shapes=shapes, runs=(run,)) for n, run in enumerate(runs))
    steady = (*machines, vast.volume(8000, gb=333, nano=123_456_789, created_us=begun - 3 * DAY_US))
    return replace(world, resources=(*world.resources, *steady))


AWS = Cloud(
    name="sim-aws",
    seed=5,
    rig=AwsRig,
    fake=aws_fake,
    parts=aws_parts,
    settings={"regions": list(AWS_REGIONS)},
    pace=timedelta(minutes=15),
)
GCP = Cloud(
    name="sim-gcp",
    seed=1,
    rig=GcpRig,
    fake=lambda rig, world: setattr(rig, "fake", FakeGCP(rig.clock, list(world.resources))),
    parts=gcp_parts,
    shown=each(lambda n, one: replace(one, region=f"us-central1x{n}-a")),  # each with a price of its own
    settings={"projects": ["acme-lab", "acme-prod"]},
)
RUNPOD = Cloud(
    name="sim-runpod",
    seed=3,
    rig=RunpodRig,
    fake=put(runpod.FakeRunpod),
    parts=lambda _, one: iter([("", {runpod.wire_id(one)})]),
    shown=each(below_a_terabyte),
    as_told=as_runpod_tells,
)
LAMBDA = Cloud(
    name="sim-lambda",
    seed=15,
    rig=LambdaRig,
    fake=lambda rig, world: lambda_fake(rig, world, log=True),
    parts=lambda _, one: iter([("", {lambda_.wire_id(one.id)})]),
    as_told=keep_knowable,
    points=0,  # with a bound from the audit log, every start is an interval
)
VAST = Cloud(
    name="sim-vast",
    seed=5,
    rig=VastRig,
    fake=put(vast.FakeVast),
    parts=lambda rig, one: iter([("", {rig.fake.id_of(one)})]),
    shown=with_steady,
    settings={"traffic_unit": "MB"},
    lag_s=0,
    points=4,
)
DAYS = {
    "aws": AWS,
    "aws, another": replace(AWS, seed=2),
    "gcp": GCP,
    "gcp, another": replace(GCP, seed=2),
    "runpod": RUNPOD,
    "runpod, another": replace(RUNPOD, seed=6),
    "lambda": LAMBDA,
    "lambda without its log": replace(
        LAMBDA, fake=lambda rig, world: lambda_fake(rig, world, log=False), as_told=Cloud.as_told, points=1
    ),
    "vast": VAST,
    "vast, another, whose listing lags": replace(VAST, seed=2, lag_s=None, points=0),
}
QUICK = ("aws", "vast")


def play(cloud: Cloud, folder: Path) -> list[Compared]:
    """The day, polled at its pace, and all that it came to: at its end, and before that where nothing happened since."""
    world = cloud.shown(make_world(cloud.seed, start=START, days=1, size=8, clouds=(cloud.name,)))
    step = round(cloud.pace / timedelta(microseconds=1))
    looks = range(world.start_us, world.end_us + 1, step)
    scopes = sorted({(one.cloud, one.account, one.scope) for one in world.resources})
    entries = (PlannedListing(scope=scope, at_us=us, asked_us=us, view_us=us) for us in looks for scope in scopes)
    plan = WatchPlan(seed=cloud.seed, entries=tuple(entries))
    rig, rules = cloud.rig(), ShippedFacts().get_billing_rules()
    cloud.fake(rig, world if cloud.name in ("sim-vast", "sim-lambda") else keep_knowable(world, plan))
    if cloud.lag_s is not None:
        rules = {**rules, rig.provider: replace(rules[rig.provider], lag_s=cloud.lag_s)}
    ceilings = {shape.gpu: CEILING_NANO for one in world.resources for shape in one.shapes}
    url = f"sqlite:///{folder}/ledger.db"
    with rig.opened(folder, **cloud.settings) as source, LedgerWriter(url, rules=rules, ceilings=ceilings) as ledger:
        if isinstance(rig, GcpRig):
            vars(source)["catalogue"].keep = timedelta(0)
        for us in looks:
            rig.clock.at = from_us(us)
            polled = poll_sources([source], ledger, rig.clock)
            assert not polled.unseen, polled.unseen
    told = [one for one in cloud.as_told(world, plan).resources if is_told(one, plan)]
    ends = (world.end_us, world.end_us - step)  # what still runs is settled at the last look but one: the last one may lag
    with SpendingReader(url, rules=rules) as books:
        spent = {us: {one.key.id: one.money for one in books.spent(from_us(us))} for us in ends}
    calm = [one for one in told if not any(ends[1] < us <= ends[0] for us in list_moments(one))]
    both = ((ends[0], told), (ends[1], calm))
    return [found for us, there in both for one in there for found in compare(cloud.parts(rig, one), one, us, spent[us])]


def is_told(one: Resource, plan: WatchPlan) -> bool:
    """Whether some look found more of it than a beginning or an end: what came and went between two looks is not listed."""
    return any(find_state(one, us) not in ("starting", "pending", "ended") for us in list_shown_instants(one, plan))


def list_moments(one: Resource) -> list[int]:
    """When anything happened to it."""
    edges = [us for run in one.runs for us in (run.start_us, run.stop_us)]
    return [us for us in (one.created_us, one.ended_us, *edges) if us is not None]


def compare(parts: Parts, one: Resource, until_us: int, spent: Mapping[str, MoneyInterval]) -> Iterator[Compared]:
    """Each part of a resource; what nobody charged and nobody billed is left out."""
    lines = charge_resource(one, 0, until_us)
    for part, ids in parts:
        truth = sum((line.amount for line in lines if part in ("", line.charge, line.part)), Fraction(0))
        ours = [spent[id_] for id_ in ids if id_ in spent]
        low, high = (Fraction(sum(nanos), NANO) for nanos in ([m.low.nano for m in ours], [m.high.nano for m in ours]))
        if ours or truth:
            yield Compared(one.id, part, from_us(until_us), low, high, truth, Fraction(one.traffic_nano, NANO))


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.proof) for name in DAYS])
def test_a_day_is_charged_as_the_cloud_bills_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenBucket, "acquire", lambda *_, **__: True)  # the pace is the world's, not this machine's
    monkeypatch.setitem(MONTH_HOURS, "sim-gcp", 721)  # of the day's month in Los Angeles; as in the published records of Google
    compared = play(DAYS[name], tmp_path)
    assert len(compared) >= 8
    assert [one for one in compared if not one.is_right] == []
    assert sum(one.is_point for one in compared) >= DAYS[name].points
