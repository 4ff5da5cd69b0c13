"""Memory of models that take turns: one works, the others rest beside it."""

from __future__ import annotations

import pytest

from costguard.sizing.job import Job, parse_job
from costguard.sizing.memory.footprint import Footprint, compute_footprint
from costguard.sizing.placement import compute_job_footprint
from costguard.sizing.recipe import Parallelism
from tests.sizing.shapes import FACTS, shipped

LLAMA = shipped("llama-2-7b")
WEIGHTS = 2 * LLAMA.parameters
PPO = {"algorithm": "ppo", "prompt_len": 512, "completion_len": 512, "generation_batch": 8}


def job(preference: dict[str, object] | None, **table: object) -> Job:
    stated = {"method": "full", "seq_len": 1024, **table, **({"preference": preference} if preference else {})}
    return parse_job(stated, LLAMA, FACTS.get_architecture)


def need(asked: Job, parallel: Parallelism | None = None, gpus: int = 1) -> Footprint:
    return compute_job_footprint(asked, asked.recipe, parallel or Parallelism(), gpus)


def test_a_job_without_companions_has_the_footprint_it_always_had() -> None:
    alone = job(None)
    assert need(alone) == compute_footprint(LLAMA, alone.recipe, Parallelism(), gpus=1)


def test_a_frozen_reference_adds_its_weights_to_every_moment_of_the_policy() -> None:
    with_reference, without = need(job({"algorithm": "dpo"})), need(job({"algorithm": "dpo", "reference": False}))
    assert with_reference.peak - without.peak == pytest.approx(WEIGHTS, rel=0.001)


def test_a_policy_of_adapters_needs_no_second_copy() -> None:
    dpo: dict[str, object] = {"algorithm": "dpo"}
    shared, without = need(job(dpo, method="lora")), need(job({**dpo, "reference": False}, method="lora"))
    assert shared.peak == without.peak


def test_a_trained_value_model_rests_with_weights_and_optimizer_and_works_with_its_own_gradients() -> None:
    found = need(job(PPO))
    states = {p.name: p.terms for p in found.phases}
    assert states["loss"]["optimizer"] == pytest.approx(2 * 2 * WEIGHTS, rel=0.02)
    assert states["value: step"]["gradients"] == pytest.approx(WEIGHTS, rel=0.02)
    assert states["loss"]["weights"] == pytest.approx(4 * WEIGHTS, rel=0.02)


def test_writing_is_a_moment_of_its_own_with_keys_and_values() -> None:
    found = need(job({**PPO, "reward_model": "none", "value_model": "none"}))
    writing = next(p for p in found.phases if p.name == "generation: decode")
    assert writing.terms["buffers"] == 8 * 1024 * 32 * 2 * 4096 * 2
    assert writing.terms["gradients"] == 0
    assert writing.terms["weights"] == pytest.approx(2 * WEIGHTS, rel=0.001)  # policy and reference: no third copy


def test_sharded_weights_are_gathered_to_write() -> None:
    found = need(job({**PPO, "reference": False, "reward_model": "none", "value_model": "none"}), Parallelism(fsdp=True), 8)
    writing = next(p for p in found.phases if p.name == "generation: decode")
    assert writing.terms["weights"] == pytest.approx(WEIGHTS * (1 + 1 / 8), rel=0.001)


def test_terms_still_sum_to_the_peak_and_every_model_is_explained() -> None:
    found = need(job(PPO))
    assert sum(found.at_peak.values()) == found.peak
    explained = {e.term: e.bytes for e in found.explain()}
    assert sum(explained.values()) == found.reserved
    assert len({"policy", "reference", "reward", "value"} & explained.keys()) >= 3
