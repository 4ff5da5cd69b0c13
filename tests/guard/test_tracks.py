"""Tracks: the short way to a signal that is busy all the time says what a look at every sample says."""

from __future__ import annotations

from array import array
from random import Random

import pytest

from costguard.guard.sample_times import TimesPool, build_window
from costguard.guard.signal_summary import summarize_each_sample, summarize_signal
from costguard.guard.signals import estimate_sample_interval, select_counted_series
from costguard.values.instant import to_micros
from costguard.values.sample import CPU_CORES, DISK, GPU_POWER_BUSIEST, GPU_UTIL, NETWORK, PCIE, QUEUE_JOBS
from tests.guard.cases import POLL, friday, minutes

NOW = friday(18, 50)
SIGNALS = {
    GPU_UTIL: (5, 90.0),
    CPU_CORES: (0.2, 3.0),
    NETWORK: (1e6, 4e6),
    DISK: (1e6, 9e7),
    PCIE: (1e6, 1.1e6),
    QUEUE_JOBS: (0, 2.0),
}
"""What is above what is busy, and a value that is."""


def columns(dice: Random, poll_s: float) -> dict[str, tuple[array[int], array[float]]]:
    """Signals that are mostly busy all the time, some with holes, jitter, a late end, a young start, or a quiet sample."""
    found = {}
    jitter, holes = dice.choice([0, 0, 0.2, 0.45]), dice.choice([0, 0, 0, 0.02, 0.3])
    for signal, (_, busy) in {**SIGNALS, GPU_POWER_BUSIEST: (60, 250.0)}.items():
        count, late = dice.choice([1, 2, 5, 12, 44, 46, 90, 300]), dice.choice([0, 0, 0.5, 1.0, 1.5, 3.0, 50.0])
        quiet = dice.choice([0, 0, 0, 0.01, 0.5])
        ats, values = array("q"), array("d")
        for n in range(count, 0, -1):
            at = to_micros(NOW) - round((n - 1 + late + jitter * dice.random()) * poll_s * 1e6)
            if dice.random() >= holes and (not ats or at > ats[-1]):
                ats.append(at)
                values.append(0.0 if dice.random() < quiet else busy * dice.choice([1, 1, 1 + dice.random()]))
        if ats:
            found[signal] = ats, values
    return found


@pytest.mark.parametrize("seed", range(10))
def test_a_signal_that_is_busy_all_the_time_is_judged_as_by_each_of_its_samples(seed: int) -> None:
    dice, short = Random(seed), 0  # noqa: S311 - a seed of traces
    for _ in range(60):
        poll_s = dice.choice([60, 60, 60, 300, 1, 3600])
        lines, _ = select_counted_series(columns(dice, poll_s), NOW - minutes(dice.choice([1, 20, 47, 120, 3000])), NOW)
        for wait in (10, 45, 60, 400):
            start, lag = NOW - minutes(dice.choice([5, 45, 46, 200, 2880])), minutes(dice.choice([0, 0, 5, 60]))
            view = build_window(start, NOW, minutes(wait), minutes(poll_s / 60), lag)
            for line in lines.values():
                above = SIGNALS.get(line.signal, (60,))[0]
                seen = [(at, value) for at, value in zip(line.ats, line.values, strict=True) if at >= view.start]
                if len(seen) == len(line.ats):  # as `counting` leaves them
                    assert summarize_signal(line, view, above) == summarize_each_sample(line, view, above)
                    short += line.low > above
    assert short > 300


@pytest.mark.parametrize("seed", range(3))
def test_machines_that_share_their_times_are_judged_as_each_by_itself(seed: int) -> None:
    dice, shared, pairs = Random(seed), TimesPool(), 0  # noqa: S311 - a seed of traces
    usual = columns(Random(seed), 60)  # noqa: S311 - a seed of traces
    for _ in range(80):
        of_machine = {
            signal: (array("q", ats), array("d", [one if dice.random() < 0.9 else 0.0 for one in values]))
            for signal, (ats, values) in (usual if dice.random() < 0.7 else columns(dice, 60)).items()
        }
        since = NOW - minutes(dice.choice([20, 47, 3000]))
        alone, _ = select_counted_series(of_machine, since, NOW)
        together, _ = select_counted_series(of_machine, since, NOW, shared)
        view = build_window(since, NOW, minutes(dice.choice([10, 45, 60])), minutes(1), minutes(dice.choice([0, 5])))
        for signal, line in alone.items():
            above = SIGNALS.get(signal, (60,))[0]
            own, same = summarize_signal(line, view, above), summarize_signal(together[signal], view, above)
            assert own[1:] == same[1:]
            pairs += 1
        assert estimate_sample_interval(of_machine, POLL) == estimate_sample_interval(of_machine, POLL, shared)
    assert pairs > 200


def test_what_is_missing_is_told_by_the_rhythm_that_is_asked_about() -> None:
    second = 1_000_000
    ats = [to_micros(NOW) - 1200 * second, to_micros(NOW) - 600 * second, to_micros(NOW) - 300 * second, to_micros(NOW)]
    lines, _ = select_counted_series({GPU_UTIL: (array("q", ats), array("d", [0.0] * 4))}, NOW - minutes(60), NOW)
    (line,) = lines.values()
    assert list(line.times.find_holes(300 * second)) == [to_micros(NOW) - 900 * second]
    assert len(line.times.find_holes(60 * second)) == 9 + 4 + 4
    assert list(line.times.find_holes(300 * second)) == [to_micros(NOW) - 900 * second]
    assert not line.times.find_holes(600 * second)
