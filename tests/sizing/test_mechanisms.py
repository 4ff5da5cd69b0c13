"""Memory of losses, kept gradients, spread experts and moments; and what contradicts itself is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.services.quote.hardware import parse_hardware
from costguard.services.quote.quote import check_precision
from costguard.sizing.equivalents import find_equivalents, format_equivalents
from costguard.sizing.job import parse_job
from costguard.sizing.memory.footprint import Footprint, compute_footprint
from costguard.sizing.memory.frameworks import choose_loss
from costguard.sizing.recipe import Lora, Parallelism, Recipe

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


def test_accelerate_keeps_frozen_weights_in_fp32_under_fsdp2() -> None:
    """accelerate, fsdp2_prepare_model: 8 ranks of Llama-3.1-8B hold 4 bytes a weight; Axolotl's copy leaves them at 2."""
    recipe, eight = Recipe(method="lora", seq_len=2048), Parallelism(fsdp=True)
    one, two, axolotl = (sized("llama-3.1-8b", replace(recipe, framework=f), eight, 8) for f in ("hf", "hf-fsdp2", "axolotl"))
    assert two.at_peak["weights"] - one.at_peak["weights"] == pytest.approx(2 * 8.03e9 / 8, rel=0.01)
    assert axolotl.at_peak["weights"] == one.at_peak["weights"]
    alone = sized("llama-3.1-8b", replace(recipe, framework="hf-fsdp2"))
    assert alone.at_peak["weights"] == sized("llama-3.1-8b", recipe).at_peak["weights"]


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
    assert format_equivalents(found) == f"B200-SXM:8x{count // 8}", "as --on takes it: machines of 8"


SHARDED_FULL = Recipe(seq_len=4096, loss="in-place", moments="bf16", framework="halo")


@pytest.mark.parametrize(("ep", "measured"), [(1, 64.7e9), (2, 83.0e9), (8, 27.2e9)])
def test_experts_cost_what_was_measured_however_they_are_spread(ep: int, measured: float) -> None:
    """gpt-oss-20b, one sequence of 4096 on 8 GPUs, FSDP2 without resharding (halo, throughput-benchmarks.md, 2026)."""
    found = sized("gpt-oss-20b", SHARDED_FULL, Parallelism(fsdp=True, ep=ep), gpus=8)
    assert found.peak == pytest.approx(measured, rel=0.03)


def test_weights_that_stay_gathered_cost_their_full_size_in_the_loss_and_not_in_the_step() -> None:
    recipe = replace(SHARDED_FULL, framework="hf", loss="in-place")
    kept, freed = (sized("qwen3-8b", r, Parallelism(fsdp=True), gpus=8) for r in (SHARDED_FULL, recipe))
    losses = [next(p.total for p in found.phases if p.name == "loss") for found in (kept, freed)]
    assert losses[0] - losses[1] > 10e9
    assert kept.phases[-1].total <= freed.phases[-1].total


def test_the_root_of_early_torchtitan_is_summed_in_fp32_at_the_end() -> None:
    """Llama-3-8B, one sequence of 4096, full checkpointing, 8 GPUs: 30.1 GB reserved (torchao float8nocompile, 2025-01)."""
    recipe = Recipe(method="pretrain", precision="bf16-amp", seq_len=4096, framework="torchtitan-2024")
    early = sized("llama-3-8b", recipe, Parallelism(fsdp=True), gpus=8)
    later = sized("llama-3-8b", replace(recipe, framework="torchtitan"), Parallelism(fsdp=True), gpus=8)
    assert early.peak_phase == "backward, embedding"
    assert early.peak + early.fragments == pytest.approx(30.1e9, rel=0.05)
    assert later.peak < early.peak


def test_deepspeed_makes_fp32_gradients_of_one_sub_group_in_its_step() -> None:
    recipe = Recipe(precision="bf16-amp", seq_len=256, framework="deepspeed")
    step = sized("qwen2.5-7b", recipe, Parallelism(zero=3), gpus=4).phases[-1]
    assert step.name == "step"
    assert step.terms["buffers"] >= 4e9


def test_dora_keeps_both_results_of_each_matrix_and_copies_one() -> None:
    lora, dora = (
        sized("llama-3.1-8b", Recipe(method="lora", lora=Lora(dora=dora), checkpointing="none")) for dora in (False, True)
    )
    assert dora.at_peak["activations"] > lora.at_peak["activations"]
    assert dora.at_peak["buffers"] - lora.at_peak["buffers"] == 4 * 4 * 4096 * 14_336


def test_llamas_early_eager_attention_keeps_the_scores_it_clamped() -> None:
    recipe = Recipe(
        precision="fp16", seq_len=512, micro_batch=8, checkpointing="none", attention="eager", framework="deepspeed-2023"
    )
    kept, now = (sized("llama-2-7b", replace(recipe, framework=name)) for name in ("deepspeed-2023", "deepspeed"))
    assert kept.at_peak["activations"] - now.at_peak["activations"] == 32 * 8 * 32 * 512**2 * 2


def test_a_u_net_holds_its_vae_and_text_encoders() -> None:
    assert dict(FACTS.get_architecture("sdxl").companions) == {"VAE": 83_653_863, "text encoders": 817_720_320}
    load = sized("sdxl", Recipe(method="lora", seq_len=1)).phases[0]
    assert load.terms["weights"] > 2 * (2_567_463_684 + 901_374_183)


def test_the_loss_of_a_long_sequence_is_the_frameworks_and_named_unless_one_is_stated() -> None:
    shape = FACTS.get_architecture("llama-3.1-8b")
    for framework, loss in (("hf", "whole"), ("torchtune", "chunked"), ("unsloth", "fused")):
        long = parse_job({"model": "llama-3.1-8b", "seq_len": 131_072, "framework": framework}, shape)
        assert ("loss", loss) in long.assumed
        assert choose_loss(long.recipe) == loss
    for stated in ({"fused_loss": True}, {"loss": "whole"}, {"seq_len": 8192}):
        assert "loss" not in dict(parse_job({"model": "llama-3.1-8b", "seq_len": 131_072, **stated}, shape).assumed)


def test_frozen_modulations_keep_nothing_of_what_they_scale() -> None:
    """CogVideoX-2B with LoRA and no checkpointing: 43.09 GiB on fake tensors (diffusers 0.42, peft 0.21)."""
    lora = {"rank": 64, "targets": "attention"}
    table = {"method": "lora", "checkpointing": "none", "framework": "diffusers", "frames": 49_000, "lora": lora}
    job = parse_job(table, FACTS.get_architecture("cogvideox-2b"), FACTS.get_architecture)
    assert compute_footprint(job.architecture, job.recipe, Parallelism()).peak / 2**30 == pytest.approx(43.09, rel=0.01)
