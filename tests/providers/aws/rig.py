"""AWS for the contract suite, and for the tests beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar

from costguard_aws import AwsPlugin
from costguard_sim.world import SECOND_US, SIM_INSTANCE, Disk, Rate, Resource, Run, Shape, Tag, to_us

from tests.contract.rig import Rig
from tests.fakes.aws import ACCOUNT, KEY_ID, OTHER_ACCOUNT, ROLE_SECRET, ROLE_TOKEN, SECRET, FakeAws
from tests.fakes.aws_ec2_xml import wire_id

HOUR_US = 3600 * SECOND_US
ELEMENTS = {"status": "instanceState", "started": "launchTime"}
"""Neutral name -> the element of an instance. Its price is in the Price List, its GPUs are its type's."""


class AwsRig(Rig):
    """One key, one account, one region."""

    cap = None
    provider: ClassVar[str] = "aws"
    secret: ClassVar[str] = SECRET
    more_secrets: ClassVar[tuple[str, ...]] = (ROLE_SECRET, ROLE_TOKEN)
    lists: ClassVar[str] = r"/ec2/us-east-1/DescribeInstances\?(?!.*Filter\.)"
    one: ClassVar[str] = r"/ec2/us-east-1/DescribeInstances\?.*Filter\."
    identity = (r"GetCallerIdentity", ACCOUNT, OTHER_ACCOUNT)
    stops: ClassVar[str | None] = r"/StopInstances\?(?!.*DryRun)"
    starts: ClassVar[str | None] = r"/StartInstances\?(?!.*DryRun)"
    terminates: ClassVar[str] = r"/TerminateInstances\?(?!.*DryRun)"

    fake: FakeAws

    def make_fake(self) -> FakeAws:
        fake = FakeAws(self.clock)
        fake.pricing.rates["g5.xlarge", "us-east-1"] = Decimal("1.006")
        return fake

    def put(self, count: int) -> list[str]:
        first, now = len(self.fake.resources), to_us(self.clock.now())
        made = [machine(number, start_us=now - HOUR_US) for number in range(first, first + count)]
        self.fake.resources.extend(made)
        return [wire_id(one.id) for one in made]

    def state_of(self, id: str) -> str:  # noqa: A002 - the ledger's word
        found = self.fake.ec2.found(id)
        if found is None or found.ended_us is not None:
            return "ended"
        return "running" if found.runs[-1].stop_us is None else "stopped"

    def let(self, id: str, state: str) -> None:  # noqa: A002 - the ledger's word
        now = to_us(self.clock.now())
        if state == "running":
            self.fake.ec2.change(id, runs=(Run(start_us=now),), ended_us=None)
            return
        self.fake.ec2.end_run(id, now)
        if state == "ended":
            self.fake.ec2.change(id, ended_us=now)

    def spoil(self, id: str, **fields: Any) -> None:  # noqa: A002, ANN401 - as the wire has them
        for name, value in fields.items():
            if name in ("name", "owner"):
                self.fake.ec2.tags.setdefault(id, {})["Name" if name == "name" else name] = value
            elif name not in ("price", "gpu", "gpu_count"):
                self.fake.ec2.more.setdefault(id, {})[ELEMENTS.get(name, name)] = value

    def page(self, size: int) -> None:
        self.fake.ec2.page = size

    def environ(self) -> Mapping[str, str]:
        return {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}

    def table(self, base: str) -> Mapping[str, object]:
        return {"endpoint_url": base, "regions": ["us-east-1"], "accounts": [ACCOUNT]}

    def plugin(self) -> AwsPlugin:
        return AwsPlugin()

    def two_scopes(self) -> tuple[Mapping[str, object], str]:
        return {"regions": ["us-east-1", "eu-west-1"]}, self.lists


def machine(number: int, *, start_us: int, kind: str = "g5.xlarge", **more: Any) -> Resource:  # noqa: ANN401 - fields of Resource
    """A machine of us-east-1 that is at work since `start_us`, a minute after it was made."""
    born = start_us - 60 * SECOND_US
    fields: dict[str, Any] = {
        "runs": (Run(start_us=start_us),),
        "rates": (Rate(at_us=born, nano=1_006_000_000),),
        "shapes": (Shape(at_us=born, type=kind, gpu="A10G", gpus=1),),
        "tags": (Tag(at_us=born, owner="alice", labels=(("project", "llm"),)),),
        "disks": (Disk(gb=100, type="gp3"),),
        **more,
    }
    return Resource(
        cloud="sim-aws",
        account=ACCOUNT,
        scope="us-east-1",
        region="us-east-1",
        id=f"i-{number:017x}",
        name=f"train-{number}",
        kind=SIM_INSTANCE,
        created_us=born,
        **fields,
    )
