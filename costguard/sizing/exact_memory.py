"""What a training step holds when it is really run, on tensors without data, and the closed form beside it.

Example: GPT-2 medium, 4 sequences of 1024, bf16-amp, AdamW, no checkpointing. Run: 12,062,639,104 B at the end of the forward
pass, 13,709,427,712 B at the worst moment before the step, 5,677,385,728 B in the step. The difference of the closed form
is said in percent of what was run: a positive one means that a quote is on the safe side.
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.sizing.job import Job
from costguard.sizing.memory.footprint import Footprint
from costguard.sizing.recipe import SWITCHES, Parallel, Recipe
from costguard.values.checks import require

METHODS = ("pretrain", "full", "lora")
PRECISIONS = ("bf16", "bf16-amp", "fp32")
OPTIMIZERS = ("adamw", "sgd", "sgd-momentum")
CHECKPOINTINGS = ("none", "full")
KINDS = ("decoder", "encoder", "encoder-decoder", "vit")
INSTEAD = "leave out --exact: the closed form answers"
INSTALL = "pip install 'gpu-costguard[exact]'"

BEFORE_STEP = frozenset(("load", "step"))
"""Phases of the closed form that are no part of the passes forward and back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """Allocated bytes of the second step (the first one makes the optimizer's states), as the CUDA allocator rounds them.

    `forward`: the worst moment until the loss is known; `forward_end`: then; `forward_backward`: the worst moment before the
    optimizer's step; `step`: the worst moment in it. `made_with`: the versions of the packages that ran it.
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
        """The worst moment of all."""
        return max(self.forward_backward, self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One moment: bytes as run, and by the closed form (None: it has no such moment)."""

    moment: str
    exact: int
    closed: int | None

    @property
    def difference(self) -> float | None:
        """Closed form over exact, less one; None where the closed form has nothing to compare."""
        return None if self.closed is None else self.closed / self.exact - 1


def compared(exact: Exact, footprint: Footprint) -> tuple[Compared, ...]:
    """Both figures at every moment, the peak first."""
    totals = {p.name: p.total for p in footprint.phases}
    passes = max((total for name, total in totals.items() if name not in BEFORE_STEP), default=None)
    return (
        Compared(moment="peak", exact=exact.peak, closed=footprint.peak),
        Compared(moment="forward, worst moment", exact=exact.forward, closed=totals.get("forward")),
        Compared(moment="forward, end", exact=exact.forward_end, closed=None),
        Compared(moment="forward and backward, worst moment", exact=exact.forward_backward, closed=passes),
        Compared(moment="step", exact=exact.step, closed=totals.get("step")),
    )


def check_runnable(job: Job, *, gpus: int = 1) -> None:
    """InputError for the first thing about `job` that cannot be run on fake tensors, with what to write instead."""
    recipe = job.recipe
    _one_of(recipe.method, METHODS, "method")
    _one_of(recipe.precision, PRECISIONS, "precision")
    _one_of(recipe.optimizer, OPTIMIZERS, "optimizer")
    _one_of(recipe.checkpointing, CHECKPOINTINGS, "checkpointing")
    require(recipe.framework == "hf", "framework", f"--exact runs Hugging Face's modules, not {recipe.framework}'s", INSTEAD)
    for name in SWITCHES:
        require(not getattr(recipe, name), name, "is not run by --exact", f"write {name} = false, or {INSTEAD}")
    _check_shape(job)
    _check_split(job, gpus)


def _one_of(value: str, known: tuple[str, ...], field: str) -> None:
    hint = f"write one of: {', '.join(known)}, or {INSTEAD}"
    require(value in known, field, f"--exact cannot run '{value}'", hint)


def _check_shape(job: Job) -> None:
    shape = job.architecture
    require(job.beside is None, "preference", "--exact runs one model, and no others beside it", INSTEAD)
    mixed = any(b.feed_forward.experts for b in shape.blocks)
    require(not mixed, "model", f"{shape.name} routes tokens to experts by their data, and fake tensors hold none", INSTEAD)
    require(shape.kind in KINDS, "model", f"--exact runs {', '.join(KINDS)} models, not a {shape.kind}", INSTEAD)


def _check_split(job: Job, gpus: int) -> None:
    split = job.parallel or Parallel()
    require(gpus == 1, "--on", f"--exact runs one GPU's step, not {gpus} GPUs'", f"write --on GPU:1, or {INSTEAD}")
    require(split.model_ranks * split.ep == 1, "parallel", "--exact runs one GPU's step", f"leave out [parallel], or {INSTEAD}")
    offloaded = f"'{split.offload}' moves tensors to host memory, which --exact does not follow"
    require(split.offload == "none", "parallel.offload", offloaded, f"write offload = 'none', or {INSTEAD}")


def passes(recipe: Recipe) -> int:
    """Passes to run before a step: a second one shows gradients that wait, and more show nothing new."""
    return min(recipe.gradient_accumulation, 2)
