"""CoreWeave for the contract suite, and for the tests beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from costguard_coreweave import CoreWeavePlugin
from costguard_sim.world import SECOND_US, SIM_INSTANCE, Resource, Run, Shape, Tag, to_us

from tests.contract.rig import Rig
from tests.fakes.coreweave import KEY, ZONE, Cluster, FakeCoreWeave, is_there
from tests.fakes.server import FakeCloud

HOUR_US = 3600 * SECOND_US
FIELDS: Mapping[str, tuple[str | int, ...]] = {
    "status": ("status", "conditions", 1, "status"),
    "gpu": ("metadata", "labels", "node.kubernetes.io/instance-type"),
    "gpu_count": ("status", "capacity", "nvidia.com/gpu"),
    "name": ("metadata", "name"),
    "started": ("metadata", "creationTimestamp"),
    "owner": ("metadata", "labels", "owner"),
}
"""Neutral name -> where a node has it. CoreWeave states no price."""


class CoreWeaveRig(Rig):
    """The cloud that neither stops nor ends one machine."""

    provider: ClassVar[str] = "coreweave"
    secret: ClassVar[str] = KEY
    lists: ClassVar[str] = r"^GET /k8s/[^/]+/api/v1/nodes($|\?)"
    one: ClassVar[str] = lists
    stops: ClassVar[str | None] = None
    terminates: ClassVar[str] = ""

    fake: FakeCoreWeave

    def make_fake(self) -> FakeCloud:
        return FakeCoreWeave(self.clock)

    def put(self, count: int) -> list[str]:
        first = len(self.fake.resources)
        born = to_us(self.clock.now()) - HOUR_US
        made = [node(f"{number:08x}-7b1e-4c55-9d2f-a0c1f2e3d4b5", born) for number in range(first, first + count)]
        self.fake.resources += made
        return [one.id for one in made]

    def state_of(self, id: str) -> str:  # noqa: A002 - the ledger's word
        now = to_us(self.clock.now())
        return "running" if any(one.id == id and is_there(one, now) for one in self.fake.resources) else "ended"

    def let(self, id: str, state: str) -> None:  # noqa: A002 - the ledger's word
        if state != "running":
            self.fake.end(id)

    def spoil(self, id: str, **fields: Any) -> None:  # noqa: A002, ANN401 - as the wire has them
        edits = [(FIELDS[name], value) for name, value in fields.items() if name in FIELDS]
        self.fake.spoilt.setdefault(id, []).extend(edits)

    def page(self, size: int) -> None:
        self.fake.page = size

    def environ(self) -> Mapping[str, str]:
        return {"COREWEAVE_API_TOKEN": KEY}

    def table(self, base: str) -> Mapping[str, object]:
        return {"base_url": base}

    def plugin(self) -> CoreWeavePlugin:
        return CoreWeavePlugin()

    def two_scopes(self) -> tuple[Mapping[str, object], str] | None:
        self.fake.clusters = [Cluster("c-0001", "research"), Cluster("c-0002", "serving")]
        return {}, r"^GET /k8s/c-0001/api/v1/nodes"


def node(
    uid: str, born_us: int, *, kind: str = "gd-8xh100ib-i128", gpus: int = 8, pool: str = "train", boot_us: int = 0
) -> Resource:
    """A node that joined at `born_us` and has been ready since `boot_us` later."""
    return Resource(
        cloud="sim-coreweave",
        account="main",
        scope="c-0001",
        region=ZONE,
        id=uid,
        name=f"g{uid[:8]}",
        kind=SIM_INSTANCE,
        created_us=born_us,
        runs=(Run(start_us=born_us + boot_us, boot_us=boot_us),),
        shapes=(Shape(at_us=born_us, type=kind, gpu="H100-SXM", gpus=gpus),),
        tags=(Tag(at_us=born_us, owner="alice", labels=(("pool", pool),)),),
    )
