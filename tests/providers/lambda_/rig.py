"""Lambda for the contract suite, and for the tests beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from costguard_lambda import LambdaPlugin
from costguard_sim.world import SECOND_US, SIM_INSTANCE, Rate, Resource, Run, Shape, Tag, to_us

from tests.contract.rig import Rig
from tests.fakes.lambda_ import JUPYTER, KEY, OWNER, TERMINATING_US, FakeLambda, wire_id
from tests.fakes.server import FakeCloud

HOUR_US = 3600 * SECOND_US
FIELDS = {
    "price": "instance_type.price_cents_per_hour",
    "status": "status",
    "gpu": "instance_type.gpu_description",
    "gpu_count": "instance_type.specs.gpus",
    "name": "name",
}
"""Neutral name -> where Lambda has it. It states no start, and its prices in cents."""


class LambdaRig(Rig):
    """The cloud that cannot stop."""

    provider: ClassVar[str] = "lambda"
    secret: ClassVar[str] = KEY
    more_secrets: ClassVar[tuple[str, ...]] = (JUPYTER,)
    lists: ClassVar[str] = r"^GET /api/v1/instances($|\?)"
    paged: ClassVar[bool] = False
    stops: ClassVar[str | None] = None
    terminates: ClassVar[str] = r"^POST /api/v1/instance-operations/terminate$"
    one: ClassVar[str] = r"^GET /api/v1/instances/"
    identity = (r"^GET /api/v1/audit-events", OWNER, f"{OWNER}2")

    fake: FakeLambda

    def make_fake(self) -> FakeCloud:
        return FakeLambda(self.clock)

    def put(self, count: int) -> list[str]:
        first = len(self.fake.resources)
        made = [
            machine(f"i-{number:05d}", start_us=to_us(self.clock.now()) - HOUR_US) for number in range(first, first + count)
        ]
        self.fake.resources += made
        return [wire_id(one.id) for one in made]

    def state_of(self, id: str) -> str:  # noqa: A002 - the ledger's word
        found = self.fake.found(id)
        return "running" if found and self.fake.status(found) in ("active", "booting") else "ended"

    def let(self, id: str, state: str) -> None:  # noqa: A002 - the ledger's word
        if state != "running":
            self.fake.end(id, ago_us=TERMINATING_US)

    def spoil(self, id: str, **fields: Any) -> None:  # noqa: A002, ANN401 - as the wire has them
        edits = self.fake.spoilt.setdefault(wire_id(id), [])
        for name, value in fields.items():
            if name == "owner":
                edits.append(("tags", value if value is None or value is ... else [{"key": "owner", "value": value}]))
            elif name != "started":
                cents = name == "price" and isinstance(value, int | float) and not isinstance(value, bool)
                edits.append((FIELDS.get(name, name), value * 100 if cents else value))

    def page(self, size: int) -> None:
        self.fake.log_page = size

    def environ(self) -> Mapping[str, str]:
        return {"LAMBDA_API_KEY": KEY}

    def table(self, base: str) -> Mapping[str, object]:
        return {"base_url": f"{base}/api/v1"}

    def plugin(self) -> LambdaPlugin:
        return LambdaPlugin(per_s=1000.0, pause_s=0.01)


def machine(id_: str, *, start_us: int, boot_us: int = 60 * SECOND_US, kind: str = "gpu_1x_a10", cents: int = 129) -> Resource:
    """A machine that is at work since `start_us`, after booting."""
    born = start_us - boot_us
    return Resource(
        cloud="sim-lambda",
        account="main",
        scope="cloud",
        region="us-west-1",
        id=id_,
        name=f"train-{id_}",
        kind=SIM_INSTANCE,
        created_us=born,
        runs=(Run(start_us=start_us, boot_us=boot_us),),
        rates=(Rate(at_us=born, nano=cents * 10**7),),
        shapes=(Shape(at_us=born, type=kind, gpu="A10", gpus=1),),
        tags=(Tag(at_us=born, owner="alice", labels=(("project", "llm"),)),),
    )
