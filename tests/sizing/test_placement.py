"""Placing a job: the lightest split that fits, more machines only where they are joined, reasons where nothing does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costguard.sizing.job import Job, JobLimits, parse_job
from costguard.sizing.placement import ImpossiblePlacement, Placement, Placer, can_hold
from costguard.sizing.recipe import Parallelism
from tests.sizing.speeds import GPUS, LLAMA_2_7B, LLAMA_2_70B

FULL = parse_job({"method": "full"}, LLAMA_2_7B)
LARGE = parse_job({"method": "full", "precision": "bf16-amp"}, LLAMA_2_70B)
"""16 bytes a parameter: 1.1 TB, which eight GPUs of 80 GB cannot hold (SIZING.md, M26); in pure bf16 they can."""


def placed(job: Job, gpu: str, count: int, nodes: int = 1) -> Placement:
    found = Placer(job=job).place(GPUS[gpu], count, nodes)
    assert isinstance(found, Placement)
    return found


def test_whole_copies_where_they_fit_and_shards_only_where_they_must() -> None:
    assert placed(FULL, "A100-80GB-SXM", 4).parallel == Parallelism()
    sharded = placed(FULL, "RTX-4090", 4)
    assert sharded.fits
    assert sharded.parallel.stage > 0


def test_where_nothing_fits_the_split_that_needs_least_is_shown() -> None:
    best = placed(LARGE, "T4", 8)
    assert not best.fits
    assert best.parallel.fsdp
    assert best.needs_gib > best.gpu.memory_gib


def test_a_stated_split_is_kept_even_where_another_would_fit() -> None:
    stated = replace(FULL, parallel=Parallelism(zero=0))
    assert not placed(stated, "RTX-4090", 4).fits


def test_machines_are_joined_by_twos_until_they_hold_the_job() -> None:
    joined = Placer(job=LARGE).place_on_enough(GPUS["H100-SXM"], 8)
    assert isinstance(joined, Placement)
    assert joined.fits
    assert joined.nodes in (2, 4, 8)
    assert not can_hold(Placer(job=LARGE).place(GPUS["H100-SXM"], 8, joined.nodes // 2))


def test_no_more_gpus_are_joined_than_the_limit() -> None:
    limited = replace(LARGE, limits=JobLimits(max_gpus=8))
    alone = Placer(job=limited).place_on_enough(GPUS["H100-SXM"], 8)
    assert isinstance(alone, Placement)
    assert (alone.nodes, alone.fits) == (1, False)


def test_the_global_batch_is_reached_by_passes_rounded_up() -> None:
    batched = replace(FULL, global_batch_tokens=100_000)
    assert placed(batched, "A100-80GB-SXM", 8).recipe.gradient_accumulation == -(-100_000 // (2048 * 8))
    too_many = Placer(job=replace(FULL, global_batch_tokens=4096)).place(GPUS["A100-80GB-SXM"], 8)
    assert isinstance(too_many, ImpossiblePlacement)
    assert "global_batch_tokens = 4,096" in too_many.reason


def test_serving_uses_whole_copies_first_and_then_tensor_parallel_ranks() -> None:
    small = parse_job({"method": "inference"}, LLAMA_2_7B)
    assert placed(small, "A100-80GB-SXM", 8).parallel == Parallelism()
    large = placed(parse_job({"method": "inference"}, LLAMA_2_70B), "A100-80GB-SXM", 8)
    assert large.fits
    assert large.parallel.tp > 1
    assert not large.parallel.fsdp


def test_offloaded_states_need_host_memory_for_every_gpu_of_the_machine() -> None:
    offloaded = replace(FULL, parallel=Parallelism(offload="optimizer"))
    one, eight = placed(offloaded, "H100-SXM", 1), placed(offloaded, "H100-SXM", 8)
    assert one.host_gib > 20
    assert eight.host_gib == pytest.approx(8 * eight.footprint.host_bytes / 2**30)
