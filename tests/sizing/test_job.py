"""The one reader of a job's table: what it understands, what it assumes, what it refuses."""

from __future__ import annotations

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError, UnknownNameError
from costguard.sizing.job import Job, list_assumption_warnings, merge_flags, parse_job, parse_job_limits
from costguard.sizing.recipe import Lora, Parallelism
from costguard.values.money import Money
from tests.sizing.speeds import LLAMA_3_8B


def job(**table: object) -> Job:
    return parse_job(table, LLAMA_3_8B)


def test_what_is_not_stated_is_assumed_and_said() -> None:
    assert dict(job().assumed) == {
        "method": "full",
        "seq_len": "2048",
        "micro_batch": "1",
        "precision": "bf16",
        "checkpointing": "full",
        "optimizer": "adamw",
    }
    assert list_assumption_warnings(job())[0].startswith("assumed, because not given: method full")


def test_a_fully_stated_job_assumes_nothing() -> None:
    table = {
        "method": "lora",
        "seq_len": 1024,
        "micro_batch": 2,
        "precision": "fp32",
        "checkpointing": "none",
        "optimizer": "sgd",
    }
    assert job(**table).assumed == ()
    assert list_assumption_warnings(job(**table)) == ()


@pytest.mark.parametrize(
    ("dataset", "tokens"),
    [
        ({"examples": 1000, "tokens_per_example": 500}, 500_000),
        ({"examples": 1000, "tokens_per_example": 500, "epochs": 3}, 1_500_000),
        ({"examples": 1000, "tokens_per_example": 500, "epochs": 0.5}, 250_000),
    ],
)
def test_a_dataset_is_its_examples_times_their_tokens_times_the_epochs(dataset: dict[str, float], tokens: int) -> None:
    assert job(dataset=dataset).tokens == tokens


def test_limits_are_read_field_by_field() -> None:
    limits = parse_job_limits(
        {"max_usd": 49.99, "max_hours": 2, "providers": "aws", "regions": ["a", "b"], "tiers": [], "max_gpus": 8}
    )
    assert limits.max_usd == Money.parse("49.99")
    assert (limits.max_hours, limits.max_gpus) == (2.0, 8)
    assert (limits.providers, limits.regions, limits.tiers, limits.gpus) == (("aws",), ("a", "b"), (), None)


def test_lists_of_modules_and_splits_are_taken_as_stated() -> None:
    stated = job(method="lora", lora={"rank": 8, "targets": ["q_proj"]}, parallel={"tp": 2, "zero": 1})
    assert stated.recipe.lora == Lora(rank=8, targets=("q_proj",))
    assert stated.parallel == Parallelism(tp=2, zero=1)
    assert job(parallel={}).parallel is None


def test_a_batch_smaller_than_one_pass_is_refused_and_an_equal_one_is_not() -> None:
    assert job(seq_len=512, micro_batch=4, global_batch_tokens=2048).global_batch_tokens == 2048
    with pytest.raises(InputError, match="micro_batch x seq_len = 4 x 512 = 2,048"):
        job(seq_len=512, micro_batch=4, global_batch_tokens=2047)


@pytest.mark.parametrize(
    "table",
    [{"tokns": 1}, {"lora": {"r": 1}}, {"parallel": {"dp": 2}}, {"limits": {"max_eur": 1}}, {"dataset": {"rows": 1}}],
)
def test_a_key_nobody_knows_is_an_error_that_lists_those_known(table: dict[str, object]) -> None:
    with pytest.raises(UnknownNameError, match="known keys"):
        job(**table)


@pytest.mark.parametrize("shape", [{"model": "a"}, {"path": "b"}, {"architecture": {"layers": 2}}])
def test_a_model_on_the_command_line_replaces_the_files_however_it_was_stated(shape: dict[str, object]) -> None:
    assert merge_flags(shape | {"tokens": 5}, {"model": "c"}) == {"model": "c", "tokens": 5}
    assert merge_flags(shape, {"method": "lora"}) == shape | {"method": "lora"}


def test_tokens_on_the_command_line_replace_the_files_dataset() -> None:
    assert merge_flags({"dataset": {"examples": 5}}, {"tokens": 7}) == {"tokens": 7}


def test_adapters_may_be_named_as_the_model_names_its_modules() -> None:
    gpt2 = ShippedFacts().get_architecture("gpt2")
    named = parse_job({"method": "lora", "lora": {"targets": ["c_attn"]}}, gpt2)
    assert named.recipe.lora.targets == ("q_proj", "k_proj", "v_proj")
    with pytest.raises(UnknownNameError, match=r"lora\.targets: unknown matrix 'w1'"):
        parse_job({"method": "lora", "lora": {"targets": ["w1"]}}, gpt2)


def test_a_model_is_served_in_the_precision_it_was_released_in_unless_stated() -> None:
    v3 = ShippedFacts().get_architecture("deepseek-v3")
    served = parse_job({"method": "inference"}, v3)
    assert (served.recipe.precision, dict(served.assumed)["precision"]) == ("fp8", "fp8")
    assert parse_job({"method": "inference", "precision": "bf16"}, v3).recipe.precision == "bf16"
    assert parse_job({"method": "lora"}, v3).recipe.precision == "bf16"
