"""What the steps of a job say of its speed, its end, and whether it is worth learning from."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.runs.progress import (
    MARKS_MAX,
    JobPace,
    PaceUnknown,
    ProgressLog,
    ProgressMark,
    count_steps,
    estimate_seconds_left,
    is_outside_quote,
    measure_pace,
    measure_token_speed,
)
from costguard.values.interval import Interval


def steady(steps_per_s: float, seconds: int) -> list[ProgressMark]:
    return [ProgressMark(int(steps_per_s * at), float(at)) for at in range(seconds)]


def test_a_steady_job_has_a_pace_without_its_slow_beginning() -> None:
    slow = [ProgressMark(0, 0.0), ProgressMark(1, 60.0)]
    marks = [*slow, *(ProgressMark(1 + 10 * n, 60.0 + n) for n in range(1, 40))]
    pace = measure_pace(marks)
    assert isinstance(pace, JobPace)
    assert pace.steps_per_s == pytest.approx(10)


def test_what_is_left_counts_on_while_the_job_is_silent() -> None:
    marks = steady(2.0, 101)
    assert estimate_seconds_left(marks, 1000, 100.0) == pytest.approx(400)
    assert estimate_seconds_left(marks, 1000, 150.0) == pytest.approx(350)
    assert estimate_seconds_left(marks, 100, 100.0) == 0
    assert estimate_seconds_left(marks, None, 100.0) is None
    assert estimate_seconds_left(marks[:3], 1000, 100.0) is None


@pytest.mark.parametrize(
    ("marks", "status", "tokens", "said"),
    [
        ([], 0, 100, "it reported no steps"),
        (steady(2.0, 5), 0, 100, "20 and 8 needed"),
        ([ProgressMark(n, 10.0 * n) for n in range(9)], 0, 100, "7 steps at 8 moments"),
        ([*steady(10.0, 50), *(ProgressMark(490 + n, 50.0 + n) for n in range(1, 50))], 0, 100, "its speed was not stable"),
        (steady(2.0, 100), 1, 100, "it ended with status 1"),
        (steady(2.0, 100), None, 100, "its end was not observed"),
        (steady(2.0, 100), 0, None, "how many tokens a step takes is not known"),
    ],
)
def test_what_teaches_nothing_says_why(marks: list[ProgressMark], status: int | None, tokens: int | None, said: str) -> None:
    found = measure_token_speed(marks, status=status, tokens_per_step=tokens)
    assert isinstance(found, PaceUnknown)
    assert said in found.why


def test_a_run_that_ended_well_teaches_its_tokens_a_second() -> None:
    assert measure_token_speed(steady(2.0, 100), status=0, tokens_per_step=8192) == pytest.approx(16384)


def test_steps_of_a_job_are_rounded_up_and_unknown_without_tokens() -> None:
    assert count_steps(100, 30) == 4
    assert count_steps(None, 30) is None
    assert count_steps(100, None) is None


def test_a_job_is_astray_outside_its_quote_only() -> None:
    quoted = Interval(3.0, 4.0, 6.0)
    assert [is_outside_quote(hours, quoted) for hours in (2.9, 3.0, 6.0, 6.1)] == [True, False, False, True]
    assert not is_outside_quote(100.0, None)


@given(st.lists(st.tuples(st.integers(-5, 2**60), st.floats(0, 1e6)), max_size=200))
def test_whatever_is_told_the_marks_rise_and_are_bounded(told: list[tuple[int, float]]) -> None:
    marks = ProgressLog()
    for step, at_s in told:
        marks.add(step, at_s)
    kept = marks.kept
    assert all(a.step < b.step and a.at_s < b.at_s for a, b in pairwise(kept))
    measure_pace(kept)


def test_a_long_job_keeps_its_first_and_last_marks() -> None:
    marks = ProgressLog()
    for n in range(10 * MARKS_MAX):
        marks.add(n, float(n))
    assert len(marks.kept) <= MARKS_MAX
    assert (marks.kept[0], marks.kept[-1]) == (ProgressMark(0, 0.0), ProgressMark(10 * MARKS_MAX - 1, 10 * MARKS_MAX - 1.0))
