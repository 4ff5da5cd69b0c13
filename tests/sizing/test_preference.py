"""The `[preference]` table: which models live beside the policy, what is assumed, what is refused."""

from __future__ import annotations

import pytest

from costguard.errors import InputError, UnknownNameError
from costguard.sizing.job import Job, parse_job
from costguard.sizing.memory.preference import compute_combined_footprint
from costguard.sizing.preference import PreferenceTraining, build_scoring_model
from costguard.sizing.recipe import Parallelism, Recipe
from tests.sizing.shapes import FACTS, shipped
from tests.sizing.speeds import LLAMA_2_7B

PPO = {"algorithm": "ppo", "prompt_len": 512, "completion_len": 512}


def job(preference: dict[str, object], **table: object) -> Job:
    return parse_job({"method": "full", **table, "preference": preference}, LLAMA_2_7B, FACTS.get_architecture)


def beside(preference: dict[str, object], **table: object) -> PreferenceTraining:
    found = job(preference, **table).beside
    assert found is not None
    return found


def roles(found: PreferenceTraining) -> dict[str, bool]:
    return {c.role: c.trained for c in found.companions}


def test_dpo_compares_two_sequences_with_a_frozen_reference_and_generates_nothing() -> None:
    found = beside({"algorithm": "dpo"})
    assert roles(found) == {"reference": False}
    assert found.sequences == 2
    assert not found.generates


def test_ppo_has_a_reference_a_reward_model_and_a_value_model_that_is_trained() -> None:
    found = beside(PPO)
    assert roles(found) == {"reference": False, "reward": False, "value": True}
    assert found.generates


def test_grpo_writes_a_group_for_each_prompt_and_has_no_value_model() -> None:
    found = beside({**PPO, "algorithm": "grpo"})
    assert roles(found) == {"reference": False}
    assert found.completions == 8


def test_the_lengths_of_prompt_and_completion_make_the_sequence() -> None:
    assert job(PPO).recipe.seq_len == 1024
    assert beside({"algorithm": "ppo", "prompt_len": 500}, seq_len=2000).completion_len == 1500
    assert beside({"algorithm": "ppo", "completion_len": 500}, seq_len=2000).prompt_len == 1500


def test_a_companion_may_be_another_shipped_model() -> None:
    reward = next(c for c in beside({**PPO, "reward_model": "tinyllama-1.1b"}).companions if c.role == "reward")
    assert reward.architecture.name == "tinyllama-1.1b"


def test_a_reward_model_has_one_number_a_token_instead_of_a_vocabulary() -> None:
    llama = shipped("llama-2-7b")
    assert build_scoring_model(llama).parameters == llama.parameters - 32_000 * 4096 + 4096


def test_only_where_adapters_are_trained_is_the_reference_the_policy_itself() -> None:
    recipes = {method: job({"algorithm": "dpo"}, method=method) for method in ("full", "lora", "qlora")}
    shared = {m: j.beside.companions[0].is_shared_with(j.recipe) for m, j in recipes.items() if j.beside}
    assert shared == {"full": False, "lora": True, "qlora": True}


def test_examples_are_prompts_pairs_or_groups_as_the_algorithm_has_them() -> None:
    dataset = {"examples": 1000}
    assert job({"algorithm": "dpo"}, seq_len=1024, dataset=dataset).tokens == 1000 * 2 * 1024
    assert job(PPO, dataset=dataset).tokens == 1000 * 1024
    assert job({**PPO, "algorithm": "grpo", "completions": 4}, dataset=dataset).tokens == 1000 * 4 * 1024


def test_what_is_not_stated_is_assumed_by_name() -> None:
    assumed = dict(job(PPO).assumed)
    assert assumed["preference.reference"] == "true"
    assert assumed["preference.reward_model"] == "same"
    assert assumed["preference.generation_batch"] == "32"
    assert "preference.prompt_len" not in assumed


@pytest.mark.parametrize("preference", [{"algorithm": "xpo"}, {"algorithm": "ppo", "refrence": True}, {}])
def test_unknown_words_are_refused(preference: dict[str, object]) -> None:
    with pytest.raises(UnknownNameError, match=r"preference\."):
        job(preference)


@pytest.mark.parametrize("key", ["reward_model", "value_model", "completions", "generation_batch", "rollout_tp", "updates"])
def test_what_needs_generated_text_has_no_meaning_for_dpo(key: str) -> None:
    with pytest.raises(InputError, match="generates nothing"):
        job({"algorithm": "dpo", key: "same" if key.endswith("model") else 1})


@pytest.mark.parametrize("method", ["pretrain", "inference"])
def test_a_policy_is_fine_tuned(method: str) -> None:
    with pytest.raises(InputError, match="trains a policy"):
        job({"algorithm": "dpo"}, method=method)


def test_an_engine_has_its_own_copy_of_the_weights_beside_the_policy() -> None:
    """Qwen3-8B, GRPO over 8 GPUs with FSDP: 16.4 GB of weights whole, or an engine's quarter, beside a shard of 4.1 GB."""
    recipe, eight = Recipe(seq_len=2048, precision="bf16-amp"), Parallelism(fsdp=True)
    table: dict[str, object] = {"algorithm": "grpo", "prompt_len": 512, "completion_len": 1536, "reference": False}
    weights = []
    for more in ({}, {"rollout_tp": 4}):
        training = beside({**table, **more}, seq_len=2048)
        need = compute_combined_footprint(shipped("qwen3-8b"), recipe, training, eight, gpus=8)
        weights.append(next(p.weights for p in need.phases if p.name == "generation: decode"))
    assert weights[0] - weights[1] == pytest.approx(0.75 * 2 * 8.19e9, rel=0.01)


def test_an_engine_that_does_not_divide_the_gpus_is_refused() -> None:
    training = beside({**PPO, "rollout_tp": 3}, seq_len=1024)
    with pytest.raises(InputError, match="3 does not divide 8 GPUs"):
        compute_combined_footprint(shipped("llama-2-7b"), Recipe(seq_len=1024), training, Parallelism(fsdp=True), gpus=8)


def test_an_engine_divides_layers_instead_of_stacking_them() -> None:
    policy = Parallelism(tp=1, pp=16, ep=16)
    assert beside(PPO).split_generation(policy) == policy
    assert beside({**PPO, "rollout_tp": 8}).split_generation(policy) == Parallelism(tp=8)
