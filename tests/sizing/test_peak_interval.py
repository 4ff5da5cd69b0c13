"""The interval of a peak: around it, wider where GPUs share the job, never narrower than two sources of one recipe differ."""

from __future__ import annotations

import math

import pytest

from costguard.sizing.memory.interval import LEAST_HALF_WIDTH, PeakSpread, compute_peak_interval
from scripts.fit_memory_interval import UNSEEN, PeakError, compute_held_out_coverage, compute_spread


def test_shared_jobs_and_mixtures_are_less_certain() -> None:
    widths = [
        math.log(compute_peak_interval(1e9, sharded=sharded, mixture=mixture).high / 1e9)
        for sharded, mixture in ((False, False), (True, False), (True, True))
    ]
    assert widths[0] < widths[1] < widths[2]


def test_no_interval_is_narrower_than_two_sources_of_one_recipe() -> None:
    certain = PeakSpread(one_gpu=0.001, sharded=1.0, mixture=1.0, unlike=(1.0,))
    assert certain.compute_half_width(sharded=False, mixture=False) == LEAST_HALF_WIDTH


def test_one_source_of_many_rows_does_not_decide_the_width() -> None:
    exact = [PeakError("large", 0.0, sharded=False, mixture=False)] * 50
    others = [PeakError(name, 0.2, sharded=False, mixture=False) for name in "abcde"]
    spread = compute_spread([*exact, *others])
    assert spread.one_gpu == pytest.approx(0.2 * UNSEEN)
    assert 0 <= compute_held_out_coverage([*exact, *others]) <= 1
