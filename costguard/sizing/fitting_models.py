"""What one machine can train or serve: each model's largest batch and longest sequence that fit for sure (`fit` is yes).

Example: QLoRA of llama-3.1-8b on one RTX-4090 (23.5 GiB) needs 13.3 GiB with one sequence of 2,048 tokens a pass. Two of
them fit, or one of 4,096 tokens. Both are found by doubling; the model's own context ends the search for lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from costguard.errors import InputError
from costguard.sizing.job import Job
from costguard.sizing.placement import Hardware, ImpossiblePlacement, Placement, Placer

LARGEST_BATCH = 1024
"""No batch beyond this is tried: it says that memory is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingModel:
    """A job of one sequence a pass that fits, and how far it can grow.

    `micro_batch`: most sequences a pass at the job's length. `seq_len`: the longest with one sequence, up to the model's
    context; None: that is not known, or the model does not count tokens.
    """

    placement: Placement
    job: Job
    micro_batch: int
    seq_len: int | None


def fit_model(job: Job, on: Hardware) -> FittingModel | None:
    """Return how far `job`, which has one sequence a pass, can grow on `on`; None where it does not fit for sure.

    Raises InputError for a job that cannot run so at all.
    """
    placement = Placer(job=job).place(on.gpu, on.gpu_count, on.nodes)
    if isinstance(placement, ImpossiblePlacement):
        raise InputError(placement.reason, field="parallel")
    if placement.fit != "yes":
        return None
    batch = 1
    while batch < LARGEST_BATCH and _fits(_change(job, micro_batch=2 * batch), on):
        batch *= 2
    return FittingModel(placement=placement, job=job, micro_batch=batch, seq_len=_find_longest(job, on))


def _find_longest(job: Job, on: Hardware) -> int | None:
    shape, length = job.architecture, job.recipe.seq_len
    if shape.sample_unit or shape.context is None:
        return None
    most = shape.context
    while length < most and _fits(_change(job, seq_len=min(2 * length, most)), on):
        length = min(2 * length, most)
    return length


def _fits(job: Job, on: Hardware) -> bool:
    placement = Placer(job=job).place(on.gpu, on.gpu_count, on.nodes)
    return not isinstance(placement, ImpossiblePlacement) and placement.fit == "yes"


def _change(job: Job, **fields: int) -> Job:
    return replace(job, recipe=replace(job.recipe, **fields))  # type: ignore[arg-type]  # whole numbers, checked at birth
