"""The moments of serving that can be the worst: loading, taking in the prompt, giving out tokens.

Example: Llama-3-8B in bf16 holds 16.1 GB of weights, and 128 KiB of keys and values for each token of each sequence:
32 layers x 2 x 8 key heads x 128 x 2 bytes. 16 sequences of 8192 tokens need 17.2 GB of cache, more than the weights.
"""

from __future__ import annotations

from costguard.sizing.memory import overheads
from costguard.sizing.memory.buffers import MemoryBuffers
from costguard.sizing.memory.measure import ModelMeasure
from costguard.sizing.memory.numerics import FP32
from costguard.sizing.memory.phases import MemoryPhase, build_phase
from costguard.sizing.memory.sharding import PipelineStage
from costguard.sizing.memory.states import ModelStates
from costguard.sizing.recipe import Recipe


def compute_kv_cache_bytes(m: ModelMeasure, stage: PipelineStage) -> float:
    """Keys and values of `micro_batch` sequences of `seq_len`, on one GPU."""
    ranks = min(stage.parallel.tp, m.cache_splits) * stage.parallel.cp
    return m.numbers.compute * m.cached * stage.share * m.tokens / ranks


def list_serving_phases(
    m: ModelMeasure, recipe: Recipe, stage: PipelineStage, held: ModelStates, buffers: MemoryBuffers
) -> tuple[MemoryPhase, ...]:
    """What is alive at each moment on one GPU of `stage`, with a full cache."""
    parallel = stage.parallel
    prompt = min(m.tokens, recipe.prefill_chunk or overheads.PREFILL_TOKENS) / (parallel.tp * parallel.cp)
    step = recipe.micro_batch / parallel.tp
    logits = (m.numbers.compute + FP32) * m.vocab * step * stage.last
    standing = buffers.standing + buffers.head + compute_kv_cache_bytes(m, stage)
    return (
        build_phase("load", weights=held.weights, buffers=buffers.load),
        build_phase("prefill", weights=held.weights, activations=prompt * m.layer.passing, logits=logits, buffers=standing),
        build_phase("decode", weights=held.weights, activations=step * m.layer.passing, logits=logits, buffers=standing),
    )
