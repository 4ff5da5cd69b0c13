"""Every family of architectures against one step really run on fake tensors, and the facts that tell them apart."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from costguard.sizing.architecture import Architecture
from costguard.sizing.huggingface import build_architecture_from_config
from costguard.sizing.memory.adapters import count_adapter_parameters, list_adapted_matrices
from costguard.sizing.memory.footprint import compute_footprint
from costguard.sizing.memory.measure import measure_model
from costguard.sizing.recipe import Lora, Parallelism, Recipe
from tests.sizing.shapes import shipped

ROWS = list(
    csv.DictReader((Path(__file__).parents[1] / "data" / "faketensor_families.csv").read_text(encoding="utf-8").splitlines())
)
"""torch 2.13, transformers 5.23, peft 0.21, `FakeTensors().exact`, 2026-11. No row needs torch to be read."""

WITHIN = 0.005
WITHIN_OF = {
    "flan-t5-large": 0.02,  # its head is a matrix of its own, as it was released; transformers 5 ties it to the embedding
    "gptneo125m": 0.02,  # each of its layers has a mask for all positions among its buffers
    "nemotron.bf16": 0.02,  # four layers and a small vocabulary: the worst moment is inside a layer
    "falcon40.loraatt": 0.02,
    "smollm3.ckptlora": 0.02,
    "bigcode.eager": 0.02,
    "gptj.fp32": 0.02,
    "qwen25.ckptlora": 0.02,
}


def recipe_of(row: dict[str, str]) -> Recipe:
    stated = json.loads(row["recipe"])
    rank, targets = stated.pop("lora", (16, "all-linear"))
    stated |= {"dropout": stated.get("dropout", False), "autocast_rules": "cpu"}  # fake tensors were run so
    return Recipe(**stated, lora=Lora(rank=rank, targets=targets if isinstance(targets, str) else tuple(targets)))


def kept(name: str | Architecture, recipe: Recipe) -> float:
    """Bytes a token that all layers keep."""
    return measure_model(shipped(name) if isinstance(name, str) else name, recipe, 0).waiting


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_peak_of_each_family_is_what_fake_tensors_measure(row: dict[str, str]) -> None:
    architecture = build_architecture_from_config(json.loads(row["config"]), name=row["id"])
    peak = compute_footprint(architecture, recipe_of(row), Parallelism()).peak
    assert peak == pytest.approx(int(row["peak_bytes"]), rel=WITHIN_OF.get(row["id"], WITHIN))


PLAIN = Recipe(checkpointing="none", seq_len=1024, micro_batch=2)


def test_one_key_head_for_all_makes_falcon_keep_whole_scores() -> None:
    scores = 4 * 71 * 1024 * 32
    assert kept("falcon-7b", PLAIN) > scores
    assert kept("falcon-40b", PLAIN) < kept("falcon-40b", replace(PLAIN, attention="eager")) / 2


def test_capped_logits_are_kept_once_more() -> None:
    recipe = replace(PLAIN, attention="eager")
    loss = {p.name: p for p in compute_footprint(shipped("gemma-2-2b"), recipe, Parallelism()).phases}["loss"]
    assert loss.terms["logits"] == 2 * 1024 * 256_000 * (3 * 4 + 2)


def test_a_norm_scaled_in_fp32_keeps_two_bytes_more_a_number() -> None:
    gemma = shipped("gemma-2b")
    like_llama = replace(gemma, blocks=tuple(replace(b, written=shipped("llama-2-7b").main.written) for b in gemma.blocks))
    assert kept(gemma, PLAIN) - kept(like_llama, PLAIN) == 18 * 2 * 2 * 2048


def test_an_adapter_on_a_fused_matrix_is_one() -> None:
    block = shipped("pythia-1.4b").main
    found = count_adapter_parameters(
        block, list_adapted_matrices(shipped("pythia-1.4b"), Lora(targets=("query_key_value",))), 8
    )
    assert found == 8 * (2048 + 3 * 2048)


def test_frozen_relu_keeps_its_result_and_trained_relu_its_neighbours_input() -> None:
    opt, adapted = shipped("opt-1.3b"), replace(PLAIN, method="lora", lora=Lora(targets=("q_proj",)))
    gelu = replace(opt, blocks=tuple(replace(b, feed_forward=replace(b.feed_forward, activation="gelu")) for b in opt.blocks))
    assert kept(gelu, adapted) == kept(opt, adapted)
    assert kept(gelu, PLAIN) - kept(opt, PLAIN) == 24 * 2 * 8192


@pytest.mark.parametrize("cap", [None, 0, 0.0])
def test_gemma_2_without_caps_keeps_no_more(cap: float | None) -> None:
    config = json.loads(next(r["config"] for r in ROWS if r["id"] == "gemma2-2b-eager"))
    uncapped = build_architecture_from_config(
        config | {"attn_logit_softcapping": cap, "final_logit_softcapping": cap}, name="x"
    )
    assert not uncapped.main.written.capped
    assert not uncapped.main.written.capped_logits
