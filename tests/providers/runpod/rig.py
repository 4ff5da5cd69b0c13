"""RunPod for the contract suite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costguard_runpod import RunpodPlugin
from costguard_sim.view import find_state
from costguard_sim.world import DAY_US, SIM_INSTANCE, Disk, Rate, Resource, Run, Shape, Tag, to_us

from tests.contract.rig import Rig
from tests.fakes.runpod import KEY, FakeRunpod, wire_id
from tests.fakes.server import FakeCloud

PATHS = {
    "price": ("cost",),
    "status": ("status",),
    "gpu": ("gpu", "id"),
    "gpu_count": ("gpu", "count"),
    "name": ("name",),
    "started": ("startedAt",),
    "owner": ("env", "COSTGUARD_OWNER"),
}
"""The suite's names for fields, as RunPod's wire has them."""


def plain(id_: str, now_us: int, **more: Any) -> Resource:  # noqa: ANN401 - fields of a resource
    """A pod that has run for a day on two L40S, which the fake's catalogue does not price."""
    begun = now_us - DAY_US
    made = {
        "name": f"train-{id_}",
        "kind": SIM_INSTANCE,
        "runs": (Run(start_us=begun),),
        "rates": (Rate(at_us=begun, nano=1_720_000_000),),
        "shapes": (Shape(at_us=begun, type="NVIDIA L40S", gpu="L40S", gpus=2),),
        "tags": (Tag(at_us=begun, owner="ana"),),
        "disks": (Disk(gb=50, type="container"), Disk(gb=20, type="volume")),
        **more,
    }
    return Resource(cloud="sim-runpod", account="main", scope="pods", region="EU-RO-1", id=id_, created_us=begun, **made)


class RunpodRig(Rig):
    """The fake's RunPod."""

    provider = "runpod"
    secret = KEY
    more_secrets = ("canary-jupyter-1234567890",)
    lists = r"GET /v2/pods(\?|$)"
    stops = r"POST /v2/pods/[^/]+/action"
    starts = r"POST /v2/pods/[^/]+/action"
    terminates = r"DELETE /v2/pods/"
    one = r"GET /v2/pods/."
    identity = (r"POST /graphql", "user_x1", "user_y2")
    fake: FakeRunpod

    def make_fake(self) -> FakeCloud:
        return FakeRunpod(self.clock)

    def put(self, count: int) -> list[str]:
        first = len(self.fake.resources)
        ids = [f"k3v9x2m{first + i:07}" for i in range(count)]
        self.fake.resources += [plain(id_, to_us(self.clock.now())) for id_ in ids]
        return ids

    def state_of(self, id: str) -> str:  # noqa: A002 - the ledger's word
        found = next(one for one in self.fake.resources if wire_id(one) == id)
        return find_state(found, to_us(self.clock.now())) or "ended"

    def let(self, id: str, state: str) -> None:  # noqa: A002
        self.fake.let(id, state)

    def spoil(self, id: str, **fields: Any) -> None:  # noqa: A002, ANN401
        spoilt = self.fake.manners.spoilt.setdefault(id, {})
        spoilt.update({PATHS[name]: value for name, value in fields.items()})

    def page(self, size: int) -> None:
        self.fake.size = size

    def environ(self) -> Mapping[str, str]:
        return {"RUNPOD_API_KEY": KEY}

    def table(self, base: str) -> Mapping[str, object]:
        return {"base_url": base, "requests_per_minute": 60_000}

    def plugin(self) -> RunpodPlugin:
        return RunpodPlugin()
