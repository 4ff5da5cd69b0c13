"""Observed runs: reads them, compares them with the expected values and selects the ones that calibrate quotes.

An observed run is a job on given GPUs with a measured speed, duration or memory peak.

Example: `model = "llama-3.1-8b", method = "lora", gpu = "H100", tokens_per_s = 9100, peak_gib = 31.2` is a job of that model
and method that reached 9,100 tokens per second on one H100, with at most 31.2 GiB allocated.

A row is a job's table (`sizing/job.py`) plus the keys of `OBSERVED_KEYS`. Flat names such as `lora_rank` or `lora.rank` replace
nested tables, because a CSV file has none. This module does not read files or the ledger.

Example of the selection: of five runs, one is 40 times slower than expected (tokens per minute were written), and two are the
same job on the same GPU at 1,000 and 3,000 tokens per second, so neither can be trusted. The other two count; these three are
listed with the reason.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from costguard.errors import InputError, UnknownNameError
from costguard.sizing.calibration import MEMORY_SPREAD, Calibration, RunFamily, compute_usual_variance, estimate_family
from costguard.sizing.job import KEYS, Job, Table
from costguard.sizing.recipe import Parallelism
from costguard.sizing.serving_load import SERVING_KEYS
from costguard.values import checks
from costguard.values.checks import find_nearest_names, require
from costguard.values.gpu import GIB, Gpu, GpuNames

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
JOB_KEYS = tuple(k for k in KEYS if k not in ("limits", "disk_gb", "checkpoint_every_hours", *SERVING_KEYS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """One run. None means not observed, never zero.

    - `tokens_per_s`: of all GPUs together, in steady state. `hours`: wall-clock time from the first step to the last.
    - `peak`: bytes allocated on one GPU (`torch.cuda.max_memory_allocated`).
    - `reserved`: bytes reserved on one GPU (`nvidia-smi`, `max_memory_reserved`).
    - `same`: a text that is equal for runs of the same job on the same hardware. `table`: the row as written, for
        storage.
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
        """Return the number of GPUs of all nodes."""
        return self.gpu_count * self.nodes


def read_observed_run(row: Table, *, where: str, gpus: Mapping[str, Gpu], job_of: Callable[[Table], Job]) -> ObservedRun:
    """Return the run that `row` describes; raise InputError that names `where` and the field if it is invalid.

    `where`: its file and line. `job_of`: reads the job's part of the table.
    """
    try:
        return _read_row(row, where, gpus, job_of)
    except InputError as wrong:
        raise InputError(wrong.what, field=f"{where}, {wrong.field}" if wrong.field else where, hint=wrong.hint) from None


def _read_row(row: Table, where: str, gpus: Mapping[str, Gpu], job_of: Callable[[Table], Job]) -> ObservedRun:
    table = _nest_flat_names(row)
    cells = {k: table[k] for k in OBSERVED_KEYS if k in table}
    run = {k: v for k, v in table.items() if k not in cells}
    for key in run:
        if key not in JOB_KEYS:
            columns = (*OBSERVED_KEYS, *JOB_KEYS, *FLAT_NAMES)
            raise UnknownNameError(
                "column", key, field=key, nearest=find_nearest_names(key, columns), hint=f"known: {', '.join(columns)}"
            )
    job = job_of(run)
    gpu = _read_gpu(cells, gpus)
    gpu_count, nodes = (checks.require_whole_number(cells.get(key, 1), key, most=1_000_000) for key in ("gpu_count", "nodes"))
    (job.parallel or Parallelism()).count_data_ranks(gpu_count * nodes)
    _check_has_figure(cells, job)
    same = {**run, "gpu": gpu.name, "gpu_count": gpu_count, "nodes": nodes}
    return ObservedRun(
        name=str(cells.get("name") or where),
        job=job,
        gpu=gpu,
        gpu_count=gpu_count,
        nodes=nodes,
        tokens_per_s=_read_tokens_per_s(cells, gpu_count * nodes),
        hours=None if "hours" not in cells else checks.require_number(cells["hours"], "hours", least=1e-4, most=1e6),
        peak=_read_bytes(cells, "peak"),
        reserved=_read_bytes(cells, "reserved"),
        same=repr(sorted(same.items())),
        table={k: str(v) if k in REMARK_KEYS else v for k, v in row.items()},  # a date in TOML is text in JSON
    )


def _nest_flat_names(row: Table) -> dict[str, object]:
    """Return `row` with flat names moved into their tables; empty cells are dropped."""
    table: dict[str, object] = {}
    for key, value in row.items():
        outer, _, inner = FLAT_NAMES.get(key, key).partition(".")
        if value is None or value == "":
            continue
        if not inner:
            table[outer] = value
            continue
        within = table.setdefault(outer, {})
        require(isinstance(within, dict), key, f"is given, but {outer} is not a table", f"keep one of {key} and {outer}")
        table[outer] = {**within, inner: value}  # type: ignore[dict-item]  # just seen to be a dict
    return table


def _read_gpu(cells: Table, gpus: Mapping[str, Gpu]) -> Gpu:
    name = cells.get("gpu")
    if not isinstance(name, str):
        what = "is missing" if name is None else f"must be a name, not {checks.describe_value(name)}"
        raise InputError(what, field="gpu", hint="write the GPU that it ran on: H100")
    return gpus[GpuNames(gpus).resolve(name, field="gpu").canonical]


def _check_has_figure(cells: Table, job: Job) -> None:
    keys = (*SPEED_KEYS, *MEMORY_KEYS)
    hint = f"write one of: {', '.join(keys)}"
    require(any(k in cells for k in keys), "tokens_per_s", "it has no observation", hint)
    for pair in (("tokens_per_s", "tokens_per_s_per_gpu"), ("peak_gib", "peak_gb"), ("reserved_gib", "reserved_gb")):
        require(not all(k in cells for k in pair), pair[0], f"cannot be given together with {pair[1]}", "keep one of them")
    require("hours" not in cells or job.tokens is not None, "tokens", "is required with hours", "write tokens = 50e6")


def _read_tokens_per_s(cells: Table, gpus: int) -> float | None:
    if "tokens_per_s_per_gpu" in cells:
        return gpus * checks.require_number(cells["tokens_per_s_per_gpu"], "tokens_per_s_per_gpu", least=1e-6, most=1e12)
    return (
        checks.require_number(cells["tokens_per_s"], "tokens_per_s", least=1e-6, most=1e15) if "tokens_per_s" in cells else None
    )


def _read_bytes(cells: Table, what: str) -> float | None:
    sizes = [(f"{what}_{unit}", size) for unit, size in BYTES.items() if f"{what}_{unit}" in cells]
    return checks.require_number(cells[sizes[0][0]], sizes[0][0], least=1e-3, most=1e5) * sizes[0][1] if sizes else None


FAR_OFF = math.log(10)
"""Observed over expected beyond which a row is a mistake of units and no news: nothing in 217 published runs is 4 times off."""

CONTRADICTION = math.log(2)
"""Two runs of the same job on the same hardware that differ by more contradict each other."""

UNITS = {
    "speed": "tokens_per_s is of all GPUs, tokens_per_s_per_gpu of one",
    "memory": "peak_gib and peak_gb are of one GPU",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureComparison:
    """One figure of a run compared with its expected value.

    `family`: the family of the figure. `ratio`: log(observed / expected). `wrong`: why the figure cannot be true. If `family`
    and `wrong` are None, the figure was not observed.
    """

    family: RunFamily | None = None
    ratio: float = 0.0
    wrong: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """An observed run, compared with its expected speed and memory."""

    run: ObservedRun
    speed: FigureComparison = FigureComparison()
    memory: FigureComparison = FigureComparison()

    @property
    def findings(self) -> tuple[tuple[str, FigureComparison], ...]:
        """Return (measure, comparison) of each observed figure."""
        both = (("speed", self.speed), ("memory", self.memory))
        return tuple((measure, f) for measure, f in both if f.family or f.wrong)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedFigure:
    """A figure of a run that is excluded from calibration, and the reason."""

    run: str
    measure: str
    why: str

    @property
    def text(self) -> str:
        """Return the exclusion as one line of text."""
        return f"{self.run}: its {self.measure} was left out: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedRuns:
    """The calibration from all runs that count, and the excluded figures."""

    calibration: Calibration
    left_out: tuple[ExcludedFigure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationAnswer:
    """The answer of `costguard calibrate`.

    `file`: where the rows `runs` are stored. `new`: number of rows added now. `spread`: log half-width of the speed's interval
    before calibration.
    """

    file: str
    runs: tuple[Table, ...]
    new: int
    weighed: WeighedRuns
    spread: float
    warnings: tuple[str, ...] = ()


def weigh_runs(runs: Iterable[RunComparison], *, spread_seen: float) -> WeighedRuns:
    """Return the estimate of every family from the runs that count.

    `spread_seen`: log half-width of the uncalibrated 80 % interval of a speed.
    """
    usual = {"speed": compute_usual_variance(spread_seen), "memory": compute_usual_variance(MEMORY_SPREAD)}
    left_out: list[ExcludedFigure] = []
    plausible: dict[tuple[RunFamily, str], list[tuple[str, float]]] = defaultdict(list)
    for expected in runs:
        for measure, comparison in expected.findings:
            wrong = comparison.wrong or _explain_far_off(measure, comparison.ratio)
            if comparison.family is None or wrong:
                left_out.append(ExcludedFigure(run=expected.run.name, measure=measure, why=wrong or "it has no expected value"))
            else:
                plausible[comparison.family, expected.run.same].append((expected.run.name, comparison.ratio))
    counted: dict[RunFamily, list[float]] = defaultdict(list)
    for (family, _), alike in plausible.items():
        agreeing = _select_agreeing([ratio for _, ratio in alike])
        counted[family] += (ratio for _, ratio in alike if ratio in agreeing)
        left_out += _list_contradicting(family, alike, agreeing)
    beliefs = {family: estimate_family(ratios, usual[family.measure]) for family, ratios in counted.items() if ratios}
    return WeighedRuns(calibration=Calibration(beliefs), left_out=tuple(left_out))


def find_contradiction(ratios: Mapping[str, float]) -> str | None:
    """Return why the figures of one run contradict each other; None if they agree.

    `ratios`: log(observed / expected) by name of the figure.
    """
    if not ratios or max(ratios.values()) - min(ratios.values()) <= CONTRADICTION:
        return None
    apart = math.exp(max(ratios.values()) - min(ratios.values()))
    return f"its {' and '.join(ratios)} contradict each other: {apart:,.1f} times apart"


def _explain_far_off(measure: str, ratio: float) -> str | None:
    if abs(ratio) <= FAR_OFF:
        return None
    times = f"{math.exp(abs(ratio)):,.0f} times {'more' if ratio > 0 else 'less'} than expected"
    return f"{times}: check the units ({UNITS[measure]})"


def _select_agreeing(ratios: list[float]) -> frozenset[float]:
    """Return the ratios of one job that agree: all of them, the majority around their median, or none."""
    if max(ratios) - min(ratios) <= CONTRADICTION:
        return frozenset(ratios)
    middle = median(ratios)
    near = [r for r in ratios if abs(r - middle) <= CONTRADICTION / 2]
    return frozenset(near) if 2 * len(near) > len(ratios) else frozenset()


def _list_contradicting(
    family: RunFamily, alike: list[tuple[str, float]], agreeing: frozenset[float]
) -> Iterator[ExcludedFigure]:
    names = [name for name, _ in alike]
    spread = math.exp(max(r for _, r in alike) - min(r for _, r in alike))
    for name, ratio in alike:
        if ratio not in agreeing:
            others = ", ".join(n for n in names if n != name)
            why = f"it contradicts {others}: the same job on the same hardware, up to {spread:.1f} times apart"
            yield ExcludedFigure(run=name, measure=family.measure, why=why)
