"""`costguard models --fits`: what one card can train or serve agrees with `size` on both sides of the edge."""

from __future__ import annotations

import pytest

from tests.conftest import Command

JOB = ("--method", "qlora", "--seq-len", "1024")


def list_models(costguard: Command, *flags: str) -> dict[str, dict[str, object]]:
    """The records by model."""
    return {one["model"]: one for one in costguard("models", *flags, "--json").data["models"]}


def size(costguard: Command, model: str, **fields: object) -> int:
    """The exit code of `size --fit yes`: 0 where it fits for sure, else 3."""
    flags = [word for name, value in fields.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return costguard("size", "--model", model, "--method", "qlora", "--on", "RTX-4090", "--fit", "yes", *flags).code


def test_the_batch_fits_and_twice_the_batch_does_not(costguard: Command) -> None:
    one = list_models(costguard, "llama-3.1-8b", "--fits", "RTX-4090", *JOB)["llama-3.1-8b"]
    batch = int(str(one["micro_batch"]))
    assert batch > 1
    assert size(costguard, "llama-3.1-8b", seq_len=1024, micro_batch=batch) == 0
    assert size(costguard, "llama-3.1-8b", seq_len=1024, micro_batch=2 * batch) == 3


def test_the_longest_sequence_fits_and_twice_that_does_not_or_is_beyond_the_context(costguard: Command) -> None:
    models = list_models(costguard, "llama", "--fits", "RTX-4090", *JOB)
    longest = int(str(models["llama-3.1-8b"]["longest"]))
    assert longest > 1024
    assert size(costguard, "llama-3.1-8b", seq_len=longest, micro_batch=1) == 0
    assert size(costguard, "llama-3.1-8b", seq_len=2 * longest, micro_batch=1) == 3
    assert models["llama-3.2-1b"]["longest"] <= 131_072  # type: ignore[operator]  # a number


def test_what_does_not_fit_is_counted_and_larger_hardware_holds_more(costguard: Command) -> None:
    small = costguard("models", "llama-3.1", "--fits", "RTX-4090", *JOB, "--json").data
    large = costguard("models", "llama-3.1", "--fits", "H200:8", *JOB, "--json").data
    assert "llama-3.1-70b" not in {one["model"] for one in small["models"]}
    assert small["too_large"] >= 2
    assert "llama-3.1-70b" in {one["model"] for one in large["models"]}


def test_a_method_that_a_model_does_not_have_is_counted_apart(costguard: Command) -> None:
    ran = costguard("models", "resnet", "--fits", "H100", "--method", "qlora", "--json")
    assert ran.code == 3
    assert (ran.data["models"], ran.data["too_large"]) == ([], 0)
    assert ran.data["unable"] > 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--fits", "H100"), "--method: is needed beside --fits"),
        (("--fits", "H1000X", "--method", "lora"), "--fits: unknown GPU 'H1000X'"),
        (("--fits", "H100:none", "--method", "lora"), "--fits: is not GPU:COUNT"),
        (("--method", "lora"), "--method: is for --fits alone"),
    ],
)
def test_a_question_that_cannot_be_answered_says_what_to_write(costguard: Command, flags: tuple[str, ...], words: str) -> None:
    ran = costguard("models", *flags)
    assert ran.code == 2
    assert words in ran.err


def test_what_may_not_fit_is_not_among_what_fits(costguard: Command) -> None:
    """QLoRA of 34 B is expected to need more than a card of 24 GB has; only the low end of its interval fits."""
    ran = costguard("models", "codellama-34b", "--fits", "RTX-4090", "--method", "qlora", "--json")
    assert ran.code == 3
    assert ran.data["models"] == []
