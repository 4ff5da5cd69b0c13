"""A served model: the plan carries its load at the low end, latency grows with load, and mistakes are named."""

from __future__ import annotations

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.quoting.quote import QuoteRefusal, TimedPlacement
from costguard.services.quote.serving import place_server
from costguard.sizing.job import Job, parse_job
from costguard.sizing.placement import Placer
from costguard.sizing.serving_load import ServingLoad, format_requests
from costguard.sizing.speed.decoding import DecodeStep
from costguard.sizing.speed.serving import CopySpeed, ServingPlan, count_most_sequences, plan_serving

FACTS = ShippedFacts()
LOAD = ServingLoad(requests_per_second=5, prompt_len=1000, output_len=300)


def step_of(batch: int) -> DecodeStep:
    return DecodeStep(weights=0.01, computing=0.0, caches=0.0001 * batch, summing=0.0, launching=0.0)


COPY = CopySpeed(prompt_s=0.03, step=step_of, most=200, room=230_000)


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
    assert batch / step_of(batch).seconds >= 5 * 300 > (batch - 1) / step_of(batch - 1).seconds


def test_prompts_are_read_in_the_steps_that_write() -> None:
    """Twice the prompt leaves less than the same capacity, and more than half of it where writing takes a share."""
    short, long = (plan("llama-3.1-8b", "H100-SXM", 1, prompt_len=n).capacity.expected for n in (1000, 2000))
    assert 0.5 * short < long < short


def test_a_large_card_runs_as_many_sequences_as_vllm_does_there() -> None:
    gpus = FACTS.get_gpus()
    found = {name: count_most_sequences(gpus[name]) for name in ("H100-SXM", "A100-80GB-SXM", "L40S", "MI300X")}
    assert found == {"H100-SXM": 1024, "A100-80GB-SXM": 256, "L40S": 256, "MI300X": 1024}


def test_money_is_uncertain_by_whole_machines() -> None:
    load = ServingLoad(requests_per_second=40, prompt_len=1000, output_len=300)
    found = plan_serving(COPY, load, gpus_per_copy=1, copies_per_machine=1, factor=1.6)
    assert found.machines.low < found.machines.expected == found.machines.high
    small = ServingLoad(requests_per_second=0.1, prompt_len=1000, output_len=300)
    assert plan_serving(COPY, small, gpus_per_copy=1, copies_per_machine=1, factor=1.6).machines.low == 1


@pytest.mark.parametrize("rate", [0.1, 5, 40, 400])
def test_low_end_of_the_capacity_carries_the_load(rate: float) -> None:
    load = ServingLoad(requests_per_second=rate, prompt_len=1000, output_len=300)
    found = plan_serving(COPY, load, gpus_per_copy=1, copies_per_machine=2, factor=1.6)
    assert found.capacity.low >= rate
    assert found.copies == 2 * found.machines.expected


def test_one_machine_fewer_would_not_carry_it() -> None:
    load = ServingLoad(requests_per_second=40, prompt_len=1000, output_len=300)
    machines = round(plan_serving(COPY, load, gpus_per_copy=1, copies_per_machine=1, factor=1.6).machines.expected)
    fewer = plan_serving(COPY, load, gpus_per_copy=1, copies_per_machine=1, factor=1.6, machines=machines - 1)
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
        ).request_s.expected
        for rate in (0.1, 2, 6, 12)
    ]
    assert found == sorted(found)


def test_more_requests_take_more_machines_up_to_max_gpus() -> None:
    few, many = plan("llama-3.1-8b", "H100-SXM", 1), plan("llama-3.1-8b", "H100-SXM", 1, requests_per_second=100)
    assert many.copies > 5 * few.copies
    refused = served("llama-3.1-8b", "H100-SXM", 1, requests_per_second=100, limits={"max_gpus": 2})
    assert isinstance(refused, QuoteRefusal)
    assert "max_gpus = 2" in refused.reason


def test_stated_machines_that_do_not_carry_the_load_say_how_many_would() -> None:
    asked = job(requests_per_second=200)
    assert asked.serving is not None
    refused = place_server(Placer(job=asked), asked.serving, FACTS.get_gpus()["H100-SXM"], 8, facts=FACTS, machines=1)
    assert isinstance(refused, QuoteRefusal)
    assert refused.needs_gpus is not None
    enough = place_server(
        Placer(job=asked), asked.serving, FACTS.get_gpus()["H100-SXM"], 8, facts=FACTS, machines=refused.needs_gpus // 8
    )
    assert isinstance(enough, TimedPlacement)
    assert f"--on H100-SXM:8x{refused.needs_gpus // 8} would" in refused.reason


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


@pytest.mark.parametrize(
    ("model", "field"),
    [
        ("bge-large", "only reads"),
        ("qwen3-embedding-8b", "only reads"),
        ("whisper-large-v3", "write audio_seconds"),
        ("sdxl", "write images"),
        ("t5-base", "encoder-decoder"),
    ],
)
def test_a_model_that_answers_no_prompts_says_what_to_write(model: str, field: str) -> None:
    with pytest.raises(InputError, match=field):
        job(model, prompt_len=100, output_len=100)


@pytest.mark.parametrize("model", ["gpt2", "qwen3-235b-a22b"])
def test_a_request_longer_than_the_context_is_refused(model: str) -> None:
    most = FACTS.get_architecture(model).positions or FACTS.get_architecture(model).context
    assert most is not None
    job(model, prompt_len=most - 100, output_len=100)
    with pytest.raises(InputError, match=f"reads {most:,}"):
        job(model, prompt_len=most, output_len=1)


@pytest.mark.parametrize("wrong", [float("nan"), 1e9, "5", True])
def test_requests_that_are_no_rate_are_named(wrong: object) -> None:
    with pytest.raises(InputError, match="requests_per_second"):
        job(requests_per_second=wrong)


@pytest.mark.parametrize(("rate", "text"), [(0.0123, "0.0123"), (4.56, "4.56"), (2031.0, "2,030"), (1234567.0, "1,230,000")])
def test_requests_are_told_in_three_digits_without_exponents(rate: float, text: str) -> None:
    assert format_requests(rate) == text
