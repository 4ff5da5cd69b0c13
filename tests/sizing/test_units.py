"""What people count instead of tokens: images, seconds of sound, frames; and what a run of inference takes for each."""

from __future__ import annotations

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.quoting.storage import compute_disk_gb
from costguard.sizing.job import DENOISING_STEPS, Job, parse_job
from costguard.sizing.recipe import Parallelism, Recipe, resolve_framework
from costguard.sizing.speed.throughput import Throughput, compute_throughput

FACTS = ShippedFacts()


def job(model: str, **table: object) -> Job:
    return parse_job({"method": "inference", **table}, FACTS.get_architecture(model))


def speed(asked: Job, gpu: str = "A100-80GB-SXM") -> Throughput:
    found = compute_throughput(
        asked.architecture,
        asked.recipe,
        Parallelism(),
        FACTS.get_gpus()[gpu],
        gpus=1,
        nodes=1,
        efficiency=FACTS.get_efficiency(),
    )
    assert found is not None
    return found


def test_an_image_of_a_diffusion_model_takes_many_passes() -> None:
    asked = job("sdxl", images=100)
    assert asked.computed_tokens == 100 * DENOISING_STEPS
    assert ("denoising_steps", str(DENOISING_STEPS)) in asked.assumed
    assert job("sdxl", images=100, denoising_steps=30).computed_tokens == 3000


@pytest.mark.parametrize(
    ("model", "steps", "guided"),
    [
        ("flux-1-schnell", 4, False),
        ("flux-1-dev", 28, False),
        ("sdxl-turbo", 1, False),
        ("sd-turbo", 1, False),
        ("sd-3.5-medium", 40, True),
        ("wan-2.1-t2v-14b", 50, True),
        ("sdxl", DENOISING_STEPS, True),
    ],
)
def test_passes_that_are_not_stated_are_those_of_the_release(model: str, steps: int, guided: bool) -> None:  # noqa: FBT001 - a row
    asked = job(model)
    assert asked.denoising_steps == steps
    assert ("denoising_steps", str(steps)) in asked.assumed
    assert asked.architecture.guided is guided
    assert job(model, denoising_steps=7).denoising_steps == 7


def test_training_a_diffusion_model_takes_one_pass_an_image() -> None:
    assert job("sdxl", method="lora", images=100).computed_tokens == 100
    with pytest.raises(InputError, match="denoising_steps"):
        job("sdxl", method="lora", images=100, denoising_steps=30)
    with pytest.raises(InputError, match="denoising_steps"):
        job("llama-3.1-8b", tokens=100, denoising_steps=30)


def test_whisper_hears_a_clip_at_once_and_writes_word_by_word() -> None:
    whole, short = (speed(job("whisper-large-v3", **words)) for words in ({}, {"decoder_len": 100}))
    assert whole.unit == "audio_seconds"
    assert 5 < whole.units_per_s_per_gpu.expected < short.units_per_s_per_gpu.expected < 200
    many = speed(job("whisper-large-v3", micro_batch=16))
    assert many.units_per_s_per_gpu.expected > 8 * whole.units_per_s_per_gpu.expected


def test_arithmetic_is_told_in_what_is_counted() -> None:
    lines = "\n".join(speed(job("vit-b-16", method="full", images=10)).explain)
    assert "GFLOP an image" in lines
    assert "images/s per GPU" in lines
    assert "token" not in lines


def test_disk_holds_the_weights_as_they_were_released() -> None:
    """DeepSeek-V3's weights are 688 GB in fp8 and gpt-oss-120b's 65 GB in mxfp4 (their model cards)."""
    serve = Recipe(method="inference")
    disks = [compute_disk_gb(FACTS.get_architecture(name), serve) for name in ("deepseek-v3", "gpt-oss-120b", "llama-3.1-70b")]
    system = disks[2] - 141
    assert [disk - system for disk in disks[:2]] == [pytest.approx(671, abs=20), pytest.approx(65, abs=3)]


@pytest.mark.parametrize(
    ("name", "meant"), [("peft", "hf"), ("LLaMA-Factory", "llamafactory"), ("swift", "ms-swift"), ("NeMo", "megatron")]
)
def test_a_framework_goes_by_the_names_that_people_write(name: str, meant: str) -> None:
    assert resolve_framework(name)[0] == meant
    assert job("llama-3.1-8b", method="full", framework=name).recipe.framework == meant


@pytest.mark.parametrize(("name", "told"), [("axolotls", "axolotl"), ("vllm", "leave it out"), ("megatron-lmm", "megatron")])
def test_an_unknown_framework_names_the_nearest(name: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        job("llama-3.1-8b", method="full", framework=name)
