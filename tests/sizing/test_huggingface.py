from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.errors import InputError, UnknownNameError
from costguard.sizing.huggingface import READERS, build_architecture_from_config
from costguard.values.checks import fold_name
from tests.campaign import examples

SHIPPED: dict[str, dict[str, Any]] = json.loads((files("costguard") / "data" / "architectures.json").read_text("utf-8"))[
    "models"
]

LLAMA: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}


def llama_with(**changes: object) -> dict[str, object]:
    return {**LLAMA, **changes}


def count(config: dict[str, Any]) -> int:
    return build_architecture_from_config(config, name="it").parameters


# What ships


def test_at_least_300_models_are_shipped() -> None:
    assert len(SHIPPED) >= 300


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_shape_has_the_published_count_to_a_thousandth(name: str) -> None:
    published = SHIPPED[name]["published_params"]
    known_to = 1_000_000 if published % 1_000_000 == 0 else 0  # DiT-B/2 is published as "130M"
    assert abs(count(SHIPPED[name]["config"]) - published) <= max(published / 1000, known_to)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_entry_says_where_and_when_its_count_was_published(name: str) -> None:
    assert SHIPPED[name]["published_source"]
    assert len(SHIPPED[name]["date"].split("-")) == 3


def test_no_name_or_alias_means_two_models() -> None:
    owners = Counter(word for name, entry in SHIPPED.items() for word in {fold_name(w) for w in (name, *entry["aliases"])})
    assert [word for word, times in owners.items() if times > 1] == []


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("bert-large", 335_174_458),
        ("clip-vit-l-14", 427_616_513),
        ("deepseek-v2-lite", 15_706_484_224),
        ("falcon-40b", 41_303_293_952),
        ("gemma-3-4b", 4_300_079_472),
        ("gpt-oss-20b", 20_914_757_184),
        ("gpt2", 124_439_808),
        ("llama-2-7b", 6_738_415_616),
        ("llama-3.1-405b", 405_853_388_800),
        ("llama-4-scout", 108_641_793_536),
        ("mixtral-8x7b", 46_702_792_704),
        ("modernbert-base", 149_655_232),
        ("olmo-2-7b", 7_298_617_344),
        ("phi-2", 2_779_683_840),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("t5-base", 222_903_552),
        ("vit-b-16", 86_567_656),
    ],
)
def test_a_well_known_count_is_exact(name: str, params: int) -> None:
    assert count(SHIPPED[name]["config"]) == params


@pytest.mark.parametrize(
    ("name", "billions"),
    [("mixtral-8x7b", 12.9), ("deepseek-v3", 37.5), ("qwen3-30b-a3b", 3.35), ("gpt-oss-120b", 5.7), ("llama-4-scout", 17.2)],
)
def test_a_token_passes_few_of_the_experts(name: str, billions: float) -> None:
    active = build_architecture_from_config(SHIPPED[name]["config"], name=name).active_parameters
    assert active / 1e9 == pytest.approx(billions, rel=0.05)


# What a config leaves out


def test_absent_key_heads_take_the_default_of_the_class() -> None:
    assert build_architecture_from_config(llama_with(model_type="mistral"), name="it").main.attention.kv_heads == 8


def test_null_key_heads_are_one_for_each_query_head_in_any_class() -> None:
    config = llama_with(model_type="mistral", num_key_value_heads=None)
    assert build_architecture_from_config(config, name="it").main.attention.kv_heads == 32


def test_gemma_is_tied_unless_it_says_otherwise() -> None:
    gemma = SHIPPED["gemma-2b"]["config"]
    silent = {k: v for k, v in gemma.items() if k != "tie_word_embeddings"}
    assert count(silent) == count(gemma)


def test_the_first_falcon_uploads_are_read_too() -> None:
    config = {
        "model_type": "RefinedWeb",
        "hidden_size": 8192,
        "n_layer": 60,
        "n_head": 128,
        "n_head_kv": 8,
        "parallel_attn": True,
        "bias": False,
        "vocab_size": 65024,
    }
    assert count(config) == 41_303_293_952


# What the shape says beside its count


def test_layers_that_slide_are_a_block_of_their_own() -> None:
    blocks = build_architecture_from_config(SHIPPED["gemma-2-9b"]["config"], name="it").blocks
    assert [(b.layers, b.attention.window) for b in blocks] == [(21, 4096), (21, None)]


def test_dense_layers_before_the_experts_are_a_block_of_their_own() -> None:
    blocks = build_architecture_from_config(SHIPPED["deepseek-v3"]["config"], name="it").blocks
    assert [(b.layers, b.feed_forward.experts) for b in blocks] == [(3, 0), (58, 256)]


def test_a_tower_has_its_own_tokens() -> None:
    model = build_architecture_from_config(SHIPPED["gemma-3-4b"]["config"], name="it")
    assert [b.tokens for b in model.blocks] == [None, None, 4096]


def test_a_decoder_beside_an_encoder_looks_across() -> None:
    encoder, decoder = build_architecture_from_config(SHIPPED["t5-base"]["config"], name="it").blocks
    assert (encoder.cross_attention, decoder.cross_attention) == (False, True)


def test_a_classifier_has_labels_instead_of_words() -> None:
    config = llama_with(architectures=["LlamaForSequenceClassification"], id2label={"0": "a", "1": "b", "2": "c"})
    assert count(config) == count(LLAMA) - 32000 * 4096 + 3 * 4096


@pytest.mark.parametrize(
    ("task", "params"),
    [
        ("BertModel", 109_482_240),
        ("BertForMaskedLM", 109_514_298),
        ("BertForPreTraining", 110_106_428),
        ("BertForSequenceClassification", 109_483_778),
    ],
)
def test_what_stands_on_bert_follows_its_task(task: str, params: int) -> None:
    assert count({**SHIPPED["bert-base"]["config"], "architectures": [task]}) == params


def test_a_model_whose_vision_nobody_can_count_is_its_language_model_and_says_so() -> None:
    model = build_architecture_from_config({"model_type": "aria", "text_config": LLAMA}, name="it")
    assert model.parameters == count(LLAMA)
    assert "excluded" in model.notes[0]


# What cannot be read


def test_an_unknown_type_names_the_nearest_and_the_way_out() -> None:
    with pytest.raises(UnknownNameError) as caught:
        build_architecture_from_config(llama_with(model_type="lama"), name="it")
    assert "llama" in caught.value.nearest
    assert "[architecture]" in str(caught.value)


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"])
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(InputError, match=f"^{key}: is missing"):
        build_architecture_from_config({k: v for k, v in LLAMA.items() if k != key}, name="it")


def test_a_missing_key_of_a_nested_table_is_named_with_its_table() -> None:
    with pytest.raises(InputError, match=r"^text_config\.\w+: is missing"):
        build_architecture_from_config({"model_type": "aria", "text_config": {"model_type": "bloom"}}, name="it")


def test_heads_that_do_not_divide_the_hidden_size_are_refused() -> None:
    with pytest.raises(InputError, match="num_attention_heads: 30 heads do not divide"):
        build_architecture_from_config(llama_with(num_attention_heads=30), name="it")


def test_key_heads_that_do_not_divide_the_heads_are_refused() -> None:
    with pytest.raises(InputError, match="num_key_value_heads: 5 does not divide the 32"):
        build_architecture_from_config(llama_with(num_key_value_heads=5), name="it")


@pytest.mark.parametrize("wrong", [0, -1, True, "4096", 40.5, float("nan"), float("inf"), 10**30, [4096], {}])
def test_a_hidden_size_that_is_none_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(InputError, match=r"^hidden_size: "):
        build_architecture_from_config(llama_with(hidden_size=wrong), name="it")


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("tie_word_embeddings", "yes"),
        ("attention_bias", 1),
        ("hidden_act", 5),
        ("architectures", "LlamaForCausalLM"),
        ("architectures", [5]),
        ("num_hidden_layers", 10**9),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_by_name(key: str, wrong: object) -> None:
    with pytest.raises(InputError, match=f"^{key}: "):
        build_architecture_from_config(llama_with(**{key: wrong}), name="it")


def test_more_experts_a_token_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match="experts_per_token"):
        build_architecture_from_config({**SHIPPED["mixtral-8x7b"]["config"], "num_experts_per_tok": 9}, name="it")


def test_layer_types_that_do_not_match_the_layers_are_refused() -> None:
    with pytest.raises(InputError, match="layer_types"):
        build_architecture_from_config({**SHIPPED["gemma-2-9b"]["config"], "layer_types": ["full_attention"]}, name="it")


# Anything at all

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.integers(0, 64),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
REAL_CONFIGS = [entry["config"] for entry in SHIPPED.values()]
KEYS = sorted({key for config in REAL_CONFIGS for key in config} | {"head_dim", "layer_types", "attention_types", "id2label"})
MUTATIONS = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4)


@settings(deadline=None, max_examples=examples(300))
@given(st.sampled_from(sorted(READERS)), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8))
def test_any_object_is_a_shape_or_an_input_error(model_type: str, config: dict[str, Any]) -> None:
    _reads_or_refuses({**config, "model_type": model_type})


@settings(deadline=None, max_examples=examples(300))
@given(st.sampled_from(REAL_CONFIGS), MUTATIONS)
def test_a_real_config_with_anything_changed_is_a_shape_or_an_input_error(
    config: dict[str, Any], changed: dict[str, Any]
) -> None:
    _reads_or_refuses({**config, **changed})


def _reads_or_refuses(config: dict[str, Any]) -> None:
    """An error that is not an InputError, or names no field, fails the test by itself or below."""
    try:
        model = build_architecture_from_config(config, name="it")
    except InputError as error:
        field = error.field
    else:
        field = model.name
        assert model.parameters > 0
    assert field


def test_gemma_3n_counts_its_tables_paths_and_streams_as_its_class_does() -> None:
    hidden, layers, entry, ffn = 2048, 35, 256, 16_384  # E4B: the defaults of transformers' Gemma3nTextConfig
    attention = 2 * hidden * 8 * 256 + 2 * hidden * 2 * 256 + 2 * 256
    altup = 4 * 4 + 4 * 16 + hidden * 4 + 2 * hidden
    layer = attention + 3 * hidden * ffn + 4 * hidden + altup + 2 * hidden * 64 + hidden + 2 * hidden * entry + hidden
    tables = 262_400 * hidden + 262_144 * layers * entry + hidden * layers * entry + entry
    text: dict[str, object] = {"model_type": "gemma3n_text", "intermediate_size": [ffn] * layers}
    model = build_architecture_from_config({"model_type": "gemma3n", "text_config": text}, name="it")
    # 6.87 B; LM Studio states 6.9 B of the text model
    assert model.parameters == tables + layers * layer + 6 * hidden**2 + hidden
    assert any("4 residual streams" in note for note in model.notes)
    assert any("encoders are excluded" in note for note in model.notes)
    text["intermediate_size"] = [8192] * 20 + [ffn] * 15  # a submodel of the MatFormer
    with pytest.raises(InputError, match="layers of different shapes"):
        count({"model_type": "gemma3n", "text_config": text})
