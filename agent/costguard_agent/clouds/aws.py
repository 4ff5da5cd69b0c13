"""EC2: a shutdown of the operating system stops or terminates the instance, by one of its attributes.

InstanceInitiatedShutdownBehavior cannot be read from inside without a key, so a person states it at install (`--shutdown-means
stop|terminate`; `aws ec2 describe-instance-attribute --attribute instanceInitiatedShutdownBehavior` shows it). The statement is
stored with the instance's id, so an image of this machine does not carry it to another one. IMDSv2 gives the instance's id,
whether it is spot, and whether an auto-scaling group would replace it. Sources: the provider notes (aws.md, sections 6 and 7);
instance metadata categories `instance-life-cycle`, `autoscaling/target-lifecycle-state` and `block-device-mapping/`.
"""

from __future__ import annotations

import re
from typing import Any

from costguard_agent import shutdown
from costguard_agent.host import HostView
from costguard_agent.http_client import HttpReply, UnansweredError, send_request
from costguard_agent.shutdown import STOP, TERMINATE, MachineIdentity, ShutdownOutcome, ShutdownWay, read_shutdown_meaning

NAME = "aws"
ADDRESS, VARIABLE = "http://169.254.169.254", "COSTGUARD_AWS_METADATA"
VENDOR = "Amazon EC2"
WITHIN_S = 2.0
LIVES_S = "60"
OK, MISSING = 200, 404
ID = re.compile(r"i-[0-9a-f]{8,17}")
BY_SYSTEM = "shutdown of the operating system"


def detect_machine(around: HostView) -> MachineIdentity | None:
    """Return this instance if the firmware is EC2's, else None."""
    if VARIABLE not in around.env and VENDOR not in shutdown.read_firmware(around, "sys_vendor", "bios_vendor"):
        return None
    try:
        token = _fetch_token(around)
        document = _fetch_metadata(around, token, "dynamic/instance-identity/document").parse_json()
        facts: dict[str, Any] = {
            "lifecycle": _decode_reply(_fetch_metadata(around, token, "meta-data/instance-life-cycle")),
            "grouped": _fetch_metadata(around, token, "meta-data/autoscaling/target-lifecycle-state").status == OK,
            "local_disks": "ephemeral" in _decode_reply(_fetch_metadata(around, token, "meta-data/block-device-mapping/")),
        }
    except UnansweredError as error:
        return MachineIdentity(NAME, "", f"the instance metadata service did not say which instance this is: {error}")
    id_ = document.get("instanceId") if isinstance(document, dict) else None
    if not isinstance(id_, str) or not ID.fullmatch(id_):
        return MachineIdentity(NAME, "", "the instance metadata service did not say which instance this is")
    facts["region"] = str(document.get("region", ""))
    return MachineIdentity(NAME, id_, _explain_hindrance(facts, shutdown.explain_hindrance(around)), facts)


def list_ways(place: MachineIdentity, around: HostView) -> list[ShutdownWay]:
    """Return the shutdown, as the act that a person stated for this instance."""
    if place.why or not place.id:
        return []
    means = read_shutdown_meaning(place, around)
    scratch = "data on the instance's own disks (instance store), and " if place.facts.get("local_disks") else ""
    stop = ShutdownWay(
        STOP,
        BY_SYSTEM,
        "EBS volumes, private address",
        f"{scratch}memory contents, and the public address unless it is an Elastic IP",
        "EBS volumes and Elastic IPs as before; a reservation, Savings Plan or capacity block is still billed",
        certain=False,
        place=place,
    )
    terminate = ShutdownWay(
        TERMINATE,
        BY_SYSTEM,
        "volumes that are not deleted on termination",
        "this machine permanently, with its root volume unless that is kept on termination",
        "volumes that were kept, Elastic IPs, reservations",
        certain=False,
        place=place,
    )
    if means == STOP and place.facts.get("lifecycle") == "spot":
        return [
            stop._replace(
                why="a spot instance of a one-time request cannot be stopped; the machine cannot tell which kind it is"
            )
        ]
    if means:
        return [(stop if means == STOP else terminate)._replace(certain=True)]
    return [
        way._replace(why="the effect of a shutdown is not set: --shutdown-means stop|terminate") for way in (stop, terminate)
    ]


def send_shutdown(way: ShutdownWay, around: HostView) -> ShutdownOutcome:
    """Shut down the operating system, once."""
    del way
    return shutdown.run_shutdown(around)


read_state = shutdown.report_running


def _explain_hindrance(facts: dict[str, Any], reason: str) -> str:
    if facts["grouped"]:
        return "it belongs to an auto-scaling group, which would replace it: scale the group"
    if facts["lifecycle"] == "capacity-block":
        return "it runs in a capacity block, which is paid for already"
    return reason


def _fetch_token(around: HostView) -> str:
    reply = send_request(
        f"{_find_base_url(around)}/latest/api/token",
        method="PUT",
        headers={"X-aws-ec2-metadata-token-ttl-seconds": LIVES_S},
        within_s=WITHIN_S,
        most=4096,
    )
    if reply.status != OK:
        raise UnansweredError(f"it returned no token ({reply.status})")
    return reply.body.decode("ascii", "replace").strip()


def _fetch_metadata(around: HostView, token: str, path: str) -> HttpReply:
    headers = {"X-aws-ec2-metadata-token": token}
    reply = send_request(f"{_find_base_url(around)}/latest/{path}", headers=headers, within_s=WITHIN_S, most=65536)
    if reply.status not in (OK, MISSING):
        raise UnansweredError(f"it answered {reply.status} to {path}")
    return reply


def _find_base_url(around: HostView) -> str:
    return around.env.get(VARIABLE, ADDRESS).rstrip("/")


def _decode_reply(reply: HttpReply) -> str:
    return reply.body.decode("utf-8", "replace").strip() if reply.status == OK else ""
