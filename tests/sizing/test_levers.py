"""Changes a person could write: all the way, by one step, or the other way."""

from __future__ import annotations

from costguard.sizing.job import Job, parse_job
from costguard.sizing.memory_savings import JobChange, list_enlargements, list_small_steps
from tests.sizing.speeds import LLAMA_3_8B


def job(**table: object) -> Job:
    return parse_job({"method": "full", **table}, LLAMA_3_8B)


def changes(found: tuple[JobChange, ...]) -> list[str]:
    return [lever.change for lever in found]


def test_a_small_step_halves_the_batch_and_the_rank() -> None:
    asked = job(method="lora", micro_batch=8, lora={"rank": 32})
    assert changes(list_small_steps(asked)) == ["micro_batch = 4 (now 8)", "lora.rank = 16 (now 32)"]


def test_one_more_zero_stage_only_where_a_split_is_stated_and_ranks_share() -> None:
    stated = job(parallel={"zero": 1})
    assert "parallel.zero = 2 (now 1)" in changes(list_small_steps(stated, gpus=8))
    assert list_small_steps(stated, gpus=1) == ()
    assert list_small_steps(job(), gpus=8) == ()


def test_fewer_sequences_written_at_once_is_a_step_of_a_policy_that_writes() -> None:
    asked = job(preference={"algorithm": "ppo", "generation_batch": 64})
    assert "preference.generation_batch = 32 (now 64)" in changes(list_small_steps(asked))


def test_larger_is_what_memory_left_could_buy() -> None:
    assert changes(list_enlargements(job(micro_batch=2))) == ["micro_batch = 4 (now 2)", "checkpointing = none (now full)"]
