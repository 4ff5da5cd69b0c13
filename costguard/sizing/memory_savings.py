"""What would make a job smaller: each lever is one change a person could write, smallest loss first.

Example: a full fine-tune of Llama-2-7B, micro_batch 8, no checkpointing, needs 137 GiB. `checkpointing = "full"` brings
it to 54 GiB at a quarter more time; `micro_batch = 1` to 61 GiB at no loss but more steps; LoRA to less than either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from costguard.sizing.job import Job
from costguard.sizing.recipe import Parallelism

SHORTEST_SEQ_LEN = 256
SMALLER_OPTIMIZER = {"adamw": "adamw-8bit", "paged-adamw": "paged-adamw-8bit", "lion": "lion-8bit", "sgd-momentum": "sgd"}
SMALLER_PRECISION = {"fp32": "bf16", "bf16-amp": "bf16", "fp16-amp": "bf16"}
SERVED_IN_FP8 = ("bf16", "fp16")
SMALLER_QUANT = {"none": "int8", "int8": "int4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """One change: `field` of the job file from `was` to `becomes`, what it costs, and the changed job."""

    field: str
    was: str
    becomes: str
    cost: str
    job: Job

    @property
    def change(self) -> str:
        """The change as a person would write it."""
        return f"{self.field} = {self.becomes} (now {self.was})"


def list_memory_savings(job: Job, *, gpus: int = 1) -> tuple[JobChange, ...]:
    """Every single change that can make `job` smaller on `gpus` GPUs as far as that change goes, the least loss first."""
    return (
        *_list_free_changes(job),
        *_list_slower_changes(job, gpus),
        *_list_coarser_changes(job),
        *_list_shorter_changes(job),
    )


def list_small_steps(job: Job, *, gpus: int = 1) -> tuple[JobChange, ...]:
    """Changes by one step where `levers` go all the way: half the batch, half the rank, one more ZeRO stage."""
    return tuple(_yield_small_steps(job, gpus))


def list_enlargements(job: Job) -> tuple[JobChange, ...]:
    """Changes that make `job` larger, and usually faster: what there is to gain where memory is left."""
    r = job.recipe
    doubled = [_change_recipe(job, "micro_batch", 2 * r.micro_batch, "fewer passes: usually faster")]
    if r.trains and r.checkpointing == "full":
        doubled.append(_change_recipe(job, "checkpointing", "none", "about a quarter less time"))
    return tuple(doubled)


def _list_free_changes(job: Job) -> Iterator[JobChange]:
    """Changes that lose nothing but, at most, some kernel efficiency."""
    r = job.recipe
    if r.attention == "eager":
        yield _change_recipe(job, "attention", "flash", "none: same result, faster")
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
    """Changes that cost time."""
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
    """Changes to the numbers or the method: results differ a little."""
    r = job.recipe
    if r.trains and not r.adapters and r.optimizer in SMALLER_OPTIMIZER:
        yield _change_recipe(job, "optimizer", SMALLER_OPTIMIZER[r.optimizer], "8-bit states, usually no visible loss")
    if r.precision in SMALLER_PRECISION:
        yield _change_recipe(job, "precision", SMALLER_PRECISION[r.precision], "no fp32 copy of the weights")
    if not r.trains and r.precision in SERVED_IN_FP8 and r.quant == "none":
        yield _change_recipe(job, "precision", "fp8", "coarser weights")
    if not r.trains and r.quant in SMALLER_QUANT:
        yield _change_recipe(job, "quant", SMALLER_QUANT[r.quant], "coarser weights")
    if job.architecture.walk is not None:  # adapters are counted for linear layers in Blocks only
        return
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
    """The last resort: another task."""
    if job.architecture.sample_tokens is None and job.recipe.seq_len >= 2 * SHORTEST_SEQ_LEN:
        yield _change_recipe(job, "seq_len", job.recipe.seq_len // 2, "shorter context")


def _change_recipe(job: Job, field: str, value: str | int, cost: str) -> JobChange:
    changed = replace(job, recipe=replace(job.recipe, **{field: value}))  # type: ignore[arg-type]  # checked at birth
    return JobChange(field=field, was=str(getattr(job.recipe, field)), becomes=str(value), cost=cost, job=changed)


def _change_parallelism(job: Job, field: str, **change: str | int | bool) -> JobChange:
    stated = job.parallel or Parallelism()
    changed = replace(stated, **change)  # type: ignore[arg-type]  # checked at birth
    cost = (
        "communication each step"
        if field in ("fsdp", "zero")
        else "slower: states travel over PCIe, and host memory must hold them"
    )
    return JobChange(
        field=f"parallel.{field}",
        was=str(getattr(stated, field)).lower(),
        becomes=str(change[field]).lower(),
        cost=cost,
        job=replace(job, parallel=changed),
    )
