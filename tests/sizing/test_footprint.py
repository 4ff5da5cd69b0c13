"""Footprints against exact measurements, and what must hold for every job."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.errors import InputError
from costguard.sizing.architecture import Architecture
from costguard.sizing.memory.footprint import TERMS, check_parallel, compute_footprint
from costguard.sizing.recipe import Lora, Parallelism, Recipe
from tests.sizing.shapes import llama_like, of_size, shipped

ROWS = list(csv.DictReader((Path(__file__).parents[1] / "data" / "faketensor.csv").read_text(encoding="utf-8").splitlines()))
ONE = Parallelism()

recipes = st.builds(
    Recipe,
    method=st.sampled_from(["full", "lora", "pretrain"]),
    precision=st.sampled_from(["bf16", "bf16-amp", "fp16-amp", "fp32", "fp8"]),
    optimizer=st.sampled_from(["adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "lion", "sgd", "sgd-momentum"]),
    seq_len=st.sampled_from([64, 512, 2048]),
    micro_batch=st.integers(1, 16),
    gradient_accumulation=st.sampled_from([1, 4]),
    checkpointing=st.sampled_from(["none", "selective", "full"]),
    attention=st.sampled_from(["flash", "eager"]),
)
shapes = st.builds(
    llama_like,
    layers=st.integers(2, 12),
    hidden=st.sampled_from([256, 1024, 4096]),
    heads=st.just(8),
    kv_heads=st.sampled_from([1, 2, 8]),
    ffn=st.sampled_from([1024, 11008]),
    vocab=st.sampled_from([1000, 128_256]),
)


def peak(architecture: Architecture, recipe: Recipe, parallel: Parallelism = ONE, gpus: int = 1) -> int:
    return compute_footprint(architecture, recipe, parallel, gpus=gpus).peak


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_peak_is_what_fake_tensors_measure(row: dict[str, str]) -> None:
    lora = Lora(rank=int(row["lora_r"]), targets=tuple(row["targets"].split("+"))) if row["lora_r"] else Lora()
    recipe = Recipe(
        method=row["method"],
        precision=row["precision"],
        optimizer=row["optimizer"],
        seq_len=int(row["seq"]),
        micro_batch=int(row["batch"]),
        checkpointing=row["ckpt"],
        attention=row["attn"],
        lora=lora,
        dropout=False,
        autocast_rules="cpu",
    )
    assert peak(shipped(row["model"]), recipe) == pytest.approx(int(row["peak_bytes"]), rel=0.007)


def test_llama_2_7b_without_checkpointing_peaks_in_the_loss() -> None:
    sized = compute_footprint(shipped("llama-2-7b"), Recipe(micro_batch=8, seq_len=2048, checkpointing="none"), ONE)
    assert sized.peak == pytest.approx(147_189_640_704, rel=0.0005)
    assert sized.peak_phase == "loss"


@given(shapes, recipes)
def test_terms_sum_to_the_peak_and_none_is_negative(architecture: Architecture, recipe: Recipe) -> None:
    sized = compute_footprint(architecture, recipe, ONE)
    assert tuple(sized.at_peak) == TERMS
    assert sum(sized.at_peak.values()) == sized.peak == max(p.total for p in sized.phases)
    assert all(value >= 0 for p in sized.phases for value in p.terms.values())
    assert sized.reserved == sized.peak + sized.context + sized.slack


@given(shapes, recipes)
def test_a_larger_batch_never_needs_less(architecture: Architecture, recipe: Recipe) -> None:
    assert peak(architecture, replace(recipe, micro_batch=recipe.micro_batch + 1)) >= peak(architecture, recipe)


@given(shapes, recipes, st.sampled_from([1, 2, 8, 64]))
def test_a_higher_zero_stage_never_needs_more(architecture: Architecture, recipe: Recipe, gpus: int) -> None:
    peaks = [peak(architecture, recipe, Parallelism(zero=stage), gpus) for stage in range(1, 4)]
    assert peaks == sorted(peaks, reverse=True)


@given(shapes, recipes)
def test_more_shards_never_need_more(architecture: Architecture, recipe: Recipe) -> None:
    peaks = [peak(architecture, recipe, Parallelism(fsdp=True), gpus) for gpus in (2, 8, 64)]
    assert peaks == sorted(peaks, reverse=True)


@given(shapes, recipes)
def test_full_checkpointing_never_needs_more_than_none(architecture: Architecture, recipe: Recipe) -> None:
    full, none = (peak(architecture, replace(recipe, checkpointing=c)) for c in ("full", "none"))
    mask = 4 * recipe.micro_batch * recipe.seq_len**2  # layers that are run again hold it until the first one is
    assert full <= none + mask


@given(shapes, recipes)
@settings(max_examples=50)
def test_offload_moves_bytes_to_the_host(architecture: Architecture, recipe: Recipe) -> None:
    stay, optimizer, everything = (
        compute_footprint(architecture, recipe, Parallelism(zero=3, offload=offload), gpus=4)
        for offload in ("none", "optimizer", "all")
    )
    assert stay.peak >= optimizer.peak
    assert stay.host_bytes <= optimizer.host_bytes <= everything.host_bytes
    assert everything.at_peak["weights"] == everything.at_peak["optimizer"] == 0


def test_pipeline_stage_keeps_as_many_micro_batches_as_there_are_stages() -> None:
    architecture, recipe = of_size(7), Recipe(checkpointing="full", micro_batch=8, gradient_accumulation=16, method="pretrain")
    whole = compute_footprint(architecture, recipe, ONE).phases
    piped = compute_footprint(architecture, recipe, Parallelism(pp=4), gpus=4)
    entries = 32 * 8 * 2048 * 4096 * 2
    assert sum(p.terms["activations"] for p in whole if p.name == "forward") >= entries
    assert max(p.terms["activations"] for p in piped.phases) >= entries * 0.9


def test_expert_parallelism_divides_only_experts() -> None:
    mixtral = shipped("mixtral-8x7b")
    recipe = Recipe(method="inference", seq_len=128)
    alone, spread = (compute_footprint(mixtral, recipe, Parallelism(ep=ep), gpus=8).at_peak["weights"] for ep in (1, 8))
    experts = 32 * 8 * 3 * 4096 * 14336 * 2
    assert alone - spread == pytest.approx(experts * 7 / 8, rel=0.001)


def test_cache_of_grouped_keys_is_128_kib_a_token() -> None:
    recipe = Recipe(method="inference", seq_len=1024)
    assert compute_footprint(shipped("llama-3-8b"), recipe, ONE).at_peak["buffers"] == 1024 * 128 * 1024


def test_cache_of_latent_attention_keeps_the_latent_and_the_rotated_key() -> None:
    recipe = Recipe(method="inference", seq_len=1024)
    layers = shipped("deepseek-v3").layers
    assert compute_footprint(shipped("deepseek-v3"), recipe, ONE).at_peak["buffers"] == 1024 * layers * (512 + 64) * 2


def test_a_latent_cache_is_on_every_tensor_parallel_rank_and_key_heads_divide_as_far_as_they_go() -> None:
    recipe = Recipe(method="inference", seq_len=1024)
    latent = [
        compute_footprint(shipped("deepseek-v3"), recipe, Parallelism(tp=tp), gpus=tp).at_peak["buffers"] for tp in (1, 8)
    ]
    grouped = [
        compute_footprint(shipped("llama-3-8b"), recipe, Parallelism(tp=tp), gpus=tp).at_peak["buffers"] for tp in (1, 8, 16)
    ]
    assert latent[0] == latent[1]
    assert grouped[0] == 8 * grouped[1] == 8 * grouped[2]


def test_llama_cpp_file_types_have_their_own_bits() -> None:
    recipe = Recipe(method="inference", quant="q4_k_m", seq_len=128)
    assert compute_footprint(shipped("llama-3.1-405b"), recipe, ONE).phases[0].total == pytest.approx(249.1e9, rel=0.005)


def test_explanation_gives_every_term_its_formula_and_source() -> None:
    sized = compute_footprint(shipped("llama-2-7b"), Recipe(micro_batch=8, checkpointing="none"), ONE)
    told = {e.term: e for e in sized.explain()}
    assert set(told) == {*TERMS, "context", "slack"}
    assert sum(told[t].bytes for t in TERMS) == sized.peak
    assert told["logits"].formula == "16,384 tokens x 32,000 words x 4 B x 3 (log-softmax and two gradients)"
    assert all(e.formula and e.source for e in told.values())


@pytest.mark.parametrize("method", ["inference", "lora", "qlora", "full"])
@pytest.mark.parametrize(
    "name", ["llama-3-8b", "mixtral-8x7b", "deepseek-v3", "bert-base", "vit-b-16", "clip-vit-b-32", "t5-base"]
)
def test_every_kind_of_model_has_a_footprint(name: str, method: str) -> None:
    recipe = Recipe(method=method, quant="nf4" if method == "qlora" else "none", seq_len=50)
    sized = compute_footprint(shipped(name), recipe, ONE)
    assert sized.peak > sized.at_peak["weights"] > 0
    assert sized.explain()


@pytest.mark.parametrize(
    ("field", "parallel", "gpus", "seq_len"),
    [
        ("parallel.tp", Parallelism(tp=3), 3, 128),
        ("parallel.pp", Parallelism(pp=64), 64, 128),
        ("parallel.cp", Parallelism(cp=3), 3, 128),
        ("parallel.ep", Parallelism(ep=2), 2, 128),
        ("parallel", Parallelism(tp=2), 3, 128),
    ],
)
def test_a_split_that_does_not_divide_is_refused(field: str, parallel: Parallelism, gpus: int, seq_len: int) -> None:
    with pytest.raises(InputError) as error:
        check_parallel(of_size(7), parallel, gpus, seq_len)
    assert error.value.field == field


def test_a_sequence_beyond_learned_positions_is_refused() -> None:
    with pytest.raises(InputError) as error:
        compute_footprint(shipped("gpt2"), Recipe(seq_len=2048), ONE)
    assert error.value.field == "seq_len"
