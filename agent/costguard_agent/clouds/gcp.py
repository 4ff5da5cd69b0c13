"""Compute Engine: a shutdown from inside stops the VM (state TERMINATED); its disks stay and are billed.

The metadata server gives the VM's id, and whether a group or a cluster would start it again. Sources: the provider notes
(gcp.md, sections 2, 5 and 7); metadata `instance/?recursive=true`.
"""

from __future__ import annotations

from typing import Any

from costguard_agent import shutdown
from costguard_agent.host import HostView
from costguard_agent.http_client import UnansweredError, send_request
from costguard_agent.shutdown import STOP, MachineIdentity, ShutdownOutcome, ShutdownWay

NAME = "gcp"
ADDRESS, VARIABLE = "http://169.254.169.254", "COSTGUARD_GCP_METADATA"
VENDOR = "Google Compute Engine"
WITHIN_S = 2.0
OK = 200


def detect_machine(around: HostView) -> MachineIdentity | None:
    """Return this VM if the firmware is Google's, else None."""
    if VARIABLE not in around.env and VENDOR not in shutdown.read_firmware(around, "product_name"):
        return None
    try:
        base = around.env.get(VARIABLE, ADDRESS).rstrip("/")
        reply = send_request(
            f"{base}/computeMetadata/v1/instance/?recursive=true", headers={"Metadata-Flavor": "Google"}, within_s=WITHIN_S
        )
    except UnansweredError as error:
        return MachineIdentity(NAME, "", f"the metadata server did not say which VM this is: {error}")
    instance = reply.parse_json()
    if reply.status != OK or not isinstance(instance, dict) or not str(instance.get("id", "")).isdigit():
        return MachineIdentity(NAME, "", f"the metadata server answered {reply.status} and did not say which VM this is")
    attributes = instance.get("attributes")
    facts = {
        "name": str(instance.get("name", "")),
        "zone": str(instance.get("zone", "")).rpartition("/")[2],
        "owner": _find_owner(attributes if isinstance(attributes, dict) else {}),
        "local_disks": any(isinstance(one, dict) and one.get("type") == "LOCAL-SSD" for one in instance.get("disks") or ()),
    }
    again = f"{facts['owner']} would start it again: scale it down" if facts["owner"] else ""
    return MachineIdentity(NAME, str(instance["id"]), again or shutdown.explain_hindrance(around), facts)


def list_ways(place: MachineIdentity, around: HostView) -> list[ShutdownWay]:
    """Return the shutdown, which stops the VM."""
    del around
    if place.why or not place.id:
        return []
    local = "data on local SSDs, and " if place.facts.get("local_disks") else ""
    return [
        ShutdownWay(
            STOP,
            "shutdown of the operating system",
            "persistent disks, internal address",
            f"{local}memory contents, and the external address unless it is a static one",
            "disks and static addresses as before; a reservation is still billed",
            certain=True,
            place=place,
        )
    ]


def send_shutdown(way: ShutdownWay, around: HostView) -> ShutdownOutcome:
    """Shut down the operating system, once."""
    del way
    return shutdown.run_shutdown(around)


read_state = shutdown.report_running


def _find_owner(attributes: dict[str, Any]) -> str:
    """Return what created this VM and would recreate it: a managed instance group or a GKE cluster; "" if neither."""
    if "instanceGroupManagers" in str(attributes.get("created-by", "")):
        return "a managed instance group"
    return "its GKE cluster" if "cluster-name" in attributes else ""
