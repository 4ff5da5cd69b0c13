"""The same GPUs under each split: what fits, and the roofline terms that say what bounds a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.services.quote.job_input import read_job, read_job_input
from costguard.sizing.job import Job
from costguard.sizing.placement import Hardware
from costguard.sizing.recipe import Parallelism
from costguard.sizing.speed.throughput import compute_throughput
from costguard.sizing.splits import SplitOutcome, compare_splits

FACTS = ShippedFacts()
H100 = FACTS.get_gpus()["H100-SXM"]


def job(**stated: object) -> Job:
    table = {"model": "llama-3.1-8b", "method": "full", "precision": "bf16-amp", "tokens": 10**9, **stated}
    return read_job(read_job_input(table, None, FACTS), FACTS)


def compare(asked: Job, gpus: int = 8) -> dict[str, SplitOutcome]:
    return {one.name: one for one in compare_splits(asked, Hardware(gpu=H100, gpu_count=gpus), FACTS.get_efficiency())}


def test_every_split_is_tried_and_only_whole_copies_do_not_fit() -> None:
    outcomes = compare(job())
    assert list(outcomes)[:5] == ["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3", "FSDP"]
    assert list(outcomes)[5:] == ["tp 2", "tp 2 + FSDP", "tp 4", "tp 4 + FSDP", "tp 8"]
    fits = {name: one.placement.fit for name, one in outcomes.items() if one.placement}
    assert (fits["DDP"], fits["FSDP"], fits["tp 8"]) == ("no", "yes", "yes")
    assert all(one.hours is not None and one.tokens_per_s is not None for one in outcomes.values())


def test_a_split_that_cannot_be_says_why() -> None:
    reasons = [one.reason for one in compare(job(global_batch_tokens=2048), gpus=4).values()]
    assert any("over global_batch_tokens = 2,048" in reason for reason in reasons)


@pytest.mark.parametrize(("stated", "gpus"), [({}, 1), ({"method": "inference"}, 8)])
def test_what_is_not_split_is_refused(stated: dict[str, object], gpus: int) -> None:
    with pytest.raises(InputError, match="--compare"):
        compare(replace(job(**stated), parallel=None), gpus)


def explain(asked: Job, gpu: str) -> str:
    speed = compute_throughput(
        asked.architecture,
        asked.recipe,
        asked.parallel or FIRST,
        FACTS.get_gpus()[gpu],
        gpus=1,
        nodes=1,
        efficiency=FACTS.get_efficiency(),
    )
    assert speed is not None
    return "\n".join(speed.explain)


FIRST = Parallelism()


def test_the_ridge_point_says_what_bounds_a_step() -> None:
    large = explain(job(micro_batch=8), "A100-80GB-SXM")
    assert "ridge point: 312 TFLOPS / 2,039 GB/s = 153 FLOP per byte" in large
    assert "above the ridge: arithmetic bounds it" in large
    small = explain(job(method="qlora", precision="bf16", micro_batch=1, seq_len=256), "T4")
    assert "below the ridge: memory bandwidth bounds it" in small


def test_decoding_one_sequence_waits_for_memory() -> None:
    assert "memory bandwidth bounds it" in explain(job(method="inference", precision="bf16"), "A100-80GB-SXM")
