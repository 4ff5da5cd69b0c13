"""EC2's types with GPUs and accelerators, for when EC2 cannot be asked: `types.csv`, and after it the family's name.

Source: EC2's own catalogue as of 2026-11 with AWS's documentation for old types, in the project's provider notes. EC2's answer
(`describe_instance_types`) goes before this table wherever there is one.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInstanceType:
    """`gpu` is canonical. `gpu_count` is a fraction where several machines share a GPU (g6f.large: 0.125 of an L4).

    `vram_gb` is that of one whole GPU, as sold. `local_gb`: instance-store disks together, which a stop loses; 0: none;
    None: it may have some, and nobody says how much.
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
    """Every type of the table by its name."""
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
    """`p5en.48xlarge` is of family p5en."""
    return instance_type.partition(".")[0]


@cache
def load_family_gpus() -> Mapping[str, str]:
    """The canonical GPU of each family; no family has two."""
    return {parse_family(kind.name): kind.gpu for kind in load_known_types().values()}


def find_family_gpu(instance_type: str) -> str:
    """The GPU of a type that the table lacks, by its family; "" where the family is unknown too, which says nothing.

    How many GPUs it has cannot be told from a name.
    """
    return load_family_gpus().get(parse_family(instance_type), "")
