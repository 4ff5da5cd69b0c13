"""`costguard size`: the contract of DESIGN section 7, and the issue's two figures for Llama-2-7B."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Command

TERMS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")
LLAMA = ("--model", "llama-2-7b", "--method", "full", "--precision", "bf16", "--seq-len", "2048", "--optimizer", "adamw")
LARGE = (*LLAMA, "--micro-batch", "8", "--checkpointing", "none", "--on", "A100-80GB-SXM:1")
SMALL = (*LLAMA, "--micro-batch", "1", "--checkpointing", "full", "--on", "A100-80GB-SXM:1")


@pytest.fixture
def data(costguard: Command) -> dict[str, Any]:
    return costguard("size", *SMALL, "--json").data


def test_without_hardware_nothing_is_said_of_fitting(costguard: Command) -> None:
    data = costguard("size", *LLAMA, "--json").data
    assert (data["on"], data["gpu_memory_gib"], data["fits"]) == (None, None, None)
    assert all(lever["fits"] is None for lever in data["levers"])


def test_terms_add_up_to_the_peak_and_reserved_decides(data: dict[str, Any]) -> None:
    memory = data["memory_gib"]
    assert sum(memory[term] for term in TERMS) == pytest.approx(memory["peak"], abs=0.005)
    assert memory["peak"] + memory["context"] <= memory["reserved"] + 0.001
    assert data["fits"] is (memory["reserved"] <= data["gpu_memory_gib"])


def test_a_large_batch_without_checkpointing_needs_about_137_gib_and_does_not_fit(costguard: Command) -> None:
    ran = costguard("size", *LARGE, "--json")
    assert ran.code == 3
    assert ran.data["fits"] is False
    assert ran.data["memory_gib"]["peak"] == pytest.approx(137, abs=3)
    assert "does not fit" in ran.err


def test_a_lever_that_is_said_to_fit_fits_when_it_is_pulled(costguard: Command) -> None:
    ran = costguard("size", *LARGE, "--json")
    helpful = {(lever["field"], lever["to"]): lever for lever in ran.data["levers"] if lever["fits"]}
    lever = helpful["method", "lora"] if ("method", "lora") in helpful else helpful["checkpointing", "full"]
    flag = "--" + lever["field"].replace("_", "-")
    pulled = costguard("size", *LARGE, flag, lever["to"], "--json")
    assert pulled.code == 0
    assert pulled.data["memory_gib"]["peak"] == pytest.approx(lever["peak_gib"], abs=0.01)


def test_each_gpu_is_listed_once_with_the_fewest_that_hold_it(costguard: Command) -> None:
    fits_on = costguard("size", *LLAMA, "--json").data["fits_on"]
    counts = {f["gpu"]: f["count"] for f in fits_on}
    assert len(counts) == len(fits_on)
    assert counts["H100-SXM"] == 1
    for gpu, count in counts.items():
        if count == 2:
            assert costguard("size", *LLAMA, "--on", f"{gpu}:1", "--json").data["fits"] is False


def test_weights_without_room_for_a_sequence_beside_them_are_not_said_to_fit(costguard: Command) -> None:
    model = ("--model", "llama-3.1-8b", "--method", "inference", "--precision", "fp8", "--seq-len", "2048")
    cramped = costguard("size", *model, "--on", "GTX-1080-Ti")
    assert "the weights fit, but no memory is left for one sequence, on GTX-1080-Ti x1" in cramped.out
    assert "tokens that fit at 90% of memory: 0 at once, 0 sequences of 2,048" in cramped.out
    roomy = costguard("size", *model, "--on", "RTX-4090")
    assert "fits on RTX-4090 x1" in roomy.out


def test_a_convnet_is_served_without_advice_that_cannot_be_counted(costguard: Command) -> None:
    data = costguard("size", "--model", "resnet-50", "--method", "inference", "--json").data
    assert data["peak_gib"]["expected"] > 0
    assert all(lever["field"] not in {"quant", "method"} for lever in data["levers"])


def test_gpu_and_count_are_the_hardware(costguard: Command) -> None:
    stated = costguard(
        "size", "--model", "gpt2", "--method", "full", "--gpu", "H100", "--count", "8", "--fused-loss", "--compile"
    )
    assert stated.code == 0
    assert "fits on H100-SXM x8" in stated.out


@pytest.mark.parametrize(
    ("options", "why"),
    [(("--count", "8"), "counts GPUs of no kind"), (("--gpu", "H100", "--gpu", "A100"), "names 2 GPUs")],
)
def test_hardware_of_no_one_kind_is_refused(costguard: Command, options: tuple[str, ...], why: str) -> None:
    refused = costguard("size", "--model", "gpt2", "--method", "full", *options)
    assert refused.code == 2
    assert why in refused.err
