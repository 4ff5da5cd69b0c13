"""Memory beside states and activations: gathered shards, buckets, casts and dequantised matrices.

Example: a rank of Llama-3-8B under FSDP holds 1/8 of the weights, but also two layers of 218 M parameters gathered in bf16
(0.87 GB) and the root unit, embedding and head, 2 x 128,256 x 4096 x 2 bytes (2.1 GB): more than its own shard of 2.0 GB.
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.sizing.memory import overheads
from costguard.sizing.memory.frameworks import get_framework
from costguard.sizing.memory.measure import ModelMeasure
from costguard.sizing.memory.numerics import FP32
from costguard.sizing.memory.sharding import PipelineStage
from costguard.sizing.memory.states import GRADIENT_STAGE, WEIGHT_STAGE, GpuParameters, ModelStates, choose_weight_bytes
from costguard.sizing.recipe import GGUF_BITS, Parallelism, Recipe


@dataclass(slots=True)  # not frozen: it is made for every footprint, where each frozen field costs 60 ns, and never changed
class MemoryBuffers:
    """Bytes on one GPU.

    All through a pass live: `gathered`, whole weights of the layers at work; `bucket`, gradients on their way, or summed;
    `upcast`, what PEFT turns to fp32; `dequantised`, one matrix; `copies`, fp8 copies of weights.
    While they are needed: `head`, the head's whole weights where it is a unit of its own; `casts`, autocast's copies of all
    layers, `cast_layer` of one, `cast_head` of the head; `load`, while quantising; `step`, while the optimizer steps.
    """

    gathered: float
    head: float
    bucket: float
    upcast: float
    dequantised: float
    copies: float
    casts: float
    cast_layer: float
    cast_head: float
    load: float
    step: float

    @property
    def standing(self) -> float:
        """What lives all through a pass."""
        return self.gathered + self.bucket + self.upcast + self.dequantised + self.copies


def compute_buffers(
    m: ModelMeasure, recipe: Recipe, stage: PipelineStage, parts: GpuParameters, held: ModelStates
) -> MemoryBuffers:
    """The buffers of one GPU in `stage`."""
    parallel, tp = stage.parallel, stage.parallel.tp
    own = stage.shards if parallel.stage >= WEIGHT_STAGE else 1
    dequantised = _compute_dequantised(m, recipe) / tp
    gathered, head = _compute_gathered(m, recipe, parallel, parts, held)
    return MemoryBuffers(
        gathered=gathered,
        head=head,
        bucket=_compute_bucket(m, recipe, stage, held) + _compute_accumulated(m, stage, held),
        upcast=(FP32 - m.numbers.frozen) * parts.rest / own
        if recipe.method == "qlora" and get_framework(recipe).upcasts
        else 0.0,
        dequantised=dequantised,
        copies=m.numbers.copies * (parts.dense + parts.experts) / own,
        casts=m.casts * stage.share / tp,
        cast_layer=m.cast_layer / tp,
        cast_head=m.cast_head * stage.last / tp,
        load=overheads.LOAD_COPIES * dequantised * (1 if not recipe.trains else 0.5),
        step=m.numbers.weight * held.trained / own if get_framework(recipe).foreach and recipe.optimizer == "adamw" else 0.0,
    )


def _compute_gathered(
    m: ModelMeasure, recipe: Recipe, parallel: Parallelism, parts: GpuParameters, held: ModelStates
) -> tuple[float, float]:
    """Whole weights a rank holds besides its shard, never more than sharding keeps away; and the head's, where it is apart.

    FSDP gathers two layers and, unless they are units of their own, embedding and head. DeepSpeed keeps up to
    `stage3_max_live_parameters`. What is offloaded comes back the same way.
    """
    if parallel.stage < WEIGHT_STAGE and parallel.offload != "all":
        return 0.0, 0.0
    compute, apart = m.numbers.compute, get_framework(recipe).shards_root
    each = choose_weight_bytes(m, recipe)[0] if recipe.quant != "none" else compute
    if (
        parallel.fsdp and parallel.pp > 1
    ):  # torchtitan: a pipeline keeps its stage gathered, or each micro-batch would gather it
        return compute * (parts.dense + parts.experts + parts.rest), 0.0
    layers = (
        (get_framework(recipe).gathered if parallel.fsdp else overheads.GATHERED_LAYERS)
        * each
        * m.layer_parameters
        / (parallel.tp * (parallel.ep if m.experts else 1))
    )
    live = 0.0 if parallel.fsdp else compute * overheads.LIVE_ELEMENTS
    root = 0.0 if apart else compute * (parts.embedding + parts.head)
    away = max(held.whole_weights - held.weights, 0.0)
    return min(max(layers, live) + root, away), compute * parts.head * apart


def _compute_bucket(m: ModelMeasure, recipe: Recipe, stage: PipelineStage, held: ModelStates) -> float:
    """Buckets of gradients: DDP's hold a copy of all of them, ZeRO's have a fixed size, FSDP and Megatron need none."""
    if stage.shards == 1 or stage.parallel.fsdp or not get_framework(recipe).copies_gradients:
        return 0.0
    if stage.parallel.stage == 0:
        return m.numbers.gradient * held.trained
    return m.numbers.compute * min(held.trained, overheads.BUCKET_ELEMENTS)


def _compute_accumulated(m: ModelMeasure, stage: PipelineStage, held: ModelStates) -> float:
    """The fp32 sum of gradients, sharded as they are."""
    return m.numbers.accumulator * held.trained / (stage.shards if stage.parallel.stage >= GRADIENT_STAGE else 1)


def _compute_dequantised(m: ModelMeasure, recipe: Recipe) -> float:
    """A bitsandbytes matrix is multiplied in a copy of full width: the largest one. llama.cpp's kernels read packed weights."""
    width = get_framework(recipe).quantised_input if recipe.trains else 0
    return 0.0 if recipe.quant == "none" or recipe.quant in GGUF_BITS else max(m.numbers.compute, width) * m.largest_matrix
