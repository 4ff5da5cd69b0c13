"""Whether a model can be split as asked, and what one GPU's part of it is.

Example: Llama-3-8B on 64 GPUs with tp = 8 and pp = 2 leaves 4 data-parallel ranks. The first stage holds 16 layers and the
embedding and keeps two micro-batches in flight; the last holds 16 layers, the head and the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from costguard.sizing.architecture import Architecture, LayerBlock
from costguard.sizing.recipe import Parallelism, Recipe
from costguard.values.checks import require


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """One pipeline stage under `parallel`: `share` of the layers, the embedding where `first`, head and loss where `last`.

    `shards`: ranks over which ZeRO or FSDP spreads dense parameters. `in_flight`: micro-batches whose activations it keeps.
    """

    parallel: Parallelism
    share: float
    first: bool
    last: bool
    in_flight: int
    shards: int


def check_parallel(architecture: Architecture, parallel: Parallelism, gpus: int, seq_len: int) -> None:
    """InputError unless heads, layers, experts, tokens and GPUs divide as `parallel` asks and positions reach `seq_len`."""
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
        _check_experts(architecture, parallel.ep, shards)


def list_stages(layers: int, recipe: Recipe, parallel: Parallelism, gpus: int) -> tuple[PipelineStage, ...]:
    """The whole model, or the first and the last stage of a pipeline: one of these two holds the most.

    Nobody runs a pipeline empty: where a step is not said to have several passes, it has as many as there are stages.
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


def _check_experts(architecture: Architecture, ep: int, shards: int) -> None:
    counts = {block.feed_forward.experts for block in architecture.blocks if block.feed_forward.experts}
    require(bool(counts), "parallel.ep", f"{architecture.name} has no experts to spread", "leave ep out")
    for count in counts:
        require(count % ep == 0, "parallel.ep", f"{ep} does not divide {count} experts", f"write a divisor of {count}")
    require(
        shards % ep == 0, "parallel.ep", f"{ep} does not divide {shards} data-parallel ranks", f"write a divisor of {shards}"
    )
