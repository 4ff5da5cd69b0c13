"""The quote flow over synthetic markets: every mark, order and filter checked against counting by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.ledger.market import MarketReader, write_market
from costguard.quoting.offer import Offer
from costguard.quoting.price_drift import age_price
from costguard.quoting.quote import (
    ADVISED,
    CHEAPEST,
    FASTEST,
    NOT_RANKED,
    PARETO,
    Quote,
    QuoteOption,
    Rental,
    choose_advice,
)
from costguard.services.quote.quote import build_quote
from costguard.services.quote.size import GPU_COUNTS, SAVING_BYTES_MIN, size_job
from costguard.sizing.job import Job, JobLimits, parse_job
from costguard.sizing.placement import Hardware
from costguard.values.gpu import GIB
from costguard.values.money import Money, Rate
from costguard.values.resource import SPOT
from tests.campaign import examples
from tests.shop import FRESH, SHOP, TODAY, offer

FACTS = ShippedFacts()
TABLE = {"model": "llama-3.1-8b", "method": "qlora", "tokens": 5 * 10**7, "seq_len": 2048}
JOB = parse_job(TABLE, FACTS.get_architecture("llama-3.1-8b"))
FULL = parse_job(TABLE | {"method": "full"}, FACTS.get_architecture("llama-3.1-8b"))


def asked(folder: Path, offers: list[Offer], job: Job | Rental = JOB, sort: str = "usd", on: Hardware | None = None) -> Quote:
    write_market(folder / "market.sqlite", offers)
    with MarketReader(folder / "market.sqlite") as market:
        return build_quote(job, market=market, facts=FACTS, sort=sort, on=on, today=TODAY)


OFFERS = st.builds(
    offer,
    st.sampled_from(["aws", "gcp", "runpod", "vast", "acme"]),
    st.sampled_from(["H100-SXM", "A100-80GB-SXM", "L4", "RTX-4090", "B200-SXM", "V100-16GB", "T4"]),
    st.none() | st.integers(1, 4000).map(lambda cents: f"{cents / 100:.2f}"),
    count=st.sampled_from([1, 2, 4, 8]),
    tier=st.sampled_from(["on-demand", SPOT, "community"]),
    region=st.sampled_from(["a", "b"]),
)
ANY_MARKET = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def money(option: QuoteOption) -> int:
    assert option.usd
    return option.usd.expected.nano


def hours(option: QuoteOption) -> float:
    assert option.hours
    return option.hours.expected


def list_certain(options: Sequence[QuoteOption]) -> Sequence[QuoteOption]:
    """Return the options on hardware that fits for certain; all where none does."""
    return [o for o in options if not o.is_doubtful] or options


@ANY_MARKET
@given(offers=st.lists(OFFERS, max_size=25))
def test_marks_are_what_counting_by_hand_finds(tmp_path: Path, offers: list[Offer]) -> None:
    options = list_certain(asked(tmp_path, offers).options)
    for one in options:
        better = [o for o in options if money(o) <= money(one) and hours(o) <= hours(one)]
        beaten = any(money(o) < money(one) or hours(o) < hours(one) for o in better)
        if beaten:
            assert PARETO not in one.marks
        same = [o for o in options if (money(o), hours(o)) == (money(one), hours(one))]
        if not beaten:
            assert sum(PARETO in o.marks for o in same) == 1
        if CHEAPEST in one.marks:
            assert money(one) == min(map(money, options))
        if FASTEST in one.marks:
            assert hours(one) == min(map(hours, options))
    if options:
        assert sum(CHEAPEST in o.marks for o in options) == 1
        assert sum(FASTEST in o.marks for o in options) == 1


@ANY_MARKET
@given(offers=st.lists(OFFERS, max_size=25))
def test_every_class_provider_and_tier_with_a_price_is_an_option_or_refused_and_no_other_is(
    tmp_path: Path, offers: list[Offer]
) -> None:
    answer = asked(tmp_path, offers, FULL)
    cheapest: dict[tuple[str, str, str, int], int] = {}
    for o in offers:
        price = age_price(o, FACTS.get_price_drift(), TODAY)
        if o.rate and price and not price.unranked:  # a bid of Vast, and half a dollar of RunPod's H100, are none
            key = (o.provider, o.tier, o.gpu, o.gpu_count)
            cheapest[key] = min(cheapest.get(key, o.rate.nano_per_hour), o.rate.nano_per_hour)
    found = {(o.offer.provider, o.offer.tier, o.gpu.name, o.gpu_count): o.offer.rate for o in answer.options if o.offer}
    refused = {(r.gpu, r.gpu_count) for r in answer.refused if not r.reason.startswith(NOT_RANKED)}
    unranked = {(r.gpu, r.gpu_count) for r in answer.refused if r.reason.startswith(NOT_RANKED)}
    assert {key: rate.nano_per_hour for key, rate in found.items() if rate} == {
        key: nano for key, nano in cheapest.items() if (key[2], key[3]) not in refused
    }
    assert {(o.gpu, o.gpu_count) for o in offers} == {(k[2], k[3]) for k in found} | refused | unranked


@ANY_MARKET
@given(offers=st.lists(OFFERS, max_size=20), usd=st.integers(1, 100), most=st.floats(0.1, 100))
def test_caps_keep_exactly_what_is_expected_to_stay_below_them(
    tmp_path: Path, offers: list[Offer], usd: int, most: float
) -> None:
    free = asked(tmp_path, offers)
    cap = Money.parse(usd)
    capped = asked(tmp_path, offers, dataclasses.replace(JOB, limits=JobLimits(max_usd=cap, max_hours=most)))
    kept = [o for o in free.options if money(o) <= cap.nano and hours(o) <= most]
    assert [o.offer for o in capped.options] == [o.offer for o in kept]
    over = [r for r in capped.refused if r.reason.startswith("over the cap")]
    assert len(over) == len(free.options) - len(kept)


@ANY_MARKET
@given(offers=st.lists(OFFERS, max_size=25))
def test_advice_is_five_at_most_in_the_order_of_the_ranking_with_the_marked_ones(tmp_path: Path, offers: list[Offer]) -> None:
    options = asked(tmp_path, offers).options
    advice = choose_advice(options)
    assert len(advice.options) <= ADVISED
    assert [o for o in options if o in advice.options] == list(advice.options)
    priced = list_certain([o for o in options if o.usd and o.hours and o.offer])
    words = " ".join(advice.words.values())
    assert ("cheapest on-demand" in words) == any(o.offer and o.offer.tier != SPOT for o in priced)
    assert ("cheapest spot" in words) == any(o.offer and o.offer.tier == SPOT for o in priced)
    plain = [options[rank - 1] for rank, word in advice.words.items() if not word]
    classes = [(o.offer.provider if o.offer else "", o.gpu.name) for o in plain]
    assert len(classes) == len(set(classes))


def test_the_same_card_in_four_tiers_stands_once_and_the_fastest_however_far_down(tmp_path: Path) -> None:
    same = [offer("runpod", "L4", f"{n}", tier=tier) for n, tier in enumerate(("community", "on-demand", "secure"), 1)]
    fast = offer("vast", "H100-SXM", "900", count=8)
    options = asked(tmp_path, [*same, fast]).options
    advice = choose_advice(options)
    assert [o.offer for o in advice.options] == [same[0], fast]
    assert list(advice.words.values()) == ["cheapest on-demand", "fastest"]


def test_spot_takes_longer_than_the_same_machine_on_demand(tmp_path: Path) -> None:
    both = [offer("aws", "H100-SXM", "3"), offer("aws", "H100-SXM", "3", tier=SPOT)]
    on_demand, spot = asked(tmp_path, both).options
    assert spot.offer
    assert spot.offer.tier == SPOT
    assert hours(spot) > hours(on_demand)
    assert money(spot) > money(on_demand)
    assert spot.duration
    assert "interruptions" in dict(spot.duration.parts)


def test_the_disk_of_the_run_is_in_the_cost_where_its_price_is_known(tmp_path: Path) -> None:
    gb = 1000
    job = dataclasses.replace(JOB, disk_gb=gb)
    for provider, cents_per_gb_month in (("aws", 8), ("lambda", 0), ("vast", None)):
        (option,) = asked(tmp_path, [offer(provider, "H100-SXM", "3", seen=TODAY)], job).options
        machines = 3 * hours(option)
        disk = 0.0 if cents_per_gb_month is None else gb * cents_per_gb_month / 100 * hours(option) / 730
        assert money(option) / 1e9 == pytest.approx(machines + disk, abs=0.003)
        assert (option.storage_usd is None) is (cents_per_gb_month is None)


def test_two_machines_cost_twice_and_each_has_its_disk(tmp_path: Path) -> None:
    h100 = [offer("aws", "H100-SXM", "30", count=8)]
    gpu = FACTS.get_gpus()["H100-SXM"]
    job = dataclasses.replace(JOB, disk_gb=500)
    one = asked(tmp_path, h100, job, on=Hardware(gpu=gpu, gpu_count=8)).options[0]
    two = asked(tmp_path, h100, job, on=Hardware(gpu=gpu, gpu_count=8, nodes=2)).options[0]
    assert two.rate == Rate.parse("60")
    assert one.storage_usd
    assert two.storage_usd
    per_hour = [o.storage_usd.expected.nano / hours(o) for o in (one, two) if o.storage_usd]
    assert per_hour[1] == pytest.approx(2 * per_hour[0], rel=0.002), "a second that is begun is a whole one"


def test_a_job_too_large_for_one_machine_is_spread_over_joined_ones_within_the_limit(tmp_path: Path) -> None:
    job = parse_job(TABLE | {"method": "full"}, FACTS.get_architecture("llama-3.1-70b"))
    h100 = [offer("aws", "H100-SXM", "30", count=8), offer("aws", "H100-SXM", "4", count=1)]
    (option,) = asked(tmp_path, h100, job).options
    assert option.nodes > 1
    assert option.nodes * 8 <= job.limits.max_gpus
    assert option.placement
    assert option.placement.fits
    capped = asked(tmp_path, h100, dataclasses.replace(job, limits=JobLimits(max_gpus=8)))
    assert capped.options == ()


def test_a_split_that_suits_some_machines_is_refused_on_the_others(tmp_path: Path) -> None:
    job = parse_job(TABLE | {"parallel": {"tp": 4}}, FACTS.get_architecture("llama-3.1-8b"))
    answer = asked(tmp_path, [offer("aws", "H100-SXM", "3", count=n, region=str(n)) for n in (1, 2, 4, 8)], job)
    assert {o.gpu_count for o in answer.options} == {4, 8}
    assert {r.gpu_count for r in answer.refused} == {1, 2}
    assert all("do not divide" in r.reason for r in answer.refused)


def test_a_rental_is_paid_by_the_second_of_its_hours(tmp_path: Path) -> None:
    rental = Rental(gpu="H100-SXM", gpu_count=1, hours=0.5)
    (option,) = asked(tmp_path, [offer("acme", "H100-SXM", "2.99", seen=FRESH)], rental).options
    assert option.usd
    assert option.usd.expected == Money.parse("1.495")
    assert option.usd.low == option.usd.high


def test_words_written_one_sequence_at_a_time_by_assumption_are_warned_of(tmp_path: Path) -> None:
    shape = FACTS.get_architecture("llama-3.1-8b")
    table = {"model": "llama-3.1-8b", "method": "inference", "tokens": 10**8, "seq_len": 2048}
    load = {"model": "llama-3.1-8b", "method": "inference", "requests_per_second": 1, "prompt_len": 500, "output_len": 100}

    def told(job: Job) -> bool:
        warnings = asked(tmp_path, list(SHOP), job).warnings
        return any(w.startswith("one sequence at a time") and "--requests-per-second" in w for w in warnings)

    assert told(parse_job(table, shape))
    assert not told(parse_job(table | {"micro_batch": 1}, shape))
    assert not told(parse_job(load, shape))
    assert not told(JOB)
    read = parse_job(table | {"model": "qwen3-embedding-8b"}, FACTS.get_architecture("qwen3-embedding-8b"))
    assert not told(read)


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
        assert f.peak_gib <= f.reserved_gib
        assert f.reserved_gib <= f.has_gib or f.fit == "maybe"
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
