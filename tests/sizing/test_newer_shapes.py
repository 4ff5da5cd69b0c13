"""Shapes of 2025 and 2026, each against what transformers 5.24.0 counts on the meta device (scripts/check_architectures.py)."""

from __future__ import annotations

from typing import Any

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.sizing.huggingface import READERS, build_architecture_from_config
from costguard.sizing.huggingface.model_types import DEFAULTS, LIKE

FACTS = ShippedFacts()
LLAVA = {"model_type": "llava", "text_config": {"model_type": "llama"}, "vision_config": {}}


def count(config: dict[str, Any]) -> int:
    return build_architecture_from_config(config, name="it").parameters


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (LLAVA, 7_062_902_784),
        ({**LLAVA, "model_type": "llava_next"}, 7_062_906_880),
        ({"model_type": "qwen2_5_vl", "text_config": {}, "vision_config": {"hidden_size": 3584}}, 75_789_228_800),
        ({"model_type": "qwen3_vl", "text_config": {}, "vision_config": {}}, 12_616_410_352),
        ({"model_type": "smolvlm", "text_config": {}, "vision_config": {"num_hidden_layers": 12}}, 6_909_685_760),
        ({"model_type": "gemma4_unified", "text_config": {}}, 3_010_758_400),
    ],
)
def test_a_tower_is_counted_with_the_defaults_of_its_class(config: dict[str, Any], parameters: int) -> None:
    assert count(config) == parameters


@pytest.mark.parametrize(
    ("name", "parameters", "active"),
    [
        ("deepseek-v4-flash", 284_332_230_231, 13.8),
        ("deepseek-v4-pro", 1_572_997_179_491, 49.8),
        ("glm-4.7-flash", 29_943_390_976, 3.9),
        ("glm-5", 743_911_199_232, 41.8),
        ("kimi-linear-48b-a3b", 49_133_074_464, 3.5),
        ("lfm2-8b-a1b", 8_339_929_856, 1.6),
        ("longcat-flash", 560_664_958_976, 28.0),
        ("nemotron-3-super-120b-a12b", 120_668_687_360, 12.8),
        ("z-image-turbo", 6_154_908_736, 6.2),
    ],
)
def test_models_of_2026_are_counted_to_the_last_parameter(name: str, parameters: int, active: float) -> None:
    model = FACTS.get_architecture(name)
    assert model.parameters == parameters
    assert model.active_parameters / 1e9 == pytest.approx(active, abs=0.06)


def test_a_layer_that_compresses_its_cache_stores_what_is_left() -> None:
    blocks = FACTS.get_architecture("deepseek-v4-flash").blocks
    assert sorted({block.attention.cached_width for block in blocks}) == [4, 160, 512]
    assert {block.attention.window for block in blocks if block.attention.cached_width == 512} == {128}


def test_a_type_of_the_generated_table_is_read_like_its_model() -> None:
    config = {**DEFAULTS["glm4_moe_lite"], "first_k_dense_replace": 1}
    assert LIKE["glm4_moe_lite"] == "deepseek_v3"
    assert count({**config, "model_type": "glm4_moe_lite"}) == 29_943_390_976
    assert set(LIKE) <= set(READERS)


def test_the_first_release_of_qwen2_vl_states_its_text_outside() -> None:
    text = {"hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28, "num_attention_heads": 28}
    flat = {**text, "num_key_value_heads": 4, "vocab_size": 152_064, "vision_config": {"hidden_size": 3584}}
    assert count({"model_type": "qwen2_vl", **flat}) == FACTS.get_architecture("qwen2-vl-7b").parameters


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "kimi_linear", **DEFAULTS["deepseek_v3"], "layer_types": ["conv"]}, "names 1 layers of 61"),
        ({"model_type": "qwen3_vl", "text_config": {"model_type": "nobody"}}, "unknown model type 'nobody'"),
        ({**LLAVA, "vision_config": {"patch_size": 900}}, "larger than the image"),
        (
            {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": [128, 256]},
            r"a value for each layer \(128 to 256\)",
        ),
    ],
)
def test_layers_that_do_not_add_up_are_named(config: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        count(config)


def test_what_is_left_out_reaches_the_reader() -> None:
    assert "text encoders and VAE are counted while a job loads them" in FACTS.get_architecture("flux-1-dev").notes[0]
    assert "one image of 2,304 patches" in FACTS.get_architecture("qwen3-vl-8b").notes[0]
