"""Advice where nothing fits: each line holds when it is followed, and the least change comes first."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from costguard.data import ShippedFacts
from costguard.quoting.quote import QuoteRefusal, TimedPlacement
from costguard.services.quote.serving import place_server
from costguard.sizing.job import Job, parse_job
from costguard.sizing.memory_savings import find_smallest_changes, list_memory_savings
from costguard.sizing.placement import Placer, can_hold
from costguard.values.gpu import Gpu
from tests.sizing.speeds import GPUS, LLAMA_2_7B, LLAMA_2_70B

FACTS = ShippedFacts()


def advice(job: Job, *hardware: tuple[str, int]) -> tuple[str, ...]:
    return find_smallest_changes(job, [(GPUS[name], count) for name, count in hardware], GPUS.values())


def test_one_change_is_preferred_to_two() -> None:
    job = parse_job({"method": "full", "micro_batch": 8, "checkpointing": "none"}, LLAMA_2_7B)
    found = advice(job, ("A100-80GB-SXM", 1))
    assert found
    assert all(" and " not in line for line in found)
    assert found[0].endswith("would fit on A100-80GB-SXM x1")


def test_two_changes_are_tried_where_one_is_not_enough() -> None:
    job = parse_job({"method": "full", "micro_batch": 64, "checkpointing": "none"}, LLAMA_2_7B)
    found = advice(job, ("RTX-4090", 1))
    assert found
    assert all(" and " in line for line in found)


@pytest.mark.parametrize("gpu", ["RTX-4090", "L4", "A100-40GB-SXM", "H100-SXM"])
def test_every_single_change_that_is_advised_holds(gpu: str) -> None:
    job = parse_job({"method": "full", "micro_batch": 8, "checkpointing": "none"}, LLAMA_2_7B)
    by_change = {lever.change: lever.job for lever in list_memory_savings(job, gpus=2)}
    for line in advice(job, (gpu, 2)):
        change, _, where = line.partition(" would fit on ")
        if change in by_change:
            assert where == f"{gpu} x2"
            assert can_hold(Placer(job=by_change[change]).place(GPUS[gpu], 2))


def test_more_machines_are_offered_where_machines_are_joined() -> None:
    job = replace(parse_job({"method": "pretrain", "limits": {"max_gpus": 8}}, LLAMA_2_70B))
    found = advice(job, ("H100-SXM", 8))
    nodes = [int(m[1]) for line in found if (m := re.search(r"--on H100-SXM:8x(\d+)", line))]
    assert len(nodes) == 1
    assert can_hold(Placer(job=job).place(GPUS["H100-SXM"], 8, nodes[0]))


def test_a_sequence_nothing_can_hold_is_shortened_until_it_fits() -> None:
    job = parse_job({"method": "qlora", "seq_len": 100_000_000}, LLAMA_2_7B)
    (line,) = advice(job, ("RTX-4090", 1))
    found = re.match(r"seq_len = (\d+) \(now 100000000\) would fit on RTX-4090 x1", line)
    assert found
    shorter = replace(job, recipe=replace(job.recipe, seq_len=int(found[1])))
    assert can_hold(Placer(job=shorter).place(GPUS["RTX-4090"], 1))
    twice = replace(job, recipe=replace(job.recipe, seq_len=2 * int(found[1])))
    assert not can_hold(Placer(job=twice).place(GPUS["RTX-4090"], 1))


def test_other_gpus_are_named_where_the_ones_asked_about_cannot_help() -> None:
    tiny = Gpu(name="tiny", vendor="x", arch="x", vram_gb=1, bandwidth_gb_s=10)
    found = find_smallest_changes(parse_job({"method": "qlora"}, LLAMA_2_70B), [(tiny, 1)], GPUS.values())
    assert len(found) == 1
    assert found[0].endswith("x8 would hold it")


def test_a_server_is_first_spread_unchanged_over_machines_and_each_line_of_advice_holds_a_request() -> None:
    load = {"requests_per_second": 2, "prompt_len": 4000, "output_len": 500}
    job = parse_job({"method": "inference", **load}, FACTS.get_architecture("deepseek-v3"))
    found = advice(job, ("H100-SXM", 8))
    assert found[0] == "2 machines of H100-SXM x8 would hold it: --on H100-SXM:8x2"
    assert isinstance(place(job, "H100-SXM", machines=2), TimedPlacement)
    assert not any("nodes" in line for line in found)


def test_a_server_is_told_to_shorten_its_prompts_or_answers_and_never_seq_len() -> None:
    for lengths, field in (((4000, 500), "prompt_len"), ((500, 4000), "output_len")):
        load = {"requests_per_second": 2, "prompt_len": lengths[0], "output_len": lengths[1]}
        job = parse_job({"method": "inference", **load}, LLAMA_2_7B)
        changes = [lever for lever in list_memory_savings(job) if lever.cost == "shorter context"]
        assert [(lever.field, lever.was, lever.becomes) for lever in changes] == [(field, "4000", "2000")]
        assert changes[0].job.recipe.seq_len == 2500
    long = {"requests_per_second": 2, "prompt_len": 60_000_000, "output_len": 30_000_000}
    (line,) = advice(parse_job({"method": "inference", "quant": "int4", **long}, LLAMA_2_7B), ("RTX-4090", 1))
    assert re.match(r"prompt_len = \d+ \(now 60000000\) and output_len = \d+ \(now 30000000\) would fit on RTX-4090 x1", line)


def place(job: Job, gpu: str, *, machines: int) -> TimedPlacement | QuoteRefusal:
    assert job.serving
    return place_server(Placer(job=job), job.serving, GPUS[gpu], 8, facts=FACTS, machines=machines)
