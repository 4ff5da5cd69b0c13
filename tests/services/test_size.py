"""The size flow: what is listed as fitting fits, and what is said to help helps."""

from __future__ import annotations

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.services.quote.size import GPU_COUNTS, SAVING_BYTES_MIN, size_job
from costguard.sizing.job import Job, parse_job
from costguard.sizing.placement import Hardware
from costguard.values.gpu import GIB

FACTS = ShippedFacts()
JOBS: dict[str, dict[str, object]] = {
    "full": {"method": "full", "micro_batch": 4, "checkpointing": "none"},
    "eager": {"method": "full", "attention": "eager", "precision": "bf16-amp"},
    "lora": {"method": "lora", "micro_batch": 2},
    "qlora": {"method": "qlora"},
    "inference": {"method": "inference", "seq_len": 16384, "micro_batch": 8},
}


def job(name: str, **more: object) -> Job:
    return parse_job(JOBS[name] | more, FACTS.get_architecture("mistral-7b"))


@pytest.mark.parametrize("name", JOBS)
def test_every_gpu_that_is_listed_holds_the_job_on_that_many_and_not_on_fewer(name: str) -> None:
    answer = size_job(job(name), facts=FACTS)
    assert answer.fits_on
    for f in answer.fits_on:
        gpu = FACTS.get_gpus()[f.gpu]
        assert size_job(job(name), facts=FACTS, on=Hardware(gpu=gpu, gpu_count=f.count)).fits
        assert f.peak_gib <= f.reserved_gib <= f.has_gib
        fewer = [n for n in GPU_COUNTS if n < f.count]
        for count in fewer:
            assert not size_job(job(name), facts=FACTS, on=Hardware(gpu=gpu, gpu_count=count)).fits


@pytest.mark.parametrize("name", JOBS)
def test_every_lever_saves_what_it_says_when_its_job_is_sized(name: str) -> None:
    answer = size_job(job(name), facts=FACTS)
    for effect in answer.levers:
        again = size_job(effect.lever.job, facts=FACTS)
        assert again.footprint.peak / GIB == pytest.approx(effect.peak_gib)
        assert answer.footprint.peak - again.footprint.peak >= SAVING_BYTES_MIN


def test_a_lever_changes_the_field_it_names_and_no_other() -> None:
    before = job("full")
    for effect in size_job(before, facts=FACTS).levers:
        after = effect.lever.job
        assert after.architecture == before.architecture
        if effect.lever.field.startswith("parallel."):
            assert after.recipe == before.recipe
        else:
            assert str(getattr(after.recipe, effect.lever.field)).lower() == effect.lever.becomes.lower()
            assert str(getattr(before.recipe, effect.lever.field)).lower() == effect.lever.was.lower()


def test_a_job_with_nothing_left_to_save_has_few_levers() -> None:
    tight = job("qlora", seq_len=256, parallel={"offload": "all"})
    assert {e.lever.field for e in size_job(tight, facts=FACTS).levers} <= {"parallel.offload"}


def test_a_stated_split_that_does_not_divide_the_hardware_is_refused() -> None:
    hardware = Hardware(gpu=FACTS.get_gpus()["H100-SXM"], gpu_count=6)
    with pytest.raises(InputError, match="8 ranks do not divide 6 GPUs"):
        size_job(job("full", parallel={"tp": 8}), facts=FACTS, on=hardware)
