"""The memory claims of the five source documents (SIZING.md section 1, M1-M28): our number, and the right resolution."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costguard.sizing.memory.footprint import Footprint, compute_footprint
from costguard.sizing.recipe import Lora, Parallelism, Recipe
from costguard.values.gpu import GIB
from tests.sizing.shapes import llama_like, of_size, shipped, stated

GB = 10**9
MIXED, FP16_MIXED, PURE, WIDE = (Recipe(precision=p) for p in ("bf16-amp", "fp16-amp", "bf16", "fp32"))
USABLE = 0.99


def step(billions: float, recipe: Recipe, parallel: Parallelism = Parallelism(), gpus: int = 1) -> dict[str, int]:  # noqa: B008  # frozen
    """States of a model of exactly `billions` parameters when the optimizer steps."""
    sized = compute_footprint(stated(billions), recipe, parallel, gpus=gpus)
    terms = next(p.terms for p in sized.phases if p.name == "step")
    return {t: terms[t] for t in ("weights", "gradients", "optimizer")}


def bytes_each(recipe: Recipe, parallel: Parallelism = Parallelism()) -> float:  # noqa: B008  # frozen
    """Bytes of states a parameter."""
    return sum(step(1.0, recipe, parallel).values()) / GB


def fits(sized: Footprint, gib: float) -> bool:
    return sized.reserved <= gib * GIB * USABLE


def alone(billions: float, recipe: Recipe) -> Footprint:
    return compute_footprint(of_size(billions), recipe, Parallelism())


def activations(sized: Footprint, name: str = "loss") -> int:
    return next(p.terms["activations"] for p in sized.phases if p.name == name)


@pytest.mark.parametrize(
    ("recipe", "parallel", "expected"),
    [
        (PURE, Parallelism(), 8),
        (MIXED, Parallelism(), 16),
        (WIDE, Parallelism(), 16),
        (FP16_MIXED, Parallelism(zero=1), 16),
        (replace(FP16_MIXED, framework="deepspeed"), Parallelism(), 16),
        (replace(MIXED, framework="megatron"), Parallelism(), 18),
        (replace(MIXED, optimizer="sgd"), Parallelism(), 8),
        (replace(MIXED, optimizer="sgd-momentum"), Parallelism(), 12),
        (replace(PURE, optimizer="sgd-momentum"), Parallelism(), 6),
        (replace(PURE, optimizer="adafactor"), Parallelism(), 4),
        (replace(MIXED, optimizer="adamw-8bit"), Parallelism(), 4 + 4 + 2 * (1 + 4 / 256)),
    ],
)
def test_bytes_a_parameter_depend_on_the_recipe(recipe: Recipe, parallel: Parallelism, expected: float) -> None:
    assert bytes_each(recipe, parallel) == pytest.approx(expected)


def test_autocast_adds_two_bytes_while_a_forward_pass_without_checkpointing_is_alive() -> None:
    sized = alone(7, replace(MIXED, checkpointing="none", seq_len=16))
    casts = next(p.terms["buffers"] for p in sized.phases if p.name == "loss")
    assert 16 + casts / of_size(7).parameters == pytest.approx(18, abs=0.1)


def test_accumulating_gradients_in_fp32_beside_16_bit_ones_makes_20() -> None:
    recipe = replace(MIXED, framework="deepspeed", gradient_accumulation=4)
    sized = compute_footprint(stated(1.0), recipe, Parallelism())
    assert next(p.total for p in sized.phases if p.name == "step") / GB == pytest.approx(20)


def test_optimizer_in_backward_keeps_only_one_unit_of_gradients() -> None:
    sized = alone(7, replace(PURE, optimizer_in_backward=True))
    assert sized.at_peak["gradients"] <= 202_383_360 * 2 + 16_384


def test_m2_gpt_350m_at_batch_8_needs_about_40_gb_and_no_4090() -> None:
    """On a GPU GPT-2's own modules keep more: its GELU takes a power, which autocast computes in fp32 (`bench/card.csv`)."""
    gpt = replace(shipped("gpt2-medium"), positions=2048)
    plain = replace(MIXED, micro_batch=8, checkpointing="none", autocast_rules="cpu")
    assert 36 * GB < compute_footprint(gpt, plain, Parallelism()).peak < 46 * GB
    sized = compute_footprint(gpt, replace(plain, autocast_rules="cuda"), Parallelism())
    assert 46 * GB < sized.peak < 56 * GB
    assert not fits(sized, 24)


def test_m4_two_bytes_a_token_hidden_and_layer_is_what_checkpointing_keeps() -> None:
    sized = alone(7, replace(PURE, micro_batch=8))
    kept, entries = activations(sized, "forward"), 2 * 8 * 2048 * 4096 * 32
    assert entries < kept < 1.25 * entries
    assert activations(alone(7, replace(PURE, micro_batch=8, checkpointing="none")), "forward") > 20 * entries


def test_m7_an_a100_80gb_trains_4_3b_mixed_not_5b_and_8b_pure_not_10b() -> None:
    assert fits(alone(4.3, MIXED), 80)
    assert not fits(alone(5.1, MIXED), 80)
    assert fits(alone(8.0, PURE), 80)
    assert not fits(alone(10.2, PURE), 80)


def test_m10_m14_m16_llama_2_7b_at_batch_8_needs_147_gb_not_88_nor_448() -> None:
    sized = compute_footprint(shipped("llama-2-7b"), replace(PURE, micro_batch=8, checkpointing="none"), Parallelism())
    assert sized.peak == pytest.approx(147.19 * GB, rel=0.001)
    forward_end = activations(sized) + 4 * 8 * 2048 * 32000
    assert forward_end == pytest.approx(102.6 * GB, rel=0.001)
    assert not fits(sized, 80)


def test_m11_activations_do_not_scale_with_parameters() -> None:
    recipe = replace(PURE, checkpointing="none", seq_len=512)
    wide, long = llama_like(layers=4, hidden=4096, ffn=11008), llama_like(layers=16, hidden=1024, ffn=2752)
    ratio = activations(compute_footprint(wide, recipe, Parallelism())) / activations(
        compute_footprint(long, recipe, Parallelism())
    )
    assert ratio == pytest.approx(1, abs=0.05)
    assert wide.parameters > 3 * long.parameters


def test_m12_m13_7b_is_56_gb_pure_and_112_gb_mixed_or_fp32() -> None:
    assert [sum(step(7, r).values()) / GB for r in (PURE, MIXED, WIDE)] == pytest.approx([56, 112, 112])
    assert [sum(step(b, PURE).values()) / GB for b in (13, 70)] == pytest.approx([104, 560])
    assert sum(step(1.5, MIXED).values()) == 24 * GB


def test_m15_attention_matrices_cost_17_gb_a_layer_in_eager_and_nothing_in_flash() -> None:
    recipe = replace(WIDE, checkpointing="none", micro_batch=32)
    layers = [llama_like(layers=n, hidden=4096, heads=32, kv_heads=32) for n in (1, 2)]
    eager, flash = (
        [activations(compute_footprint(a, replace(recipe, attention=k), Parallelism())) for a in layers]
        for k in ("eager", "flash")
    )
    matrices = 32 * 32 * 2048 * 2048 * 4
    assert matrices / 32 == pytest.approx(536.9e6, rel=0.001)
    saved = (eager[1] - eager[0]) - (flash[1] - flash[0])
    assert saved == pytest.approx(matrices, rel=0.05)


def test_m18_4_bit_weights_are_4_gb_for_7b_and_under_40_gb_for_70b() -> None:
    recipe = Recipe(method="qlora", quant="nf4", seq_len=512, lora=Lora(rank=64, targets="attention"))
    sizes = [
        compute_footprint(shipped(name), replace(recipe, double_quant=double), Parallelism()).at_peak["weights"] / GB
        for name in ("llama-2-7b", "llama-2-70b")
        for double in (True, False)
    ]
    adapters = 4 * 64 * 4 * 2 * 4096 * 32 / GB
    assert [sizes[0] - adapters, sizes[1] - adapters] == pytest.approx([3.87, 4.17], abs=0.02)
    assert 36 < sizes[2] < sizes[3] < 41


def test_m18_7b_qlora_at_one_short_sequence_needs_five_to_seven_gib() -> None:
    recipe = Recipe(method="qlora", quant="nf4", seq_len=512, optimizer="paged-adamw-8bit")
    assert 4.98 < compute_footprint(shipped("llama-2-7b"), recipe, Parallelism()).reserved / GIB < 7


def test_m19_checkpointing_saves_90_percent_of_activations_but_no_state() -> None:
    tiny, logits = shipped("tinyllama-1.1b"), 4 * 8192 * 32000
    none, full = (
        activations(compute_footprint(tiny, replace(PURE, micro_batch=4, checkpointing=c), Parallelism())) + logits
        for c in ("none", "full")
    )
    assert none == pytest.approx(18.9 * GB, rel=0.01)
    assert full == pytest.approx(1.94 * GB, rel=0.01)
    assert alone(6.74, PURE).peak > 32 * GB


def test_m20_70b_on_eight_l40s_needs_140_gb_each_and_does_not_fit() -> None:
    sized = compute_footprint(shipped("llama-2-70b"), MIXED, Parallelism(zero=3), gpus=8)
    assert sum(step(70, MIXED, Parallelism(zero=3), 8).values()) == pytest.approx(140 * GB)
    assert not fits(sized, 48)
    assert step(70, replace(PURE, optimizer="adafactor"), Parallelism(zero=3), 8)["optimizer"] == 0


def test_m21_70b_offloaded_fits_one_a100_but_needs_over_a_terabyte_of_host_memory() -> None:
    sized = compute_footprint(shipped("llama-2-70b"), MIXED, Parallelism(zero=3, offload="all"))
    assert fits(sized, 80)
    assert 1.1e12 < sized.host_bytes < 1.9e12


def test_m22_zero_of_7_5b_on_64_gpus_is_31_4_then_16_6_then_1_9_gb() -> None:
    sums = [sum(step(7.5, FP16_MIXED, Parallelism(zero=stage), 64).values()) / GB for stage in (0, 1, 2, 3)]
    assert sums == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)


def test_m24_the_map_of_s4_promises_too_much() -> None:
    assert not fits(compute_footprint(of_size(3), MIXED, Parallelism(zero=2)), 24)
    assert not fits(compute_footprint(of_size(1), MIXED, Parallelism()), 8)
    assert fits(compute_footprint(of_size(0.35), replace(MIXED, seq_len=512), Parallelism()), 8)
    assert not fits(compute_footprint(of_size(13), MIXED, Parallelism(zero=3), gpus=4), 40)
    assert fits(compute_footprint(of_size(7), MIXED, Parallelism(zero=3), gpus=4), 40)


def test_m25_mistral_7b_lora_fits_one_24_gb_card_and_560b_of_weights_fill_eight_h200() -> None:
    recipe = Recipe(method="lora", micro_batch=2, seq_len=512, lora=Lora(rank=32, targets=("q_proj", "v_proj")))
    assert fits(compute_footprint(shipped("mistral-7b"), recipe, Parallelism()), 24)
    assert fits(compute_footprint(shipped("qwen3-0.6b"), replace(recipe, micro_batch=1), Parallelism()), 8)
    weights = compute_footprint(stated(560), Recipe(method="inference"), Parallelism()).at_peak["weights"]
    assert weights == pytest.approx(1.12e12, rel=0.001)
    assert weights > 0.99 * 8 * 141 * GB


def test_m26_the_map_of_s2_is_wrong_for_7b_and_70b() -> None:
    seven, seventy = shipped("llama-7b"), shipped("llama-2-70b")
    assert not fits(compute_footprint(seven, PURE, Parallelism()), 40)
    assert not fits(compute_footprint(seven, replace(PURE, micro_batch=8, checkpointing="none"), Parallelism()), 80)
    assert not fits(compute_footprint(seventy, Recipe(method="inference", seq_len=128), Parallelism()), 80)
    assert not fits(compute_footprint(seventy, MIXED, Parallelism(fsdp=True), gpus=8), 80)
    assert compute_footprint(seventy, PURE, Parallelism(fsdp=True), gpus=8).peak < 80 * GIB


def test_m28_7b_for_inference_is_28_gb_in_fp32_and_14_gb_in_fp16() -> None:
    sizes = [
        compute_footprint(shipped("llama-2-7b"), Recipe(method="inference", precision=p, seq_len=128), Parallelism()).peak / GB
        for p in ("fp32", "fp16")
    ]
    assert sizes == pytest.approx([27, 13.6], abs=0.2)
