"""Finds the GPUs that do the job of hardware which cannot be sized or bought: as much memory and as much arithmetic.

Example: 8 TPU v5e have 128 GB and 1,576 dense 16-bit TFLOPS. Two H100-SXM have 160 GB and 1,978 TFLOPS; six A100-80GB-SXM have
480 GB and 1,872 TFLOPS, because five fall short of the arithmetic. A rack of 72 GB200 has 13.4 TB and 180,000 TFLOPS: 80 B200.
Peak rates are compared, not speeds: what a compiler makes of a TPU, nobody here has measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from costguard.values.gpu import Gpu

USUAL_GPUS = ("H100-SXM", "A100-80GB-SXM", "B200-SXM", "L40S")
"""The GPUs that most clouds sell, in the order in which they are named."""
MOST_NAMED = 3
LARGEST_MACHINE = 8
TOO_MANY = 1024
"""GPUs above which a kind is not named: nobody rents so many of a small card in place of one rack."""


def find_equivalents(gpu: Gpu, count: int, candidates: Iterable[Gpu]) -> tuple[tuple[Gpu, int], ...]:
    """Return (GPU, count) of each of `candidates` with at least the memory and 16-bit peak of `count` of `gpu`.

    Kinds with an unknown rate, the kind itself, and those that take more than TOO_MANY are left out.
    """
    memory, rate = count * gpu.vram_gb, count * (gpu.bf16_tflops or 0)
    equivalents = []
    for other in candidates:
        if other.name == gpu.name or not other.bf16_tflops or not other.runs_pytorch:
            continue
        needed = math.ceil(max(memory / other.vram_gb, rate / other.bf16_tflops))
        if needed <= TOO_MANY:
            equivalents.append((other, needed))
    return tuple(equivalents)


def explain_rack(gpu: Gpu) -> str:
    """Return how a GPU is sold that comes in racks of 72 joined by NVLink; "" for others."""
    return f"{gpu.name} is sold by the rack of 72 or the tray of 4" if "NVL72" in gpu.interconnect else ""


def format_equivalents(equivalents: Iterable[tuple[Gpu, int]]) -> str:
    """Return the equivalents as `--on` takes them, above 8 in machines of 8: `H100-SXM:2, A100-80GB-SXM:8x73`; "" of none."""
    return ", ".join(_format_machines(gpu, count) for gpu, count in tuple(equivalents)[:MOST_NAMED])


def _format_machines(gpu: Gpu, count: int) -> str:
    return f"{gpu.name}:{count}" if count <= LARGEST_MACHINE else f"{gpu.name}:{LARGEST_MACHINE}x{-(-count // LARGEST_MACHINE)}"
