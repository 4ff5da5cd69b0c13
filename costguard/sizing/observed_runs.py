"""An observed run: a job on given GPUs, and what was seen of its speed, its hours and its memory.

Example: `model = "llama-3.1-8b", method = "lora", gpu = "H100", tokens_per_s = 9100, peak_gib = 31.2` is a job of that
model and method, seen at 9,100 tokens a second on one H100 with 31.2 GiB allocated at its worst moment.

Rows come from a file now and from the ledger later; neither is known here. A row is a job's table (`core/job.py`) with the
keys of `SEEN_KEYS`; flat names such as `lora_rank` or `lora.rank` stand for nested ones, since a CSV file has no tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from costguard.errors import InputError, UnknownNameError
from costguard.sizing.job import KEYS, Job, Table
from costguard.sizing.recipe import Parallelism
from costguard.values import checks
from costguard.values.checks import find_nearest_names, require
from costguard.values.gpu import GIB, Gpu
from costguard.values.gpu_names import GpuNames

FLAT_NAMES = {
    "lora_rank": "lora.rank",
    "lora_targets": "lora.targets",
    "zero": "parallel.zero",
    "fsdp": "parallel.fsdp",
    "tp": "parallel.tp",
    "pp": "parallel.pp",
    "cp": "parallel.cp",
    "ep": "parallel.ep",
    "offload": "parallel.offload",
}
"""Flat name -> its place in the job's table; the flags of the command line are called so too."""

BYTES = {"gib": GIB, "gb": 10**9}
HARDWARE_KEYS = ("gpu", "gpu_count", "nodes")
SPEED_KEYS = ("tokens_per_s", "tokens_per_s_per_gpu", "hours")
MEMORY_KEYS = ("peak_gib", "peak_gb", "reserved_gib", "reserved_gb")
REMARK_KEYS = ("name", "note", "source", "at")
OBSERVED_KEYS = (*HARDWARE_KEYS, *SPEED_KEYS, *MEMORY_KEYS, *REMARK_KEYS)
JOB_KEYS = tuple(k for k in KEYS if k not in ("limits", "disk_gb", "checkpoint_every_hours"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """One run. None: not seen, never zero.

    `tokens_per_s`: of all GPUs, in steady state. `hours`: wall-clock, from the first step to the last. `peak`: bytes allocated
    on one GPU (`torch.cuda.max_memory_allocated`). `reserved`: bytes taken there (`nvidia-smi`, `max_memory_reserved`).
    `same`: equal for runs of the same job on the same hardware. `table`: the row as it was written, to be kept.
    """

    name: str
    job: Job
    gpu: Gpu
    gpu_count: int
    nodes: int
    tokens_per_s: float | None
    hours: float | None
    peak: float | None
    reserved: float | None
    same: str
    table: Table

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.gpu_count * self.nodes


def read_observed_run(row: Table, *, where: str, gpus: Mapping[str, Gpu], job_of: Callable[[Table], Job]) -> ObservedRun:
    """The run that `row` states. `where`: its file and line; `job_of`: reads the job's part of the table."""
    try:
        return _read_row(row, where, gpus, job_of)
    except InputError as wrong:
        raise InputError(wrong.what, field=f"{where}, {wrong.field}" if wrong.field else where, hint=wrong.hint) from None


def _read_row(row: Table, where: str, gpus: Mapping[str, Gpu], job_of: Callable[[Table], Job]) -> ObservedRun:
    table = _nest_flat_names(row)
    seen = {k: table[k] for k in OBSERVED_KEYS if k in table}
    run = {k: v for k, v in table.items() if k not in seen}
    for key in run:
        if key not in JOB_KEYS:
            known = (*OBSERVED_KEYS, *JOB_KEYS, *FLAT_NAMES)
            raise UnknownNameError(
                "column", key, field=key, nearest=find_nearest_names(key, known), hint=f"known: {', '.join(known)}"
            )
    job = job_of(run)
    gpu = _read_gpu(seen, gpus)
    gpu_count, nodes = (checks.require_whole_number(seen.get(key, 1), key, most=1_000_000) for key in ("gpu_count", "nodes"))
    (job.parallel or Parallelism()).count_data_ranks(gpu_count * nodes)
    _check_has_figure(seen, job)
    same = {**run, "gpu": gpu.name, "gpu_count": gpu_count, "nodes": nodes}
    return ObservedRun(
        name=str(seen.get("name") or where),
        job=job,
        gpu=gpu,
        gpu_count=gpu_count,
        nodes=nodes,
        tokens_per_s=_read_tokens_per_s(seen, gpu_count * nodes),
        hours=None if "hours" not in seen else checks.require_number(seen["hours"], "hours", least=1e-4, most=1e6),
        peak=_read_bytes(seen, "peak"),
        reserved=_read_bytes(seen, "reserved"),
        same=repr(sorted(same.items())),
        table={k: str(v) if k in REMARK_KEYS else v for k, v in row.items()},  # a date in TOML is text in JSON
    )


def _nest_flat_names(row: Table) -> dict[str, object]:
    """Flat names in their places; cells that were left empty are left out."""
    table: dict[str, object] = {}
    for key, value in row.items():
        outer, _, inner = FLAT_NAMES.get(key, key).partition(".")
        if value is None or value == "":
            continue
        if not inner:
            table[outer] = value
            continue
        within = table.setdefault(outer, {})
        require(isinstance(within, dict), key, f"stands beside a {outer} that is no table", f"keep one of {key} and {outer}")
        table[outer] = {**within, inner: value}  # type: ignore[dict-item]  # just seen to be a dict
    return table


def _read_gpu(seen: Table, gpus: Mapping[str, Gpu]) -> Gpu:
    name = seen.get("gpu")
    if not isinstance(name, str):
        what = "is missing" if name is None else f"must be a name, not {checks.describe_value(name)}"
        raise InputError(what, field="gpu", hint="write the GPU that it ran on: H100")
    return gpus[GpuNames(gpus).resolve(name, field="gpu").canonical]


def _check_has_figure(seen: Table, job: Job) -> None:
    keys = (*SPEED_KEYS, *MEMORY_KEYS)
    hint = f"write one of: {', '.join(keys)}"
    require(any(k in seen for k in keys), "tokens_per_s", "nothing says what was observed", hint)
    for pair in (("tokens_per_s", "tokens_per_s_per_gpu"), ("peak_gib", "peak_gb"), ("reserved_gib", "reserved_gb")):
        require(not all(k in seen for k in pair), pair[0], f"is stated beside {pair[1]}", "keep one of the two")
    require("hours" not in seen or job.tokens is not None, "tokens", "is missing beside hours", "write tokens = 50e6")


def _read_tokens_per_s(seen: Table, gpus: int) -> float | None:
    if "tokens_per_s_per_gpu" in seen:
        return gpus * checks.require_number(seen["tokens_per_s_per_gpu"], "tokens_per_s_per_gpu", least=1e-6, most=1e12)
    return (
        checks.require_number(seen["tokens_per_s"], "tokens_per_s", least=1e-6, most=1e15) if "tokens_per_s" in seen else None
    )


def _read_bytes(seen: Table, what: str) -> float | None:
    found = [(f"{what}_{unit}", size) for unit, size in BYTES.items() if f"{what}_{unit}" in seen]
    return checks.require_number(seen[found[0][0]], found[0][0], least=1e-3, most=1e5) * found[0][1] if found else None
