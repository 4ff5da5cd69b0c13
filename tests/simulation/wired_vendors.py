"""The five vendors of a wired world: how a machine of it stands on each one's fake, and which of its requests is what.

A machine is the same plain truth everywhere (`costguard.testing.machine`): when it ran, what it measured, how it was labelled.
Here it becomes a resource of a fake, as it is at one moment.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

from costguard_gcp.machine_types import find_shape as gcp_machine
from costguard_sim.world import SIM_INSTANCE, Rate, Resource, Run, Shape, Tag, to_us

from costguard.testing.machine import SimulatedMachine
from costguard.values.resource import ENDED, RUNNING, ResourceKey
from costguard.values.sample import CPU_UTIL, GPU_UTIL, NETWORK
from tests.contract.rig import Rig
from tests.fakes.aws import ACCOUNT
from tests.fakes.gcp import FakeGCP, number_of
from tests.fakes.gcp_prices import SSD_MONTH_NANO, Listed, parted
from tests.fakes.runpod import FakeRunpod
from tests.fakes.server import Answer, Asked, Hands
from tests.fakes.vast import USER
from tests.providers.aws.rig import AwsRig
from tests.providers.gcp.rig import GcpRig
from tests.providers.lambda_.rig import LambdaRig
from tests.providers.runpod.rig import RunpodRig
from tests.providers.vast.rig import VastRig

if TYPE_CHECKING:
    from tests.simulation.wired_clouds import WiredCloud

MINUTE, BUCKET = timedelta(minutes=1), timedelta(minutes=5)
LIST, LOOK, STOP, END, MEASURE, PRICE, BESIDE, OTHER = "list", "look", "stop", "end", "measure", "price", "beside", "other"
PAGE = 3
"""Machines a page, so that a handful has several; EC2's least is five for who asks."""


class Vendor(ABC):
    """One vendor. `lag`: how late its measures may be. `labels`: whether it has any. `starts`: whether it says when runs start.

    `redated`: whether a price changes where costguard sees it within a poll. `off_least`: seconds that a machine stays off.
    """

    name: ClassVar[str]
    port: ClassVar[int]
    lag: ClassVar[timedelta] = timedelta()
    stops: ClassVar[bool] = True
    labels: ClassVar[bool] = True
    starts: ClassVar[bool] = True
    redated: ClassVar[bool] = False
    off_least: ClassVar[int] = 1
    beside: ClassVar[str] = "^$"
    measured: ClassVar[str] = "^$"
    valueless: ClassVar[str] = "^$"
    """What is asked about measures, and answered without any."""
    prices: ClassVar[str] = "^$"
    types: ClassVar[Mapping[str, tuple[str, int]]]
    """Dollars an hour -> its type of that price, and how many GPUs that has."""

    def __init__(self) -> None:
        self.rig = self.rigged()
        self.fake: Any = self.rig.fake
        self.came: dict[str, str] = {}
        """What each machine cost when it came, in dollars, which says its type."""
        self.costs: dict[str, list[tuple[datetime, int]]] = {}
        """What each truly costs since when, in nano-units an hour."""

    @abstractmethod
    def rigged(self) -> Rig:
        """The vendor's rig of the contract suite, which knows its settings and its requests."""

    def table(self) -> Mapping[str, Any]:
        """Settings beside the rig's own."""
        return {}

    @abstractmethod
    def key(self, number: int) -> ResourceKey:
        """What costguard knows the machine of that number by."""

    def resource(self, number: int, machine: SimulatedMachine, at: datetime, labels: Mapping[str, str]) -> Resource:
        """The machine as it is at `at`."""
        kind, gpus = self.types[self.came[machine.name]]
        born = to_us(machine.created_at)
        pairs = tuple(sorted({**labels, "project": labels.get("arm", "")}.items()))
        return Resource(
            cloud=f"sim-{self.name}",
            account="main",
            scope="all",
            region="",
            id=self.key(number).id,
            name=machine.name,
            kind=SIM_INSTANCE,
            created_us=born,
            ended_us=next((to_us(one.at) for one in machine.turns if one.state == ENDED), None),
            runs=tuple(_runs(machine)),
            rates=(Rate(at_us=born, nano=self.nano(machine, at)),),
            shapes=(Shape(at_us=born, type=kind, gpu="H100-SXM", gpus=gpus),),
            tags=(Tag(at_us=born, owner="ada", labels=tuple(pair for pair in pairs if pair[1])),),
        )

    def nano(self, machine: SimulatedMachine, at: datetime) -> int:
        """What it costs at `at`, in nano-units an hour."""
        return next(nano for since, nano in reversed(self.costs[machine.name]) if since <= at)

    def priced(self, dollars: str) -> int:
        """What this vendor truly takes for a machine of `dollars` an hour."""
        return round(Fraction(dollars) * 10**9)

    def put(self, cloud: WiredCloud, number: int, machine: SimulatedMachine, guard: str) -> None:
        """What the fake must know beside its resource: nothing, mostly."""
        del cloud, number, machine, guard

    def show(self, cloud: WiredCloud, number: int, machine: SimulatedMachine, at: datetime) -> None:
        """What the fake tells of it that is not in its resource, as it is at `at`: nothing, mostly."""
        del cloud, number, machine, at

    def line(self, asked: Asked) -> str:
        """What the rig's patterns match."""
        return asked.line

    def kind(self, line: str) -> str:
        """What a request is: of LIST and the others."""
        rig = self.rig
        patterns = (
            (LOOK, rig.one),
            (STOP, rig.stops or "^$"),
            (END, rig.terminates),
            (LIST, rig.lists),
            (MEASURE, self.measured),
            (PRICE, self.prices),
            (BESIDE, self.beside),
        )
        return next((kind for kind, pattern in patterns if re.search(pattern, line)), OTHER)

    def continues(self, line: str) -> bool:
        """Whether a request for a list asks for a page after the first."""
        return bool(re.search(r"[?&](after_token|cursor|pageToken|NextToken)=[^&]", line))

    def more(self, answer: Answer) -> bool:
        """Whether an answer says that more pages follow."""
        return bool(
            re.search(rb'<nextToken>|"next(Page)?_?[tT]oken": "|"hasNextPage": true', answer.body),
        )

    def asked_of(self, asked: Asked, machines: Mapping[str, ResourceKey]) -> str:
        """The name of the machine that a request is about; "" where it is about none."""
        text = f"{asked.line} {asked.body.decode('latin-1')}"
        return next((name for name, key in machines.items() if key.id in text), "")


class Aws(Vendor):
    """EC2 in one region, with CloudWatch and the agent on every machine that measures anything."""

    name, port, lag = "aws", 9001, timedelta(minutes=15)
    beside = r"/(DescribeVolumes|DescribeAddresses)\?"
    measured = r"GetMetricData|ListMetrics"
    valueless = r"ListMetrics"
    prices = r"GetProducts"
    types: ClassVar = {"2.99": ("g5.xlarge", 1), "11.96": ("p4d.24xlarge", 8), "32.77": ("p5.48xlarge", 8)}

    def rigged(self) -> Rig:
        rig = AwsRig()
        rig.fake.ec2.page = PAGE
        rig.fake.pricing.rates = {(kind, "us-east-1"): Decimal(dollars) for dollars, (kind, _) in self.types.items()}
        return rig

    def key(self, number: int) -> ResourceKey:
        return ResourceKey("aws", ACCOUNT, "us-east-1", f"i-{number + 0xC057:017x}")

    def resource(self, number: int, machine: SimulatedMachine, at: datetime, labels: Mapping[str, str]) -> Resource:
        made = super().resource(number, machine, at, labels)
        return replace(made, account=ACCOUNT, scope="us-east-1", region="us-east-1")

    def line(self, asked: Asked) -> str:
        return str(self.fake.named(asked))

    def put(self, cloud: WiredCloud, number: int, machine: SimulatedMachine, guard: str) -> None:
        id_ = self.key(number).id
        if guard == "controller":
            self.fake.ec2.tags[id_] = {"aws:autoscaling:groupName": "train"}
        if guard == "handling":
            self.fake.ec2.protected.add((id_, "disableApiStop"))
        if guard == "unstoppable":
            self.fake.ec2.more[id_] = {"rootDeviceType": "instance-store"}
        for index in range(self.types[self.came[machine.name]][1]):
            self.fake.cloudwatch.gpu(id_, index, lambda at: cloud.bucket(machine, at))

    def continues(self, line: str) -> bool:
        return bool(re.search(r"[?&]NextToken=", line))


class Gcp(Vendor):
    """Compute Engine in one project, with the Ops Agent."""

    name, port, lag = "gcp", 9002, timedelta(minutes=6)
    beside = r"aggregated/(disks|addresses)"
    measured = r"/timeSeries"
    prices = r"/skus"
    types: ClassVar = {"2.99": ("g2-standard-8", 1), "11.96": ("a2-highgpu-1g", 1), "32.77": ("a3-highgpu-8g", 8)}
    """Of three families, as the machines of one share the prices of their parts."""

    def rigged(self) -> Rig:
        rig = GcpRig()
        rig.fake = _MeasuredGcp(rig.clock)
        rig.fake.prices = [
            Listed(kind, "us-central1", "on-demand", super(Gcp, self).priced(dollars))
            for dollars, (kind, _) in self.types.items()
        ]
        rig.page(PAGE)
        return rig

    def key(self, number: int) -> ResourceKey:
        return ResourceKey("gcp", "acme-lab", "us-central1-a", number_of(f"b{number}"))

    def resource(self, number: int, machine: SimulatedMachine, at: datetime, labels: Mapping[str, str]) -> Resource:
        made = super().resource(number, machine, at, labels)
        return replace(made, account="acme", scope="lab", region="us-central1-a", id=machine.name)

    def priced(self, dollars: str) -> int:
        """What the parts of the price list come to."""
        shape = gcp_machine(self.types[dollars][0])
        assert shape is not None
        core, ram, gpu = parted(super().priced(dollars), shape)
        parts = Fraction(shape.vcpus) * core + Fraction(shape.ram_gib) * ram + Fraction(shape.gpus) * gpu
        return round(parts + Fraction(shape.ssd_gib * SSD_MONTH_NANO, 730))

    def asked_of(self, asked: Asked, machines: Mapping[str, ResourceKey]) -> str:
        named = re.search(r"/instances/([^/?]+)", asked.path)
        return named[1] if named and named[1] in machines else super().asked_of(asked, machines)

    def put(self, cloud: WiredCloud, number: int, machine: SimulatedMachine, guard: str) -> None:
        del number, machine, guard
        self.fake.cloud = cloud


class _MeasuredGcp(FakeGCP):
    """With a point for each minute that a machine measured, up to four minutes ago."""

    cloud: WiredCloud

    def series(self, asked: Asked, _project: str) -> Answer:
        metric = re.search(r'metric\.type="([^"]+)"', asked.one("filter"))
        signal = {
            "compute.googleapis.com/instance/cpu/utilization": CPU_UTIL,
            "agent.googleapis.com/gpu/utilization": GPU_UTIL,
            "compute.googleapis.com/instance/network/received_bytes_count": NETWORK,
            "compute.googleapis.com/instance/network/sent_bytes_count": NETWORK,
        }.get(metric[1] if metric else "")
        start, end = (datetime.fromisoformat(asked.one(f"interval.{one}Time")).astimezone(UTC) for one in ("start", "end"))
        made = []
        for name, machine in self.cloud.machines.items():
            points = [
                {"interval": {"startTime": _z(at), "endTime": _z(at)}, "value": {"doubleValue": value}}
                for at, value in self.cloud.minutes(machine, signal or "", start, end)
            ]
            if points:
                labels = {"instance_id": self.cloud.keys[name].id}
                told: dict[str, Any] = {"type": metric[1] if metric else "", "labels": {}}
                made.append({"metric": told, "resource": {"type": "gce_instance", "labels": labels}, "points": points[::-1]})
        return Answer.of({"timeSeries": made, "unit": "1"} if made else {})


class Runpod(Vendor):
    """Pods, which measure themselves and have no labels but owner and project."""

    name, port, labels, redated, off_least = "runpod", 9003, False, True, 90
    beside = r"GET /v2/network-volumes"
    prices = r"GET /v2/catalog"
    types: ClassVar = dict.fromkeys(("2.99", "11.96", "32.77"), ("NVIDIA H100 80GB HBM3", 8))

    def rigged(self) -> Rig:
        rig = RunpodRig()
        rig.fake = _MeasuredRunpod(rig.clock)
        rig.page(PAGE)
        return rig

    def table(self) -> Mapping[str, Any]:
        return {"requests_per_minute": 60}

    def key(self, number: int) -> ResourceKey:
        return ResourceKey("runpod", "default", "global", f"k3v9x2m{number:07}")

    def put(self, cloud: WiredCloud, number: int, machine: SimulatedMachine, guard: str) -> None:
        del cloud, machine
        id_ = self.key(number).id
        if guard == "controller":
            self.fake.manners.cluster[id_] = "c-1"
        if guard == "handling":
            self.fake.manners.locked.add(id_)

    def show(self, cloud: WiredCloud, number: int, machine: SimulatedMachine, at: datetime) -> None:
        id_ = self.key(number).id
        duty, cpu = cloud.value(machine, GPU_UTIL, at), cloud.value(machine, CPU_UTIL, at)
        gpus = [{"util": 0 if index else duty, "memoryUtil": 10} for index in range(self.types[self.came[machine.name]][1])]
        self.fake.told[id_] = {"gpus": gpus, "cpu": {"util": cpu}}
        self.fake.manners.spoilt[id_] = {("disk",): None}


class _MeasuredRunpod(FakeRunpod):
    """With what its pods measure: `told`, by id."""

    def __init__(self, clock: Hands | None = None) -> None:
        super().__init__(clock)
        self.told: dict[str, dict[str, Any]] = {}

    def _runtime(self, resource: Resource, id_: str, now: int) -> dict[str, Any]:
        return {**super()._runtime(resource, id_, now), **self.told.get(id_, {})}


class Lambda(Vendor):
    """Lambda Cloud, which can only end machines, and measures nothing."""

    name, port, stops, starts, redated = "lambda", 9004, False, False, True
    beside = r"GET /api/v1/file-systems"
    types: ClassVar = {"2.99": ("gpu_1x_h100_pcie", 1), "11.96": ("gpu_8x_a100", 8), "32.77": ("gpu_8x_h100_sxm5", 8)}

    def rigged(self) -> Rig:
        return LambdaRig()

    def key(self, number: int) -> ResourceKey:
        return ResourceKey("lambda", "default", "us-west-1", sha256(f"b{number}".encode()).hexdigest()[:32])

    def resource(self, number: int, machine: SimulatedMachine, at: datetime, labels: Mapping[str, str]) -> Resource:
        return replace(super().resource(number, machine, at, labels), region="us-west-1")


class Vast(Vendor):
    """Contracts of one user, at Vast's own pace; their labels are one text, and no start of a run is told."""

    name, port, starts, redated, off_least = "vast", 9005, False, True, 600
    beside = r"GET /api/v0/volumes/"
    types: ClassVar = {"2.99": ("RTX 4090", 2), "11.96": ("A100 SXM4", 8), "32.77": ("A100 SXM4", 8)}

    def rigged(self) -> Rig:
        rig = VastRig()
        rig.page(PAGE)
        return rig

    def key(self, number: int) -> ResourceKey:
        return ResourceKey("vast", str(USER), "global", str(24_815_000 + number))

    def show(self, cloud: WiredCloud, number: int, machine: SimulatedMachine, at: datetime) -> None:
        duty, cpu = cloud.value(machine, GPU_UTIL, at), cloud.value(machine, CPU_UTIL, at)
        heat = None if duty is None else 64.0 if duty > 5 else 35.0
        self.fake.extra[self.key(number).id] = {"gpu_util": duty, "gpu_temp": heat, "cpu_util": -1.0 if cpu is None else cpu}


VENDORS: Mapping[str, type[Vendor]] = {one.name: one for one in (Aws, Gcp, Runpod, Lambda, Vast)}


def _runs(machine: SimulatedMachine) -> Iterator[Run]:
    """From each start to its stop; a start while it runs ends the run before."""
    start: int | None = None
    for one in machine.turns:
        at = to_us(one.at)
        if start is not None:
            yield Run(start_us=start, stop_us=at)
            start = None
        if one.state == RUNNING:
            start = to_us(one.started_at) if one.started_at else at
    if start is not None:
        yield Run(start_us=start)


def _z(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def numbered(names: Sequence[str]) -> dict[str, int]:
    """The number of each machine: that in its name."""
    return {name: int(re.sub(r"\D", "", name)) for name in names}
