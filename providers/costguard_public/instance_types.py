"""Which GPUs the machine types of AWS and Azure hold: their price feeds do not say.

AWS: one line a family and GPU, `family GPU: size GPUs vCPUs RAM_GB disk_GB, ...`. Example: "p5 H100-SXM: 48xlarge 8 192 2048
30400" says that a p5.48xlarge has 8 H100-SXM, 192 vCPUs, 2,048 GB of memory and 30,400 GB of local disk. The facts are those of
`costguard_aws/types.csv` (EC2's own catalogue and AWS's documentation, `providers/specs/aws_instance_gpus.csv`, 2026-11-21); a
test holds the two together. Shares of a GPU (g6f, gr6f) are left out.

Azure: patterns of a size's name, GPU, and GPUs by vCPUs, which are the number in the name (`providers/azure.md` section 4;
dstackai/gpuhunt providers/azure.py @3584151; Microsoft's pages of the GB200, GB300 and MI300X sizes; 2026-11-23).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

AWS_TYPES = """
dl1 Gaudi: 24xlarge 8 96 768 4000
g3 M60: 4xlarge 1 16 122 0, 8xlarge 2 32 244 0, 16xlarge 4 64 488 0
g3s M60: xlarge 1 4 30.5 0
g4ad Radeon-Pro-V520: xlarge 1 4 16 150, 2xlarge 1 8 32 300, 4xlarge 1 16 64 600, 8xlarge 2 32 128 1200, 16xlarge 4 64 256
  2400
g4dn T4: xlarge 1 4 16 125, 2xlarge 1 8 32 225, 4xlarge 1 16 64 225, 8xlarge 1 32 128 900, 12xlarge 4 48 192 900, 16xlarge
  1 64 256 900, metal 8 96 384 1800
g5 A10G: xlarge 1 4 16 250, 2xlarge 1 8 32 450, 4xlarge 1 16 64 600, 8xlarge 1 32 128 900, 12xlarge 4 48 192 3800,
  16xlarge 1 64 256 1900, 24xlarge 4 96 384 3800, 48xlarge 8 192 768 7600
g5g T4g: xlarge 1 4 8 0, 2xlarge 1 8 16 0, 4xlarge 1 16 32 0, 8xlarge 1 32 64 0, 16xlarge 2 64 128 0, metal 2 64 128 0
g6 L4: xlarge 1 4 16 250, 2xlarge 1 8 32 450, 4xlarge 1 16 64 600, 8xlarge 1 32 128 900, 12xlarge 4 48 192 3760, 16xlarge
  1 64 256 1880, 24xlarge 4 96 384 3760, 48xlarge 8 192 768 7520
g6e L40S: xlarge 1 4 32 250, 2xlarge 1 8 64 450, 4xlarge 1 16 128 600, 8xlarge 1 32 256 900, 12xlarge 4 48 384 3800,
  16xlarge 1 64 512 1900, 24xlarge 4 96 768 3800, 48xlarge 8 192 1536 7600
g7 RTX-PRO-4500-Blackwell: 2xlarge 1 8 32 440, 4xlarge 1 16 64 875, 8xlarge 1 32 128 930, 12xlarge 2 48 192 1900, 24xlarge
  4 96 384 3800, 48xlarge 8 192 768 7600
g7e RTX-PRO-6000-Blackwell-Server: 2xlarge 1 8 64 1900, 4xlarge 1 16 128 1900, 8xlarge 1 32 256 1900, 12xlarge 2 48 512
  3800, 24xlarge 4 96 1024 7600, 48xlarge 8 192 2048 15200
gr6 L4: 4xlarge 1 16 128 600, 8xlarge 1 32 256 900
inf1 Inferentia: xlarge 1 4 8 0, 2xlarge 1 8 16 0, 6xlarge 4 24 48 0, 24xlarge 16 96 192 0
inf2 Inferentia2: xlarge 1 4 16 0, 8xlarge 1 32 128 0, 24xlarge 6 96 384 0, 48xlarge 12 192 768 0
p2 K80: xlarge 1 4 61 0, 8xlarge 8 32 488 0, 16xlarge 16 64 732 0
p3 V100-16GB: 2xlarge 1 8 61 0, 8xlarge 4 32 244 0, 16xlarge 8 64 488 0
p3dn V100-32GB: 24xlarge 8 96 768 1800
p4d A100-40GB-SXM: 24xlarge 8 96 1152 8000
p4de A100-80GB-SXM: 24xlarge 8 96 1152 8000
p5 H100-SXM: 4xlarge 1 16 256 3800, 48xlarge 8 192 2048 30400
p5e H200-SXM: 48xlarge 8 192 2048 30400
p5en H200-SXM: 48xlarge 8 192 2048 30400
p6-b200 B200-SXM: 48xlarge 8 192 2048 30400
p6-b300 B300: 48xlarge 8 192 4096 30400
p6e-gb200 GB200: 36xlarge 4 144 960 22500
trn1 Trainium: 2xlarge 1 8 32 474, 32xlarge 16 128 512 7600
trn1n Trainium: 32xlarge 16 128 512 7600
trn2 Trainium2: 3xlarge 1 12 128 470, 48xlarge 16 192 2048 7600
trn2u Trainium2: 48xlarge 16 192 2048 7600
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """A machine type and its GPUs. `gpu` is canonical; None: unknown."""

    name: str
    gpu: str
    gpu_count: int
    vcpus: float | None = None
    ram_gb: float | None = None
    disk_gb: float | None = None


def read_aws_types(table: str = AWS_TYPES) -> dict[str, MachineType]:
    """Return every AWS type with whole GPUs by name."""
    return {machine.name: machine for line in table.strip().replace("\n  ", " ").splitlines() for machine in _read_family(line)}


def _read_family(line: str) -> Iterator[MachineType]:
    head, _, sizes = line.partition(": ")
    family, gpu = head.split()
    for size in sizes.split(", "):
        name, gpus, vcpus, ram, disk = size.split()
        yield MachineType(
            name=f"{family}.{name}",
            gpu=gpu,
            gpu_count=int(gpus),
            vcpus=float(vcpus),
            ram_gb=float(ram),
            disk_gb=float(disk) or None,
        )


AZURE_SERIES: tuple[tuple[str, str, Mapping[int, int]], ...] = (
    (r"NC(\d+)as_T4_v3", "T4", {4: 1, 8: 1, 16: 1, 64: 4}),
    (r"NC(\d+)r?s_v3", "V100-16GB", {6: 1, 12: 2, 24: 4}),  # the PCIe card; called so in the shipped market and in gpuhunt
    (r"ND(\d+)rs_v2", "V100-32GB", {40: 8}),
    (r"NC(\d+)ads_A100_v4", "A100-80GB-PCIe", {24: 1, 48: 2, 96: 4}),
    (r"ND(\d+)asr(?:_A100)?_v4", "A100-40GB-SXM", {96: 8}),
    (r"ND(\d+)amsr_A100_v4", "A100-80GB-SXM", {96: 8}),
    (r"NCC?(\d+)adi?s_H100_v5", "H100-NVL", {40: 1, 80: 2}),
    (r"ND(\d+)isr_H100_v5", "H100-SXM", {96: 8}),
    (r"ND(\d+)isr_H200_v5", "H200-SXM", {96: 8}),
    (r"ND(\d+)isr?_MI300X_v5", "MI300X", {96: 8}),
    (r"ND(\d+)isr(?:_NDR)?_GB200_v6", "GB200", {128: 4}),
    (r"ND(\d+)isr(?:_NDR)?_GB300_v6", "GB300", {128: 4}),
    (r"NV(\d+)adm?s_A10_v5", "A10", {36: 1, 72: 2}),
    (r"NV(\d+)s_v3", "M60", {12: 1, 24: 2, 48: 4}),
)
AZURE_SHARES = re.compile(r"NV(6|12|18)ads_A10_v5|NV\d+as_v4|NV\d+adm?s_V710_v5|NG\d+\w*_V620_v1|NC\d+ads_A10_v4|NP\d+\w*")
"""Sizes with a share of a GPU, with virtual desktops' GPUs (MI25, V620, V710), in preview, or with FPGAs: never listed."""

AZURE_PREFIX = "Standard_"


def find_azure_type(name: str) -> MachineType | None:
    """Return the size `name` with whole GPUs, such as Standard_ND96isr_H100_v5; None for another."""
    for pattern, gpu, counts in AZURE_SERIES:
        match = re.fullmatch(AZURE_PREFIX + pattern, name)
        if match and int(match[1]) in counts:
            return MachineType(name=name, gpu=gpu, gpu_count=counts[int(match[1])], vcpus=float(match[1]))
    return None


def is_azure_share(name: str) -> bool:
    """Return whether `name` is a size that has no whole GPU to compute on."""
    return AZURE_SHARES.fullmatch(name.removeprefix(AZURE_PREFIX)) is not None
