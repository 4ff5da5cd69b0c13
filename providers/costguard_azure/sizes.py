"""What the name of a virtual machine's size says: its GPUs, virtual CPUs, and whether it has disks that a stop empties.

No listing states the GPUs. Patterns, and GPUs by the number in the name, are those of `costguard_public/instance_types.py`
(a test holds the two together); the shares of a GPU are Microsoft's pages of the sizes, as in dstackai/gpuhunt
providers/azure.py @3584151 (`shared/providers/azure.md`, section 4; 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "Standard_"
SERIES: tuple[tuple[str, str, Mapping[int, float]], ...] = (
    (r"NC(\d+)as_T4_v3", "T4", {4: 1, 8: 1, 16: 1, 64: 4}),
    (r"NC(\d+)r?s_v3", "V100-16GB", {6: 1, 12: 2, 24: 4}),
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
    (r"NV(\d+)adm?s_A10_v5", "A10", {6: 1 / 6, 12: 1 / 3, 18: 1 / 2, 36: 1, 72: 2}),
    (r"NV(\d+)s_v3", "M60", {12: 1, 24: 2, 48: 4}),
)
_NAME = re.compile(r"([A-Z]+?)(\d+)(?:-(\d+))?([a-z]*)(_.*)?")
_GPU_FAMILY = re.compile(r"N[CDGPV]")
_NEW = re.compile(r"_v([3-9]|\d\d)$")
LONGEST = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSize:
    """`gpu`: canonical; of a size that is not in the table its own name; "" for none. `gpu_count`: 0 if unknown.

    `vcpus`: 0 if the name does not state them. `scratch`: whether it has local disks that a deallocation empties.
    `is_known`: whether its GPUs are in the table, or it has none.
    """

    gpu: str = ""
    gpu_count: float = 0
    vcpus: float = 0
    scratch: bool = False
    is_known: bool = True


def parse_size(name: str) -> MachineSize:
    """Return what `name`, such as Standard_NC24ads_A100_v4, says; upper and lower case mean the same."""
    plain = name[len(PREFIX) :] if name.lower().startswith(PREFIX.lower()) else name
    for pattern, gpu, counts in SERIES:
        match = re.fullmatch(pattern, plain, re.IGNORECASE | re.ASCII)
        if match and len(match[1]) < 4 and int(match[1]) in counts:  # noqa: PLR2004 - digits
            return MachineSize(gpu=gpu, gpu_count=counts[int(match[1])], vcpus=float(match[1]), scratch=True)
    match = _NAME.fullmatch(plain) if len(plain) <= LONGEST and plain.isascii() else None
    if match is None:
        return MachineSize(scratch=True)
    if _GPU_FAMILY.match(match[1]):
        return MachineSize(gpu=plain, scratch=True, is_known=False)
    is_new = bool(_NEW.search(match[5] or ""))
    # Up to version 3 a temporary disk was part of each size; since then the letter d names it (from memory, 2026-12).
    has_disk = "d" in match[4] or not re.search(r"_v([4-9]|\d\d)$", match[5] or "")
    vcpus = float(match[3] or match[2]) if is_new and len(match[2]) < 4 else 0.0  # noqa: PLR2004 - digits
    return MachineSize(vcpus=vcpus, scratch=has_disk)


TIERS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32767)
"""GiB of the size tiers by which managed disks bill (learn.microsoft.com, from memory, 2026-12)."""
TIER_NAMES = (1, 2, 3, 4, 6, 10, 15, 20, 30, 40, 50, 60, 70, 80)
LETTERS = {"Premium": "P", "StandardSSD": "E", "Standard": "S"}
LEAST_HDD = 32
"""Standard HDDs have no tier below S4, of 32 GiB."""


def find_tier(sku: str, gb: int) -> tuple[str, int] | None:
    """Return the tier of a disk of `sku` ("Premium_LRS") and `gb` GiB, such as ("P10", 128); None if it bills by its GiB."""
    letter = LETTERS.get(sku.partition("_")[0])
    if letter is None or gb > TIERS[-1]:
        return None
    least = max(gb, LEAST_HDD) if letter == "S" else gb
    number = next(i for i, size in enumerate(TIERS) if least <= size)
    return f"{letter}{TIER_NAMES[number]}", TIERS[number]
