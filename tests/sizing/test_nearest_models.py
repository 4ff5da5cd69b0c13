"""Of a name that is not shipped, the nearest shape is named: by size where the name states one, then by spelling."""

from __future__ import annotations

import pytest

from costguard.data import ShippedFacts
from costguard.errors import UnknownNameError
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
        ("whisper-large-v4", "whisper-large-v3"),
    ],
)
def test_nearest_shape_comes_first(name: str, nearest: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        FACTS.get_architecture(name)
    assert caught.value.nearest[0] == nearest
    assert f"nearest shipped shape is {nearest} (" in str(caught.value)


def test_a_foreign_name_gets_plain_decoders_of_its_size() -> None:
    with pytest.raises(UnknownNameError) as caught:
        FACTS.get_architecture("my-org/foo-7b")
    for name in caught.value.nearest:
        assert FACTS.get_architecture(name).parameters == pytest.approx(7e9, rel=0.15)
