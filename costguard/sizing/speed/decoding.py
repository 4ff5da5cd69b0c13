"""One step of a server: every running sequence of a model copy gains a token, and prompts of new requests are read beside them.

With continuous batching and chunked prefill (vLLM, SGLang, TensorRT-LLM) both are in the same pass over the weights:

    step = max(reading weights, computing) + reading the caches + sums between GPUs + launching the layers' kernels

Weights stream from memory while the matrices of all tokens are multiplied, so the slower of the two counts. Attention reads the
keys and values of each sequence after that.

Example: Llama-2-7B in bf16 on an A100-80GB-SXM (2039 GB/s, of which 85 % is reached), one sequence at 2048 tokens. 13.2 GB of
weights take 7.6 ms, 1.07 GB of cache 0.6 ms and 32 layers of launches 3.2 ms: 11.4 ms a step, 88 tokens per second. With 32
sequences the caches take 19.8 ms: 30.6 ms a step, 1,050 tokens per second.

The shares were fitted to published servers (`bench/serving.py`, decision 0049), which this model then meets to 3 % in the
median for dense models under TensorRT-LLM, and to 30 % for mixtures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from costguard.sizing.architecture import Architecture, LayerBlock
from costguard.sizing.recipe import Recipe
from costguard.sizing.speed.efficiency import ServingEfficiency
from costguard.sizing.speed.flops import PeakRate, TokenWork, count_work
from costguard.sizing.speed.step_time import GIGA, TERA, LinkSpeeds, StepSetting

CACHE_BYTES, STATE_BYTES = 2.0, 4.0
"""Of a number of keys and values, and of a state of linear attention (fp32 in vLLM and transformers)."""
SUM_SECONDS = 1e-5
"""One tensor-parallel sum of a few tokens is latency: about 10 us over NVLink, and the links' speed for the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStep:
    """Seconds in which every sequence of one model copy gains one token, by component."""

    weights: float
    computing: float
    caches: float
    summing: float
    launching: float

    @property
    def reading(self) -> float:
        """Return the seconds that memory is read: weights and caches."""
        return self.weights + self.caches

    @property
    def seconds(self) -> float:
        """Return the total seconds: weights are read while the matrices are computed, and the rest comes after both."""
        return max(self.weights, self.computing) + self.caches + self.summing + self.launching


def compute_decode_step(
    architecture: Architecture,
    setting: StepSetting,
    *,
    links: LinkSpeeds,
    serving: ServingEfficiency,
    prompts: float = 0.0,
    prompt_len: int = 1,
) -> DecodeStep:
    """Return one step of `micro_batch` sequences with `seq_len` earlier tokens each, on tp x pp GPUs.

    `prompts`: tokens of prompts of `prompt_len` tokens that the step reads besides. Each pipeline stage reads its weights once
    for the sequences of every other stage, so stages do not shorten the reading of weights.
    """
    job, gpu, recipe, tp = setting.work, setting.gpu, setting.recipe, setting.parallel.tp
    ranks, batch = tp * setting.parallel.pp, recipe.micro_batch
    tokens = batch + prompts
    bandwidth = gpu.bandwidth_gb_s / gpu.dies * GIGA * serving.bandwidth_share
    forward = batch * job.flops.forward
    if prompts:
        forward += prompts * count_work(architecture, replace(recipe, seq_len=prompt_len, micro_batch=1)).flops.forward
    summed = 2 * CACHE_BYTES * tokens * architecture.hidden / (links.choose_tensor(tp) * GIGA)
    return DecodeStep(
        weights=job.weight_bytes * _count_weights_read(architecture, job, tokens) / (bandwidth * tp),
        computing=forward / (setting.top.matrix * TERA * choose_compute_share(job, serving) * ranks),
        caches=batch * sum(_compute_cache_bytes(b, recipe) for b in architecture.blocks) / (bandwidth * ranks),
        summing=2 * architecture.layers * (tp > 1) * (SUM_SECONDS + summed),
        launching=architecture.layers * serving.layer_s,
    )


def compute_prefill_rate(work: TokenWork, top: PeakRate, serving: ServingEfficiency) -> float:
    """Return the prompt tokens per second per GPU, limited by arithmetic."""
    return top.matrix * TERA * choose_compute_share(work, serving) / work.flops.forward


def compute_transcription_rate(architecture: Architecture, setting: StepSetting, serving: ServingEfficiency) -> float:
    """Return the input tokens per second per GPU of a model that hears a clip at once and writes it word by word (Whisper).

    Example: 30 s of sound are 1,500 tokens for whisper-large-v3, which takes 22 ms to hear them on an A100-80GB-SXM. 448 words
    (the most it writes) read the 0.9 B weights of the decoder each: 448 x 4.3 ms. One clip at a time takes 1.9 s, 16 at a time
    0.14 s each.
    """
    decoders = [block for block in architecture.blocks if block.cross_attention]
    work, gpu, recipe = setting.work, setting.gpu, setting.recipe
    clip, batch = architecture.sample_tokens or recipe.seq_len, recipe.micro_batch
    hearing = clip / compute_prefill_rate(work, setting.top, serving)
    weights = sum(b.layers * b.parameters_each for b in decoders) + architecture.embedding_parameters
    bandwidth = gpu.bandwidth_gb_s / gpu.dies * GIGA * serving.bandwidth_share
    word = work.weight_bytes * weights / bandwidth + serving.layer_s * sum(b.layers for b in decoders)
    words = sum(b.count_tokens(clip, recipe.decoder_len) for b in decoders)
    return clip / (hearing + words * word / batch)


def choose_compute_share(work: TokenWork, serving: ServingEfficiency) -> float:
    """Return the share of the peak that the products of a server reach; those of experts are many and narrow."""
    return serving.mixture_compute_share if work.mixture else serving.compute_share


def _count_weights_read(architecture: Architecture, work: TokenWork, tokens: float) -> float:
    """Return the weights that one step reads; of a mixture, the experts used by at least one of `tokens`."""
    total = work.weights + work.expert_weights - architecture.embedding_parameters * (not architecture.tied_embeddings)
    if not work.mixture:
        return total
    feed_forward = max((b.feed_forward for b in architecture.blocks), key=lambda f: f.experts)
    unused = math.pow(1 - feed_forward.experts_per_token / feed_forward.experts, tokens)
    passed = work.expert_weights * feed_forward.experts / (feed_forward.experts - feed_forward.experts_per_token)
    return total - passed * unused


def _compute_cache_bytes(block: LayerBlock, recipe: Recipe) -> float:
    """Return the bytes of keys and values of one sequence in one LayerBlock; a window limits the cached tokens.

    Linear attention reads and writes its whole fp32 state instead.
    """
    tokens, a = block.count_tokens(recipe.seq_len, recipe.decoder_len), block.attention
    number = CACHE_BYTES * recipe.cache_share
    return block.layers * (number * a.cached_width * min(tokens, a.window or tokens) + 2 * STATE_BYTES * a.state_numbers)
