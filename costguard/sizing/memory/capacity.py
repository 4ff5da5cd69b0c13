"""Serving as capacity: how many tokens of keys and values fit in what weights and work leave free.

    tokens a copy = (share x memory - all that is not cache) / bytes of cache a token on one GPU

Example: Llama-3-8B in bf16 on one A100-80GB: 0.9 x 79.2 GiB less 17.3 GiB of weights, work and context leave 54 GiB; at
128 KiB a token 442,000 tokens, 53 sequences of 8192. A server (vLLM) takes that share at start and hands out blocks of it.
"""

from __future__ import annotations

from costguard.sizing.memory.footprint import Footprint
from costguard.sizing.memory.inference import compute_kv_cache_bytes
from costguard.sizing.recipe import Parallelism
from costguard.values.gpu import GIB, Gpu

SERVER_SHARE = 0.9
"""Share of a GPU's memory a server takes: vLLM's default `gpu_memory_utilization` (engine arguments, 2026-11)."""


def compute_cache_capacity(need: Footprint, gpu: Gpu, parallel: Parallelism, *, gpus: int) -> int | None:
    """Tokens that fit at once on all copies of the model on `gpus` GPUs; None where nothing is cached."""
    measured, stage = need.basis.measure, need.basis.stage
    cache = compute_kv_cache_bytes(measured, stage)
    if not cache:
        return None
    share = 1.0 if gpu.unified_memory else SERVER_SHARE  # of unified memory `memory_gib` is a share already
    other = need.reserved - cache * (1 + need.basis.slack_share)
    left = share * gpu.memory_gib * GIB - other
    copies = gpus // parallel.model_ranks
    return max(0, int(left / (cache / measured.tokens))) * copies
