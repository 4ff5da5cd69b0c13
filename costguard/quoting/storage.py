"""The disk that a run needs, and its cost during the run.

Example: QLoRA on an 8B model keeps 16 GB of weights and 50 GB of system and packages, so 70 GB. At $0.10 per GB-month (730 h)
ten hours of it are 70 * 0.10 * 10 / 730 = $0.096.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from costguard.sizing.architecture import Architecture
from costguard.sizing.job import Job
from costguard.sizing.placement import Placement
from costguard.sizing.recipe import Recipe
from costguard.values.gpu import GIB
from costguard.values.money import Money, divide_half_even

SECONDS_PER_MONTH = 730 * 3600
"""The billing month of AWS, GCP and RunPod: 8,760 h / 12."""

SYSTEM_GB = 50
"""Operating system, driver, CUDA, Python packages and a small dataset: an assumption, 2026-11 (PyTorch images are 8-20 GB)."""

KEPT_CHECKPOINTS = 2
"""The newest and the one before it, so that a torn write loses nothing: an assumption, stated in the quote."""


CHECKPOINT_BYTES = 2 + 12
"""For each trained parameter: 16-bit weights, and fp32 master and two moments."""

PROCESS_GIB = 4
"""Host memory of a process with PyTorch, CUDA and its data loaders: an assumption, 2026-11."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRate:
    """A provider's disk price for a running machine, in nano-USD per GB-month; 0 if the machine's price includes it."""

    provider: str
    nano_per_gb_month: int
    source: str = ""

    def compute_cost(self, gb: int, seconds: int) -> Money:
        """Return the cost of `gb` for `seconds`."""
        return Money(nano=divide_half_even(self.nano_per_gb_month * gb * seconds, SECONDS_PER_MONTH))


def compute_job_disk_gb(job: Job) -> int:
    """Return the GB that the run of `job` needs: as stated, else computed.

    Weights of companion models and checkpoints of trained ones are included.
    """
    if job.disk_gb:
        return job.disk_gb
    companions = job.beside.list_with_weights(job.recipe) if job.beside else ()
    frozen = sum(c.architecture.released_bytes * c.architecture.parameters / 1e9 for c in companions if not c.trained)
    trained = sum(compute_disk_gb(c.architecture, job.recipe) - SYSTEM_GB for c in companions if c.trained)
    return compute_disk_gb(job.architecture, job.recipe) + round(frozen) + trained


def compute_disk_gb(architecture: Architecture, recipe: Recipe) -> int:
    """Return the GB (1e9 bytes) that a run needs: system, weights as they were released, and the checkpoints that it keeps."""
    billions = architecture.parameters / 1e9
    checkpoints = 0 if recipe.adapters or not recipe.trains else KEPT_CHECKPOINTS * architecture.parameters
    return round(SYSTEM_GB + architecture.released_bytes * billions + checkpoints / 1e9 * CHECKPOINT_BYTES) + 1


def compute_checkpoint_gb(architecture: Architecture, recipe: Recipe, adapters: int) -> float:
    """Return the GB of one checkpoint: of all weights, or of the `adapters` (parameters) alone, with their optimizer states."""
    return (adapters if recipe.adapters else architecture.parameters) / 1e9 * CHECKPOINT_BYTES


def compute_host_gib(job: Job, placement: Placement) -> float:
    """Return the GiB of host memory that one machine needs at least.

    It is what is offloaded, the released weights once, as they are read, and PROCESS_GIB for each GPU's process.
    """
    companions = job.beside.list_with_weights(job.recipe) if job.beside else ()
    models = (job.architecture, *(one.architecture for one in companions))
    read = sum(one.released_bytes * one.parameters for one in models) / GIB
    return placement.host_gib + read + PROCESS_GIB * placement.gpu_count


def read_storage_rates(rows: Iterable[Mapping[str, str]]) -> dict[str, StorageRate]:
    """Return the rate of a run's disk by provider, from `storage_rates.csv`; rows without a rate are left out."""
    return {
        row["provider"]: StorageRate(
            provider=row["provider"],
            nano_per_gb_month=Money.parse(row["usd_per_gb_month_running"], field=f"storage_rates.csv {row['provider']}").nano,
            source=f"{row['disk']}: {row['source']}, {row['observed_on']}",
        )
        for row in rows
        if row["of_a_run"] == "yes" and row["usd_per_gb_month_running"]
    }
