from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.errors import InputError, UnknownNameError
from costguard.sizing.architecture import Architecture, Attention, FeedForward, LayerBlock, group_blocks
from costguard.sizing.architecture_table import ARCHITECTURE_CHECKS, build_architecture_from_table
from tests.campaign import examples

LLAMA: dict[str, Any] = {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 11008, "vocab": 32000}

BLOCK = LayerBlock(
    layers=2,
    hidden=8,
    attention=Attention(heads=2, kv_heads=1, head_dim=4),
    feed_forward=FeedForward(ffn=16),
)


# The value


def test_alternating_layers_gather_by_kind() -> None:
    sliding = replace(BLOCK, layers=1, attention=replace(BLOCK.attention, window=4))
    full = replace(BLOCK, layers=1)
    assert group_blocks([sliding, full, sliding]) == (replace(sliding, layers=2), full)


def test_a_stated_count_replaces_the_computed_one_and_keeps_the_share_of_experts() -> None:
    moe = replace(BLOCK, feed_forward=FeedForward(ffn=16, experts=8, experts_per_token=2))
    shape = Architecture(name="it", kind="decoder", blocks=(moe,), vocab=10)
    halved = replace(shape, stated_params=shape.parameters // 2)
    assert halved.active_parameters == pytest.approx(shape.active_parameters / 2, abs=1)


# The table


def test_five_numbers_are_llama_2() -> None:
    assert build_architecture_from_table(LLAMA).parameters == 6_738_415_616


def test_t5_can_be_stated_in_numbers_up_to_its_position_biases() -> None:
    t5 = build_architecture_from_table({"kind": "encoder-decoder", "layers": 12, "hidden": 768, "heads": 12, "vocab": 32128})
    assert t5.parameters == 222_903_552 - 2 * 32 * 12


def test_a_vit_can_be_stated_in_three_numbers() -> None:
    assert build_architecture_from_table({"kind": "vit", "layers": 12, "hidden": 768, "heads": 12}).parameters == 86_567_656


def test_a_clip_can_be_stated_in_numbers() -> None:
    towers = {"layers": 12, "hidden": 768, "heads": 12, "text_layers": 12, "text_hidden": 512, "text_heads": 8}
    assert build_architecture_from_table({"kind": "clip", "patch_size": 32, **towers}).parameters == 151_277_313


def test_an_encoder_has_biases_and_learned_positions() -> None:
    bert = build_architecture_from_table({"kind": "encoder", "layers": 12, "hidden": 768, "heads": 12, "vocab": 30522})
    assert bert.parameters == 109_482_240 - 768 * 769 - 2 * 768  # BERT's pooler and segments are not in the table


def test_experts_can_be_stated_in_numbers() -> None:
    mixtral = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 32000}
    moe = build_architecture_from_table({**mixtral, "experts": 8, "experts_per_token": 2})
    assert moe.parameters == 46_702_792_704


def test_params_overrides_the_count() -> None:
    assert build_architecture_from_table({**LLAMA, "params": 7_000_000_000}).parameters == 7_000_000_000


def test_a_vocabulary_that_was_taken_for_granted_is_noted() -> None:
    shape = build_architecture_from_table({"layers": 32, "hidden": 4096, "heads": 32})
    assert shape.notes == tuple(
        f"architecture.{what} taken" for what in ("vocab is not stated: 32,000", "ffn is not stated: 16,384")
    )


@pytest.mark.parametrize("key", ["layers", "hidden", "heads"])
def test_a_missing_number_is_named(key: str) -> None:
    with pytest.raises(InputError, match=f"^architecture.{key}: is missing"):
        build_architecture_from_table({k: v for k, v in LLAMA.items() if k != key})


def test_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as caught:
        build_architecture_from_table({**LLAMA, "hiden": 4096})
    assert caught.value.nearest[0] == "hidden"


def test_an_unknown_kind_lists_the_kinds() -> None:
    with pytest.raises(UnknownNameError, match="encoder-decoder"):
        build_architecture_from_table({**LLAMA, "kind": "mamba"})


@pytest.mark.parametrize("wrong", [0, -1, True, "32", 1.5, float("nan"), float("inf"), 10**30, None, []])
def test_layers_that_are_no_number_are_refused_by_name(wrong: object) -> None:
    with pytest.raises(InputError, match=r"^architecture\.layers: "):
        build_architecture_from_table({**LLAMA, "layers": wrong})


@pytest.mark.parametrize(
    ("contradiction", "field"),
    [
        ({"heads": 30}, "heads"),
        ({"kv_heads": 5}, "kv_heads"),
        ({"experts": 4, "experts_per_token": 5}, "experts_per_token"),
        ({"experts": 4}, "experts_per_token"),
        ({"experts_per_token": 2}, "experts"),
        ({"kv_rank": 512}, "rope_dim"),
        ({"kind": "vit", "patch_size": 300}, "patch_size"),
        ({"kind": "clip", "text_heads": 7}, "text_heads"),
        ({"gated": "yes"}, "gated"),
        ({"norm": "batchnorm"}, "norm"),
        ({"activation": 5}, "activation"),
        ({"name": ""}, "name"),
        ({"params": 0}, "params"),
    ],
)
def test_a_contradiction_is_refused_by_name(contradiction: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=rf"^architecture\.{field}: "):
        build_architecture_from_table({**LLAMA, **contradiction})


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.integers(1, 64)
    | st.sampled_from(["vit", "clip", "encoder"])
)


@settings(deadline=None, max_examples=examples(300))
@given(st.dictionaries(st.sampled_from(sorted(ARCHITECTURE_CHECKS)), VALUES, max_size=10))
def test_any_table_is_a_shape_or_an_input_error_with_its_field(table: dict[str, Any]) -> None:
    try:
        shape = build_architecture_from_table({**LLAMA, **table})
    except InputError as error:
        field = error.field or ""
    else:
        field = "architecture."
        assert shape.parameters > 0
    assert field.startswith("architecture.")
