"""Weights, gradients and optimizer states one GPU holds, before and after sharding.

Example: 7.5 billion parameters in mixed precision on 64 GPUs need 120 GB a GPU in whole copies, 31.4 GB with the
optimizer sharded (ZeRO-1), 16.6 GB with the gradients too (ZeRO-2), and 1.9 GB with everything sharded (ZeRO-3).
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.core import overheads
from costguard.core.frameworks import modules
from costguard.core.measure import Measure
from costguard.core.numerics import FP32
from costguard.core.recipe import GGUF_BITS, Parallel, Recipe
from costguard.core.split import Stage

QUANT_BITS = {"nf4": 4.5, "int4": 4.5, "int8": 8.0}
"""Bits a quantised weight: nf4 with an fp32 scale for each 64 (bitsandbytes), int4 with a 16-bit scale and zero for each 64,
int8 with one scale a row, which is nothing."""

DOUBLE_QUANT_BITS = 4 + 8 / 64 + 32 / (64 * 256)
"""nf4 whose scales are in 8 bits: 4.127 (QLoRA, arXiv 2305.14314, section 3)."""


@dataclass(frozen=True, slots=True)
class States:
    """Bytes on this GPU. `*_gradient`: of one part while it is whole (before it is sharded). `host`: what waits in host memory."""

    weights: float
    gradients: float
    optimizer: float
    host: float
    gathered: float
    bucket: float
    root: float
    head_gradient: float
    embedding_gradient: float
    layer_gradient: float
    attention_gradient: float
    down_gradient: float


def states(m: Measure, recipe: Recipe, parallel: Parallel, stage: Stage) -> States:
    """The states of one GPU in `stage`."""
    n, zero, tp, offload = m.numbers, parallel.stage, parallel.tp, parallel.offload
    dense = stage.share * (m.matrices - m.experts) / tp
    experts = stage.share * m.experts / (tp * parallel.ep)
    embedding = m.embedding / tp if stage.first or m.tied else 0.0
    head = m.head / tp if stage.last else 0.0
    rest = stage.share * m.small + embedding + head
    adapters = stage.share * m.adapters / tp
    by_dense, by_expert = stage.shards, max(stage.shards // parallel.ep, 1)
    whole = zero < 2  # noqa: PLR2004  # ZeRO-2 is the first stage that shards gradients
    each = bytes_of_weights(m, recipe)
    quantised_head = m.quantised_head * stage.last / tp
    dense_bytes, expert_bytes = each[0] * (dense + quantised_head) + each[1] * (rest - quantised_head), each[0] * experts
    weights = dense_bytes + expert_bytes + n.weight * adapters
    trained, trained_experts = (adapters, 0.0) if recipe.adapters else (dense + rest, experts)
    if not recipe.trains:
        trained = trained_experts = 0.0
    total, split = trained + trained_experts, trained / by_dense + trained_experts / by_expert
    gathered = 0.0
    if zero == 3 or offload == "all":  # noqa: PLR2004  # ZeRO-3 and FSDP shard the weights
        layer = m.layer_parameters * (each[0] if recipe.quant != "none" else n.compute) / tp
        live = min(n.compute * overheads.LIVE_ELEMENTS, dense_bytes + expert_bytes) if not parallel.fsdp else 0.0
        root = n.compute * (embedding + head)
        gathered = max(overheads.GATHERED_LAYERS * layer, live) + (0.0 if modules(recipe).shards_root else root)
    if zero == 3:  # noqa: PLR2004  # same
        weights = dense_bytes / by_dense + expert_bytes / by_expert + n.weight * adapters / by_dense
    gradients = n.gradient * (total if whole else split)
    optimizer = (n.moment + n.master) * (split if zero else total)
    unit = 0.0 if recipe.adapters else (n.gradient if whole else n.compute) / tp
    if recipe.optimizer_in_backward:
        gradients = min(gradients, n.gradient * max(m.layer_parameters, m.embedding) / tp)
    off_optimizer = offload != "none" or recipe.optimizer.startswith("paged")
    off_gradients = offload != "none" and zero > 0
    host = optimizer * off_optimizer + gradients * off_gradients + weights * (offload == "all")
    return States(
        weights=0.0 if offload == "all" else weights,
        gradients=0.0 if off_gradients else gradients,
        optimizer=0.0 if off_optimizer else optimizer,
        host=host,
        gathered=gathered,
        bucket=_bucket(m, parallel, stage, total) + _upcast(m, recipe, rest) / (by_dense if zero == 3 else 1),  # noqa: PLR2004
        root=n.compute * head if gathered and modules(recipe).shards_root else 0.0,
        head_gradient=unit * tp * (embedding if m.tied else head) if stage.last else 0.0,
        embedding_gradient=unit * tp * embedding if stage.first else 0.0,
        layer_gradient=unit * m.layer_parameters,
        attention_gradient=unit * m.attention_parameters,
        down_gradient=unit * m.down_parameters,
    )


def bytes_of_weights(m: Measure, recipe: Recipe) -> tuple[float, float]:
    """Bytes of one weight in the layers' matrices (what a quantiser takes), and of any other."""
    stored = m.numbers.weight if recipe.trains and not recipe.adapters else m.numbers.frozen
    if recipe.quant == "none":
        return stored, stored
    if recipe.quant in GGUF_BITS:
        return GGUF_BITS[recipe.quant] / 8, GGUF_BITS[recipe.quant] / 8
    double = recipe.double_quant or modules(recipe).double_quant
    bits = DOUBLE_QUANT_BITS if recipe.quant == "nf4" and double else QUANT_BITS[recipe.quant]
    return bits / 8, stored


def _upcast(m: Measure, recipe: Recipe, rest: float) -> float:
    """PEFT's prepare_model_for_kbit_training turns what is not quantised (embeddings, head, norms) from 16 bits to fp32."""
    upcasts = recipe.method == "qlora" and modules(recipe).upcasts
    return (FP32 - m.numbers.frozen) * rest if upcasts else 0.0


def _bucket(m: Measure, parallel: Parallel, stage: Stage, trained: float) -> float:
    """Buckets in which gradients travel: DDP's hold a copy of all of them, ZeRO's have a fixed size, FSDP has none."""
    if stage.shards == 1 or parallel.fsdp:
        return 0.0
    if parallel.stage == 0:
        return m.numbers.gradient * trained
    return m.numbers.compute * min(trained, overheads.BUCKET_ELEMENTS)


def load_copies(m: Measure, recipe: Recipe, parallel: Parallel) -> float:
    """16-bit copies of the largest matrix while it is quantised on the GPU."""
    return overheads.LOAD_COPIES * dequantised(m, recipe, parallel)


def dequantised(m: Measure, recipe: Recipe, parallel: Parallel) -> float:
    """A quantised matrix is multiplied in a copy of full width: the largest one."""
    return 0.0 if recipe.quant == "none" or recipe.quant in GGUF_BITS else m.numbers.compute * m.largest_matrix / parallel.tp
