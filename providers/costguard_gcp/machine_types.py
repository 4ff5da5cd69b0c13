"""Machine types: their processors, memory, GPUs and local SSD.

Example: g4-standard-12 has 12 vCPUs, 45 GiB and a quarter of an RTX PRO 6000, though the API states 1 accelerator of it.

Types that are not in this file's table are fetched once and kept.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from costguard.errors import InvalidAnswerError, MissingError, ProviderError
from costguard.providers.transport import Deadline
from costguard_gcp.api import ComputeSdk

if TYPE_CHECKING:  # the SDK is imported when it is asked
    from google.cloud.compute_v1 import MachineType

SSD_PART_GIB = 375
"""One local SSD of Compute Engine (gcp.md, section 1; specs/gcp_machine_gpus.csv), 2026-11."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineShape:
    """`accelerator`: the API's name, "" for none.

    `gpus`: 0.125 for an eighth. `ssd_gib`: bundled local SSD.
    """

    name: str
    vcpus: float
    ram_gib: float
    accelerator: str = ""
    gpus: float = 0
    ssd_gib: int = 0
    shared: bool = False

    @property
    def family(self) -> str:
        """The name of its cores and memory in the price list: "a3plus", "n1 custom"."""
        return parse_family(self.name)


def find_shape(name: str) -> MachineShape | None:
    """Return the machine type `name` from the table or its name; None if it must be fetched from the provider."""
    if name in TABLE:
        return TABLE[name]
    if custom := _CUSTOM.fullmatch(name):
        return _parse_custom(name, custom["family"] or "n1", int(custom["cpus"]), int(custom["mb"]))
    if shaped := _SHAPED.fullmatch(name):
        cpus, each = int(shaped["cpus"]), _RAM_GIB.get(shaped["family"], {}).get(shaped["shape"])
        return None if each is None else MachineShape(name=name, vcpus=cpus, ram_gib=cpus * each)
    return None


def parse_family(name: str) -> str:
    """Return the price list's name for the cores and memory of the machine type `name`."""
    for start, family in (("a3-megagpu", "a3plus"), ("a3-ultragpu", "a3ultra")):
        if name.startswith(start):
            return family
    custom = _CUSTOM.fullmatch(name)
    first = (custom["family"] or "n1") if custom else name.split("-", 1)[0]
    return f"{first} custom" if custom and first != "g2" else first


def _parse_custom(name: str, family: str, vcpus: int, mb: int) -> MachineShape | None:
    """Parse a custom type; only G2 has GPUs then, as many as the standard type with the same number of processors."""
    like = TABLE.get(f"g2-standard-{vcpus}") if family == "g2" else None
    if (family == "g2" and like is None) or not vcpus:
        return None
    return MachineShape(
        name=name,
        vcpus=vcpus,
        ram_gib=mb / 1024,
        accelerator=like.accelerator if like else "",
        gpus=like.gpus if like else 0,
    )


_CUSTOM = re.compile(r"(?:(?P<family>n1|n2|n2d|g2)-)?custom-(?P<cpus>\d{1,3})-(?P<mb>\d{3,7})", re.ASCII)
_SHAPED = re.compile(r"(?P<family>[nce]\dd?|t2d)-(?P<shape>standard|highmem|highcpu)-(?P<cpus>[1-9]\d{0,2})", re.ASCII)
_RAM_GIB = {
    "n1": {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9},
    "n2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "n2d": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "n4": {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0},
    "e2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "c2": {"standard": 4.0},
    "c2d": {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0},
    "c3": {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0},
    "c3d": {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0},
    "t2d": {"standard": 4.0},
}
"""GiB for each vCPU of predefined types: long-standing documentation of Compute Engine, 2026-11."""

_ROWS = """
a4x-maxgpu-4g-metal nvidia-gb300 4 144 960 12000
a4x-highgpu-4g nvidia-gb200 4 140 884 12000
a4-highgpu-8g nvidia-b200 8 224 3968 12000
a3-ultragpu-8g nvidia-h200-141gb 8 224 2952 12000
a3-megagpu-8g nvidia-h100-mega-80gb 8 208 1872 6000
a3-highgpu-1g nvidia-h100-80gb 1 26 234 750
a3-highgpu-2g nvidia-h100-80gb 2 52 468 1500
a3-highgpu-4g nvidia-h100-80gb 4 104 936 3000
a3-highgpu-8g nvidia-h100-80gb 8 208 1872 6000
a3-edgegpu-8g nvidia-h100-80gb 8 208 1872 6000
a2-ultragpu-1g nvidia-a100-80gb 1 12 170 375
a2-ultragpu-2g nvidia-a100-80gb 2 24 340 750
a2-ultragpu-4g nvidia-a100-80gb 4 48 680 1500
a2-ultragpu-8g nvidia-a100-80gb 8 96 1360 3000
a2-highgpu-1g nvidia-tesla-a100 1 12 85 0
a2-highgpu-2g nvidia-tesla-a100 2 24 170 0
a2-highgpu-4g nvidia-tesla-a100 4 48 340 0
a2-highgpu-8g nvidia-tesla-a100 8 96 680 0
a2-megagpu-16g nvidia-tesla-a100 16 96 1360 0
g4-standard-6 nvidia-rtx-pro-6000 0.125 6 22 0
g4-standard-12 nvidia-rtx-pro-6000 0.25 12 45 0
g4-standard-24 nvidia-rtx-pro-6000 0.5 24 90 0
g4-standard-48 nvidia-rtx-pro-6000 1 48 180 0
g4-standard-96 nvidia-rtx-pro-6000 2 96 360 0
g4-standard-192 nvidia-rtx-pro-6000 4 192 720 0
g4-standard-384 nvidia-rtx-pro-6000 8 384 1440 0
g2-standard-4 nvidia-l4 1 4 16 0
g2-standard-8 nvidia-l4 1 8 32 0
g2-standard-12 nvidia-l4 1 12 48 0
g2-standard-16 nvidia-l4 1 16 64 0
g2-standard-24 nvidia-l4 2 24 96 0
g2-standard-32 nvidia-l4 1 32 128 0
g2-standard-48 nvidia-l4 4 48 192 0
g2-standard-96 nvidia-l4 8 96 384 0
"""
"""Type, accelerator, GPUs, vCPUs, GiB of memory, GiB of local SSD: the project's provider notes, gcp.md and its table of
machine types, 2026-11. A test holds the two together."""


def _build_table() -> dict[str, MachineShape]:
    rows = (line.split() for line in _ROWS.strip().splitlines())
    return {
        name: MachineShape(name=name, accelerator=gpu, gpus=float(n), vcpus=int(cpus), ram_gib=int(ram), ssd_gib=int(ssd))
        for name, gpu, n, cpus, ram, ssd in rows
    }


TABLE = _build_table()

NOT_ON_DEMAND = ("a4x-", "a4-", "a3-ultragpu-", "a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g")
"""Types that are given only as spot, Flex-start or from a reservation (gcp.md, section 1), 2026-11."""

LIVE_SM = ("a3-megagpu-", "a3-ultragpu-", "a4-", "a4x-")
"""Types whose host measures the GPU without an agent (gcp.md, section 4), 2026-11."""


MOST_ASKED = 20
"""New machine types that one poll asks for; the others are unknown until the next."""


class ShapeCatalogue:
    """Machine types of every zone and project.

    Thread-safe.
    """

    def __init__(self, compute: ComputeSdk) -> None:
        self._compute = compute
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, str], MachineShape | None] = {}

    def get(self, project: str, zone: str, name: str) -> MachineShape | None:
        """Return the known type without a request; None if it is unknown."""
        return find_shape(name) or self._known.get((project, zone, name))

    def learn(self, project: str, machine_types: set[tuple[str, str]], deadline: Deadline) -> None:
        """Fetch those of `machine_types` (zone, type) that are unknown.

        It raises nothing.
        """
        new = [one for one in sorted(machine_types) if find_shape(one[1]) is None and (project, *one) not in self._known]
        for zone, name in new[:MOST_ASKED]:
            try:
                shape = self._fetch_shape(project, zone, name, deadline)
            except MissingError:
                shape = None
            except ProviderError:
                continue  # asked again at the next poll
            with self._lock:
                self._known[project, zone, name] = shape

    def _fetch_shape(self, project: str, zone: str, name: str, deadline: Deadline) -> MachineShape:
        fields = {"project": project, "zone": zone, "machine_type": name}
        machine_type = self._compute.ask("MachineTypesClient", "get", "GetMachineTypeRequest", fields, deadline=deadline)
        if not all(field in machine_type for field in ("name", "guest_cpus", "memory_mb")):
            raise InvalidAnswerError("the answer is not a machine type", provider="gcp")
        return parse_shape(machine_type)


def parse_shape(machine_type: MachineType) -> MachineShape:
    """Parse the API's machine type.

    No type has several kinds of GPUs, so the first is used.
    """
    gpus = [one for one in machine_type.accelerators if one.guest_accelerator_type and one.guest_accelerator_count]
    return MachineShape(
        name=machine_type.name,
        vcpus=machine_type.guest_cpus,
        ram_gib=machine_type.memory_mb / 1024,
        accelerator=gpus[0].guest_accelerator_type if gpus else "",
        gpus=float(gpus[0].guest_accelerator_count) if gpus else 0,
        ssd_gib=machine_type.bundled_local_ssds.partition_count * SSD_PART_GIB,
        shared=machine_type.is_shared_cpu,
    )
