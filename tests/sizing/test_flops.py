"""FLOPs per token follow the published formulas: 6N + 6Lhs, 4N for adapters, active experts only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costguard.sizing.architecture import Architecture, Attention, FeedForward, LatentAttention, LayerBlock
from costguard.sizing.recipe import Lora, Recipe
from costguard.sizing.speed.flops import count_context_tokens, count_flops_per_token
from tests.sizing.speeds import LLAMA_2_7B, LLAMA_2_70B

N_7B = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32_000 * 4096
SCORES_7B = 6 * 32 * 4096 * 2048


def test_training_is_6n_plus_6lhs() -> None:
    assert count_flops_per_token(LLAMA_2_7B, Recipe(method="full")).model == 6 * N_7B + SCORES_7B


def test_inference_has_no_backward_and_no_recomputation() -> None:
    flops = count_flops_per_token(LLAMA_2_7B, Recipe(method="inference", checkpointing="full"))
    assert (flops.forward, flops.backward, flops.recompute) == (2 * N_7B + SCORES_7B / 3, 0, 0)


def test_full_recomputation_repeats_the_layers_but_not_the_head() -> None:
    flops = count_flops_per_token(LLAMA_2_7B, Recipe(method="full", checkpointing="full"))
    assert flops.recompute == 2 * (N_7B - 32_000 * 4096) + SCORES_7B / 3
    assert flops.hardware == flops.model + flops.recompute


def test_selective_recomputation_repeats_the_scores() -> None:
    assert count_flops_per_token(LLAMA_2_7B, Recipe(checkpointing="selective")).recompute == SCORES_7B / 3


@pytest.mark.parametrize(("method", "quant"), [("lora", "none"), ("qlora", "nf4")])
def test_frozen_base_costs_4n(method: str, quant: str) -> None:
    recipe = Recipe(method=method, quant=quant, lora=Lora(rank=1, targets="attention"))
    assert count_flops_per_token(LLAMA_2_7B, recipe).model == pytest.approx(4 * N_7B + SCORES_7B, rel=0.001)


def test_nvidia_s_lora_table_reads_below_the_peak_only_with_4n() -> None:
    """SIZING.md: 2 643 tok/s/H100 on 70B is 735 TFLOPs with 4N and would be 1 119 with 6N."""
    lora = count_flops_per_token(LLAMA_2_70B, Recipe(method="lora", seq_len=4096, lora=Lora(rank=16)))
    full = count_flops_per_token(LLAMA_2_70B, Recipe(method="full", seq_len=4096))
    assert 2643 * lora.model / 1e12 == pytest.approx(735, rel=0.06)
    assert 2643 * full.model / 1e12 == pytest.approx(1119, rel=0.03)


def test_only_the_experts_a_token_passes_are_counted() -> None:
    mixture = FeedForward(ffn=1024, experts=64, experts_per_token=4)
    block = replace(LLAMA_2_7B.blocks[0], feed_forward=mixture)
    architecture = replace(LLAMA_2_7B, blocks=(block,))
    n = 32 * (4 * 4096**2 + 4 * 3 * 4096 * 1024 + 64 * 4096) + 32_000 * 4096
    assert count_flops_per_token(architecture, Recipe()).model == 6 * n + SCORES_7B


def test_window_bounds_what_a_query_sees() -> None:
    attention = Attention(heads=8, kv_heads=8, head_dim=64, window=100)
    assert count_context_tokens(attention, 1000, causal=True) == 95
    assert count_context_tokens(attention, 1000, causal=False) == 100
    assert count_context_tokens(attention, 100, causal=True) == 50


def test_eager_attention_computes_the_masked_half_too() -> None:
    eager = count_flops_per_token(LLAMA_2_7B, Recipe(attention="eager")).model
    assert eager == 6 * N_7B + 2 * SCORES_7B


def test_latent_attention_counts_its_own_matrices_and_widths() -> None:
    latent = LatentAttention(q_rank=1536, kv_rank=512, rope_dim=64, nope_dim=128, value_dim=128)
    attention = Attention(heads=128, kv_heads=128, head_dim=128, latent=latent)
    block = LayerBlock(layers=1, hidden=7168, attention=attention, feed_forward=FeedForward(ffn=2048))
    architecture = Architecture(name="mla", kind="decoder", blocks=(block,), vocab=0, has_head=False)
    matrices = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168 + 3 * 7168 * 2048
    scores = 2 * (128 * 192 + 128 * 128) * 1024
    assert count_flops_per_token(architecture, Recipe(method="inference")).forward == 2 * matrices + scores


def test_image_tower_s_cost_is_spread_over_the_sample_s_tokens() -> None:
    tower = replace(LLAMA_2_7B.blocks[0], causal=False, tokens=256)
    alone = Architecture(name="vit", kind="vit", blocks=(tower,), sample_tokens=256, has_head=False)
    beside = Architecture(name="clip", kind="clip", blocks=(tower, tower), sample_tokens=512, has_head=False)
    assert count_flops_per_token(beside, Recipe()).model == count_flops_per_token(alone, Recipe()).model


def test_decoder_s_second_attention_is_counted() -> None:
    block = replace(LLAMA_2_7B.blocks[0], cross_attention=True)
    crossed = count_flops_per_token(replace(LLAMA_2_7B, blocks=(block,)), Recipe())
    attention_matrices = 4 * 4096**2
    assert crossed.model == 6 * (N_7B + 32 * attention_matrices) + 3 * SCORES_7B


def test_explanation_names_every_term() -> None:
    text = "\n".join(count_flops_per_token(LLAMA_2_7B, Recipe(checkpointing="full")).explain)
    assert "layers 6.476" in text
    assert "head 0.131" in text
    assert "forward at 2048 tokens = 2 x 6.607 + attention 0.537 = 13.751 GFLOP" in text
    assert "recompute, full checkpointing = 13.489" in text


def test_larger_adapters_cost_more() -> None:
    small, large = (count_flops_per_token(LLAMA_2_7B, Recipe(method="lora", lora=Lora(rank=r))).model for r in (8, 256))
    assert large == pytest.approx(small + 6 * 248 * (4 * 2 * 4096 + 3 * (4096 + 11008)) * 32)
