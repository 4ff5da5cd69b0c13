"""Memory a job needs on each GPU, term by term, at its worst moment.

Example: a full fine-tune of Llama-2-7B in bf16, 8 sequences of 2048, no checkpointing, AdamW, one GPU. At the end of
the forward pass weights (13.5 GB), optimizer (27.0) and what the layers keep (about 100) are alive. Going back through the
loss adds the logits' fp32 gradients twice: 147.2 GB. Gradients (13.5) come later, when activations are gone: so
a peak is the largest of several moments, and adding everything up would be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

from costguard.sizing.architecture import Architecture
from costguard.sizing.memory import overheads
from costguard.sizing.memory.buffers import compute_buffers
from costguard.sizing.memory.explanation import FootprintBasis, TermExplanation, explain_footprint
from costguard.sizing.memory.frameworks import get_framework
from costguard.sizing.memory.inference import list_serving_phases
from costguard.sizing.memory.measure import measure_model
from costguard.sizing.memory.phases import TERMS, MemoryPhase
from costguard.sizing.memory.sharding import PipelineStage, check_parallel, list_stages
from costguard.sizing.memory.states import compute_model_states, count_gpu_parameters
from costguard.sizing.memory.training import list_training_phases
from costguard.sizing.recipe import Parallelism, Recipe

__all__ = ["TERMS", "TermExplanation", "Footprint", "MemoryPhase", "check_parallel", "compute_footprint"]


TOTAL = attrgetter("total")


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes one GPU must hold.

    `worst`: the phase with the most alive. `context`: CUDA's own. `host_bytes`: host memory for each GPU (offload, paged
    optimizer). `basis`: what all this was computed from.
    """

    phases: tuple[MemoryPhase, ...]
    worst: MemoryPhase
    context: int
    host_bytes: int
    basis: FootprintBasis

    @property
    def peak(self) -> int:
        """Bytes the allocator hands out at the worst moment, nothing else."""
        return self.worst.total

    @property
    def peak_phase(self) -> str:
        """The name of that moment."""
        return self.worst.name

    @property
    def at_peak(self) -> Mapping[str, int]:
        """Bytes of each term at that moment; they sum to `peak`."""
        return self.worst.terms

    @property
    def fragments(self) -> int:
        """Bytes the allocator probably holds but cannot hand out: the best guess, as `nvidia-smi` would show it."""
        return int(self.basis.compute_moving_bytes(self.worst) * self.basis.slack_share)

    @property
    def slack(self) -> int:
        """The same as far as a plan must count it: some margin always, and no more than the allocator will not give back."""
        least, most = int(overheads.SLACK_LEAST * self.peak), int(overheads.SLACK_MOST * self.peak)
        return min(max(self.fragments, least), most)

    @property
    def reserved(self) -> int:
        """What must fit: peak, context and slack."""
        return self.peak + self.context + self.slack

    def explain(self) -> tuple[TermExplanation, ...]:
        """Every term with its formula and its source, written only when somebody asks."""
        return explain_footprint(self.basis, self.worst, self.context, self.slack)


def compute_footprint(architecture: Architecture, recipe: Recipe, parallel: Parallelism, *, gpus: int = 1) -> Footprint:
    """The footprint of `recipe` on each of `gpus` GPUs split by `parallel`; InputError where it cannot be split so."""
    check_parallel(architecture, parallel, gpus, recipe.seq_len)
    parts = list_stages(architecture.layers, recipe, parallel, gpus)
    if len(parts) == 1:
        return _compute_stage_footprint(architecture, recipe, parallel, gpus, parts[0])
    return max((_compute_stage_footprint(architecture, recipe, parallel, gpus, part) for part in parts), key=lambda f: f.peak)


def _compute_stage_footprint(
    architecture: Architecture, recipe: Recipe, parallel: Parallelism, gpus: int, stage: PipelineStage
) -> Footprint:
    measured = measure_model(architecture, recipe, 2 if parallel.fsdp else min(parallel.zero, 1))
    parts = count_gpu_parameters(measured, stage)
    held = compute_model_states(measured, recipe, stage, parts)
    buffers = compute_buffers(measured, recipe, stage, parts, held)
    moments = (list_training_phases if recipe.trains else list_serving_phases)(measured, recipe, stage, held, buffers)
    return Footprint(
        phases=moments,
        worst=max(moments, key=TOTAL),
        context=get_framework(recipe).context + (overheads.NCCL_BYTES if gpus > 1 else 0),
        host_bytes=int(held.host),
        basis=FootprintBasis(measured, recipe, stage, held, buffers, gpus),
    )
