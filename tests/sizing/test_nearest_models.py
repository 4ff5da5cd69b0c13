"""Of a name that is not shipped, the nearest shape is named: by size where the name states one, then by spelling."""

from __future__ import annotations

import pytest

from costguard.data import ShippedFacts
from costguard.errors import UnknownNameError
from costguard.sizing.job import parse_job
from costguard.sizing.nearest_models import read_size

FACTS = ShippedFacts()


@pytest.mark.parametrize(
    ("name", "size"),
    [("llama-3.1-9b", 9e9), ("qwen3-235b-a22b", 235e9), ("foo-8x7b", 56e9), ("bar-350m", 350e6), ("llama-guard-4", None)],
)
def test_size_is_read_from_the_name(name: str, size: float | None) -> None:
    assert read_size(name) == size


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("llama-3.1-9b", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-9B-Instruct", "llama-3.1-8b"),
        ("qwen3-33b", "qwen3-32b"),
        ("qwen3-vl-500b", "qwen3-coder-480b-a35b"),
        ("lama-3.1-8b", "llama-3.1-8b"),
        ("org/bar-8x7b", "mixtral-8x7b"),
    ],
)
def test_a_model_of_unknown_shape_takes_the_nearest_and_its_own_size(name: str, nearest: str) -> None:
    model = FACTS.get_architecture(name)
    assert (model.shape_of, model.parameters) == (nearest, read_size(name))
    assert f"'{name}' is not known" in model.notes[-1]
    assert f"in the shape of {nearest}" in model.notes[-1]


def test_a_foreign_name_gets_a_plain_decoder_of_its_size() -> None:
    shape = FACTS.get_architecture("my-org/foo-7b").shape_of
    assert FACTS.get_architecture(str(shape)).parameters == pytest.approx(7e9, rel=0.15)


def test_a_name_without_size_names_the_nearest_of_its_family() -> None:
    with pytest.raises(UnknownNameError) as caught:
        FACTS.get_architecture("whisper-large-v4")
    assert caught.value.nearest[0] == "whisper-large-v3"


@pytest.mark.parametrize("name", ["LTX-2", "hunyuan-video", "foo"])
def test_a_name_that_only_shares_letters_has_no_nearest(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        FACTS.get_architecture(name)
    assert caught.value.nearest == ()


@pytest.mark.parametrize(
    ("name", "model", "stored"),
    [
        ("unsloth/Qwen3-8B-unsloth-bnb-4bit", "qwen3-8b", "nf4"),
        ("Qwen/Qwen3-8B-FP8", "qwen3-8b", "fp8"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", "int4"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "qwen2.5-7b", "int8"),
        ("TheBloke/Llama-2-7B-AWQ", "llama-2-7b", "int4"),
        ("nvidia/DeepSeek-R1-0528-NVFP4", "deepseek-r1", "nvfp4"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b", "int4"),
        ("NousResearch/Meta-Llama-3.1-8B", "llama-3.1-8b", "bf16"),
        ("Qwen/Qwen3-4B-Thinking-2507", "qwen3-4b", "bf16"),
        ("LLaVA 7B", "llava-1.5-7b", "fp16"),
    ],
)
def test_mirrors_and_copies_in_fewer_bits_are_the_released_shape(name: str, model: str, stored: str) -> None:
    found = FACTS.get_architecture(name)
    assert (found.name, found.released_precision, found.shape_of) == (model, stored, None)


def test_a_date_without_a_size_is_another_model() -> None:
    with pytest.raises(UnknownNameError):
        FACTS.get_architecture("mistral-small-2603")


def test_a_copy_in_fewer_bits_is_served_as_it_is_stored() -> None:
    table = {"model": "TheBloke/Llama-2-7B-GPTQ", "method": "inference", "tokens": 1000}
    job = parse_job(table, FACTS.get_architecture(str(table["model"])))
    assert job.recipe.quant == "int4"
    assert ("quant", "int4") in job.assumed


def test_an_assumed_shape_is_an_assumption() -> None:
    job = parse_job({"method": "lora", "tokens": 1000}, FACTS.get_architecture("my-org/foo-7b"))
    assert "model" in dict(job.assumed)
