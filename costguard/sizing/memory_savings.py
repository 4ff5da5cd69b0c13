"""Changes to a job that reduce its memory, ordered by how much they cost, and the advice when a job fits nowhere.

Example: a full fine-tune of Llama-2-7B, micro_batch 8, no checkpointing, needs 137 GiB. `checkpointing = "full"` reduces it to
54 GiB for a quarter more time, `micro_batch = 1` to 61 GiB for more passes per step, and LoRA to less than either.

If a job fits nowhere, the advice is the smallest change after which some machine holds it.

Example: a full fine-tune of a 70B model fits on no single GPU. Checkpointing is already full; with 8-bit optimizer states it
still needs 490 GiB; with LoRA it needs 150 GiB and fits on one B300. The advice is `method = lora (now full) would fit on B300
x1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from costguard.sizing.job import Job
from costguard.sizing.memory.footprint import compute_cache_capacity
from costguard.sizing.memory.frameworks import choose_loss
from costguard.sizing.placement import FABRIC_GPUS, MOST_JOINED, ImpossiblePlacement, Placer, SizedSplit, can_hold
from costguard.sizing.recipe import Parallelism
from costguard.values.gpu import GIB, Gpu

SHORTEST_SEQ_LEN = 256
SMALLER_OPTIMIZER = {"adamw": "adamw-8bit", "paged-adamw": "paged-adamw-8bit", "lion": "lion-8bit", "sgd-momentum": "sgd"}
SMALLER_PRECISION = {"fp32": "bf16", "bf16-amp": "bf16", "fp16-amp": "bf16"}
SERVED_IN_FP8 = ("bf16", "fp16")
SMALLER_QUANT = {"none": "int8", "int8": "int4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """One change of `field` in the job file from `was` to `becomes`, its cost, and the changed job."""

    field: str
    was: str
    becomes: str
    cost: str
    job: Job

    @property
    def change(self) -> str:
        """Return the change as text: `field = becomes (now was)`."""
        return f"{self.field} = {self.becomes} (now {self.was})"


def list_memory_savings(job: Job, *, gpus: int = 1) -> tuple[JobChange, ...]:
    """Return every single change that can make `job` smaller on `gpus` GPUs, at full extent, cheapest first."""
    return (
        *_list_free_changes(job),
        *_list_slower_changes(job, gpus),
        *_list_coarser_changes(job),
        *_list_shorter_changes(job),
    )


def list_small_steps(job: Job, *, gpus: int = 1) -> tuple[JobChange, ...]:
    """Return changes by one step: half the batch, half the rank, one more ZeRO stage.

    `list_memory_savings` makes the same changes at full extent.
    """
    return tuple(_yield_small_steps(job, gpus))


def list_enlargements(job: Job) -> tuple[JobChange, ...]:
    """Return changes that use more memory and usually make `job` faster."""
    r = job.recipe
    doubled = [_change_recipe(job, "micro_batch", 2 * r.micro_batch, "fewer passes: usually faster")]
    if r.trains and r.checkpointing == "full":
        doubled.append(_change_recipe(job, "checkpointing", "none", "about a quarter less time"))
    return tuple(doubled)


def _list_free_changes(job: Job) -> Iterator[JobChange]:
    """Yield changes that cost at most some kernel efficiency."""
    r = job.recipe
    if r.attention == "eager":
        yield _change_recipe(job, "attention", "flash", "none: same result, faster")
    has_logits = choose_loss(r) in ("whole", "in-place") and job.architecture.has_head and job.architecture.vocab
    if r.trains and has_logits and not job.beside:
        cost = "none: the loss in chunks (Liger, torchtune)"
        yield (
            _change_recipe(job, "fused_loss", value=True, cost=cost)
            if r.loss == "auto"
            else _change_recipe(job, "loss", "fused", cost)  # stated: both keys would contradict each other
        )
    if r.micro_batch > 1:
        yield _change_recipe(job, "micro_batch", 1, "more passes a step" if r.trains else "fewer sequences at once")


def _yield_small_steps(job: Job, gpus: int) -> Iterator[JobChange]:
    r = job.recipe
    if r.micro_batch > 2:  # noqa: PLR2004 - of 2, half is 1, which `levers` try
        yield _change_recipe(
            job, "micro_batch", r.micro_batch // 2, "more passes a step" if r.trains else "fewer sequences at once"
        )
    if job.beside and job.beside.generation_batch > 1:
        half = job.beside.generation_batch // 2
        yield JobChange(
            field="preference.generation_batch",
            was=str(job.beside.generation_batch),
            becomes=str(half),
            cost="slower writing",
            job=replace(job, beside=replace(job.beside, generation_batch=half)),
        )
    if r.trains and gpus > 1 and job.parallel and job.parallel.stage < 2:  # noqa: PLR2004 - the third is `fsdp`, tried above
        yield _change_parallelism(job, "zero", zero=job.parallel.stage + 1)
    if r.adapters and r.lora.rank > 1:
        half = r.lora.rank // 2
        smaller = replace(r, lora=replace(r.lora, rank=half))
        cost = "coarser adapters"
        yield JobChange(field="lora.rank", was=str(r.lora.rank), becomes=str(half), cost=cost, job=replace(job, recipe=smaller))


def _list_slower_changes(job: Job, gpus: int) -> Iterator[JobChange]:
    """Yield changes that cost time."""
    r = job.recipe
    if r.trains and r.checkpointing != "full":
        yield _change_recipe(job, "checkpointing", "full", "about a quarter more time")
    stage = job.parallel.stage if job.parallel else 0
    if r.trains and gpus > 1 and stage < 3:  # noqa: PLR2004 - ZeRO has three stages
        yield _change_parallelism(job, "fsdp", fsdp=True, zero=0)
    if r.trains and (job.parallel is None or job.parallel.offload == "none"):
        yield _change_parallelism(job, "offload", offload="optimizer")
        yield _change_parallelism(job, "offload", offload="all")


def _list_coarser_changes(job: Job) -> Iterator[JobChange]:
    """Yield changes of the precision or the method, after which results differ slightly."""
    r = job.recipe
    if r.trains and not r.adapters and r.optimizer in SMALLER_OPTIMIZER:
        yield _change_recipe(job, "optimizer", SMALLER_OPTIMIZER[r.optimizer], "8-bit states, usually no visible loss")
    if r.precision in SMALLER_PRECISION:
        yield _change_recipe(job, "precision", SMALLER_PRECISION[r.precision], "no fp32 copy of the weights")
    if not r.trains and r.precision in SERVED_IN_FP8 and r.quant == "none":
        yield _change_recipe(job, "precision", "fp8", "coarser weights")
    if job.architecture.walk is not None:  # quantised weights and adapters are counted for linear layers in Blocks only
        return
    if not r.trains and r.quant in SMALLER_QUANT:
        yield _change_recipe(job, "quant", SMALLER_QUANT[r.quant], "coarser weights")
    if r.method == "full":
        yield _change_recipe(job, "method", "lora", "trains adapters instead of all weights")
    if r.method in ("full", "lora"):
        smaller = replace(r, method="qlora", quant="nf4")
        yield JobChange(
            field="method",
            was=r.method,
            becomes="qlora",
            cost="adapters on 4-bit weights, slower steps",
            job=replace(job, recipe=smaller),
        )


def _list_shorter_changes(job: Job) -> Iterator[JobChange]:
    """Yield a shorter sequence length, the last resort because it changes the task."""
    if job.architecture.sample_tokens is None and job.recipe.seq_len >= 2 * SHORTEST_SEQ_LEN:
        yield _halve_length(job)


def _halve_length(job: Job) -> JobChange:
    """Return half the sequence length; of a server, half of the longer of its prompts and answers."""
    load, cost = job.serving, "shorter context"
    if load is None:
        return _change_recipe(job, "seq_len", job.recipe.seq_len // 2, cost)
    field = "prompt_len" if load.prompt_len >= load.output_len else "output_len"
    was = max(load.prompt_len, load.output_len)
    shorter = replace(load, **{field: was // 2})
    recipe = replace(job.recipe, seq_len=shorter.prompt_len + shorter.output_len)
    changed = replace(job, serving=shorter, recipe=recipe)
    return JobChange(field=field, was=str(was), becomes=str(was // 2), cost=cost, job=changed)


def _format(value: object) -> str:
    """Return the value as it is written in a job file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _change_recipe(job: Job, field: str, value: str | int, cost: str) -> JobChange:
    changed = replace(job, recipe=replace(job.recipe, **{field: value}))  # type: ignore[arg-type]  # checked at birth
    return JobChange(field=field, was=_format(getattr(job.recipe, field)), becomes=_format(value), cost=cost, job=changed)


def _change_parallelism(job: Job, field: str, **change: str | int | bool) -> JobChange:
    parallel = job.parallel or Parallelism()
    changed = replace(parallel, **change)  # type: ignore[arg-type]  # checked at birth
    cost = (
        "communication each step"
        if field in ("fsdp", "zero")
        else "slower: states travel over PCIe, and host memory must hold them"
    )
    return JobChange(
        field=f"parallel.{field}",
        was=str(getattr(parallel, field)).lower(),
        becomes=str(change[field]).lower(),
        cost=cost,
        job=replace(job, parallel=changed),
    )


MORE_MACHINES = 8
"""How many times `max_gpus` is tried before saying that no number of machines helps."""

LARGE_MACHINE = 8
"""GPUs of the machine that is tried where the ones asked about help in no way."""


MOST_CHANGES_TOGETHER = 3
"""Changes that are tried together; a job that needs more is another job."""


def find_smallest_changes(job: Job, hardware: Iterable[tuple[Gpu, int]], gpus: Iterable[Gpu], most: int = 4) -> tuple[str, ...]:
    """Return at most `most` suggestions after which some of `hardware` holds `job`.

    The order is the unchanged job on several machines within `max_gpus`, the fewest changes that suffice (the cheapest first),
    more machines than that, then other GPUs, then shorter sequences. Where several machines hold the job as it is, only changes
    with which one of them does are named.
    """
    classes = sorted(hardware, key=lambda c: c[0].memory_gib * c[1], reverse=True)
    joined = [c for c in classes if c[1] >= FABRIC_GPUS and c[0].nvlink]
    unchanged = list(_list_sufficient_machines(job, joined[:1], job.limits.max_gpus))
    suggestions: list[str] = []
    for together in range(1, MOST_CHANGES_TOGETHER + 1):
        suggestions = suggestions or list(islice(_list_sufficient_changes(job, classes, together, alone=bool(unchanged)), most))
    suggestions = unchanged + suggestions if unchanged else suggestions + list(_list_sufficient_machines(job, joined[:1]))
    return tuple((suggestions or list(_list_other_gpus(job, gpus)) or list(_list_shorter_sequences(job, classes)))[:most])


def _list_sufficient_changes(job: Job, classes: list[tuple[Gpu, int]], together: int, *, alone: bool) -> Iterator[str]:
    """Yield each combination of `together` changes after which some hardware class holds the job; `alone`: on one machine."""
    gpus = max((count for _, count in classes), default=1)
    tried_changes: set[frozenset[str]] = set()
    for path in _list_change_paths(job, gpus, together):
        changes = frozenset(lever.change for lever in path)
        if changes in tried_changes:
            continue
        tried_changes.add(changes)
        where = _find_hardware(path[-1].job, classes, alone=alone)
        if where:
            yield f"{' and '.join(lever.change for lever in path)} would fit on {where}"


def _find_hardware(job: Job, classes: list[tuple[Gpu, int]], *, alone: bool = False) -> str | None:
    """Return the first class of which one machine holds `job`, or several connected ones unless `alone`; None: none does."""
    placer = Placer(job=job)
    for gpu, count in classes:
        if _is_held(placer, gpu, count):
            return f"{gpu.name} x{count}"
    for gpu, count in () if alone else classes:
        nodes = _count_machines(placer, gpu, count, job.limits.max_gpus) if gpu.nvlink and count >= FABRIC_GPUS else None
        if nodes is not None:
            return f"{gpu.name} x{count} x{nodes} nodes"
    return None


def _count_machines(placer: Placer, gpu: Gpu, count: int, most_gpus: int) -> int | None:
    """Return the number of connected machines, from two on, that hold the job; None if none up to `most_gpus` GPUs does."""
    most, nodes = most_gpus // count, 2
    if placer.job.serving:
        most = min(most, MOST_JOINED)
    while nodes <= most:
        if _is_held(placer, gpu, count, nodes):
            return nodes
        nodes *= 2
    return None


def _is_held(placer: Placer, gpu: Gpu, count: int, nodes: int = 1) -> bool:
    """Return whether the hardware holds the job; of a server, also one request's keys and values beside the weights."""
    if placer.job.serving is None:
        return can_hold(placer.place(gpu, count, nodes))
    ways = placer.list_splits(gpu, count, nodes)
    return not isinstance(ways, ImpossiblePlacement) and any(_has_room(way, gpu) for way in ways)


def _has_room(way: SizedSplit, gpu: Gpu) -> bool:
    """Return whether one copy of a served model leaves room for one request."""
    room = compute_cache_capacity(way.footprint, gpu, way.parallel, gpus=way.parallel.model_ranks)
    return way.reserved <= gpu.memory_gib * GIB and (room is None or room >= way.recipe.seq_len)


def _list_change_paths(job: Job, gpus: int, length: int) -> Iterator[tuple[JobChange, ...]]:
    """Yield every sequence of `length` changes to different fields."""
    for lever in list_memory_savings(job, gpus=gpus):
        if length == 1:
            yield (lever,)
            continue
        for rest in _list_change_paths(lever.job, gpus, length - 1):
            if all(lever.field != later.field for later in rest):
                yield (lever, *rest)


def _list_sufficient_machines(job: Job, classes: list[tuple[Gpu, int]], most_gpus: int | None = None) -> Iterator[str]:
    """Yield, for each given kind of machine, the number of machines that holds the job, up to `most_gpus` GPUs.

    None: up to `MORE_MACHINES` times as many as `max_gpus`.
    """
    for gpu, count in classes:
        nodes = _count_machines(Placer(job=job), gpu, count, most_gpus or job.limits.max_gpus * MORE_MACHINES)
        if nodes is not None:
            yield f"{nodes} machines of {gpu.name} x{count} would hold it: --on {gpu.name}:{count}x{nodes}"


def _list_other_gpus(job: Job, gpus: Iterable[Gpu]) -> Iterator[str]:
    """Yield the smallest other GPU of which one large machine, or several, holds the job."""
    placer = Placer(job=job)
    for gpu in sorted(gpus, key=lambda g: (g.memory_gib, g.name)):
        if gpu.nvlink and _is_held(placer, gpu, LARGE_MACHINE):
            yield f"{gpu.name} x{LARGE_MACHINE} would hold it"
            return
    largest = max((g for g in gpus if g.nvlink), key=lambda g: g.memory_gib, default=None)
    if largest:
        yield from _list_sufficient_machines(job, [(largest, LARGE_MACHINE)])


def _list_shorter_sequences(job: Job, classes: list[tuple[Gpu, int]]) -> Iterator[str]:
    """Yield the longest sequence length, by repeated halving, at which `job` fits with micro_batch 1."""
    if job.architecture.sample_tokens is not None:
        return
    also = " and micro_batch = 1" if job.recipe.micro_batch > 1 else ""
    changes: dict[str, JobChange] = {}
    shorter = replace(job, recipe=replace(job.recipe, micro_batch=1))
    while shorter.recipe.seq_len >= 2 * SHORTEST_SEQ_LEN:
        change = _halve_length(shorter)
        first, shorter = changes.get(change.field, change), change.job
        changes[change.field] = replace(change, was=first.was)
        where = _find_hardware(shorter, classes)
        if where:
            yield f"{' and '.join(one.change for one in changes.values())}{also} would fit on {where}"
            return
