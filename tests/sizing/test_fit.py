"""Whether a job fits is yes, maybe or no by its interval; the batch that nobody stated is the largest whose high end fits."""

from __future__ import annotations

import pytest

from costguard.data import ShippedFacts
from costguard.sizing.job import parse_job
from costguard.sizing.memory.footprint import compute_footprint
from costguard.sizing.memory.interval import RunKind, explain_distance, find_nearest_run
from costguard.sizing.memory_savings import list_memory_savings
from costguard.sizing.placement import MOST_SEQUENCES, Placement, Placer, fix_batch
from costguard.sizing.recipe import Lora, Parallelism, Recipe
from costguard.values.gpu import GIB

FACTS = ShippedFacts()
LLAMA = FACTS.get_architecture("llama-3.1-8b")


def place(gpu: str, count: int = 1, **stated: object) -> Placement:
    job = parse_job({"model": "llama-3.1-8b", "method": "lora", "seq_len": 2048, **stated}, LLAMA)
    placement = Placer(job=job).place(FACTS.get_gpus()[gpu], count)
    assert isinstance(placement, Placement)
    return placement


@pytest.mark.parametrize(("gpu", "fit"), [("A100-80GB-SXM", "yes"), ("RTX-4090", "maybe"), ("RTX-3060-12GB", "no")])
def test_fit_follows_the_interval_of_what_is_needed(gpu: str, fit: str) -> None:
    placed = place(gpu, micro_batch=1)
    needs = placed.footprint.reserved_interval.scale(1 / GIB)
    assert placed.fit == fit
    assert placed.fits is (fit != "no")
    assert (needs.low <= placed.gpu.memory_gib < needs.high) is (fit == "maybe")
    assert placed.explain_fit().startswith("may not fit: needs") is (fit == "maybe")


def test_a_batch_that_is_not_stated_is_the_largest_power_of_two_whose_high_end_fits() -> None:
    placed = place("A100-80GB-SXM")
    batch = placed.recipe.micro_batch
    assert batch > 1
    assert batch & (batch - 1) == 0
    assert placed.fit == "yes"
    assert place("A100-80GB-SXM", micro_batch=2 * batch).fit != "yes"


def test_a_batch_is_at_most_the_global_one_and_one_where_even_that_may_not_fit() -> None:
    assert place("A100-80GB-SXM", 8, global_batch_tokens=8 * 2 * 2048).recipe.micro_batch == 2
    assert place("RTX-4090").recipe.micro_batch == 1
    tiny = parse_job({"model": "gpt2", "method": "full"}, FACTS.get_architecture("gpt2"))
    placed = Placer(job=tiny).place(FACTS.get_gpus()["H200-SXM"], 8)
    assert isinstance(placed, Placement)
    assert placed.recipe.micro_batch * 8 <= MOST_SEQUENCES


def test_a_pinned_job_has_the_batch_as_if_it_had_been_written() -> None:
    job = parse_job({"model": "llama-3.1-8b", "method": "lora", "seq_len": 2048}, LLAMA)
    placed = place("A100-80GB-SXM")
    pinned = fix_batch(job, placed)
    assert dict(pinned.assumed)["micro_batch"] == str(placed.recipe.micro_batch)
    again = Placer(job=pinned).place(placed.gpu, 1)
    assert isinstance(again, Placement)
    assert again.footprint == placed.footprint


def test_a_servers_batch_and_that_of_preference_training_stay_one() -> None:
    for stated in ({"method": "inference"}, {"method": "lora", "preference": {"algorithm": "dpo"}}):
        assert not parse_job({"model": "llama-3.1-8b", **stated}, LLAMA, FACTS.get_architecture).batch_open


def test_a_stated_loss_has_a_cheaper_one_among_the_savings() -> None:
    job = parse_job({"model": "llama-3.1-8b", "method": "lora", "seq_len": 4096, "loss": "whole"}, LLAMA)
    assert next(change.change for change in list_memory_savings(job)) == "loss = fused (now whole)"


def test_one_token_more_does_not_halve_the_answer() -> None:
    jobs = [parse_job({"model": "llama-3.1-8b", "method": "lora", "seq_len": n}, LLAMA) for n in (32_767, 32_768)]
    sized = [compute_footprint(LLAMA, job.recipe, Parallelism()) for job in jobs]
    assert sized[1].peak == pytest.approx(sized[0].peak, rel=0.001)


def test_a_run_unlike_every_measured_one_is_less_certain_and_says_which_is_nearest() -> None:
    measured = RunKind("text", "lora", "16-bit", "hf", "usual", "one")
    other = measured._replace(precision="8-bit", library="megatron")
    assert explain_distance(measured) == ""
    assert find_nearest_run(other).distance == 2
    told = explain_distance(other)
    assert "no measured run like this one (precision 8-bit, framework megatron)" in told
    assert "interval from the nearest, LoRA on " in told


def test_whole_copies_of_a_model_are_measured_by_a_run_on_one_gpu() -> None:
    alone = RunKind("text", "full", "mixed", "deepspeed", "usual", "one")
    assert explain_distance(alone) == ""
    assert explain_distance(alone._replace(split="copies")) == ""  # ZeRO-2, whose division is counted
    assert find_nearest_run(alone._replace(split="offload")).distance == 1


@pytest.mark.parametrize(("framework", "wide"), [("hf", True), ("trl", False), ("llamafactory", False), ("axolotl", False)])
def test_only_pefts_preparation_makes_the_residual_stream_fp32(framework: str, *, wide: bool) -> None:
    lora = Lora(rank=16, targets="attention")
    recipe = Recipe(method="qlora", quant="nf4", lora=lora, framework=framework, seq_len=4096, micro_batch=4)
    alone = Recipe(method="qlora", quant="int4", lora=lora, framework=framework, seq_len=4096, micro_batch=4)
    streams = [compute_footprint(LLAMA, r, Parallelism()).basis.measure.numbers.residual for r in (recipe, alone)]
    assert streams == [4 if wide else 2, 2]  # GPTQ's and torchao's int4 is left alone
    sharded = compute_footprint(LLAMA, recipe, Parallelism(fsdp=True), gpus=2)
    assert sharded.basis.measure.numbers.residual == 2


def test_a_quantised_flux_quantises_every_linear_layer_and_loads_no_text_encoder() -> None:
    flux = FACTS.get_architecture("flux-1-dev")
    plain, packed = (
        compute_footprint(flux, Recipe(method=method, quant=quant, framework="diffusers", seq_len=1), Parallelism())
        for method, quant in (("lora", "none"), ("qlora", "nf4"))
    )
    assert plain.peak_phase == "load"
    assert plain.worst.weights > 2 * (flux.parameters + 4_762_310_656)
    assert packed.worst.weights < 0.6 * flux.parameters
