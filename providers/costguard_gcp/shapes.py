"""Machine types that this package does not know by heart: asked for once, and remembered."""

from __future__ import annotations

import threading

import msgspec

from costguard.errors import InvalidAnswerError, MissingError, ProviderError
from costguard.providers.transport import Deadline
from costguard_gcp.machine_types import SSD_PART_GIB, MachineShape, find_shape
from costguard_gcp.sdk import ComputeSdk
from costguard_gcp.wire import MachineType

MOST_ASKED = 20
"""New machine types that one poll asks for; the others are unknown until the next."""


class ShapeCatalogue:
    """Machine types of every zone and project. Asked from several threads."""

    def __init__(self, compute: ComputeSdk) -> None:
        self._compute = compute
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, str], MachineShape | None] = {}

    def get(self, project: str, zone: str, name: str) -> MachineShape | None:
        """What is known of the type without asking anybody."""
        return find_shape(name) or self._known.get((project, zone, name))

    def learn(self, project: str, wanted: set[tuple[str, str]], deadline: Deadline) -> None:
        """Ask for those of `wanted` (zone, type) that are not known. It raises nothing."""
        new = [one for one in sorted(wanted) if find_shape(one[1]) is None and (project, *one) not in self._known]
        for zone, name in new[:MOST_ASKED]:
            try:
                found = self._fetch_shape(project, zone, name, deadline)
            except MissingError:
                found = None
            except ProviderError:
                continue  # asked again at the next poll
            with self._lock:
                self._known[project, zone, name] = found

    def _fetch_shape(self, project: str, zone: str, name: str, deadline: Deadline) -> MachineShape:
        fields = {"project": project, "zone": zone, "machine_type": name}
        reply = self._compute.ask("MachineTypesClient", "get", "GetMachineTypeRequest", fields, deadline=deadline)
        try:
            return parse_shape(msgspec.json.decode(reply.body, type=MachineType))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise InvalidAnswerError("the answer is no machine type", provider="gcp") from None


def parse_shape(stated: MachineType) -> MachineShape:
    """A machine type as the API states it. GPUs of several kinds are not known to exist: the first counts."""
    gpus = [one for one in stated.accelerators or () if one.guest_accelerator_type and one.guest_accelerator_count]
    ssds = stated.bundled_local_ssds.partition_count if stated.bundled_local_ssds else 0
    return MachineShape(
        name=stated.name,
        vcpus=stated.guest_cpus,
        ram_gib=stated.memory_mb / 1024,
        accelerator=(gpus[0].guest_accelerator_type or "") if gpus else "",
        gpus=float(gpus[0].guest_accelerator_count or 0) if gpus else 0,
        ssd_gib=(ssds or 0) * SSD_PART_GIB,
        shared=bool(stated.is_shared_cpu),
    )
