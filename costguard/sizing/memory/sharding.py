"""Checks whether a model can be split as requested, and computes the states and buffers that one GPU holds.

Example of a split: Llama-3-8B on 64 GPUs with tp = 8 and pp = 2 leaves 4 data-parallel ranks. The first stage holds 16 layers
and the embedding and has two micro-batches in flight; the last holds 16 layers, the head and the loss.

Example of the states (weights, gradients, optimizer): 7.5 billion parameters in mixed precision on 64 GPUs need 120 GB per GPU
in full copies, 31.4 GB with the optimizer sharded (ZeRO-1), 16.6 GB with the gradients too (ZeRO-2), and 1.9 GB with everything
sharded (ZeRO-3).

The buffers are gathered shards, gradient buckets, casts and dequantised matrices. Example: a rank of Llama-3-8B under FSDP
holds 1/8 of the weights, but also two layers of 218 M parameters gathered in bf16 (0.87 GB) and the root unit, embedding and
head, 2 x 128,256 x 4096 x 2 bytes (2.1 GB): more than its own shard of 2.0 GB.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from costguard.sizing.architecture import Architecture, LayerBlock
from costguard.sizing.memory import overheads
from costguard.sizing.memory.frameworks import FP32, Numerics, choose_upcast, get_framework
from costguard.sizing.memory.model_measure import ModelMeasure
from costguard.sizing.recipe import GGUF_BITS, SERVED_BYTES, Parallelism, Recipe
from costguard.values.checks import require


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """One pipeline stage under `parallel`.

    - `share`: its share of the layers. `first`: it holds the embedding. `last`: it holds the head and the loss.
    - `shards`: ranks over which ZeRO or FSDP spreads dense parameters. `in_flight`: micro-batches whose activations it
        keeps.
    """

    parallel: Parallelism
    share: float
    first: bool
    last: bool
    in_flight: int
    shards: int


def check_parallel(architecture: Architecture, parallel: Parallelism, gpus: int, seq_len: int) -> None:
    """Raise InputError if heads, layers, experts, tokens or GPUs do not divide as `parallel` requires.

    Also raise it if learned positions do not reach `seq_len`.
    """
    shards = parallel.count_data_ranks(gpus) * parallel.cp
    positions = architecture.positions
    if positions is not None and architecture.sample_tokens is None:
        require(
            seq_len <= positions,
            "seq_len",
            f"{architecture.name} has learned positions for {positions} tokens, not {seq_len}",
            f"write seq_len = {positions} or less",
        )
    if parallel.tp > 1:
        for block in architecture.blocks:
            _check_heads(block, parallel.tp)
    if parallel.pp > 1:
        layers = architecture.layers
        require(
            parallel.pp <= layers,
            "parallel.pp",
            f"{parallel.pp} stages are more than {layers} layers",
            f"write {layers} or less",
        )
    if parallel.cp > 1:
        divides = seq_len % parallel.cp == 0
        require(divides, "parallel.cp", f"{parallel.cp} does not divide seq_len ({seq_len})", f"write a divisor of {seq_len}")
    if parallel.ep > 1:
        _check_experts(architecture, parallel, shards)


def list_stages(layers: int, recipe: Recipe, parallel: Parallelism, gpus: int) -> tuple[PipelineStage, ...]:
    """Return the whole model, or the first and the last stage of a pipeline; one of these two needs the most memory.

    A pipeline always runs several passes per step: if none are stated, as many as there are stages.
    """
    shards = gpus // parallel.model_ranks * parallel.cp
    if parallel.pp == 1:
        return (PipelineStage(parallel, 1.0, first=True, last=True, in_flight=1, shards=shards),)
    share = ceil(layers / parallel.pp) / layers
    passes = recipe.gradient_accumulation if recipe.gradient_accumulation > 1 else parallel.pp
    in_flight = min(parallel.pp, passes) if recipe.trains else 1
    return (
        PipelineStage(parallel, share, first=True, last=False, in_flight=in_flight, shards=shards),
        PipelineStage(parallel, share, first=False, last=True, in_flight=1, shards=shards),
    )


def _check_heads(block: LayerBlock, tp: int) -> None:
    heads, kv_heads = block.attention.heads, block.attention.kv_heads
    require(
        heads % tp == 0 and (kv_heads % tp == 0 or tp % kv_heads == 0),
        "parallel.tp",
        f"{tp} does not split {heads} heads and {kv_heads} key heads",
        "write a divisor of the heads that divides the key heads or is a multiple of them",
    )


def _check_experts(architecture: Architecture, parallel: Parallelism, shards: int) -> None:
    ep, ranks = parallel.ep, parallel.tp * shards
    ranks_text = f"{shards} data-parallel ranks" + (f" x {parallel.tp} tensor-parallel" if parallel.tp > 1 else "")
    counts = {block.feed_forward.experts for block in architecture.blocks if block.feed_forward.experts}
    require(bool(counts), "parallel.ep", f"{architecture.name} has no experts to spread", "leave ep out")
    for count in counts:
        require(count % ep == 0, "parallel.ep", f"{ep} does not divide {count} experts", f"write a divisor of {count}")
    require(ep <= ranks and ranks % ep == 0, "parallel.ep", f"{ep} does not divide {ranks_text}", f"write a divisor of {ranks}")


OPTIMIZER_STAGE, GRADIENT_STAGE, WEIGHT_STAGE = 1, 2, 3
"""The ZeRO stage from which each state is sharded."""

QUANT_BITS = {"nf4": 4.5, "int4": 4.5, "int8": 8.0, "mxfp4": 4.25}
"""Bits a quantised weight: nf4 with an fp32 scale for each 64 (bitsandbytes), int4 with a 16-bit scale and zero for each 64,
int8 with one scale a row, which is nothing, mxfp4 with an 8-bit scale for each 32 (OCP Microscaling Formats 1.0, 2023)."""

EXPERTS_ONLY = "mxfp4"
"""The format in which only the experts of a mixture are stored; attention, router and vocabulary stay in 16 bits
(transformers' Mxfp4Config, as gpt-oss was released: 60.8 GiB of 116.8 billion parameters)."""

DOUBLE_QUANT_BITS = 4 + 8 / 64 + 32 / (64 * 256)
"""nf4 whose scales are in 8 bits: 4.127 (QLoRA, arXiv 2305.14314, section 3)."""


@dataclass(slots=True)  # not frozen: it is made for every footprint, where each frozen field costs 60 ns, and never changed
class GpuParameters:
    """Parameters of one GPU's part of the model before ZeRO.

    `rest`: `embedding`, `head`, norms and biases together.
    """

    dense: float
    experts: float
    embedding: float
    head: float
    rest: float
    adapters: float


@dataclass(slots=True)  # not frozen: it is made for every footprint, where each frozen field costs 60 ns, and never changed
class ModelStates:
    """Bytes on this GPU.

    - `host`: bytes stored in host memory instead. `trained`: number of parameters whose gradients this GPU computes.
    - `whole_weights`: bytes of the weights without sharding. `whole_gradients`: bytes of all gradients if all stayed.
    - `gradients_stay`: the share of each gradient that stays after its layer's backward pass: all, one shard, or none.
    - The other gradient fields are the gradients of one part while it is summed over ranks, before they are sharded.
        `transit`: how many times as many bytes those are as the gradients alone, because FSDP2 copies them.
    - `head_waiting`: gradient of the head once it is made. `root_gradient`: those that are summed at the end of the backward
        pass, of the embedding and all that shares its unit.
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
    transit: float
    head_waiting: float
    root_gradient: float


def count_gpu_parameters(m: ModelMeasure, stage: PipelineStage) -> GpuParameters:
    """Return the parameters that tensor, pipeline and expert parallelism assign to one GPU of `stage`."""
    tp = stage.parallel.tp
    embedding = m.embedding / tp if stage.first or m.tied else 0.0
    head = m.head * stage.last / tp
    return GpuParameters(
        dense=stage.share * (m.matrices - m.experts) / tp,
        experts=stage.share * m.experts / (count_expert_tensor_ranks(stage.parallel, stage.shards) * stage.parallel.ep),
        embedding=embedding,
        head=head,
        rest=stage.share * m.small + embedding + head,
        adapters=stage.share * m.adapters / tp,
    )


def compute_model_states(m: ModelMeasure, recipe: Recipe, stage: PipelineStage, parts: GpuParameters) -> ModelStates:
    """Return the states of one GPU in `stage` with the parameters `parts`."""
    n, parallel = m.numbers, stage.parallel
    zero, offload = parallel.stage, parallel.offload
    expert_shards = count_expert_shards(recipe, stage)
    stored, of_experts = _compute_weight_bytes(m, recipe, parts)
    weights = whole_weights = stored + of_experts
    if zero >= WEIGHT_STAGE:
        weights = stored / stage.shards + of_experts / expert_shards
    weights, whole_weights = (each + n.compute * m.beside for each in (weights, whole_weights))
    dense, experts = _count_trained(recipe, parts)
    trained, shard = dense + experts, dense / stage.shards + experts / expert_shards
    traits = get_framework(recipe)
    transit = _compute_transit(n, recipe, stage)
    unit = 0.0 if recipe.adapters else n.gradient * transit
    layer_ranks = count_expert_tensor_ranks(parallel, stage.shards) * parallel.ep if m.experts else parallel.tp
    whole_gradients = n.gradient * trained
    late = parallel.fsdp and (parallel.pp > 1 or (traits.syncs_late and recipe.gradient_accumulation > 1))
    stay = shard / trained if zero >= GRADIENT_STAGE and trained and not late else 1.0
    frozen_gradient = n.frozen * (parts.dense + parts.experts) * recipe.adapters * (parallel.fsdp and traits.flattens)
    if frozen_gradient:
        whole_gradients += frozen_gradient
    optimizer = (n.moment + n.master) * (shard if zero >= OPTIMIZER_STAGE else trained)
    weights_away = offload == "all"
    gradients_away = offload != "none" and zero >= OPTIMIZER_STAGE and traits.offloads_gradients
    optimizer_away = offload != "none" or recipe.optimizer.startswith("paged")
    # A gradient of what is frozen beside adapters is made (FSDP1's flat parameter), but never used by the optimizer.
    gradients_stay = 0.0 if gradients_away or recipe.optimizer_in_backward else stay
    head = parts.embedding if m.tied else parts.head
    head_gradient, embedding_gradient = unit * head * stage.last, unit * parts.embedding * stage.first
    one_root = parallel.fsdp and not traits.shards_root and not m.tied
    return ModelStates(
        weights=weights * (not weights_away),
        gradients=whole_gradients * gradients_stay,
        optimizer=optimizer * (not optimizer_away),
        host=weights * weights_away + whole_gradients * stay * gradients_away + optimizer * optimizer_away,
        trained=trained,
        whole_weights=whole_weights,
        whole_gradients=whole_gradients,
        gradients_stay=gradients_stay,
        head_gradient=head_gradient,
        embedding_gradient=embedding_gradient,
        layer_gradient=unit * m.layer_parameters / layer_ranks,
        attention_gradient=unit * m.attention_parameters / parallel.tp,
        down_gradient=unit * m.down_parameters / layer_ranks,
        transit=transit,
        head_waiting=n.compute * head * stage.last * (not recipe.adapters)
        if one_root
        else head_gradient / transit * gradients_stay,
        root_gradient=embedding_gradient + head_gradient * one_root,
    )


def _compute_transit(numbers: Numerics, recipe: Recipe, stage: PipelineStage) -> float:
    """Return the bytes of a unit's gradients while they are summed over ranks, as a multiple of the gradients that are kept.

    FSDP2 holds them as they were computed, and their copy in the buffer that is summed (_fsdp_collectives.foreach_reduce).
    """
    traits = get_framework(recipe)
    if not (stage.parallel.fsdp and traits.copies_reduced and stage.shards > 1):
        return 1.0
    return (numbers.compute + (FP32 if traits.reduces_fp32 else numbers.compute)) / numbers.gradient


def count_expert_shards(recipe: Recipe, stage: PipelineStage) -> int:
    """Return the ranks that divide the states of one expert-parallel rank's experts: those that hold the same experts.

    1 where the library keeps experts out of sharding once they are spread.
    """
    parallel = stage.parallel
    if parallel.ep > 1 and not get_framework(recipe).shards_experts:
        return 1
    return max(parallel.tp * stage.shards // (parallel.ep * count_expert_tensor_ranks(parallel, stage.shards)), 1)


def count_expert_tensor_ranks(parallel: Parallelism, shards: int) -> int:
    """Return the GPUs that together hold one expert.

    All tensor-parallel ranks where `ep` divides the data-parallel ranks. Else experts fold over tensor- and data-parallel ranks
    (Megatron's parallel folding, arXiv 2504.14960), as wide as fits: 8 GPUs with tp = 4 and ep = 8 hold each expert whole.
    """
    ranks = parallel.tp * shards
    return next(n for n in range(parallel.tp, 0, -1) if parallel.tp % n == 0 and ranks % (n * parallel.ep) == 0)


def choose_weight_bytes(m: ModelMeasure, recipe: Recipe) -> tuple[float, float]:
    """Return the bytes of (one weight in the layers' matrices, one other weight).

    Quantisation applies to the matrices.
    """
    n = m.numbers
    stored = n.weight if recipe.trains and not recipe.adapters else n.frozen
    if recipe.quant == "none":
        return (stored if recipe.trains else SERVED_BYTES.get(recipe.precision, stored)), stored
    if recipe.quant in GGUF_BITS:
        return GGUF_BITS[recipe.quant] / 8, GGUF_BITS[recipe.quant] / 8
    double = recipe.quant == "nf4" and (recipe.double_quant or get_framework(recipe).double_quant)
    return (DOUBLE_QUANT_BITS if double else QUANT_BITS[recipe.quant]) / 8, stored


def _compute_weight_bytes(m: ModelMeasure, recipe: Recipe, parts: GpuParameters) -> tuple[float, float]:
    """Return the weight bytes of (everything but experts, experts)."""
    matrix, other = choose_weight_bytes(m, recipe)
    head = parts.head if m.head_quantised else 0.0
    dense = other if recipe.quant == EXPERTS_ONLY and m.experts else matrix
    stored = dense * (parts.dense + head) + other * (parts.rest - head)
    return stored + m.numbers.weight * parts.adapters, matrix * parts.experts


def _count_trained(recipe: Recipe, parts: GpuParameters) -> tuple[float, float]:
    """Return the trained parameters (outside experts, inside experts)."""
    if not recipe.trains:
        return 0.0, 0.0
    return (parts.adapters, 0.0) if recipe.adapters else (parts.dense + parts.rest, parts.experts)


@dataclass(slots=True)  # not frozen: it is made for every footprint, where each frozen field costs 60 ns, and never changed
class MemoryBuffers:
    """Bytes of buffers on one GPU.

    During a whole pass:

    - `gathered`: full weights of the layers that compute. `bucket`: gradients in transfer, or accumulated.
    - `upcast`: weights that PEFT converts to fp32. `dequantised`: one matrix. `copies`: fp8 copies of weights.

    Only while needed:

    - `kept`: full weights that stay from the forward to the backward pass of their layer, at the most. `pool`: what the stream
        that gathers holds for itself; it is cached, not handed out.
    - `head`: full weights of the head if it is a separate unit. `load`: while quantising. `step`: during the optimizer
        step.
    - `casts`: autocast's copies of all layers, `cast_layer` of one layer, `cast_head` of the head.
    """

    gathered: float
    kept: float
    pool: float
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
        """Return the bytes that exist during a whole pass."""
        return self.gathered + self.bucket + self.upcast + self.dequantised + self.copies


def compute_buffers(
    m: ModelMeasure, recipe: Recipe, stage: PipelineStage, parts: GpuParameters, states: ModelStates
) -> MemoryBuffers:
    """Return the buffers of one GPU in `stage`."""
    parallel, tp = stage.parallel, stage.parallel.tp
    own = stage.shards if parallel.stage >= WEIGHT_STAGE else 1
    dequantised = _compute_dequantised(m, recipe) / tp
    gathered, head = _compute_gathered(m, recipe, parallel, parts, states)
    return MemoryBuffers(
        gathered=gathered,
        kept=_compute_kept(recipe, stage, max(states.whole_weights - states.weights, 0.0), gathered),
        pool=_compute_pool(m, recipe, parallel, parts, gathered),
        head=head,
        bucket=_compute_bucket(m, recipe, stage, states) + _compute_accumulated(m, stage, states),
        upcast=_compute_upcast(m, recipe, stage, parts),
        dequantised=dequantised,
        copies=m.numbers.copies * (parts.dense + parts.experts) / own,
        casts=m.casts * stage.share / tp,
        cast_layer=m.cast_layer / tp,
        cast_head=m.cast_head * stage.last / tp,
        load=overheads.LOAD_COPIES * dequantised * (1 if not recipe.trains else 0.5),
        step=(m.numbers.weight * states.trained / own if _runs_foreach(recipe) else 0.0)
        + _compute_step_gradients(m, stage, states),
    )


def _compute_upcast(m: ModelMeasure, recipe: Recipe, stage: PipelineStage, parts: GpuParameters) -> float:
    """Return the bytes by which weights that are not quantised grow as they become fp32."""
    which = choose_upcast(recipe, stage.parallel)
    if which == "none" or m.content == "images":  # trainers of diffusion models quantise every linear layer and prepare nothing
        return 0.0
    return (FP32 - m.numbers.frozen) * (parts.rest - (parts.embedding + parts.head) * (which == "norms"))


def _compute_kept(recipe: Recipe, stage: PipelineStage, away: float, gathered: float) -> float:
    """Return the bytes of full weights that stay until their backward pass; their shards exist beside them.

    `away`: what sharding saves. `gathered`: the part of the full weights that is counted already.
    """
    if not (stage.parallel.fsdp and get_framework(recipe).keeps_gathered and stage.shards > 1):
        return 0.0
    return max(away * stage.shards / (stage.shards - 1) - gathered, 0.0)


def _compute_pool(m: ModelMeasure, recipe: Recipe, parallel: Parallelism, parts: GpuParameters, gathered: float) -> float:
    """Return the bytes that are cached because weights are gathered in a stream of its own.

    FSDP2 caches the largest unit in that stream. DeepSpeed frees what it gathered with record_stream (partition_parameters.py,
    free_param), so the next weights are gathered before the memory of the last is free: twice as much at the most.
    """
    traits = get_framework(recipe)
    if not gathered or (parallel.fsdp and not traits.copies_reduced):
        return 0.0
    if not parallel.fsdp:
        return gathered
    each = choose_weight_bytes(m, recipe)[0] if recipe.quant != "none" else m.numbers.compute
    root = max(parts.embedding, parts.head) if traits.shards_root else parts.embedding + parts.head
    return max(each * _count_gathered_parameters(m, recipe, parallel) / parallel.tp, m.numbers.compute * root)


def _compute_step_gradients(m: ModelMeasure, stage: PipelineStage, states: ModelStates) -> float:
    """Return the bytes of the fp32 gradients that DeepSpeed's step makes of its 16-bit shard.

    ZeRO-1 and 2 convert the whole shard (runtime/zero/stage_1_and_2.py, step), ZeRO-3 one sub-group (stage3.py,
    _prepare_fp32_grad_for_sub_group). Read in DeepSpeed 0.17, 2025.
    """
    n, parallel = m.numbers, stage.parallel
    if parallel.fsdp or not parallel.zero or not n.master or n.gradient == FP32 or not states.optimizer:
        return 0.0
    shard = states.trained / stage.shards
    return FP32 * (min(shard, overheads.SUB_GROUP_ELEMENTS) if parallel.stage >= WEIGHT_STAGE else shard)


def _runs_foreach(recipe: Recipe) -> bool:
    """Return whether AdamW's step makes temporaries of the size of all weights it updates (torch/optim/adam.py)."""
    foreach = get_framework(recipe).foreach if recipe.optimizer_kernel == "auto" else recipe.optimizer_kernel == "foreach"
    return foreach and recipe.optimizer == "adamw"


def _compute_gathered(
    m: ModelMeasure, recipe: Recipe, parallel: Parallelism, parts: GpuParameters, states: ModelStates
) -> tuple[float, float]:
    """Return the bytes of (full weights that a rank holds besides its shard, full weights of a separate head).

    FSDP gathers two or three layers, plus embedding and head unless they are separate units. DeepSpeed holds up to
    `stage3_max_live_parameters`. Offloaded weights are gathered in the same way. The result is at most what sharding saves.
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
        * _count_gathered_parameters(m, recipe, parallel)
        / parallel.tp
    )
    live = 0.0 if parallel.fsdp else compute * overheads.LIVE_ELEMENTS
    root = 0.0 if apart else compute * (parts.embedding + parts.head)
    away = max(states.whole_weights - states.weights, 0.0)
    return min(max(layers, live) + root, away), compute * parts.head * apart


def _count_gathered_parameters(m: ModelMeasure, recipe: Recipe, parallel: Parallelism) -> float:
    """Return the parameters of one layer that a rank gathers; of a mixture, the experts of its own expert-parallel rank."""
    if not m.experts or parallel.ep == 1:
        return m.layer_parameters
    experts = m.layer_parameters - m.attention_parameters
    return m.attention_parameters + (experts / parallel.ep if get_framework(recipe).shards_experts else 0)


def _compute_bucket(m: ModelMeasure, recipe: Recipe, stage: PipelineStage, states: ModelStates) -> float:
    """Return the bytes of gradient buckets.

    DDP's buckets hold a copy of all gradients, ZeRO's have a fixed size, FSDP and Megatron need none.
    """
    if stage.shards == 1 or stage.parallel.fsdp or not get_framework(recipe).copies_gradients:
        return 0.0
    if stage.parallel.stage == 0:
        return m.numbers.gradient * states.trained
    return m.numbers.compute * min(states.trained, overheads.BUCKET_ELEMENTS)


def _compute_accumulated(m: ModelMeasure, stage: PipelineStage, states: ModelStates) -> float:
    """Return the bytes of the fp32 sum of gradients, sharded like the gradients."""
    return m.numbers.accumulator * states.trained / (stage.shards if stage.parallel.stage >= GRADIENT_STAGE else 1)


def _compute_dequantised(m: ModelMeasure, recipe: Recipe) -> float:
    """Return the bytes of the largest matrix in full width, or of the copies that DoRA makes of it.

    bitsandbytes dequantises a matrix before it multiplies; llama.cpp's kernels read packed weights and need no copy.
    """
    width = get_framework(recipe).quantised_input if recipe.trains else 0
    packed = recipe.quant in GGUF_BITS or (recipe.quant == EXPERTS_ONLY and not recipe.trains)
    merged = MERGED_COPIES * m.numbers.weight * m.largest_matrix if recipe.adapters and recipe.lora.dora else 0.0
    return merged + (0.0 if recipe.quant == "none" or packed else max(m.numbers.compute, width) * m.largest_matrix)


MERGED_COPIES = 4
"""DoRA's norm of a merged matrix: the matrix in the adapter's precision, the adapter's product, that scaled, and the sum
(PEFT, tuners/lora/dora.py, get_weight_norm; 0.18, 2025)."""
