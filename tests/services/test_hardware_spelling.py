"""`--on` in the spellings that people use, and sizes of memory that no table lists."""

from __future__ import annotations

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.services.quote.hardware import parse_hardware
from costguard.services.quote.job_input import read_job_input, settle_count

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
        ("p5.48xlarge", "H100-SXM", 8, 1),
        ("P5.48xlarge:2", "H100-SXM", 8, 2),
        ("gpu_8x_h100_sxm5", "H100-SXM", 8, 1),
        ("L20", "L20", 1, 1),
        ("DGX Spark", "GB10", 1, 1),
    ],
)
def test_every_usual_spelling_is_the_same_hardware(text: str, gpu: str, count: int, nodes: int) -> None:
    hardware, _ = parse_hardware(text, FACTS)
    assert hardware is not None
    assert (hardware.gpu.name, hardware.gpu_count, hardware.nodes) == (gpu, count, nodes)


@pytest.mark.parametrize(
    ("text", "name", "gb"),
    [("M4 Max 64GB", "M4-Max-64GB", 64), ("RTX 4090 48GB", "RTX-4090-48GB", 48), ("H20-141GB", "H20-141GB", 141)],
)
def test_a_size_that_is_not_listed_is_taken_as_stated_and_noted(text: str, name: str, gb: int) -> None:
    hardware, notes = parse_hardware(text, FACTS)
    assert hardware is not None
    assert (hardware.gpu.name, hardware.gpu.vram_gb) == (name, gb)
    assert "is not listed: its memory is as stated" in notes[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("CPU:16", "is no GPU"),
        ("Gaudi3:8", "its compiler decides"),
        ("RTX6000", "unknown GPU"),
        ("M4-Pro-128GB", "no M4-Pro has 128 GB: the largest has 64"),
    ],
)
def test_what_is_not_sized_says_why(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_hardware(text, FACTS)


A100S = ("A100-80GB-SXM", "A100-40GB-SXM", "A100-80GB-PCIe", "A100-40GB-PCIe")


@pytest.mark.parametrize(
    ("text", "gpus", "count"),
    [
        ("A100", A100S, None),
        ("8xA100", A100S, 8),
        ("A100:8", A100S, 8),
        ("a100-40", ("A100-40GB-SXM", "A100-40GB-PCIe"), None),
        ("H100-SXM", ("H100-SXM",), None),
        ("B200", ("B200-SXM",), None),
        ("p5.48xlarge", ("H100-SXM",), 8),
    ],
)
def test_a_filter_takes_the_same_spellings_and_a_short_name_is_a_family(text: str, gpus: tuple[str, ...], count: int) -> None:
    job_input = read_job_input({"limits": {"gpus": [text]}}, None, FACTS, families=True)
    assert (job_input.table["limits"]["gpus"], job_input.count) == (gpus, count)  # type: ignore[index]  # a table
    alone = read_job_input({"limits": {"gpus": [text]}}, None, FACTS)
    assert alone.table["limits"]["gpus"] == gpus[:1]  # type: ignore[index]  # a table


@pytest.mark.parametrize(
    ("names", "count", "why"),
    [
        (["H100:x"], None, "is no GPU with a count"),
        (["H100:0"], None, "is no GPU with a count"),
        (["8xH100", "4xA100"], None, "name machines of 4 and 8 GPUs"),
        (["8xH100"], 4, "the GPU's name says 8"),
        (["p9.99xlarge"], None, "unknown GPU 'p9.99xlarge'"),
    ],
)
def test_a_count_that_is_none_or_contradicts_is_named(names: list[str], count: int | None, why: str) -> None:
    with pytest.raises(InputError, match=why):
        settle_count(read_job_input({"limits": {"gpus": names}}, None, FACTS, families=True), count)
