"""Memory of losses, kept gradients, spread experts and moments; and what contradicts itself is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.services.job_input import parse_hardware
from costguard.services.quote import check_precision
from costguard.sizing.equivalents import find_equivalents, format_equivalents
from costguard.sizing.job import parse_job
from costguard.sizing.memory.footprint import Footprint, compute_footprint
from costguard.sizing.recipe import Parallelism, Recipe

FACTS = ShippedFacts()
FULL = Recipe(seq_len=16_384)


def sized(model: str, recipe: Recipe = FULL, parallel: Parallelism | None = None, gpus: int = 1) -> Footprint:
    return compute_footprint(FACTS.get_architecture(model), recipe, parallel or Parallelism(), gpus=gpus)


def test_the_gradient_in_place_of_the_logits_needs_three_16_bit_copies() -> None:
    """Qwen3-8B, one sequence of 16,384 with LoRA and Liger's cross-entropy: 37.2 GB measured (halo, 2026)."""
    recipe = replace(FULL, method="lora", loss="in-place")
    found = sized("qwen3-8b", recipe)
    assert found.at_peak["logits"] == 3 * 2 * 16_384 * 151_936
    assert 0.9 < found.peak / 37.2e9 < 1.1


def test_losses_need_less_from_whole_to_fused() -> None:
    peaks = [sized("qwen3-8b", replace(FULL, method="lora", loss=loss)).peak for loss in ("whole", "in-place", "fused")]
    assert peaks[0] > peaks[1] > peaks[2]


def test_fused_loss_contradicts_a_whole_one() -> None:
    with pytest.raises(InputError, match="loss"):
        Recipe(fused_loss=True, loss="whole")


def test_foreach_adds_one_copy_of_the_trained_weights_to_the_step() -> None:
    """tools/faketensor.py, TinyLlama in bf16: 11.001 GB with foreach, 8.8 with a fused step."""
    recipe = Recipe(seq_len=256)
    found = sized("tinyllama-1.1b", replace(recipe, optimizer_kernel="foreach"))
    assert found.peak_phase == "step"
    assert found.peak == pytest.approx(11.0e9, rel=0.001)
    assert sized("tinyllama-1.1b", replace(recipe, optimizer_kernel="fused")).peak < 9e9


def test_hugging_face_holds_spread_experts_whole() -> None:
    """gpt-oss-20b on 8 x B300 (halo, 2026): 83.0 GB at ep = 2, a rank with half of all experts and their states; 27.2 at 8."""
    recipe = Recipe(seq_len=4096, loss="in-place")
    two, eight = (sized("gpt-oss-20b", recipe, Parallelism(fsdp=True, ep=ep), 8).peak for ep in (2, 8))
    assert 0.85 < two / 83.0e9 < 1.15
    assert 0.8 < eight / 27.2e9 < 1.15


def test_torchtitan_shards_the_experts_of_a_rank_further() -> None:
    recipe = Recipe(seq_len=4096, framework="torchtitan")
    one, two = (sized("gpt-oss-20b", recipe, Parallelism(fsdp=True, ep=ep), 8) for ep in (1, 2))
    assert two.at_peak["optimizer"] == pytest.approx(one.at_peak["optimizer"], rel=0.01)


def test_megatron_keeps_its_gradient_buffer_through_the_step() -> None:
    recipe = Recipe(seq_len=8192, precision="bf16-amp", framework="megatron")
    found = sized("qwen2.5-14b", recipe, Parallelism(zero=1, tp=4), 8)
    assert all(phase.terms["gradients"] > 14e9 for phase in found.phases if phase.name != "load")


def test_megatron_s_selective_checkpointing_keeps_all_but_scores() -> None:
    recipe = Recipe(seq_len=8192, precision="bf16-amp", framework="megatron", checkpointing="selective")
    split = Parallelism(zero=1, tp=4)
    kept = sized("qwen2.5-14b", recipe, split, 8).basis.measure.waiting
    assert kept == sized("qwen2.5-14b", replace(recipe, checkpointing="none"), split, 8).basis.measure.waiting
    eager = replace(recipe, attention="eager")
    whole = sized("qwen2.5-14b", replace(eager, checkpointing="none"), split, 8).basis.measure.waiting
    assert sized("qwen2.5-14b", eager, split, 8).basis.measure.waiting < 0.5 * whole


def test_moments_in_16_bits_halve_their_bytes() -> None:
    recipe = Recipe(seq_len=8192, precision="bf16-amp", framework="megatron")
    split = Parallelism(zero=1, tp=4)
    usual = sized("qwen2.5-14b", recipe, split, 8).at_peak["optimizer"]
    assert sized("qwen2.5-14b", replace(recipe, moments="bf16"), split, 8).at_peak["optimizer"] == pytest.approx(usual * 8 / 12)


def test_experts_fold_over_tensor_parallel_ranks() -> None:
    """8 GPUs with tp = 4 have two data-parallel ranks, and ep = 8 spreads the experts over all eight."""
    recipe = Recipe(method="lora")
    found = sized("qwen3-235b-a22b", recipe, Parallelism(tp=4, ep=8), 8)
    assert 50e9 < found.at_peak["weights"] < 70e9
    with pytest.raises(InputError, match=r"parallel\.ep"):
        sized("qwen3-235b-a22b", recipe, Parallelism(tp=4, ep=16), 8)


def test_pretraining_keeps_fp32_master_weights_unless_told() -> None:
    architecture = FACTS.get_architecture("gpt2")
    assert parse_job({"method": "pretrain"}, architecture).recipe.precision == "bf16-amp"
    assert parse_job({"method": "pretrain", "precision": "bf16"}, architecture).recipe.precision == "bf16"
    assert parse_job({"method": "full"}, architecture).recipe.precision == "bf16"


@pytest.mark.parametrize(("gpu", "refused"), [("A100-80GB-SXM", True), ("H100-SXM", False)])
def test_fp8_training_needs_a_gpu_that_computes_it(gpu: str, *, refused: bool) -> None:
    job = parse_job({"precision": "fp8"}, FACTS.get_architecture("llama-3.1-8b"))
    card = FACTS.get_gpus()[gpu]
    if not refused:
        check_precision(job, [card])
        return
    with pytest.raises(InputError, match="precision"):
        check_precision(job, [card])
    check_precision(job, [card, FACTS.get_gpus()["H100-SXM"]])
    check_precision(job, [])


def test_a_tpu_is_refused_with_gpus_that_do_its_job() -> None:
    with pytest.raises(InputError) as refused:
        parse_hardware("TPU-v5e:8", FACTS)
    assert "H100-SXM:2" in str(refused.value.hint)


def test_equivalents_have_the_memory_and_the_arithmetic() -> None:
    gpus = FACTS.get_gpus()
    rack = gpus["GB200"]
    found = find_equivalents(rack, 72, [gpus["B200-SXM"], gpus["GB200"], gpus["RTX-3090"]])
    assert [gpu.name for gpu, _ in found] == ["B200-SXM"]
    (other, count) = found[0]
    assert count * (other.bf16_tflops or 0) >= 72 * (rack.bf16_tflops or 0)
    assert count * other.vram_gb >= 72 * rack.vram_gb
    assert format_equivalents(found) == f"B200-SXM:{count}"
