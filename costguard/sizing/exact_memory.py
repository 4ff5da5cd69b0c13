"""Memory of a training step executed on fake tensors (tensors without data), compared with the closed form.

Example: GPT-2 medium, 4 sequences of 1024, bf16-amp, AdamW, no checkpointing. Executed: 12,062,639,104 B at the end of the
forward pass, 13,709,427,712 B at the peak before the optimizer step, 5,677,385,728 B in the step. The difference of the closed
form is given in percent of the executed value; a positive difference means that a quote is on the safe side.
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.sizing.job import Job
from costguard.sizing.memory.footprint import Footprint
from costguard.sizing.recipe import SWITCHES, Parallelism, Recipe
from costguard.values.checks import require

RUNNABLE_METHODS = ("pretrain", "full", "lora")
RUNNABLE_PRECISIONS = ("bf16", "bf16-amp", "fp32")
RUNNABLE_OPTIMIZERS = ("adamw", "sgd", "sgd-momentum")
RUNNABLE_CHECKPOINTINGS = ("none", "full")
RUNNABLE_KINDS = ("decoder", "encoder", "encoder-decoder", "vit")
LEAVE_OUT_HINT = "leave out --exact: the closed form answers"
INSTALL_HINT = "in a clone of costguard: pip install '.[exact]'"

BEFORE_STEP = frozenset(("load", "step"))
"""Phases of the closed form that are no part of the passes forward and back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactMemory:
    """Allocated bytes in the second step, which has optimizer states already; rounded as the CUDA allocator does.

    - `forward`: peak until the loss is computed. `forward_end`: bytes at that moment.
    - `forward_backward`: peak before the optimizer step. `step`: peak in the optimizer step.
    - `made_with`: versions of the packages that ran it.
    """

    parameters: int
    trained: int
    forward: int
    forward_end: int
    forward_backward: int
    step: int
    made_with: str

    @property
    def peak(self) -> int:
        """Return the peak of the whole step."""
        return max(self.forward_backward, self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentComparison:
    """Bytes at one moment, executed and by the closed form (None: the closed form has no such moment)."""

    moment: str
    exact: int
    closed: int | None

    @property
    def difference(self) -> float | None:
        """Return closed / exact - 1; None if the closed form has no value."""
        return None if self.closed is None else self.closed / self.exact - 1


def compare_moments(exact: ExactMemory, footprint: Footprint) -> tuple[MomentComparison, ...]:
    """Return both figures at every moment, the peak first."""
    totals = {p.name: p.total for p in footprint.phases}
    passes = max((total for name, total in totals.items() if name not in BEFORE_STEP), default=None)
    return (
        MomentComparison(moment="peak", exact=exact.peak, closed=footprint.peak),
        MomentComparison(moment="forward, worst moment", exact=exact.forward, closed=totals.get("forward")),
        MomentComparison(moment="forward, end", exact=exact.forward_end, closed=None),
        MomentComparison(moment="forward and backward, worst moment", exact=exact.forward_backward, closed=passes),
        MomentComparison(moment="step", exact=exact.step, closed=totals.get("step")),
    )


def check_runnable(job: Job, *, gpus: int = 1) -> None:
    """Raise InputError for the first property of `job` that cannot run on fake tensors, with what to write instead."""
    recipe = job.recipe
    _check_one_of(recipe.method, RUNNABLE_METHODS, "method")
    _check_one_of(recipe.precision, RUNNABLE_PRECISIONS, "precision")
    _check_one_of(recipe.optimizer, RUNNABLE_OPTIMIZERS, "optimizer")
    _check_one_of(recipe.checkpointing, RUNNABLE_CHECKPOINTINGS, "checkpointing")
    require(
        recipe.framework == "hf", "framework", f"--exact runs Hugging Face's modules, not {recipe.framework}'s", LEAVE_OUT_HINT
    )
    for name in SWITCHES:
        require(not getattr(recipe, name), name, "is not run by --exact", f"write {name} = false, or {LEAVE_OUT_HINT}")
    require(not recipe.dropout, "dropout", "is not run by --exact", f"write dropout = false, or {LEAVE_OUT_HINT}")
    _check_shape(job)
    _check_split(job, gpus)


def _check_one_of(value: str, choices: tuple[str, ...], field: str) -> None:
    hint = f"write one of: {', '.join(choices)}, or {LEAVE_OUT_HINT}"
    require(value in choices, field, f"--exact cannot run '{value}'", hint)


def _check_shape(job: Job) -> None:
    shape = job.architecture
    require(job.beside is None, "preference", "--exact runs only one model", LEAVE_OUT_HINT)
    mixed = any(b.feed_forward.experts for b in shape.blocks)
    require(
        not mixed,
        "model",
        f"{shape.name} routes tokens to experts by their data, and fake tensors contain no data",
        LEAVE_OUT_HINT,
    )
    require(
        shape.kind in RUNNABLE_KINDS,
        "model",
        f"--exact runs {', '.join(RUNNABLE_KINDS)} models, not a {shape.kind}",
        LEAVE_OUT_HINT,
    )


def _check_split(job: Job, gpus: int) -> None:
    split = job.parallel or Parallelism()
    require(gpus == 1, "--on", f"--exact runs one GPU's step, not {gpus} GPUs'", f"write --on GPU:1, or {LEAVE_OUT_HINT}")
    require(
        split.model_ranks * split.ep == 1,
        "parallel",
        "--exact runs one GPU's step",
        f"leave out [parallel], or {LEAVE_OUT_HINT}",
    )
    offloaded = f"'{split.offload}' moves tensors to host memory, which --exact does not follow"
    require(split.offload == "none", "parallel.offload", offloaded, f"write offload = 'none', or {LEAVE_OUT_HINT}")


def count_passes(recipe: Recipe) -> int:
    """Return the passes to execute before a step: at most 2.

    The second pass shows gradients that are kept from the first; further passes show nothing new.
    """
    return min(recipe.gradient_accumulation, 2)
