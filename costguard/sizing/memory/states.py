"""Weights, gradients and optimizer states one GPU holds, before and after sharding.

Example: 7.5 billion parameters in mixed precision on 64 GPUs need 120 GB a GPU in whole copies, 31.4 GB with the
optimizer sharded (ZeRO-1), 16.6 GB with the gradients too (ZeRO-2), and 1.9 GB with everything sharded (ZeRO-3).
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.sizing.memory.frameworks import get_framework
from costguard.sizing.memory.measure import ModelMeasure
from costguard.sizing.memory.sharding import PipelineStage
from costguard.sizing.recipe import GGUF_BITS, Recipe

OPTIMIZER_STAGE, GRADIENT_STAGE, WEIGHT_STAGE = 1, 2, 3
"""The ZeRO stage from which each state is sharded."""

QUANT_BITS = {"nf4": 4.5, "int4": 4.5, "int8": 8.0}
"""Bits a quantised weight: nf4 with an fp32 scale for each 64 (bitsandbytes), int4 with a 16-bit scale and zero for each 64,
int8 with one scale a row, which is nothing."""

DOUBLE_QUANT_BITS = 4 + 8 / 64 + 32 / (64 * 256)
"""nf4 whose scales are in 8 bits: 4.127 (QLoRA, arXiv 2305.14314, section 3)."""


@dataclass(slots=True)  # not frozen: it is made for every footprint, where each frozen field costs 60 ns, and never changed
class GpuParameters:
    """Parameters of one GPU's part of the model before ZeRO: `rest` holds `embedding`, `head`, norms and biases."""

    dense: float
    experts: float
    embedding: float
    head: float
    rest: float
    adapters: float


@dataclass(slots=True)  # not frozen: it is made for every footprint, where each frozen field costs 60 ns, and never changed
class ModelStates:
    """Bytes on this GPU, and `host`: bytes that wait in host memory instead.

    `trained`: parameters whose gradients this GPU computes. `whole_weights`: the weights as if nothing were sharded.
    `gradients_stay`: the share of each gradient that stays here once its layer is done: all, one shard, or none.
    `whole_gradients`: all gradients as if all stayed; the others are gradients of one part while it is whole.
    """

    weights: float
    gradients: float
    optimizer: float
    host: float
    trained: float
    whole_weights: float
    whole_gradients: float
    gradients_stay: float
    head_gradient: float
    embedding_gradient: float
    layer_gradient: float
    attention_gradient: float
    down_gradient: float


def count_gpu_parameters(m: ModelMeasure, stage: PipelineStage) -> GpuParameters:
    """What tensor, pipeline and expert parallelism leave to one GPU of `stage`."""
    tp = stage.parallel.tp
    embedding = m.embedding / tp if stage.first or m.tied else 0.0
    head = m.head * stage.last / tp
    return GpuParameters(
        dense=stage.share * (m.matrices - m.experts) / tp,
        experts=stage.share * m.experts / (tp * stage.parallel.ep),
        embedding=embedding,
        head=head,
        rest=stage.share * m.small + embedding + head,
        adapters=stage.share * m.adapters / tp,
    )


def compute_model_states(m: ModelMeasure, recipe: Recipe, stage: PipelineStage, parts: GpuParameters) -> ModelStates:
    """The states of one GPU in `stage`, which holds `parts`."""
    n, parallel = m.numbers, stage.parallel
    zero, offload = parallel.stage, parallel.offload
    expert_shards = max(stage.shards // parallel.ep, 1)
    stored, of_experts = _compute_weight_bytes(m, recipe, parts)
    weights = whole_weights = stored + of_experts
    if zero >= WEIGHT_STAGE:
        weights = stored / stage.shards + of_experts / expert_shards
    dense, experts = _count_trained(recipe, parts)
    trained, shard = dense + experts, dense / stage.shards + experts / expert_shards
    unit = 0.0 if recipe.adapters else n.gradient
    whole_gradients = n.gradient * trained
    late = parallel.fsdp and (parallel.pp > 1 or (get_framework(recipe).syncs_late and recipe.gradient_accumulation > 1))
    stay = shard / trained if zero >= GRADIENT_STAGE and trained and not late else 1.0
    beside = n.frozen * (parts.dense + parts.experts) * recipe.adapters * (parallel.fsdp and get_framework(recipe).flattens)
    if beside:
        whole_gradients += beside
    optimizer = (n.moment + n.master) * (shard if zero >= OPTIMIZER_STAGE else trained)
    weights_away, gradients_away = offload == "all", offload != "none" and zero >= OPTIMIZER_STAGE
    optimizer_away = offload != "none" or recipe.optimizer.startswith("paged")
    # A gradient of what is frozen beside adapters is made (FSDP1's flat parameter), but never used by the optimizer.
    gradients_stay = 0.0 if gradients_away or recipe.optimizer_in_backward else stay
    return ModelStates(
        weights=weights * (not weights_away),
        gradients=whole_gradients * gradients_stay,
        optimizer=optimizer * (not optimizer_away),
        host=weights * weights_away + whole_gradients * stay * gradients_away + optimizer * optimizer_away,
        trained=trained,
        whole_weights=whole_weights,
        whole_gradients=whole_gradients,
        gradients_stay=gradients_stay,
        head_gradient=unit * (parts.embedding if m.tied else parts.head) * stage.last,
        embedding_gradient=unit * parts.embedding * stage.first,
        layer_gradient=unit * m.layer_parameters / (parallel.tp * (parallel.ep if m.experts else 1)),
        attention_gradient=unit * m.attention_parameters / parallel.tp,
        down_gradient=unit * m.down_parameters / (parallel.tp * (parallel.ep if m.experts else 1)),
    )


def choose_weight_bytes(m: ModelMeasure, recipe: Recipe) -> tuple[float, float]:
    """Bytes of one weight in the layers' matrices (what a quantiser takes), and of any other."""
    n = m.numbers
    stored = n.weight if recipe.trains and not recipe.adapters else n.frozen
    if recipe.quant == "none":
        return (1 if recipe.precision == "fp8" and not recipe.trains else stored), stored
    if recipe.quant in GGUF_BITS:
        return GGUF_BITS[recipe.quant] / 8, GGUF_BITS[recipe.quant] / 8
    double = recipe.quant == "nf4" and (recipe.double_quant or get_framework(recipe).double_quant)
    return (DOUBLE_QUANT_BITS if double else QUANT_BITS[recipe.quant]) / 8, stored


def _compute_weight_bytes(m: ModelMeasure, recipe: Recipe, parts: GpuParameters) -> tuple[float, float]:
    """Bytes of everything but experts, and of experts."""
    matrix, other = choose_weight_bytes(m, recipe)
    head = parts.head if m.head_quantised else 0.0
    stored = matrix * (parts.dense + head) + other * (parts.rest - head)
    return stored + m.numbers.weight * parts.adapters, matrix * parts.experts


def _count_trained(recipe: Recipe, parts: GpuParameters) -> tuple[float, float]:
    """Trained parameters outside and inside experts."""
    if not recipe.trains:
        return 0.0, 0.0
    return (parts.adapters, 0.0) if recipe.adapters else (parts.dense + parts.rest, parts.experts)
