"""What nobody stated: refused under --strict, else said with what another choice would do."""

from __future__ import annotations

import pytest

from costguard.errors import InputError
from costguard.sizing.assumptions import check_nothing_assumed, list_alternatives
from costguard.sizing.job import list_assumption_warnings, parse_job
from tests.sizing.speeds import LLAMA_3_8B


def test_strictness_names_every_field_and_what_to_write() -> None:
    with pytest.raises(InputError) as told:
        check_nothing_assumed(parse_job({"method": "lora", "precision": "bf16"}, LLAMA_3_8B))
    assert "seq_len, micro_batch, checkpointing, optimizer" in str(told.value)
    assert 'write seq_len = 2048, micro_batch = 1, checkpointing = "full", optimizer = "adamw"' in str(told.value)


def test_a_whole_job_passes() -> None:
    whole = {"method": "full", "seq_len": 512, "micro_batch": 1, "precision": "bf16", "checkpointing": "full"}
    check_nothing_assumed(parse_job({**whole, "optimizer": "adamw"}, LLAMA_3_8B))


def test_only_assumed_fields_get_an_alternative() -> None:
    job = parse_job({"method": "full", "seq_len": 2048, "precision": "bf16", "optimizer": "adamw"}, LLAMA_3_8B)
    assert [(field, value) for field, value, _ in list_alternatives(job)] == [("micro_batch", "4"), ("checkpointing", "none")]


def test_serving_is_never_offered_a_way_to_train() -> None:
    job = parse_job({"method": "inference"}, LLAMA_3_8B)
    assert {field: value for field, value, _ in list_alternatives(job)} == {
        "seq_len": "1024", "micro_batch": "4", "precision": "fp8",
    }  # fmt: skip


def test_a_companion_that_was_assumed_may_be_left_out() -> None:
    job = parse_job({"method": "full", "seq_len": 512, "preference": {"algorithm": "ppo"}}, LLAMA_3_8B)
    others = {field: other for field, _, other in list_alternatives(job)}
    left = others["preference.value_model"].beside
    assert left is not None
    assert [c.role for c in left.companions] == ["reference", "reward"]


def test_the_warning_carries_what_was_told_beside_its_field() -> None:
    job = parse_job({"method": "lora", "seq_len": 512, "precision": "bf16", "checkpointing": "full"}, LLAMA_3_8B)
    (said,) = list_assumption_warnings(job, {"micro_batch": "4: 0.81x the hours"})
    assert said == "assumed, because not given: micro_batch 1 (4: 0.81x the hours), optimizer adamw"
