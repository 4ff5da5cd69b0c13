"""A GPU as its datasheet states it: dense rates, never the sparse headline.

Units: GB are 1e9 bytes as sold; GiB are 2^30. TFLOPS are 1e12 dense operations a second with fp32 accumulation;
bandwidths are GB/s, both directions together for links; watts. The facts stand in `costguard/data/gpus.csv`.

Example: H100-SXM is sold as 80 GB; the driver offers a process 79.11 GiB of it, and that is what a job must fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from costguard.errors import InputError
from costguard.values.checks import require, require_number

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One model of GPU. None means the datasheet gives no such figure (no fp8 on an A100), never zero.

    `bf16_tflops` is the dense 16-bit tensor rate; where `has_bf16` is false only fp16 runs at it. `dies` is how many
    devices one card shows to the driver: a process gets the card's memory and rates divided by it.
    `mamf_bf16_tflops` is the best matrix multiplication anybody has measured, against the datasheet's peak.
    """

    name: str
    vendor: str
    arch: str
    vram_gb: float
    bandwidth_gb_s: float
    aliases: tuple[str, ...] = ()
    compute_capability: str = ""
    usable_gib: float | None = None
    fp32_tflops: float | None = None
    tf32_tflops: float | None = None
    bf16_tflops: float | None = None
    fp8_tflops: float | None = None
    fp4_tflops: float | None = None
    int8_tops: float | None = None
    mamf_bf16_tflops: float | None = None
    interconnect: str = ""
    interconnect_gb_s: float | None = None
    tdp_w: float | None = None
    price_usd: float | None = None
    has_bf16: bool = True
    unified_memory: bool = False
    dies: int = 1
    verified: str = "memory"
    note: str = ""

    def __post_init__(self) -> None:
        require(bool(self.name), "gpu.name", "is empty", "write a name such as A100-80GB-SXM")
        require_number(self.vram_gb, f"{self.name}.vram_gb", least=1, most=10_000)
        require_number(self.bandwidth_gb_s, f"{self.name}.bandwidth_gb_s", least=1, most=1e6)
        require(self.dies >= 1, f"{self.name}.dies", f"must be 1 or more, not {self.dies}", "count what the driver shows")

    @property
    def memory_gib(self) -> float:
        """GiB one process can use at most: what the driver reports of one die, or a cautious share of the stated size."""
        return self.card_gib / self.dies

    @property
    def card_gib(self) -> float:
        """GiB of all dies of the card together, as the driver reports them."""
        if self.usable_gib is not None:
            return self.usable_gib
        return self.vram_gb * (UNIFIED_SHARE if self.unified_memory else USABLE_SHARE)

    @property
    def runs_pytorch(self) -> bool:
        """Whether the memory of a PyTorch job says anything of this part: not of TPUs or Trainium, which compile it anew."""
        return self.vendor in PYTORCH_VENDORS

    @property
    def nvlink(self) -> bool:
        """Whether GPUs of one machine talk to each other over a fabric much faster than PCIe."""
        fast = (self.interconnect_gb_s or 0) >= FAST_FABRIC_GB_S
        return fast and not any(word in self.interconnect for word in PAIRWISE_LINKS)


USABLE_SHARE = 0.97
"""Share of the stated size the driver offers where no figure for the model is known: "8 GB" is 7.75 GiB on an RTX 4060
(github.com/ESRSchao/EdgeRegNet issue 2), 23.52 of 24 on an RTX 4090, 9.64-9.78 of 10 on an RTX 3080. Boards with ECC over
GDDR6 keep 7%; theirs stand in gpus.csv (L40: 44.40 GiB, github.com/QwenLM/Qwen3-VL issue 2097)."""

UNIFIED_SHARE = 0.75
"""Share of Apple's unified memory a GPU process may use by default (`recommendedMaxWorkingSetSize`), gpus.csv 2026-11."""

PYTORCH_VENDORS = ("NVIDIA", "AMD", "Apple")

FAST_FABRIC_GB_S = 250

PAIRWISE_LINKS = ("bridge", "C2C")
"""Links that join two cards only, or a GPU with its own CPU: no fabric between the GPUs of a machine."""


def read_gpus(rows: Iterable[Mapping[str, str]]) -> dict[str, Gpu]:
    """Every GPU of `gpus.csv` by its name, in the file's order, which is the order in which short forms are tried."""
    gpus: dict[str, Gpu] = {}
    for row in rows:
        gpu = read_gpu(row)
        require(gpu.name not in gpus, f"gpus.csv {gpu.name}", "stands there twice", "remove one row")
        gpus[gpu.name] = gpu
    return gpus


def read_gpu(row: Mapping[str, str]) -> Gpu:
    """One row of `gpus.csv`; an empty cell is None."""
    figures = {column: _read_figure(row, column) for column in _FIGURES}
    return Gpu(
        name=row["name"],
        aliases=tuple(filter(None, row["aliases"].split("|"))),
        vendor=row["vendor"],
        arch=row["arch"],
        compute_capability=row["compute_capability"],
        vram_gb=float(row["vram_gb"]),
        bandwidth_gb_s=float(row["bandwidth_gb_s"]),
        interconnect=row["interconnect"],
        has_bf16=_read_flag(row, "has_bf16"),
        unified_memory=_read_flag(row, "unified_memory"),
        dies=int(row["dies"]),
        verified=row["verified"],
        note=row["note"],
        **figures,
    )


_FIGURES = (
    "usable_gib",
    "fp32_tflops",
    "tf32_tflops",
    "bf16_tflops",
    "fp8_tflops",
    "fp4_tflops",
    "int8_tops",
    "mamf_bf16_tflops",
    "interconnect_gb_s",
    "tdp_w",
    "price_usd",
)


def _read_figure(row: Mapping[str, str], column: str) -> float | None:
    return float(row[column]) if row[column] else None


def _read_flag(row: Mapping[str, str], column: str) -> bool:
    if row[column] not in ("yes", "no"):
        raise InputError(f"must be yes or no, not '{row[column]}'", field=f"gpus.csv {row['name']}.{column}")
    return row[column] == "yes"
