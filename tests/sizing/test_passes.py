"""Hours of models that take turns: the seconds of every pass add up."""

from __future__ import annotations

import pytest

from costguard.sizing.job import Job, parse_job
from costguard.sizing.placement import Placement, Placer
from costguard.sizing.speed.duration import compute_job_speed
from costguard.sizing.speed.throughput import Throughput, compute_throughput
from tests.sizing.shapes import FACTS, shipped
from tests.sizing.speeds import EFFICIENCY, GPUS

LLAMA = shipped("llama-2-7b")
PPO = {"algorithm": "ppo", "prompt_len": 512, "completion_len": 512}


def job(preference: dict[str, object] | None, **table: object) -> Job:
    stated = {"method": "full", "seq_len": 1024, **table, **({"preference": preference} if preference else {})}
    return parse_job(stated, table.pop("shape", LLAMA), FACTS.get_architecture)  # type: ignore[arg-type]  # an architecture


def placed(asked: Job, gpu: str = "A100-80GB-SXM", count: int = 8) -> Placement:
    found = Placer(job=asked).place(GPUS[gpu], count)
    assert isinstance(found, Placement)
    return found


def speed(asked: Job, count: int = 8) -> Throughput:
    found = compute_job_speed(asked, placed(asked, count=count), EFFICIENCY)
    assert found is not None
    return found


def rate(asked: Job, count: int = 8) -> float:
    return speed(asked, count).tokens_per_s_per_gpu.expected


def test_a_job_without_companions_has_the_speed_it_always_had() -> None:
    alone = job(None)
    there = placed(alone)
    where = {"gpus": 8, "nodes": 1, "efficiency": EFFICIENCY}
    assert speed(alone) == compute_throughput(LLAMA, there.recipe, there.parallel, there.gpu, **where)  # type: ignore[arg-type]


def test_dpo_costs_a_reference_pass_beside_each_training_pass() -> None:
    asked = job({"algorithm": "dpo"}, checkpointing="none")
    lines = [line for line in speed(asked).explain if "of the time" in line]
    assert [line.split(":")[0] for line in lines] == ["policy, training", "reference, scoring"]
    assert "25% of the time" in lines[1]  # a forward pass is a third of forward and backward


def test_every_pass_of_ppo_is_counted_and_their_shares_are_the_whole() -> None:
    lines = [line for line in speed(job(PPO)).explain if "of the time" in line]
    named = {line.split(":")[0] for line in lines}
    assert named == {
        "policy, training", "policy, scoring", "policy, reading prompts", "policy, writing",
        "reference, scoring", "reward, scoring", "value, scoring", "value, training",
    }  # fmt: skip
    assert sum(int(line.rsplit(" = ")[1].split("%")[0]) for line in lines) == pytest.approx(100, abs=4)


def test_more_updates_longer_answers_and_smaller_batches_of_writing_are_slower() -> None:
    usual = rate(job(PPO))
    assert rate(job({**PPO, "updates": 4})) < usual
    assert rate(job({"algorithm": "ppo", "prompt_len": 128, "completion_len": 896})) < usual
    assert rate(job({**PPO, "generation_batch": 4})) < usual
    assert rate(job({**PPO, "value_model": "none"})) > usual


def test_the_reasons_still_multiply_to_the_rate() -> None:
    found = speed(job(PPO))
    ideal = next(float(x.split(": ")[1].split()[0].replace(",", "")) for x in found.explain if "nothing else" in x)
    for _, factor in found.reasons:
        ideal *= factor
    assert ideal == pytest.approx(found.tokens_per_s_per_gpu.expected, rel=0.001)


@pytest.mark.parametrize(("model", "hours"), [("opt-6.7b", 4.1), ("opt-13b", 9.0)])
def test_deepspeed_chats_published_hours_come_out_within_a_fifth(model: str, hours: float) -> None:
    """135 M tokens of PPO with 350 M reward and value models on 8 x A100-80GB (DeepSpeed-Chat's release blog, 2023-04)."""
    preference = {
        "algorithm": "ppo", "prompt_len": 256, "completion_len": 256, "generation_batch": 64,
        "reward_model": "opt-350m", "value_model": "opt-350m",
    }  # fmt: skip
    table = {"method": "full", "precision": "fp16-amp", "framework": "deepspeed", "micro_batch": 4, "parallel": {"zero": 3}}
    asked = parse_job({**table, "preference": preference}, shipped(model), FACTS.get_architecture)
    assert 135e6 / rate(asked) / 8 / 3600 == pytest.approx(hours, rel=0.2)
