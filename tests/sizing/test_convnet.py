"""Models walked layer by layer, and DiT: published counts to the last parameter, multiply-adds to a percent."""

from __future__ import annotations

import pytest

from costguard.errors import InputError
from costguard.sizing.architecture_table import build_architecture_from_table
from costguard.sizing.huggingface import build_architecture_from_config
from costguard.sizing.memory.footprint import Footprint, compute_footprint
from costguard.sizing.recipe import Lora, Parallelism, Recipe
from costguard.sizing.speed.flops import count_flops_per_token
from tests.sizing.shapes import shipped


def need(model: str, recipe: Recipe, gpus: int = 1, **split: bool) -> Footprint:
    return compute_footprint(shipped(model), recipe, Parallelism(**split), gpus=gpus)  # type: ignore[arg-type]  # a flag


def recipe(**how: object) -> Recipe:
    return Recipe(**{"method": "pretrain", "seq_len": 1, "checkpointing": "none", **how})  # type: ignore[arg-type]  # checked there


@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("resnet-50", 25_557_032),
        ("resnet-101", 44_549_160),
        ("resnet-152", 60_192_808),
        ("sd-1.5-unet", 859_520_964),
        ("dit-xl-2-256", 675_129_632),
    ],
)
def test_parameters_are_those_published(model: str, published: int) -> None:
    assert shipped(model).parameters == published


def test_the_u_net_of_stable_diffusion_has_its_published_multiply_adds_once_scores_are_left_out() -> None:
    """339 G at 64 x 64 (BK-SDM, arXiv 2305.15798), counted by a profiler that does not see attention's scores."""
    walk = shipped("sd-1.5-unet").walk
    assert walk is not None
    places = {320: (4096, 5), 640: (1024, 5), 1280: (256, 5)}  # side by side with 77 words; one more in the middle at 8 x 8
    scores = sum(n * 2 * width * p * (p + 77) for width, (p, n) in places.items()) + 2 * 1280 * 64 * (64 + 77)
    assert (walk.multiply_adds - scores) / 1e9 == pytest.approx(339, rel=0.01)


def test_dit_xl_has_its_published_multiply_adds_an_image() -> None:
    """118.64 "Gflops" (arXiv 2212.09748, table 4), which counts multiply-adds."""
    forward = count_flops_per_token(shipped("dit-xl-2-256"), recipe(seq_len=256)).forward
    assert forward * 256 / 2 == pytest.approx(118.64e9, rel=0.01)


def test_a_dit_may_be_stated_by_its_numbers() -> None:
    """DiT-B/2: 130 M (arXiv 2212.09748, table 1)."""
    shape = build_architecture_from_table({"kind": "dit", "layers": 12, "hidden": 768, "heads": 12})
    assert shape.parameters == pytest.approx(130e6, rel=0.005)
    assert shape.sample_tokens == 256


def test_resnet_50_keeps_what_autograd_saves() -> None:
    """86.0 MB an image in fp32: saved tensors of transformers' ResNet-50, each storage once (torch 2.13, 2026-11)."""
    forward = next(p for p in need("resnet-50", recipe(precision="fp32")).phases if p.name == "forward")
    assert forward.terms["activations"] == pytest.approx(86.0e6, rel=0.02)


@pytest.mark.parametrize(("precision", "saved"), [("bf16", 40.13), ("fp32", 80.21)])
def test_a_layer_of_dit_keeps_what_autograd_saves(precision: str, saved: float) -> None:
    """Bytes a token, layer and hidden unit of DiT-XL's own modules (torch 2.13, 2026-11)."""
    how = recipe(precision=precision, seq_len=256, micro_batch=4)
    forward = next(p for p in need("dit-xl-2-256", how).phases if p.name == "forward")
    assert forward.terms["activations"] / (4 * 256 * 28 * 1152) == pytest.approx(saved, rel=0.01)


def test_checkpointing_and_sharding_make_a_walk_smaller() -> None:
    plain = need("sd-1.5-unet", recipe(micro_batch=8), 8)
    assert need("sd-1.5-unet", recipe(micro_batch=8, checkpointing="full"), 8).peak < plain.peak
    assert need("sd-1.5-unet", recipe(micro_batch=8), 8, fsdp=True).at_peak["optimizer"] * 7 < plain.at_peak["optimizer"]


def test_adapters_are_refused_where_there_are_convolutions_alone() -> None:
    with pytest.raises(InputError, match="needs linear layers"):
        need("resnet-50", recipe(method="lora"))


@pytest.mark.parametrize(("targets", "parameters"), [("attention", 23_224_320), ("all-linear", 43_298_816)])
def test_adapters_on_sdxl_are_as_many_as_peft_counts(targets: str, parameters: int) -> None:
    """Rank 16 on diffusers' UNet2DConditionModel: PEFT 0.21.2 on the meta device, 2026-11-24."""
    how = recipe(method="lora", lora=Lora(rank=16, targets=targets))
    assert need("sdxl-unet", how).basis.measure.adapters == parameters


def test_a_u_net_that_is_not_read_says_so() -> None:
    config = {"_class_name": "UNet2DConditionModel", "class_embed_type": "timestep"}
    with pytest.raises(InputError, match="class_embed_type"):
        build_architecture_from_config(config, name="sdxl")
