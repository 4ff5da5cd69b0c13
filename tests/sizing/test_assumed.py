"""What nobody stated: refused under --strict, else said with what another choice would do."""

from __future__ import annotations

import pytest

from costguard.errors import InputError
from costguard.sizing.assumptions import check_nothing_assumed, format_effect, list_alternatives
from costguard.sizing.job import list_assumption_warnings, parse_job
from tests.sizing.shapes import shipped
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


def test_a_walked_model_is_never_offered_adapters() -> None:
    assert "method" not in [field for field, _, _ in list_alternatives(parse_job({}, shipped("resnet-50")))]


def test_a_companion_that_was_assumed_may_be_left_out() -> None:
    job = parse_job({"method": "full", "seq_len": 512, "preference": {"algorithm": "ppo"}}, LLAMA_3_8B)
    others = {field: other for field, _, other in list_alternatives(job)}
    left = others["preference.value_model"].beside
    assert left is not None
    assert [c.role for c in left.companions] == ["reference", "reward"]


def test_an_effect_says_both_factors_or_that_it_would_not_fit() -> None:
    assert format_effect("4", hours=0.812, memory=1.3, fits=True) == "4: 0.81x the hours, 1.30x the memory"
    assert "too much for this GPU" in format_effect("fp32", hours=None, memory=2.0, fits=False)


def test_the_warning_carries_what_was_told_beside_its_field() -> None:
    job = parse_job({"method": "lora", "seq_len": 512, "precision": "bf16", "checkpointing": "full"}, LLAMA_3_8B)
    (said,) = list_assumption_warnings(job, {"micro_batch": "4: 0.81x the hours"})
    assert said == "assumed, because not given: micro_batch 1 (4: 0.81x the hours), optimizer adamw"
