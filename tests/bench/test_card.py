"""Steps measured on a card of our own against what is said of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import card, card_steps
from costguard.data import ShippedFacts
from costguard.sizing.memory.footprint import compute_footprint
from costguard.sizing.recipe import Lora, Parallelism, Recipe
from costguard.sizing.speed.throughput import compute_throughput

FACTS = ShippedFacts()
WITHOUT_CHECKPOINTING = "llama-3.1-8b lora64 all-linear bf16 4x1024 none"
"""Said 22 % too dear: it ran under autocast, where adapters keep 16-bit inputs; a recipe cannot say so of a 16-bit base."""


def test_memory_of_every_measured_step_is_said_within_a_tenth() -> None:
    off = {case.name: case.said_gb.expected / case.gb - 1 for case in card.compare()}
    assert len(off) == 28
    assert 0.2 < off.pop(WITHOUT_CHECKPOINTING) < 0.25
    assert max(map(abs, off.values())) < 0.1


def test_four_in_five_speeds_are_inside_their_interval() -> None:
    held = [case.said_speed.low <= case.speed <= case.said_speed.high for case in card.compare()]
    assert sum(held) / len(held) >= 0.8


def test_every_case_in_the_file_can_be_measured_again() -> None:
    names = {case.name for case in card_steps.CASES}
    with card.CARD.open(encoding="utf-8") as lines:
        assert next(lines).strip().split(",") == list(card_steps.COLUMNS)
    assert len(names) == len(card_steps.CASES)


def speed(recipe: Recipe) -> float:
    found = compute_throughput(
        FACTS.get_architecture("llama-3.1-8b"),
        recipe,
        Parallelism(),
        FACTS.get_gpus()["H100-SXM"],
        gpus=1,
        nodes=1,
        efficiency=FACTS.get_efficiency(),
    )
    assert found is not None
    return found.tokens_per_s_per_gpu.expected


def test_more_adapters_cost_time_while_the_batch_is_small_and_none_when_it_is_large() -> None:
    few = Recipe(method="lora", lora=Lora(targets=("q_proj",)))
    small = speed(replace(few, lora=Lora(targets="all-linear"))) / speed(few)
    large = speed(replace(few, lora=Lora(targets="all-linear"), micro_batch=16)) / speed(replace(few, micro_batch=16))
    assert small < 0.7
    assert large > 0.95


@pytest.mark.parametrize(("model", "added"), [("gpt2-medium", 4.0), ("t5-large", 3.5)])
def test_a_gpu_keeps_what_cpu_tensors_do_not_show(model: str, added: float) -> None:
    """GB: powers under autocast in GPT-2, dropped scores in T5."""
    architecture = FACTS.get_architecture(model)
    length = 1024 if model == "gpt2-medium" else 512
    precision = "bf16-amp" if model == "gpt2-medium" else "bf16"
    recipe = Recipe(precision=precision, seq_len=length, micro_batch=8, checkpointing="none")
    plain = replace(recipe, dropout=False, autocast_rules="cpu")
    more = (
        compute_footprint(architecture, recipe, Parallelism()).peak - compute_footprint(architecture, plain, Parallelism()).peak
    )
    assert added < more / 1e9 < added + 5
