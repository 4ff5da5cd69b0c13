"""Speed and hours: every cost slows, better hardware does not, intervals hold, and unknown is not guessed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from costguard.errors import InputError
from costguard.sizing.architecture import FeedForward
from costguard.sizing.recipe import Parallelism, Recipe
from costguard.sizing.speed.duration import (
    add_interruptions,
    compute_checkpoint_interval,
    compute_duration,
    compute_overhead,
    compute_throughput,
)
from costguard.sizing.speed.efficiency import read_efficiency
from costguard.sizing.speed.throughput import Throughput
from costguard.values.interval import Interval
from tests.sizing.speeds import EFFICIENCY, GPUS, LLAMA_2_7B, LLAMA_2_70B, decoder

PRETRAIN = Recipe(method="pretrain", checkpointing="none", micro_batch=4, seq_len=2048)
SERVE = Recipe(method="inference", checkpointing="none", seq_len=2048)


def speed(
    gpu: str, recipe: Recipe = PRETRAIN, parallel: Parallelism | None = None, *, gpus: int = 8, nodes: int = 1
) -> Throughput:
    parallel = parallel or Parallelism()
    found = compute_throughput(LLAMA_2_7B, recipe, parallel, GPUS[gpu], gpus=gpus, nodes=nodes, efficiency=EFFICIENCY)
    assert found is not None
    return found


def expected(
    gpu: str, recipe: Recipe = PRETRAIN, parallel: Parallelism | None = None, *, gpus: int = 8, nodes: int = 1
) -> float:
    return speed(gpu, recipe, parallel, gpus=gpus, nodes=nodes).tokens_per_s_per_gpu.expected


def test_factors_multiply_to_the_share_of_peak() -> None:
    found = speed("A100-80GB-SXM")
    product = math.prod(factor for _, factor in found.reasons)
    ideal = found.tokens_per_s_per_gpu.expected / product
    assert any(f"{ideal:,.1f} tokens/s" in line for line in found.explain)
    assert 0.2 < found.efficiency < 0.8


@pytest.mark.parametrize("name", sorted(n for n, g in GPUS.items() if g.bf16_tflops))
def test_no_gpu_is_faster_than_its_datasheet(name: str) -> None:
    for recipe in (PRETRAIN, replace(PRETRAIN, precision="fp8"), replace(PRETRAIN, precision="fp16-amp"), SERVE):
        assert 0 < speed(name, recipe, gpus=1).efficiency < 1


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("A100-80GB-SXM", "A100-40GB-SXM"),
        ("A100-80GB-SXM", "A100-80GB-PCIe"),
        ("H100-SXM", "A100-80GB-SXM"),
        ("H100-SXM", "H100-PCIe"),
        ("H100-SXM", "H100-SXM-96GB-500W"),
        ("H200-SXM", "H100-SXM"),
        ("B200-SXM", "H200-SXM"),
        ("GB300", "GB200"),
        ("RTX-4090", "RTX-3090"),
        ("RTX-5090", "RTX-4090"),
        ("RTX-4090", "RTX-4080"),
        ("A100-40GB-SXM", "V100-32GB"),
        ("V100-32GB", "T4"),
        ("L40S", "L4"),
    ],
)
@pytest.mark.parametrize("recipe", [PRETRAIN, SERVE], ids=["training", "serving"])
def test_better_gpu_is_not_slower(better: str, worse: str, recipe: Recipe) -> None:
    assert expected(better, recipe, gpus=1) >= expected(worse, recipe, gpus=1)


def test_fp8_falls_back_with_a_note_where_the_gpu_has_none() -> None:
    found = speed("A100-80GB-SXM", replace(PRETRAIN, precision="fp8"))
    assert found.tokens_per_s_per_gpu == speed("A100-80GB-SXM", replace(PRETRAIN, precision="bf16-amp")).tokens_per_s_per_gpu
    assert "no faster fp8" in " ".join(found.notes)


def test_fp32_takes_the_full_precision_rate_and_offers_tf32() -> None:
    found = speed("A100-80GB-SXM", replace(PRETRAIN, precision="fp32"))
    assert found.peak_tflops == 19.5
    assert "TF32" in " ".join(found.notes)


def test_unknown_rate_is_refused_not_guessed() -> None:
    unknown = replace(GPUS["H100-SXM"], bf16_tflops=None, fp32_tflops=None)
    assert compute_throughput(LLAMA_2_7B, PRETRAIN, Parallelism(), unknown, gpus=1, nodes=1, efficiency=EFFICIENCY) is None


def test_sharding_over_pcie_costs_more_than_over_nvlink() -> None:
    sharded = Parallelism(fsdp=True)
    over_pcie = expected("RTX-4090", PRETRAIN, sharded) / expected("RTX-4090", gpus=1)
    over_nvlink = expected("A100-80GB-SXM", PRETRAIN, sharded) / expected("A100-80GB-SXM", gpus=1)
    assert over_pcie < over_nvlink


@pytest.mark.parametrize(
    "split",
    [Parallelism(tp=8), Parallelism(pp=8), Parallelism(fsdp=True), Parallelism(fsdp=True, offload="all"), Parallelism(ep=8)],
)
def test_every_split_costs_something(split: Parallelism) -> None:
    assert expected("A100-80GB-SXM", PRETRAIN, split) <= expected("A100-80GB-SXM", gpus=1)


def test_more_accumulation_never_slows_a_pipeline() -> None:
    """Also where interleaving is no longer assumed."""
    rates = [expected("H100-SXM", replace(PRETRAIN, gradient_accumulation=a), Parallelism(pp=8)) for a in range(1, 64)]
    assert rates == sorted(rates)


@pytest.mark.parametrize("split", [Parallelism(fsdp=True), Parallelism(zero=1), Parallelism(tp=8)])
def test_more_machines_are_not_faster_per_gpu(split: Parallelism) -> None:
    rates = [expected("A100-80GB-SXM", PRETRAIN, split, gpus=8 * n, nodes=n) for n in (1, 2, 8, 64, 512)]
    assert rates == sorted(rates, reverse=True)


def test_long_context_on_hopper_wants_a_kernel_made_for_it() -> None:
    """FlashAttention-2 reaches 300-400 of an H100's 989 TFLOPS; on an A100 there is nothing newer to win."""
    long = replace(PRETRAIN, seq_len=65_536, micro_batch=1)
    newer = replace(long, attention="flash3")
    assert expected("H100-SXM", newer) > 1.3 * expected("H100-SXM", long)
    assert expected("A100-80GB-SXM", newer) == expected("A100-80GB-SXM", long)


@pytest.mark.parametrize(
    "faster",
    [replace(PRETRAIN, compiled=True), replace(PRETRAIN, framework="unsloth"), replace(PRETRAIN, fused_loss=True)],
    ids=["compiled", "unsloth", "fused loss"],
)
def test_fused_kernels_are_faster_by_a_tenth_or_so(faster: Recipe) -> None:
    assert 1.0 < expected("A100-80GB-SXM", faster) / expected("A100-80GB-SXM") < 1.3


def test_fp4_pays_for_large_models_on_blackwell() -> None:
    """Published for Llama-3-70B: 1.3 times fp8 on GB200, 1.5 on GB300; mixtures gain nothing, and pull ours down."""
    recipe = replace(PRETRAIN, precision="fp4", framework="megatron", gradient_accumulation=16)
    four, eight = (
        compute_throughput(LLAMA_2_70B, r, Parallelism(pp=4), GPUS["GB200"], gpus=64, nodes=8, efficiency=EFFICIENCY)
        for r in (recipe, replace(recipe, precision="fp8"))
    )
    assert four is not None
    assert eight is not None
    assert 1.0 < four.tokens_per_s_per_gpu.expected / eight.tokens_per_s_per_gpu.expected < 1.7


def test_experts_over_machines_cost_more_than_inside_one() -> None:
    inside, over = (_expert_speed(Parallelism(ep=n)) for n in (8, 64))
    assert over < inside


def test_gpt_2_takes_the_time_people_report() -> None:
    """10B tokens on 8 A100: llm.c 90 minutes (its README), PyTorch compiled about two hours (build-nanogpt)."""
    gpt2 = decoder(12, 768, 12, 12, 3072, 50_257, gated=False)
    recipe = Recipe(method="pretrain", checkpointing="none", micro_batch=64, seq_len=1024, compiled=True)
    found = compute_throughput(gpt2, recipe, Parallelism(), GPUS["A100-80GB-SXM"], gpus=8, nodes=1, efficiency=EFFICIENCY)
    assert found is not None
    hours = found.tokens_per_s_per_gpu.invert().scale(10e9 / 8 / 3600)
    assert hours.low < 1.5 < hours.expected < 2.0 < hours.high


def test_gpu_nobody_has_timed_gets_the_wide_interval_and_a_note() -> None:
    known, unknown = speed("A100-80GB-SXM", gpus=1), speed("MI355X", gpus=1)
    assert _width(unknown) > _width(known)
    assert "MI355X" in " ".join(unknown.notes)
    assert not known.notes


def test_decoding_one_sequence_is_bound_by_bandwidth() -> None:
    found = speed("A100-80GB-SXM", SERVE, gpus=1)
    assert found.reasons[0][0] == "memory bandwidth"
    assert found.tokens_per_s_per_gpu.expected == pytest.approx(88, rel=0.01)


def test_more_sequences_at_once_give_more_tokens() -> None:
    one, many = (expected("A100-80GB-SXM", replace(SERVE, micro_batch=b), gpus=1) for b in (1, 32))
    assert many == pytest.approx(1046, rel=0.01)
    assert many > 5 * one


def test_encoder_takes_all_tokens_at_once() -> None:
    block = replace(LLAMA_2_7B.blocks[0], causal=False)
    encoder = replace(LLAMA_2_7B, kind="encoder", blocks=(block,))
    found = compute_throughput(encoder, SERVE, Parallelism(), GPUS["A100-80GB-SXM"], gpus=1, nodes=1, efficiency=EFFICIENCY)
    assert found is not None
    assert found.tokens_per_s_per_gpu.expected == found.prefill_tokens_per_s_per_gpu


def test_hours_are_tokens_over_speed_and_gpus() -> None:
    quick = replace(speed("A100-80GB-SXM"), tokens_per_s_per_gpu=Interval(1600, 2000, 2500))
    took = compute_duration(50_000_000, quick, gpus=2, startup_hours=Interval(0.03, 0.1, 0.4), efficiency=EFFICIENCY)
    assert took.hours.expected == pytest.approx(50e6 / 2000 / 2 / 3600 + 0.1, rel=0.01)
    assert took.hours == took.train_hours.add(took.startup_hours)
    assert [name for name, _ in took.parts] == ["speed", "whole-run overhead", "start-up"]


def test_long_runs_lose_more_than_short_ones() -> None:
    assert compute_overhead(1, EFFICIENCY).high < 1.02
    assert compute_overhead(1000, EFFICIENCY).expected > 1.1
    assert 1.2 <= compute_overhead(1000, EFFICIENCY).high <= 3


def test_interruptions_cost_the_restart_and_half_a_checkpoint_interval() -> None:
    """C8, the worked example: 0.05 an hour x (0.25 h + 0.5 h) = 3.75 % more hours."""
    quiet = compute_duration(10**9, speed("A100-80GB-SXM"), gpus=8, startup_hours=Interval.exactly(0), efficiency=EFFICIENCY)
    spot = add_interruptions(quiet, Interval.exactly(0.05), restart_hours=0.25, checkpoint_every_hours=1.0)
    assert spot.hours.expected == pytest.approx(1.0375 * quiet.hours.expected)
    assert spot.parts[-1][0] == "interruptions"


def test_best_checkpoint_interval_is_young_s() -> None:
    assert compute_checkpoint_interval(0.05, 0.01) == pytest.approx(0.632, abs=0.001)


def test_file_of_constants_that_lacks_a_table_says_which() -> None:
    with pytest.raises(InputError, match=r"efficiency\.overhead"):
        read_efficiency({"weights": {}})


def _expert_speed(split: Parallelism) -> float:
    """Of a mixture of 64 experts, 8 a token, on 64 H100s."""
    block = replace(LLAMA_2_7B.blocks[0], feed_forward=FeedForward(ffn=1408, experts=64, experts_per_token=8))
    mixture = replace(LLAMA_2_7B, blocks=(block,))
    found = compute_throughput(mixture, PRETRAIN, split, GPUS["H100-SXM"], gpus=64, nodes=8, efficiency=EFFICIENCY)
    assert found is not None
    return found.tokens_per_s_per_gpu.expected


def _width(found: Throughput) -> float:
    return found.tokens_per_s_per_gpu.high / found.tokens_per_s_per_gpu.low
