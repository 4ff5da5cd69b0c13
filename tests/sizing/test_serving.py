"""A served model: the plan carries its load at the low end, latency grows with load, and mistakes are named."""

from __future__ import annotations

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.quoting.quote import QuoteRefusal, TimedPlacement
from costguard.services.serving import place_server
from costguard.sizing.job import Job, ServingLoad, parse_job
from costguard.sizing.placement import Placer
from costguard.sizing.speed.serving import CopySpeed, ServingPlan, plan_serving

FACTS = ShippedFacts()
LOAD = ServingLoad(requests_per_second=5, prompt_len=1000, output_len=300)
COPY = CopySpeed(prompt_s=0.03, step_s=lambda batch: 0.01 + 0.0001 * batch, most=200)


def job(model: str = "llama-3.1-8b", /, **changes: object) -> Job:
    table = {"method": "inference", "requests_per_second": 5, "prompt_len": 1000, "output_len": 300, **changes}
    return parse_job(table, FACTS.get_architecture(model))


def served(model: str, gpu: str, count: int, **changes: object) -> TimedPlacement | QuoteRefusal:
    asked = job(model, **changes)
    assert asked.serving is not None
    return place_server(Placer(job=asked), asked.serving, FACTS.get_gpus()[gpu], count, facts=FACTS)


def plan(model: str, gpu: str, count: int, **changes: object) -> ServingPlan:
    found = served(model, gpu, count, **changes)
    assert isinstance(found, TimedPlacement)
    assert found.serving is not None
    return found.serving


def test_batch_is_the_fewest_sequences_that_keep_up() -> None:
    batch = COPY.find_batch(LOAD, 5)
    left = 1 - 5 * COPY.prompt_s
    assert left * batch / COPY.step_s(batch) >= 5 * 300 > left * (batch - 1) / COPY.step_s(batch - 1)


def test_capacity_spends_all_time_on_prompts_and_full_steps() -> None:
    capacity = COPY.compute_capacity(LOAD)
    assert capacity * COPY.prompt_s + capacity * 300 * COPY.step_s(200) / 200 == pytest.approx(1)


@pytest.mark.parametrize("rate", [0.1, 5, 40, 400])
def test_low_end_of_the_capacity_carries_the_load(rate: float) -> None:
    load = ServingLoad(requests_per_second=rate, prompt_len=1000, output_len=300)
    found, machines = plan_serving(COPY, load, gpus_per_copy=1, copies_per_machine=2, factor=1.6)
    assert found.capacity.low >= rate
    assert found.copies == 2 * machines


def test_one_machine_fewer_would_not_carry_it() -> None:
    load = ServingLoad(requests_per_second=40, prompt_len=1000, output_len=300)
    _, machines = plan_serving(COPY, load, gpus_per_copy=1, copies_per_machine=1, factor=1.6)
    fewer, _ = plan_serving(COPY, load, gpus_per_copy=1, copies_per_machine=1, factor=1.6, machines=machines - 1)
    assert fewer.capacity.low * 0.9 < 40


def test_more_load_never_shortens_a_request() -> None:
    found = [
        plan_serving(
            COPY,
            ServingLoad(requests_per_second=rate, prompt_len=1000, output_len=300),
            gpus_per_copy=1,
            copies_per_machine=1,
            factor=1.6,
            machines=1,
        )[0].request_s.expected
        for rate in (0.1, 2, 6, 12)
    ]
    assert found == sorted(found)


def test_70b_in_16_bits_takes_several_gpus_a_copy() -> None:
    assert plan("llama-3.1-70b", "H100-SXM", 8).gpus_per_copy >= 2
    assert plan("llama-3.1-8b", "H100-SXM", 1).gpus_per_copy == 1


def test_more_requests_take_more_machines_up_to_max_gpus() -> None:
    few, many = plan("llama-3.1-8b", "H100-SXM", 1), plan("llama-3.1-8b", "H100-SXM", 1, requests_per_second=100)
    assert many.copies > 5 * few.copies
    refused = served("llama-3.1-8b", "H100-SXM", 1, requests_per_second=100, limits={"max_gpus": 2})
    assert isinstance(refused, QuoteRefusal)
    assert "max_gpus = 2" in refused.reason


def test_what_does_not_fit_is_refused_with_its_memory() -> None:
    refused = served("llama-3.1-70b", "L4", 1)
    assert isinstance(refused, QuoteRefusal)
    assert refused.needs_gib is not None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"requests_per_second": 0}, "requests_per_second"),
        ({"requests_per_second": -1}, "requests_per_second"),
        ({"prompt_len": 0}, "prompt_len"),
        ({"method": "full"}, "requests_per_second"),
        ({"tokens": 5}, "tokens"),
        ({"seq_len": 4096}, "seq_len"),
    ],
)
def test_mistakes_are_named(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        job(**changes)


def test_a_half_stated_load_says_what_is_missing() -> None:
    with pytest.raises(InputError, match="output_len"):
        parse_job({"method": "inference", "requests_per_second": 1, "prompt_len": 9}, FACTS.get_architecture("llama-3.1-8b"))
