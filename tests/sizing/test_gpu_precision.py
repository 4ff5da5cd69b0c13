"""The precision of a job on each kind of GPU: what it is timed at is what its memory is counted in, in every answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.ledger.market import MarketReader, write_market
from costguard.quoting.quote import Quote
from costguard.services.quote.quote import build_quote
from costguard.services.quote.size import size_job
from costguard.sizing.gpu_precision import choose_precision
from costguard.sizing.job import Job, parse_job
from costguard.sizing.placement import Hardware, Placement, Placer
from costguard.sizing.recipe import Recipe
from tests.shop import TODAY, offer

FACTS = ShippedFacts()
GPUS = FACTS.get_gpus()


def job(model: str = "whisper-large-v3", **stated: object) -> Job:
    return parse_job({"method": "full", **stated}, FACTS.get_architecture(model))


def quoted(folder: Path, asked: Job, *gpus: str) -> Quote:
    write_market(folder / "market.sqlite", [offer("aws", gpu, "3") for gpu in gpus])
    with MarketReader(folder / "market.sqlite") as market:
        return build_quote(asked, market=market, facts=FACTS, today=TODAY)


@pytest.mark.parametrize(
    ("method", "stated", "gpu", "runs"),
    [
        ("full", "bf16", "V100-16GB", "fp16-amp"),
        ("pretrain", "bf16-amp", "T4", "fp16-amp"),
        ("lora", "bf16", "V100-16GB", "fp16"),
        ("inference", "bf16", "T4", "fp16"),
        ("full", "bf16", "P40", "fp32"),
        ("inference", "bf16", "P40", "fp16"),
        ("full", "fp16", "V100-16GB", "fp16"),
        ("full", "bf16", "A100-80GB-SXM", "bf16"),
        ("inference", "fp8", "V100-16GB", "fp8"),
    ],
)
def test_bf16_runs_as_what_a_gpu_without_it_can_train_or_serve(method: str, stated: str, gpu: str, runs: str) -> None:
    assert choose_precision(Recipe(method=method, precision=stated), GPUS[gpu]) == runs


@pytest.mark.parametrize("gpu", [name for name, gpu in GPUS.items() if gpu.runs_pytorch and not gpu.has_bf16])
def test_a_gpu_without_bf16_needs_the_memory_of_the_precision_that_it_runs_and_says_so_once(gpu: str) -> None:
    placed = Placer(job=job()).place(GPUS[gpu], 1)
    stated = Placer(job=job(precision=choose_precision(job().recipe, GPUS[gpu]))).place(GPUS[gpu], 1)
    assert isinstance(placed, Placement)
    assert isinstance(stated, Placement)
    assert placed.needs_gib == stated.needs_gib
    assert sum("no bf16" in note for note in placed.notes) == 1
    assert not any("no bf16" in note for note in stated.notes)


def test_a_card_that_holds_a_job_only_in_bf16_which_it_lacks_is_refused_in_every_answer(tmp_path: Path) -> None:
    asked = job(audio_seconds=3.6e6)
    answer = quoted(tmp_path, asked, "V100-16GB", "V100-32GB", "RTX-4080")
    assert {option.gpu.name for option in answer.options} == {"V100-32GB", "RTX-4080"}
    (told,) = (option.notes for option in answer.options if option.gpu.name == "V100-32GB")
    assert sum("bf16" in note for note in told) == 1
    assert [r.gpu for r in answer.refused] == ["V100-16GB"]
    sized = size_job(asked, facts=FACTS, on=Hardware(gpu=GPUS["V100-16GB"], gpu_count=1))
    assert sized.fits is False
    assert {f.gpu: f.count for f in sized.fits_on}["V100-16GB"] == 2


def test_a_server_on_a_gpu_without_bf16_says_so_once(tmp_path: Path) -> None:
    load = {"requests_per_second": 0.1, "prompt_len": 200, "output_len": 100}
    (option,) = quoted(tmp_path, job("qwen3-0.6b", method="inference", precision="bf16", **load), "T4").options
    assert sum("bf16" in note for note in option.notes) == 1


@pytest.mark.parametrize("precision", ["fp8", "fp4"])
def test_a_gpu_that_does_not_compute_a_reduced_precision_is_refused_for_training_in_every_answer(
    tmp_path: Path, precision: str
) -> None:
    asked = job("qwen3-0.6b", precision=precision, tokens=10**8)
    answer = quoted(tmp_path, asked, "A100-80GB-SXM", "V100-32GB", "P40", "H100-SXM")
    assert {option.gpu.name for option in answer.options} == {"H100-SXM"}
    assert {r.gpu: r.reason for r in answer.refused} == {
        gpu: f"'{precision}' is not supported by {gpu}" for gpu in ("A100-80GB-SXM", "V100-32GB", "P40")
    }
    assert all(GPUS[f.gpu].fp8_tflops for f in size_job(asked, facts=FACTS).fits_on)
    with pytest.raises(InputError, match="is not supported by P40"):
        size_job(asked, facts=FACTS, on=Hardware(gpu=GPUS["P40"], gpu_count=1))


def test_weights_in_fp8_are_served_on_gpus_that_convert_them(tmp_path: Path) -> None:
    asked = job("qwen3-0.6b", method="inference", precision="fp8", tokens=10**8)
    assert {o.gpu.name for o in quoted(tmp_path, asked, "A100-80GB-SXM", "V100-32GB").options} == {"A100-80GB-SXM", "V100-32GB"}
    assert "P40" in {f.gpu for f in size_job(asked, facts=FACTS).fits_on}
