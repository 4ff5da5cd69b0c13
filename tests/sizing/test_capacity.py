"""Serving as capacity: tokens of keys and values that fit beside the weights."""

from __future__ import annotations

import pytest

from costguard.sizing.memory.footprint import compute_cache_capacity, compute_footprint
from costguard.sizing.recipe import Parallelism, Recipe
from tests.sizing.shapes import shipped
from tests.sizing.speeds import GPUS


def fits(model: str, gpu: str, *, gpus: int = 1, split: Parallelism | None = None, **how: object) -> int | None:
    parallel = split or Parallelism()
    recipe = Recipe(**{"method": "inference", "seq_len": 8192, **how})  # type: ignore[arg-type]  # checked there
    need = compute_footprint(shipped(model), recipe, parallel, gpus=gpus)
    return compute_cache_capacity(need, GPUS[gpu], parallel, gpus=gpus)


def test_llama_3_8b_on_an_80_gb_card_holds_about_fifty_sequences_of_8192() -> None:
    """0.9 x 79.2 GiB less 15 GiB of weights, 1.8 of work and context: 54.5 GiB at 128 KiB a token."""
    assert fits("llama-3-8b", "A100-80GB-SXM") == pytest.approx(54.5 * 2**30 / 131_072, rel=0.04)


def test_every_copy_adds_its_own() -> None:
    one, eight = fits("llama-3-8b", "H100-SXM"), fits("llama-3-8b", "H100-SXM", gpus=8)
    assert one is not None
    assert eight == pytest.approx(8 * one, rel=0.03)


def test_an_encoder_caches_nothing() -> None:
    assert fits("bert-base", "A100-80GB-SXM", seq_len=512) is None


def test_of_unified_memory_only_the_usable_share_counts_and_not_a_share_of_it_again() -> None:
    """Apple's default working set is 75 %: of 128 GB 96 GiB, less 5 GiB of weights and work."""
    tokens = fits("llama-3-8b", "M4-Max", quant="q4_k_m")
    assert tokens == pytest.approx((96 - 6) * 2**30 / 131_072, rel=0.03)


def test_a_latent_cannot_be_divided_so_wider_splits_hold_no_more_of_it_a_gpu() -> None:
    """DeepSeek-V3's MLA: 61 layers x 576 numbers x 2 bytes = 70,272 bytes a token on every rank."""
    tokens = fits("deepseek-v3", "H200-SXM", gpus=8, split=Parallelism(tp=8), precision="fp8")
    assert tokens is not None
    weights = 671.03e9 / 8
    assert tokens == pytest.approx((0.9 * 139.7 * 2**30 - weights - 1.5 * 2**30) / 70_272, rel=0.1)
