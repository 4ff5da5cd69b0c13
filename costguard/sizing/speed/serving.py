"""How fast a model generates: a step reads all weights and every sequence's cache; reading or computing sets the pace.

Example: Llama-2-7B in bf16 on an A100-80GB-SXM (2039 GB/s, 60 % of it reached), one sequence at 2048 tokens: 13.5 GB of
weights and 1.07 GB of cache take 11.7 ms a step, 86 tokens a second; computing takes 0.1 ms. With 32 sequences a step
reads 47.6 GB: 38.9 ms, 823 tokens a second. Shares are assumed (the data holds no serving run); the interval is wide.
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.sizing.architecture import Architecture, LayerBlock
from costguard.sizing.recipe import Recipe
from costguard.sizing.speed.efficiency import ServingEfficiency
from costguard.sizing.speed.step import GIGA, TERA, LinkSpeeds, StepSetting
from costguard.sizing.speed.work import PeakRate, TokenWork

CACHE_BYTES = 2.0
SUM_SECONDS = 1e-5
"""One tensor-parallel sum of a few tokens is latency: about 10 us over NVLink, and the links' speed for the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStep:
    """Seconds in which every sequence of one copy of the model gains one token, by what they are spent on."""

    reading: float
    computing: float
    summing: float

    @property
    def seconds(self) -> float:
        """Reading and computing overlap; sums between GPUs wait for both."""
        return max(self.reading, self.computing) + self.summing


def _compute_decode_step(
    architecture: Architecture, setting: StepSetting, *, links: LinkSpeeds, serving: ServingEfficiency
) -> DecodeStep:
    """One step of `micro_batch` sequences that have `seq_len` tokens behind them, on tp x pp GPUs."""
    job, gpu, recipe, tp = setting.work, setting.gpu, setting.recipe, setting.parallel.tp
    ranks, batch = tp * setting.parallel.pp, recipe.micro_batch
    cache = batch * sum(_compute_cache_bytes(b, recipe) for b in architecture.blocks)
    read = job.weight_bytes * _count_weights_read(architecture, job, batch) + cache
    summed = 2 * CACHE_BYTES * batch * architecture.hidden / (links.inside * GIGA)
    return DecodeStep(
        reading=read / (gpu.bandwidth_gb_s / gpu.dies * GIGA * serving.bandwidth_share * ranks),
        computing=batch * job.flops.forward / (setting.top.matrix * TERA * serving.compute_share * ranks),
        summing=2 * architecture.layers * (tp > 1) * (SUM_SECONDS + summed),
    )


def _count_weights_read(architecture: Architecture, work: TokenWork, batch: int) -> float:
    """Weights one step needs: of a mixture, the experts that at least one of `batch` tokens is sent to."""
    total = work.weights + work.expert_weights - architecture.embedding_parameters * (not architecture.tied_embeddings)
    if not work.mixture:
        return total
    feed_forward = max((b.feed_forward for b in architecture.blocks), key=lambda f: f.experts)
    unused = (1 - feed_forward.experts_per_token / feed_forward.experts) ** batch
    passed = work.expert_weights * feed_forward.experts / (feed_forward.experts - feed_forward.experts_per_token)
    return total - passed * unused


def _compute_cache_bytes(block: LayerBlock, recipe: Recipe) -> float:
    """Keys and values of one sequence in one Block, 16-bit; a window keeps no more than itself."""
    tokens = block.tokens or recipe.seq_len
    return CACHE_BYTES * block.layers * block.attention.cached_width * min(tokens, block.attention.window or tokens)


def _compute_prefill_rate(work: TokenWork, top: PeakRate, serving: ServingEfficiency) -> float:
    """Prompt tokens a second per GPU: bound by arithmetic."""
    return top.matrix * TERA * serving.compute_share / work.flops.forward


def _is_generative(architecture: Architecture) -> bool:
    """Whether tokens come one after another; an encoder or an image tower takes them all at once."""
    return any(block.causal for block in architecture.blocks)
