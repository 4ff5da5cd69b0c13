"""`--on` in the spellings that people use, and sizes of memory that no table lists."""

from __future__ import annotations

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.services.quote.job_input import parse_hardware

FACTS = ShippedFacts()


@pytest.mark.parametrize(
    ("text", "gpu", "count", "nodes"),
    [
        ("H100:8", "H100-SXM", 8, 1),
        ("8xH100", "H100-SXM", 8, 1),
        ("8 x H100", "H100-SXM", 8, 1),
        ("H100 x8", "H100-SXM", 8, 1),
        ("H100x8", "H100-SXM", 8, 1),
        ("H100:8x4", "H100-SXM", 8, 4),
        ("a100-40", "A100-40GB-SXM", 1, 1),
        ("A100-80:4", "A100-80GB-SXM", 4, 1),
        ("MI300X:8", "MI300X", 8, 1),
    ],
)
def test_every_usual_spelling_is_the_same_hardware(text: str, gpu: str, count: int, nodes: int) -> None:
    hardware, _ = parse_hardware(text, FACTS)
    assert hardware is not None
    assert (hardware.gpu.name, hardware.gpu_count, hardware.nodes) == (gpu, count, nodes)


@pytest.mark.parametrize(("text", "name", "gb"), [("M4 Max 64GB", "M4-Max-64GB", 64), ("RTX 4090 48GB", "RTX-4090-48GB", 48)])
def test_a_size_that_is_not_listed_is_taken_as_stated_and_noted(text: str, name: str, gb: int) -> None:
    hardware, notes = parse_hardware(text, FACTS)
    assert hardware is not None
    assert (hardware.gpu.name, hardware.gpu.vram_gb) == (name, gb)
    assert "is not listed: its memory is as stated" in notes[0]


@pytest.mark.parametrize(
    ("text", "why"), [("CPU:16", "is no GPU"), ("Gaudi3:8", "its compiler decides"), ("RTX6000", "unknown GPU")]
)
def test_what_is_not_sized_says_why(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_hardware(text, FACTS)
