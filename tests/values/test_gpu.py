"""The shipped datasheet facts, and what is derived from them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import costguard
from costguard.errors import InputError
from costguard.values.gpu import Gpu, read_gpu, read_gpus

with (Path(costguard.__file__).parent / "data" / "gpus.csv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))
GPUS = read_gpus(ROWS)
EACH = pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)


@EACH
def test_a_driver_never_offers_more_than_is_sold(gpu: Gpu) -> None:
    assert 0.7 * gpu.vram_gb < gpu.card_gib <= gpu.vram_gb


@EACH
def test_nvidia_has_bf16_from_compute_capability_8(gpu: Gpu) -> None:
    if gpu.vendor == "NVIDIA":
        assert gpu.has_bf16 == (float(gpu.compute_capability) >= 8)


@EACH
def test_rates_are_dense_and_double_as_the_format_halves(gpu: Gpu) -> None:
    if gpu.bf16_tflops and gpu.fp8_tflops:
        assert gpu.fp8_tflops / gpu.bf16_tflops in (1, pytest.approx(2, rel=0.03))
    if gpu.bf16_tflops and gpu.fp32_tflops:
        assert gpu.fp32_tflops <= gpu.bf16_tflops


@pytest.mark.parametrize("name", ["H100-SXM", "A100-80GB-SXM", "V100-16GB", "B200-SXM", "MI300X", "H800"])
def test_gpus_on_a_switch_share_a_fabric(name: str) -> None:
    assert GPUS[name].nvlink


@pytest.mark.parametrize("name", ["H100-PCIe", "H100-NVL", "RTX-3090", "RTX-4090", "L40S", "GH200-96GB", "M4-Max"])
def test_a_bridge_between_two_cards_is_no_fabric(name: str) -> None:
    assert not GPUS[name].nvlink


def test_an_empty_cell_is_unknown_and_never_zero() -> None:
    figures = [getattr(gpu, field) for gpu in GPUS.values() for field in ("bf16_tflops", "fp8_tflops", "price_usd", "tdp_w")]
    assert 0 not in figures
    assert None in figures


def test_a_cell_that_is_neither_yes_nor_no_is_refused() -> None:
    with pytest.raises(InputError, match="yes or no"):
        read_gpu({**ROWS[0], "has_bf16": "perhaps"})
