"""Samples of signals of a resource: GPU duty, power, network, a job's heartbeat. A missing sample is never a zero."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from costguard.values.checks import require, require_number
from costguard.values.instant import require_instant
from costguard.values.resource import ResourceKey

LARGEST_SAMPLE = 1e18

GPU_UTIL, GPU_MEMORY_UTIL, GPU_MEMORY_USED, GPU_POWER, GPU_TEMPERATURE = (
    "gpu_util",
    "gpu_memory_util",
    "gpu_memory_used",
    "gpu_power_w",
    "gpu_temperature_c",
)
CPU_UTIL, MEMORY_USED, NETWORK, DISK = "cpu_util", "memory_used", "network_bytes_s", "disk_bytes_s"
GPU_POWER_BUSIEST, GPU_POWER_LIMIT, GPU_BUSY_COUNT = "gpu_power_busiest_w", "gpu_power_limit_w", "gpu_busy_count"
CPU_CORES, PCIE, SM_ACTIVE = "cpu_cores", "pcie_bytes_s", "sm_active"
STEP, HEARTBEAT, QUEUE_JOBS, INPUT_AGE, CONNECTIONS, AGENT_ALIVE = (
    "step",
    "heartbeat",
    "queue_jobs",
    "input_age_s",
    "connections",
    "agent_alive",
)
SERVER_REQUESTS, SERVER_TOKENS, SERVER_CORES = "server_requests", "server_tokens", "server_cores"
SIGNALS = {
    GPU_UTIL: "percent of the time in which a kernel ran, 0 to 100, of the busiest GPU",
    SM_ACTIVE: "percent of its multiprocessors that had work, 0 to 100, of the busiest GPU (DCGM)",
    GPU_MEMORY_UTIL: "percent of the time in which GPU memory was read or written, 0 to 100, of the busiest GPU",
    GPU_MEMORY_USED: "percent of GPU memory held, 0 to 100, of the fullest GPU",
    GPU_POWER: "watts of all GPUs together",
    GPU_TEMPERATURE: "degrees Celsius of the hottest GPU",
    CPU_UTIL: "percent of all virtual CPUs of the machine, 0 to 100",
    MEMORY_USED: "percent of main memory held, 0 to 100",
    NETWORK: "bytes a second, in and out together",
    DISK: "bytes a second, read and written together",
    GPU_POWER_BUSIEST: "watts of the GPU that draws most",
    GPU_POWER_LIMIT: "watts that one GPU may draw",
    GPU_BUSY_COUNT: "how many GPUs ran a kernel",
    CPU_CORES: "cores of the processes that hold a GPU and all they started, and of others that use more than half a core",
    PCIE: "bytes a second between main memory and all GPUs, both ways together",
    STEP: "a job's step counter: any change counts as progress",
    HEARTBEAT: "a job's last sign of progress (checkpoint, log, call), a counter or a Unix time: any change counts as progress",
    QUEUE_JOBS: "jobs of a scheduler that are pending or running here",
    INPUT_AGE: "seconds since a key was pressed, or a notebook's kernel began or ended a cell, whichever is later",
    CONNECTIONS: "open sessions of people: terminals, editors, notebooks",
    AGENT_ALIVE: "1 from an agent that can see processes, at every interval",
    SERVER_REQUESTS: "requests that run or wait at the inference servers of the machine, by their own metrics",
    SERVER_TOKENS: "tokens that these servers read and wrote since they began, a counter: any change counts as progress",
    SERVER_CORES: "the part of cpu_cores that these servers use",
}
"""What a signal is called here, whatever a provider calls it, and its unit: every adapter translates to these.

Who reports a counter goes on reporting its last value after the job ended: flat says that nothing happens, missing nothing.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The `value` of `signal` at `at`, in the signal's own unit. NaN and infinity are refused: they are missing samples."""

    key: ResourceKey
    signal: str
    at: datetime
    value: float

    def __post_init__(self) -> None:
        require(bool(self.signal), "signal", "needs a name")
        require_instant(self.at, f"sample of {self.key.id}")
        require_number(self.value, f"{self.signal} of {self.key.id}", least=-LARGEST_SAMPLE, most=LARGEST_SAMPLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleHour:
    """Aggregates of the samples of one signal in the hour that begins at `start` (UTC)."""

    start: datetime
    count: int
    sum: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilizationSamples:
    """The samples that a provider delivered; `blind` has a reason for each resource without samples."""

    samples: tuple[Sample, ...]
    blind: tuple[tuple[ResourceKey, str], ...] = ()
