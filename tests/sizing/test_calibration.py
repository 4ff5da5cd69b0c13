"""Calibration: observed runs move the expectation of their family with shrinkage, and one odd run does not swing it."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.sizing.calibration import (
    FAR_SCATTERS,
    MEMORY_SPREAD,
    Calibration,
    FamilyEstimate,
    compute_half_width,
    compute_usual_variance,
    estimate_family,
    get_memory_family,
    get_speed_family,
)
from costguard.sizing.job import Job
from costguard.sizing.memory.footprint import TERMS, compute_footprint
from costguard.sizing.recipe import Parallelism, Recipe
from costguard.sizing.speed.throughput import Throughput, compute_throughput
from tests.sizing.speeds import EFFICIENCY, GPUS, LLAMA_2_7B, LLAMA_2_70B

SPREAD = 0.1896
USUAL = compute_usual_variance(SPREAD)
RECIPE = Recipe(method="full")
JOB = Job(architecture=LLAMA_2_7B, recipe=RECIPE)
LARGE = Job(architecture=LLAMA_2_70B, recipe=RECIPE)
H100 = GPUS["H100-SXM"]

ratios = st.floats(min_value=math.log(0.3), max_value=math.log(3))
counts = st.integers(min_value=1, max_value=12)


def shift(log_ratios: list[float], spread: float = SPREAD) -> tuple[float, float]:
    return estimate_family(log_ratios, USUAL).shift(spread)


def found() -> Throughput:
    speed = compute_throughput(LLAMA_2_7B, RECIPE, Parallelism(), H100, gpus=1, nodes=1, efficiency=EFFICIENCY)
    assert speed is not None
    return speed


def calibrated(log_ratios: list[float]) -> Throughput:
    family = get_speed_family(JOB, H100, gpus=1, nodes=1)
    calibration = Calibration({family: estimate_family(log_ratios, USUAL)})
    return calibration.calibrate_speed(found(), JOB, H100, gpus=1, nodes=1)


def test_the_worked_example_of_the_docstring() -> None:
    four = [math.log(x) for x in (0.80, 0.82, 0.78, 0.81)]
    moved, half_width = shift(four)
    assert math.exp(moved) == pytest.approx(0.825, abs=0.0005)
    assert half_width == pytest.approx(0.118, abs=0.0005)
    assert math.exp(shift([*four, math.log(0.40)])[0]) == pytest.approx(0.803, abs=0.0005)


@given(ratio=ratios, runs=counts)
def test_the_expectation_never_passes_what_was_observed(ratio: float, runs: int) -> None:
    moved = shift([ratio] * runs)[0]
    assert abs(moved) <= abs(ratio) + 1e-12
    assert moved * ratio >= 0


@given(ratio=ratios, runs=counts)
def test_more_runs_that_agree_bring_it_closer_and_make_it_narrower(ratio: float, runs: int) -> None:
    fewer, more = shift([ratio] * runs), shift([ratio] * (runs + 1))
    assert abs(more[0] - ratio) <= abs(fewer[0] - ratio) + 1e-12
    assert more[1] <= fewer[1] + 1e-12


@given(good=st.floats(-0.3, 0.3), scatter=st.lists(st.floats(-0.03, 0.03), min_size=3, max_size=10), odd=st.floats(-2.3, 2.3))
def test_one_odd_run_among_good_ones_does_not_swing_it(good: float, scatter: list[float], odd: float) -> None:
    runs = [good + s for s in scatter]
    before, after = shift(runs)[0], shift([*runs, odd])[0]
    most = FAR_SCATTERS * math.sqrt(USUAL) / (len(runs) + 1) + 0.06 + 0.1 * abs(good)
    assert abs(after - before) < most <= 0.14


@given(runs=st.lists(ratios, min_size=1, max_size=10), seed=st.integers())
def test_the_order_does_not_matter(runs: list[float], seed: int) -> None:
    mixed = runs[:]
    random.Random(seed).shuffle(mixed)  # noqa: S311 - an order, no secret
    assert estimate_family(mixed, USUAL) == estimate_family(runs, USUAL)


@given(runs=st.lists(ratios, min_size=1, max_size=10))
def test_the_interval_is_never_narrower_than_the_observed_scatter(runs: list[float]) -> None:
    belief = estimate_family(runs, USUAL)
    half_width = belief.shift(SPREAD)[1]
    inside = sum(abs(x - belief.mean) <= half_width + 1e-12 for x in runs)
    assert inside >= 0.8 * len(runs)


def test_one_run_far_from_everything_is_not_believed_and_widens_the_interval() -> None:
    moved, half_width = shift([math.log(0.37)])
    assert half_width > SPREAD
    assert moved - half_width < math.log(0.37) + 0.2


def test_runs_of_another_family_change_nothing() -> None:
    family = get_speed_family(JOB, H100, gpus=1, nodes=1)
    calibration = Calibration({family: estimate_family([0.5] * 4, USUAL)})
    speed = found()
    for recipe, gpu, gpus in ((Recipe(method="lora"), H100, 1), (RECIPE, GPUS["A100-80GB-SXM"], 1), (RECIPE, H100, 8)):
        assert calibration.calibrate_speed(speed, replace(JOB, recipe=recipe), gpu, gpus=gpus, nodes=1) is speed
    assert calibration.calibrate_speed(speed, LARGE, H100, gpus=1, nodes=1) is speed


def test_a_calibrated_speed_says_so_and_its_factors_still_multiply_to_it() -> None:
    before, after = found(), calibrated([-0.22] * 4)
    factor = after.tokens_per_s_per_gpu.expected / before.tokens_per_s_per_gpu.expected
    assert after.reasons[-1][0] == "calibrated on 4 runs"
    assert after.reasons[-1][1] == pytest.approx(factor)
    assert after.notes[-1] == f"calibrated on 4 runs: speed x {factor:.3f}"
    assert after.efficiency == pytest.approx(before.efficiency * factor)
    assert compute_half_width(after.tokens_per_s_per_gpu) < compute_half_width(before.tokens_per_s_per_gpu)
    assert after.tokens_per_s_per_gpu.low <= after.tokens_per_s_per_gpu.expected <= after.tokens_per_s_per_gpu.high
    assert calibrated([-0.22]).notes[-1].startswith("calibrated on 1 run:")


@pytest.mark.parametrize("ratio", [0.2, -0.2, -0.9])
def test_a_calibrated_footprint_still_adds_up(ratio: float) -> None:
    plain = compute_footprint(LLAMA_2_7B, RECIPE, Parallelism())
    calibration = Calibration({get_memory_family(JOB): estimate_family([ratio] * 3, compute_usual_variance(MEMORY_SPREAD))})
    moved = calibration.calibrate_memory(plain, JOB)
    assert (moved.peak > plain.peak) == (ratio > 0)
    assert abs(math.log(moved.peak / plain.peak)) < abs(ratio)
    assert moved.peak_phase == plain.peak_phase
    for phase in moved.phases:
        assert phase.total == sum(phase.terms[t] for t in TERMS)
        assert min(phase.terms.values()) >= 0
    explained = {e.term: e.bytes for e in moved.explain()}
    assert explained["calibration"] == moved.peak - plain.peak
    assert sum(explained[t] for t in TERMS) + explained["calibration"] == moved.peak
    assert calibration.list_notes(moved)[0].startswith("memory calibrated on 3 runs: peak x ")
    assert calibration.list_notes(plain) == ()


def test_a_footprint_of_another_family_is_left_alone() -> None:
    plain = compute_footprint(LLAMA_2_7B, RECIPE, Parallelism())
    calibration = Calibration({get_memory_family(LARGE): FamilyEstimate(3, 0.1, 0.01, 0.0, 0.01)})
    assert calibration.calibrate_memory(plain, JOB) is plain


def test_families_read_as_people_say_them() -> None:
    assert get_speed_family(JOB, H100, gpus=16, nodes=2).text == "full, 4B to 16B, Hopper, several machines"
    assert get_memory_family(replace(JOB, architecture=replace(LLAMA_2_7B, stated_params=10**11))).text == "full, 64B and more"
