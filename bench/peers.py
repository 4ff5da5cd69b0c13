"""What others would have said of the same memory rows: the formulas of SIZING.md sections 1 and 2, bytes per GPU.

Each is a function of a case that gives None where its authors do not claim it. Where a source gives bytes per parameter
and says nothing of several GPUs, they are shared as the ZeRO paper shares them (`states`): the kindest reading.

Example: 7B in pure bf16 on one GPU are 56 GB by S3's rule (8 bytes a parameter), 84 by S0's (12), 112 by S1's (16).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from bench.cases import Case
from costguard.sizing.architecture import LayerBlock

Peer = Callable[[Case], float | None]

BUCKET = 5e8 * 2
"""EleutherAI's all-gather buffer: 5e8 elements of 2 bytes."""
LIVE = 1e9 * 2
"""And what stage 3 keeps gathered: 1e9 parameters of 2 bytes."""
WEIGHT_BITS = {"none": 16.0, "nf4": 4.0, "int4": 4.0, "int8": 8.0}
ADAM = 12
"""Bytes a parameter of Adam in mixed precision: fp32 copy and two moments."""


def states(case: Case, weights: float, gradients: float, optimizer: float) -> float:
    """Bytes of one GPU for these bytes a parameter: TP and PP divide all, ZeRO 1, 2, 3 optimizer, gradients, weights."""
    ranks, stage = data_ranks(case), case.parallel.stage
    each = weights / (ranks if stage > 2 else 1) + gradients / (ranks if stage > 1 else 1) + optimizer / (ranks if stage else 1)
    return case.architecture.parameters / case.parallel.model_ranks * each


def data_ranks(case: Case) -> int:
    """GPUs that hold the same part of the model."""
    return max(1, case.gpus // case.parallel.model_ranks)


def s0(case: Case) -> float | None:
    """S0: 12 B a parameter (its list, summed right, is 16) and 4 b s h L bytes of activations."""
    return states(case, 2, 2, 8) + 4 * _bshl(case) if _full(case) else None


def s1(case: Case) -> float | None:
    """S1 and S4: 16 B a parameter, which is a lower bound there."""
    return states(case, 2, 2, 12) if _full(case) else None


def eighteen(case: Case) -> float | None:
    """18 B a parameter: fp32 gradients."""
    return states(case, 2, 4, 12) if _full(case) else None


def s2_quick(case: Case) -> float | None:
    """S2's quick sum: 12 B a parameter and 2 b s h L bytes of activations."""
    return states(case, 2, 2, 8) + 2 * _bshl(case) if _full(case) else None


def s2_code(case: Case) -> float | None:
    """S2's `calculate_model_memory`: 24 B a parameter mixed, 32 in fp32, activations thought of as four copies."""
    if not _full(case):
        return None
    return states(case, 4, 4, 24) if case.recipe.precision == "fp32" else states(case, 2, 2, 12) + states(case, 8, 0, 0)


def s3(case: Case) -> float | None:
    """S3: 8 B a parameter (pure bf16) and 4 h L bytes of activations a token."""
    return states(case, 2, 2, 4) + 4 * _bshl(case) if _full(case) else None


def accelerate(case: Case) -> float | None:
    """Accelerate estimate-memory: one GPU; inference the weights, training 4 x the fp32 size, or 2 x it in 16 bits."""
    if case.gpus > 1 or case.adapters or _cache_only(case) or case.recipe.quant not in WEIGHT_BITS:
        return None
    p = case.architecture.parameters
    if not case.recipe.trains:
        width = 4.0 if case.recipe.precision == "fp32" else WEIGHT_BITS[case.recipe.quant] / 8
        return p * width
    return p * (16 if case.recipe.precision == "fp32" or case.recipe.amp else 8)


def llama_factory(case: Case) -> float | None:
    """LLaMA-Factory's table: 18 GB a billion full AMP, 8 pure 16 bits, 2 LoRA, 1 in 8 bits, 0.5 in 4; over all GPUs."""
    if not case.recipe.trains or case.recipe.quant not in WEIGHT_BITS:
        return None
    full = 18 if case.recipe.amp or case.recipe.precision == "fp32" else 8
    each = WEIGHT_BITS[case.recipe.quant] / 8 if case.adapters else full
    return case.architecture.parameters * each / case.gpus


def eleuther(case: Case) -> float | None:
    """EleutherAI cookbook `calc_transformer_mem`: its own count, ZeRO over all GPUs, 34 b s h L even when checkpointed.

    It knows no flash attention; its scores are left out where the row uses one, the kindest reading.
    """
    if case.adapters or case.recipe.quant != "none":
        return None
    block, recipe = case.architecture.main, case.recipe
    p, h, layers = _eleuther_parameters(case, block), block.hidden, case.architecture.layers
    if _cache_only(case):
        return 2.0 * h * layers * case.tokens
    if not recipe.trains:
        return (
            2 * p / case.parallel.model_ranks
            + 34 * case.tokens * h
            + 2 * h * layers * (recipe.seq_len + 1) * recipe.micro_batch
        )
    stage, n = case.parallel.stage, case.gpus
    weights = 2 * p / case.parallel.model_ranks / (n if stage == 3 else 1)
    gradients, optimizer = 4 * p / (n if stage >= 2 else 1), ADAM * p / (n if stage else 1)
    buffers = (BUCKET + LIVE * (stage == 3)) * (stage > 0 and n > 1)
    kept = recipe.checkpointing != "full" and recipe.attention != "flash"
    scores = 5 * block.attention.heads * recipe.seq_len / h * kept
    return weights + gradients + optimizer + buffers + _bshl(case) * (34 + scores)


def megatron(case: Case) -> float | None:
    """Megatron's theoretical report: 18 B a parameter or 6 + 12/DP on the fullest shard, s b h (18 + 4 f/h) a layer, logits."""
    if not _full(case):
        return None
    block, tp, pp = case.architecture.main, case.parallel.tp, case.parallel.pp
    embedding, h = case.architecture.embedding_parameters, block.hidden
    inside = case.architecture.parameters - embedding - case.architecture.head_parameters
    shard = (inside / pp + embedding + (case.architecture.head_parameters if pp == 1 else 0)) / tp
    each = 6 + ADAM / data_ranks(case) if case.parallel.stage else 18
    layers = case.tokens * (18 * h + 4 * block.feed_forward.ffn) * case.architecture.layers + case.tokens * pp * (8 + h)
    logits = 4 * case.tokens * (h + case.architecture.vocab) if pp == 1 else 0
    return shard * each + (layers + logits) / tp


def llm_analysis(case: Case) -> float | None:
    """llm-analysis: 2 + 2 + 16 B a parameter by stage, Korthikanti's activations, fp32 norms, a KV cache of all heads."""
    block, layers, h = case.architecture.main, case.architecture.layers, case.architecture.hidden
    width = WEIGHT_BITS.get(case.recipe.quant)
    if width is None or case.adapters:
        return None
    if not case.recipe.trains:
        cache = 4.0 * case.tokens * h * layers
        if _cache_only(case):
            return cache
        return states(case, width / 8, 0, 0) + cache + 2 * case.tokens * case.architecture.vocab
    per_token = {"full": 2.0 * h, "selective": 37.0 * h}.get(case.recipe.checkpointing)
    if per_token is None:
        per_token = 38.0 * h + block.attention.heads * case.recipe.seq_len
    logits = 4 * case.tokens * case.architecture.vocab
    return states(case, 2, 2, 16) + (per_token * case.tokens * layers / case.parallel.pp + logits) / case.parallel.tp


def deepspeed(case: Case) -> float | None:
    """DeepSpeed `estimate_zero3_model_states_mem_needs`: 4 x the largest layer + 18 P / N; offload leaves less of it."""
    if case.parallel.stage != 3 or not case.recipe.trains or case.parallel.model_ranks > 1:
        return None
    block = case.architecture.main
    largest = 4 * max(case.architecture.embedding_parameters, block.hidden * block.feed_forward.ffn)
    each = {"none": 18, "optimizer": 2, "all": 0}[case.parallel.offload]
    return largest + each * case.architecture.parameters / case.gpus


PEERS: Mapping[str, Peer] = MappingProxyType(
    {
        "S0: 12 B/param + 4bshL": s0,
        "S1, S4: 16 B/param": s1,
        "18 B/param": eighteen,
        "S2 quick: 12 B/param + 2bshL": s2_quick,
        "S2 code: 24 or 32 B/param": s2_code,
        "S3: 8 B/param + 4hL a token": s3,
        "accelerate estimate-memory": accelerate,
        "LLaMA-Factory table": llama_factory,
        "EleutherAI cookbook": eleuther,
        "Megatron theoretical report": megatron,
        "llm-analysis": llm_analysis,
        "DeepSpeed ZeRO-3 estimator": deepspeed,
    }
)
"""Name -> formula, in the order of the tables."""


def _full(case: Case) -> bool:
    """Whether all weights are trained: what a rule of bytes a parameter is about."""
    return case.recipe.trains and not case.adapters


def _cache_only(case: Case) -> bool:
    """Whether the row is about the KV cache and nothing else."""
    return case.inputs.get("method") == "kv-cache"


def _bshl(case: Case) -> float:
    """B x s x h x L."""
    return case.tokens * case.architecture.hidden * case.architecture.layers


def _eleuther_parameters(case: Case, block: LayerBlock) -> float:
    """2Vh + sh + (8L+2)h + 2(1+kv)Lh^2 + n_mlp L ff h^2."""
    h, layers, forward = block.hidden, case.architecture.layers, block.feed_forward
    outside = 2 * case.architecture.vocab * h + case.recipe.seq_len * h + (8 * layers + 2) * h
    attention = 2 * (1 + block.attention.kv_heads / block.attention.heads) * layers * h**2
    return outside + attention + (3 if forward.gated else 2) * layers * forward.ffn * max(1, forward.experts) * h
