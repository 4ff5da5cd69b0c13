"""What a row of published memory means where no column says it: libraries and dates from words, lengths from remarks."""

from __future__ import annotations

import pytest

from costguard.sizing.memory.footprint import compute_footprint
from costguard.sizing.recipe import Parallelism, Recipe
from scripts import published_memory
from tests.sizing.shapes import shipped

BLANK = dict.fromkeys(("note", "source", "source_group", "batch", "pp", "method", "attention", "weight_dtype", "amp"), "")


@pytest.mark.parametrize(
    ("said", "framework"),
    [
        ({"source": "github.com/pytorch/torchtitan benchmarks/llama3_h100_202412.md"}, "torchtitan-2024"),
        ({"source": "github.com/pytorch/torchtitan benchmarks/llama3_h200_202506.md"}, "torchtitan"),
        ({"source": "a benchmark with Megatron-LM, arXiv 2104.04473"}, "megatron-2021"),
        ({"source": "some notes on Megatron-LM"}, "megatron"),
        ({"source": "unslothai/unsloth README", "note": "HF + FA2: the largest that fits"}, "hf-2024"),
        ({"source": "unslothai/unsloth README", "note": "Unsloth: offloaded checkpoints"}, "unsloth"),
        ({"source": "github.com/whitecircle/halo agent-docs (2026)", "note": "HF; norm kernels"}, "halo"),
        ({"source": "LOMO, arXiv 2306.09782"}, "deepspeed-2023"),
        ({"source": "somebody's blog, 2025-03"}, "hf"),
        ({"source": "somebody's benchmarks_03_2024.md"}, "hf-2024"),
        ({"source": "somebody's blog"}, "hf-2024"),
    ],
)
def test_library_and_era_are_read_from_words_and_dates(said: dict[str, str], framework: str) -> None:
    assert published_memory.framework_of(BLANK | said) == framework


@pytest.mark.parametrize(
    ("note", "tokens"), [("length varies (max 512)", 512), ("short tweets", 70), ("max length 4096", 4096), ("unpacked", None)]
)
def test_remarks_tell_how_long_a_sequence_is_or_nothing_does(note: str, tokens: int | None) -> None:
    assert published_memory.length_in(note) == tokens


def test_attention_was_eager_before_sdpa_was_the_default_and_where_a_fused_softmax_is_named() -> None:
    early, late = BLANK | {"source": "a page of 2022-05"}, BLANK | {"source": "a page of 2024-05"}
    assert published_memory.attention_of(early, "hf-2022") == "eager"
    assert published_memory.attention_of(late, "hf-2024") == "flash"
    assert published_memory.attention_of(late | {"attention": "fused-softmax"}, "megatron-2021") == "eager"


def test_computed_from_a_profile_means_every_term_at_its_largest() -> None:
    sized = compute_footprint(shipped("llama-2-7b"), Recipe(checkpointing="none"), Parallelism())
    assert published_memory.figure(sized, BLANK | {"metric": "computed from profile"}) > sized.peak
