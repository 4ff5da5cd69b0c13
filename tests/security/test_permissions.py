"""Least privilege (H51): what the policies of config/iam grant is what the adapters ask, no more and no less.

What is asked is read from the fake clouds' own log, after each adapter has done all that it can.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from costguard_aws.cost_exports import FocusExport
from costguard_gcp.examination import RIGHTS
from costguard_sim.world import Disk, Shape, to_us

from costguard.errors import CostguardError, InputError
from costguard.metering.inventory import Failed
from costguard.metering.observation import Observation
from costguard.values.calendar import Period
from tests.contract.rig import BILLS, Rig, poll_of
from tests.fakes.gcp import refusal
from tests.providers.aws.rig import AwsRig
from tests.providers.aws.services import Services
from tests.providers.gcp.rig import GcpRig
from tests.providers.gcp.rig import resource as gcp_machine

IAM = Path(__file__).parents[2] / "config" / "iam"
AWS = {path.stem: json.loads(path.read_text()) for path in sorted(IAM.glob("aws-*.json"))}
GCP = {path.stem: frozenset(yaml.safe_load(path.read_text())["includedPermissions"]) for path in sorted(IAM.glob("gcp-*.yaml"))}
NO_GRANT = frozenset(("sts:GetCallerIdentity",))
"""What whoever has a key may ask in any case."""
UNSEEN = frozenset(("compute.disks.delete",))
"""What the log cannot show: Google may ask for it where the end of a machine takes a disk with it."""
STARTS = ["compute.instances.start", "ec2:StartInstances"]
"""What starts again a machine that is there already."""
MAKES = re.compile(
    r"run|create|insert|start|launch|import|clone|resume|attach|set|modify|put|update|add|pass|grant", re.IGNORECASE
)
"""How the names of actions begin that make, start or change something."""


def granted(*names: str) -> frozenset[str]:
    """The actions that these policies of AWS allow."""
    stated = [one["Action"] for name in names for one in AWS[name]["Statement"] if one["Effect"] == "Allow"]
    return frozenset(action for actions in stated for action in ([actions] if isinstance(actions, str) else actions))


@contextmanager
def source_of(rig: Rig, folder: Path, **settings: Any) -> Iterator[Any]:  # noqa: ANN401 - a source with every port there is
    with rig.opened(folder, **settings) as opened:
        yield opened


def look_and_ask(rig: Rig, source: Any) -> list[Observation]:  # noqa: ANN401 - see above
    """Everything that watching asks; what there is."""
    polled = poll_of(source)
    assert not isinstance(polled.inventory, Failed), polled.inventory
    now = rig.clock.now()
    source.examine()
    source.fetch_utilization(list(polled.inventory.items), Period(start=now - timedelta(hours=1), end=now))
    with suppress(CostguardError):  # a fake need not sell what is asked for: that it is asked is what counts
        source.list_live_offers(["A10G"])
    return list(polled.inventory.items)


def act(source: Any, one: Observation) -> None:  # noqa: ANN401 - see above
    """All that can be done to a machine."""
    source.look_up(one.key)
    source.stop(one.key, lose=frozenset(one.handling.stop_loses))
    source.start_instance(one.key)
    source.terminate(one.key)


def aws_asked(folder: Path) -> frozenset[str]:
    """service:Action of each request that the fake saw, in what IAM calls them."""
    rig = AwsRig()
    _, spot, member = rig.put(3)
    rig.fake.ec2.more[spot] = {"instanceLifecycle": "spot", "spotInstanceRequestId": "sir-1"}
    rig.fake.ec2.requests["sir-1"] = "one-time"
    rig.fake.ec2.tags[member] = {"aws:autoscaling:groupName": "train"}
    rig.fake.groups["train"] = (0, 3)
    with source_of(rig, folder) as source:
        for one in look_and_ask(rig, source):
            if one.key.id.startswith("i-"):
                act(source, one)
    now = rig.clock.now()
    days = Period(start=now - timedelta(days=3), end=now - timedelta(days=1))
    with source_of(rig, folder, cost_explorer=True, regions=[]) as source:
        source.list_scopes()
        source.fetch_bill_lines(days)
    services = Services()
    services.s3.objects["exports", "focus/a.csv"] = b"a,b\n"
    with services.session(folder) as session, suppress(InputError):  # it is no bill: what matters is that it was asked for
        FocusExport("s3://exports/focus/", BILLS, rig.clock, session).fetch_bill_lines(days)
    found = {"s3:ListBucket" if "list-type" in asked.query else "s3:GetObject" for asked in services.asked}
    for asked in rig.fake.asked:
        parts = re.match(r"(\w+) /([a-z0-9-]+)/[a-z0-9-]*/(\w*)", asked.line)
        assert parts, asked.line
        service = {"monitoring": "cloudwatch"}.get(parts[2], parts[2])
        found.add(f"{service}:{parts[3]}")
    return frozenset(found)


ROUTES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("GET", r"/compute/v1/projects/[^/]+/aggregated/instances", ("compute.instances.list",)),
    ("GET", r"/compute/v1/projects/[^/]+/zones/[^/]+/instances", ("compute.instances.list",)),
    ("GET", r"/compute/v1/projects/[^/]+/zones/[^/]+/instances/[^/]+", ("compute.instances.get",)),
    ("GET", r"/compute/v1/projects/[^/]+/aggregated/disks", ("compute.disks.list",)),
    ("GET", r"/compute/v1/projects/[^/]+/aggregated/addresses", ("compute.addresses.list", "compute.globalAddresses.list")),
    ("GET", r"/compute/v1/projects/[^/]+/zones/[^/]+/disks", ("compute.disks.list",)),
    ("GET", r"/compute/v1/projects/[^/]+/regions/[^/]+/addresses", ("compute.addresses.list",)),
    ("GET", r"/compute/v1/projects/[^/]+/zones/[^/]+/machineTypes/[^/]+", ("compute.machineTypes.get",)),
    ("POST", r"/compute/v1/projects/[^/]+/zones/[^/]+/instances/[^/]+/stop", ("compute.instances.stop",)),
    ("POST", r"/compute/v1/projects/[^/]+/zones/[^/]+/instances/[^/]+/start", ("compute.instances.start",)),
    ("DELETE", r"/compute/v1/projects/[^/]+/zones/[^/]+/instances/[^/]+", ("compute.instances.delete",)),
    ("GET", r"/compute/v1/projects/[^/]+/zones/[^/]+/operations/[^/]+", ("compute.zoneOperations.get",)),
    ("GET", r"/v3/projects/[^/]+/timeSeries", ("monitoring.timeSeries.list",)),
    ("POST", r"/v3/projects/[^/]+:testIamPermissions", ()),
    ("GET", r"/v3/projects:search", ()),
    ("GET", r"/v3/projects/[^/:]+", ("resourcemanager.projects.get",)),
    ("GET", r"/v1/services/6F81-5844-456A/skus", ()),
    ("POST", r"/token", ()),
)
"""A request, and the permissions that Google's reference of the method names. () none: gcp.md, sections 6 and 8."""


def gcp_asked(folder: Path) -> frozenset[str]:
    rig, found = GcpRig(), set[str]()
    with source_of(rig, folder) as source:
        rig.put(1)
        now = to_us(rig.clock.now())
        odd = gcp_machine("odd", now, shapes=(Shape(at_us=0, type="z9-unheard-8"),), disks=(Disk(gb=10, type="pd-ssd"),))
        rig.fake.resources.append(odd)
        for one in look_and_ask(rig, source):
            if one.handling.stops or one.handling.terminates:
                act(source, one)
    off = refusal(403, "accessNotConfigured", "not used in project 777", info="SERVICE_DISABLED", consumer="projects/777")
    empty = GcpRig()
    empty.fake.fault(rig.lists, "status", status=403, headers=off.headers, body=off.body)
    with source_of(empty, folder) as source:
        poll_of(source)
    for asked in (*rig.fake.asked, *empty.fake.asked):
        route = next((need for verb, path, need in ROUTES if verb == asked.method and re.fullmatch(path, asked.path)), None)
        assert route is not None, f"{asked.method} {asked.path}: which permission does it need?"
        found.update(route)
    return frozenset(found)


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    return aws_asked(tmp_path_factory.mktemp("aws"))


@pytest.fixture(scope="module")
def gcp(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    return gcp_asked(tmp_path_factory.mktemp("gcp"))


def apart(asked: frozenset[str], allowed: frozenset[str]) -> tuple[list[str], list[str]]:
    """(asked and not granted, granted and never asked)."""
    return sorted(asked - allowed), sorted(allowed - asked)


def test_aws_is_asked_what_the_policies_grant_and_nothing_else(aws: frozenset[str]) -> None:
    assert apart(aws - NO_GRANT, granted(*AWS)) == ([], [])
    assert len(aws) > 12


def test_google_is_asked_what_the_roles_grant_and_nothing_else(gcp: frozenset[str]) -> None:
    every = frozenset(one for role in GCP.values() for one in role)
    assert apart(gcp, every - UNSEEN) == ([], [])
    assert len(gcp) > 8


def test_a_right_too_many_or_too_few_is_seen(aws: frozenset[str], gcp: frozenset[str]) -> None:
    """Controls."""
    assert apart(aws - NO_GRANT, granted(*AWS) | {"ec2:DescribeTags"}) == ([], ["ec2:DescribeTags"])
    assert apart(aws - NO_GRANT, granted(*AWS) - {"ec2:StopInstances"}) == (["ec2:StopInstances"], [])
    assert apart(gcp - {"compute.instances.stop"}, GCP["gcp-reader"])[1] == []
    assert apart(gcp, GCP["gcp-reader"])[0] == ["compute.instances.delete", "compute.instances.start", "compute.instances.stop"]


def test_no_role_makes_or_changes_anything_only_actors_start_and_the_reader_ends_nothing() -> None:
    every = [*granted(*AWS), *(one for role in GCP.values() for one in role)]
    assert sorted({one for one in every if "*" in one or MAKES.match(re.split(r"[:.]", one)[-1])}) == STARTS
    assert STARTS[1] not in granted(*(name for name in AWS if name != "aws-actor-start"))
    assert STARTS[0] not in GCP["gcp-reader"]
    assert MAKES.match("RunInstances")
    assert MAKES.match("setDeletionProtection")
    assert not [one for one in GCP["gcp-reader"] if one.endswith((".stop", ".delete"))]


def test_what_doctor_proves_at_google_is_what_the_roles_grant() -> None:
    proven = {one for _, permissions, _ in RIGHTS for one in permissions}
    assert proven <= GCP["gcp-reader"] | GCP["gcp-actor"]


WHO = {
    "aws-reader": ("ec2:DescribeInstances", "ec2:StopInstances"),
    "aws-bills": ("ce:GetCostAndUsage", "ec2:DescribeInstances"),
    "aws-actor-stop": ("ec2:StopInstances", "ec2:TerminateInstances"),
    "aws-actor-start": ("ec2:StartInstances", "ec2:StopInstances"),
    "aws-actor-terminate": ("ec2:TerminateInstances", "ec2:StopInstances"),
}
"""Policy -> something that it is for, something that it is not for."""


@pytest.mark.parametrize("name", WHO)
def test_others_who_evaluate_the_policies_come_to_the_same(name: str) -> None:
    """Moto's evaluation, which others wrote. It looks at no condition: tests/providers/aws/test_policies holds the tags."""
    from moto.iam.access_control import IAMPolicy, PermissionResult

    policy, machine = IAMPolicy(json.dumps(AWS[name])), "arn:aws:ec2:us-east-1:111122223333:instance/i-1"
    for_, not_for = WHO[name]
    assert policy.is_action_permitted(for_, machine) == PermissionResult.PERMITTED
    assert policy.is_action_permitted(not_for, machine) == PermissionResult.NEUTRAL
    starts = policy.is_action_permitted("ec2:StartInstances", machine)
    assert (starts == PermissionResult.PERMITTED) is (name == "aws-actor-start")
    for never in ("ec2:RunInstances", "ec2:ModifyInstanceAttribute", "iam:PassRole", "ec2:CreateTags"):
        assert policy.is_action_permitted(never, machine) != PermissionResult.PERMITTED


def test_to_watch_aws_opens_no_user_data(tmp_path: Path) -> None:
    """DescribeInstanceAttribute gives user data too, where many keep secrets; nothing that watching asks needs it."""
    opens = "ec2:DescribeInstanceAttribute"
    assert opens not in granted("aws-reader") | granted("aws-bills")
    assert opens in granted("aws-actor-stop"), "documented in SECURITY.md"
    rig = AwsRig()
    rig.put(2)
    rig.fake.ec2.denied.add("DescribeInstanceAttribute")
    with source_of(rig, tmp_path) as source:
        seen = look_and_ask(rig, source)
        assert sum(one.key.id.startswith("i-") for one in seen) == 2
        assert all(source.look_up(one.key) is not None for one in seen if one.key.id.startswith("i-"))
