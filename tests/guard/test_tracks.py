"""Times of samples: which are missing, and that an answer from the longest gap is that of a look at each time."""

from __future__ import annotations

from array import array
from itertools import pairwise
from random import Random

import pytest

from costguard.guard.sample_times import SampleTimes, build_window, has_enough_before
from costguard.guard.signals import select_counted_series
from costguard.values.instant import to_micros
from costguard.values.sample import GPU_UTIL
from tests.guard.cases import friday, minutes

NOW, MINUTE_US = friday(18, 50), 60_000_000


@pytest.mark.parametrize("seed", range(10))
def test_what_the_longest_gap_answers_is_what_each_time_says(seed: int) -> None:
    dice, whole = Random(seed), 0  # noqa: S311 - a seed of times
    for _ in range(60):
        count, holes, jitter = dice.choice([1, 2, 12, 46, 300]), dice.choice([0, 0, 0.3]), dice.choice([0, 0.4])
        taken = [n for n in range(count) if n == 0 or dice.random() >= holes]
        ats = array("q", sorted(to_micros(NOW) - round((n + jitter * dice.random()) * MINUTE_US) for n in taken))
        view = build_window(
            NOW - minutes(dice.choice([5, 46, 2880])), NOW, minutes(dice.choice([10, 45])), minutes(1), minutes(0)
        )
        times, marks = SampleTimes.of(ats), ats if dice.random() < 0.5 else ats[:: dice.choice([1, 2, 7])]
        late = [k for k, at in enumerate(marks) if at >= view.start]
        if len(late) == len(marks):  # as `build_series` leaves them
            assert list(times.drop_noise(marks, view)) == [
                at for k, at in enumerate(marks) if has_enough_before(marks, k, view)
            ]
            whole += len(marks) == len(ats)
        pauses = [after for before, after in pairwise(marks) if after - before >= view.length]
        assert times.find_busy_start(marks, view.length) == (pauses[-1] if pauses else marks[0])
    assert whole > 5


def test_what_is_missing_is_told_by_the_rhythm_that_is_asked_about() -> None:
    second = 1_000_000
    ats = [to_micros(NOW) - 1200 * second, to_micros(NOW) - 600 * second, to_micros(NOW) - 300 * second, to_micros(NOW)]
    lines, _ = select_counted_series({GPU_UTIL: (array("q", ats), array("d", [0.0] * 4))}, NOW - minutes(60), NOW)
    (line,) = lines.values()
    assert list(line.times.find_holes(300 * second)) == [to_micros(NOW) - 900 * second]
    assert len(line.times.find_holes(60 * second)) == 9 + 4 + 4
    assert not line.times.find_holes(600 * second)
