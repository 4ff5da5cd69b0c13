"""The GPUs of instance types: from EC2, else from the shipped table, else from the family.

EC2 is queried once per type. The request uses a filter: if requested by name, one type that EC2 no longer sells (p3, g3) would
fail the whole request.

The shipped table `types.csv` lists EC2's types with GPUs and accelerators. Source: EC2's own catalogue as of 2026-11 with AWS's
documentation for old types, in the project's provider notes. EC2's answer (`describe_instance_types`) takes precedence.
"""

from __future__ import annotations

import csv
import re
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files

from costguard.errors import ProviderError, UnknownNameError
from costguard.metering.observation import MOST_GPUS
from costguard.system.clock import Clock
from costguard.values.gpu import GpuNames
from costguard_aws.api import Ec2Api, Ec2Item

ASK_AGAIN = timedelta(hours=1)
"""A type that EC2 did not know, or could not be asked about, is asked about again after so long."""

ACCELERATED = ("p", "g", "trn", "inf", "dl", "vt")
"""Families of accelerators begin so (p5, g7e, trn2): of a new one, that its GPUs are unknown is said."""

WITH_DISKS = re.compile(rf"(?:{'|'.join(ACCELERATED)}|i|im|is|d|h|x|f)\d|[a-z]+\d+[a-z]*d[a-z]*\.")
"""Types that may have disks inside the host, by EC2's naming (m5d, i4i, d3, and any accelerated one), 2026-11."""

MB_PER_MIB = 1.048576
BATCH = 100


class InstanceTypeCatalogue:
    """The types of one account.

    Thread-safe.
    """

    def __init__(self, ec2: Ec2Api, gpus: GpuNames, clock: Clock) -> None:
        self._ec2, self._gpus, self._clock = ec2, gpus, clock
        self._kinds: dict[str, GpuInstanceType | None] = {}
        self._ask_again: dict[str, datetime] = {}
        self._lock = threading.Lock()

    def learn(self, names: Collection[str], region: str, note: Callable[[str], None]) -> None:
        """Fetch those of `names` that are not known yet; if EC2 cannot be reached, note that and use the shipped table."""
        with self._lock:
            now = self._clock.now()
            missing = [name for name in names if name and self._is_due(name, now)]
            for start in range(0, len(missing), BATCH):
                batch = missing[start : start + BATCH]
                try:
                    items = {item.get("InstanceType", ""): item for item in self._ec2.describe_types(region, batch)}
                except ProviderError as broken:
                    note(f"{region}: its instance types could not be fetched; the shipped table is used ({broken.what})")
                    items = {}
                for name in batch:
                    self._kinds[name] = self._parse_type(items[name], note) if name in items else self._use_table(name, note)
                    if name not in items:
                        self._ask_again[name] = now + ASK_AGAIN

    def find_type(self, name: str) -> GpuInstanceType | None:
        """Return the type, if it was learned; None if it is unknown."""
        return self._kinds.get(name)

    def _is_due(self, name: str, now: datetime) -> bool:
        return name not in self._kinds or (name in self._ask_again and now >= self._ask_again.pop(name))

    def _use_table(self, name: str, note: Callable[[str], None]) -> GpuInstanceType | None:
        instance_type = load_known_types().get(name)
        if instance_type is not None:
            return instance_type
        gpu = find_family_gpu(name)
        if gpu or re.match(rf"(?:{'|'.join(ACCELERATED)})\d", name):
            note(f"{name}: EC2 does not know this type, and how many GPUs it has is unknown")
        local_gb = None if gpu or WITH_DISKS.match(name) else 0
        return GpuInstanceType(name=name, gpu=gpu, gpu_count=0, vram_gb=0, vcpus=0, ram_gb=0, local_gb=local_gb)

    def _parse_type(self, item: Ec2Item, note: Callable[[str], None]) -> GpuInstanceType:
        name = item["InstanceType"]
        word, count, vram_gb = _find_accelerator(item)
        return GpuInstanceType(
            name=name,
            gpu=self._find_canonical_gpu(name, word, vram_gb, note) if word else "",
            gpu_count=count if 0 <= count <= MOST_GPUS else 0,
            vram_gb=vram_gb or 0,
            vcpus=item.get("VCpuInfo", {}).get("DefaultVCpus") or 0,
            ram_gb=(item.get("MemoryInfo", {}).get("SizeInMiB") or 0) * MB_PER_MIB / 1000,
            local_gb=_sum_local_gb(item),
        )

    def _find_canonical_gpu(self, name: str, word: str, vram_gb: float | None, note: Callable[[str], None]) -> str:
        """Return the canonical name of EC2's GPU name.

        It is resolved with the memory that EC2 states, then without it (Trainium2's is wrong there), then by the table;
        otherwise EC2's name is used.
        """
        for size in (vram_gb, None):
            try:
                return self._gpus.resolve(word, vram_gb=size).canonical
            except UnknownNameError:
                continue
        instance_type = load_known_types().get(name)
        if instance_type is not None:
            return instance_type.gpu
        note(f"{name}: no GPU is known as '{word[:80]}'")
        return word[:80]


def _sum_local_gb(item: Ec2Item) -> int | None:
    """Return the GB of the host's local disks; None if EC2 states that there are some but not their size."""
    total_gb: int | None = item.get("InstanceStorageInfo", {}).get("TotalSizeInGB")
    return total_gb if total_gb is not None else None if item.get("InstanceStorageSupported") else 0


def _find_accelerator(item: Ec2Item) -> tuple[str, float, float | None]:
    """Return EC2's name of the accelerator, their number, and GB of a whole one; "", 0 and None for a type without."""
    for info, name in (("GpuInfo", "Gpus"), ("NeuronInfo", "NeuronDevices"), ("InferenceAcceleratorInfo", "Accelerators")):
        devices = item.get(info, {}).get(name)
        if not devices:
            continue
        first = devices[0]
        share = _compute_share(first)
        word = f"{first.get('Manufacturer', '')} {first.get('Name', '')}".strip()
        mib = first.get("MemoryInfo", {}).get("SizeInMiB")
        count = sum(one.get("Count") or (one.get("LogicalGpuCount") or 0) * _compute_share(one) for one in devices)
        return word, count, mib * MB_PER_MIB / 1000 / (share or 1) if mib else None
    return "", 0, None


def _compute_share(device: Ec2Item) -> float:
    """Return the share of a sliced GPU that one slice has; 1 for a whole GPU."""
    share = float(device.get("GpuPartitionSize") or 1)
    return share if 0 < share <= 1 else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInstanceType:
    """`gpu` is canonical.

    `gpu_count` is a fraction if several machines share a GPU (g6f.large: 0.125 of an L4). `vram_gb` is that of one whole GPU,
    as sold. `local_gb`: all instance-store disks, which a stop loses; 0: none; None: there may be some, of unknown size.
    """

    name: str
    gpu: str
    gpu_count: float
    vram_gb: float
    vcpus: float
    ram_gb: float
    local_gb: int | None


@cache
def load_known_types() -> Mapping[str, GpuInstanceType]:
    """Return every type of the table by its name."""
    text = files("costguard_aws").joinpath("types.csv").read_text(encoding="utf-8")
    return {row["instance_type"]: _parse_row(row) for row in csv.DictReader(text.splitlines())}


def _parse_row(row: Mapping[str, str]) -> GpuInstanceType:
    return GpuInstanceType(
        name=row["instance_type"],
        gpu=row["gpu"],
        gpu_count=float(row["gpu_count"]),
        vram_gb=float(row["vram_gb"]),
        vcpus=float(row["vcpus"]),
        ram_gb=float(row["ram_gb"]),
        local_gb=int(row["local_gb"]),
    )


def parse_family(instance_type: str) -> str:
    """Return the family of a type: p5en for `p5en.48xlarge`."""
    return instance_type.partition(".")[0]


@cache
def load_family_gpus() -> Mapping[str, str]:
    """Return the canonical GPU of each family; no family has two."""
    return {parse_family(kind.name): kind.gpu for kind in load_known_types().values()}


def find_family_gpu(instance_type: str) -> str:
    """Return the GPU of a type that the table lacks, by its family; "" if the family is unknown, which proves nothing.

    The number of GPUs cannot be derived from a name.
    """
    return load_family_gpus().get(parse_family(instance_type), "")
