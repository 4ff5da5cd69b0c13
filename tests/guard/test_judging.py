"""Judging: the stories that turn on it, what is missing, clocks, caps, phases, hangs, and the probe before an act."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from costguard.guard.activity import classify_activity, probe_activity
from costguard.guard.signals import ACTIVE, AGENT, CPU, DUTY, HUNG, IDLE, IO, UNKNOWN, WARMING, Activity
from costguard.values.sample import (
    AGENT_ALIVE,
    CONNECTIONS,
    CPU_CORES,
    CPU_UTIL,
    DISK,
    GPU_BUSY_COUNT,
    GPU_POWER,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_UTIL,
    HEARTBEAT,
    INPUT_AGE,
    NETWORK,
    QUEUE_JOBS,
    STEP,
    Sample,
)
from tests.guard.traces import MINUTE, START, machine, sample

WINDOW = 45 * MINUTE


def signal(name: str, value: float | Callable[[int], float], minutes: int, *, since: int = 0) -> list[Sample]:
    """A sample a minute of `since` <= minute <= `minutes`."""
    return [sample(name, m, value(m) if callable(value) else value) for m in range(since, minutes + 1)]


def judged(samples: Sequence[Sample], at: float, **more: object) -> Activity:
    """At `at` minutes after START; the machine is a day old unless said."""
    stated = {"since": START, "poll": MINUTE, "window": WINDOW, "seen": machine(8, START - timedelta(days=1)), **more}
    return classify_activity(stated.pop("seen"), samples, now=START + at * MINUTE, **stated)  # type: ignore[arg-type]  # by name


def at_rest(minutes: int) -> list[Sample]:
    """All of an agent's signals at rest, and GPU duty."""
    levels = {GPU_UTIL: 0, CPU_CORES: 0.01, NETWORK: 2000, DISK: 0, AGENT_ALIVE: 1, GPU_POWER_BUSIEST: 60, GPU_POWER_LIMIT: 400}
    return [one for name, value in levels.items() for one in signal(name, value, minutes)]


def test_story_1_it_is_idle_since_the_training_ended() -> None:
    quiet = [*signal(CPU_CORES, 0.01, 200), *signal(NETWORK, 0, 200)]
    known = [*signal(GPU_UTIL, lambda m: 98 if m < 65 else 0, 200), *quiet]
    early = judged([one for one in known if one.at <= START + 80 * MINUTE], 80)
    assert early.state == ACTIVE
    found = judged([one for one in known if one.at <= START + 110 * MINUTE], 110)
    assert (found.state, found.confidence, found.since) == (IDLE, 0.9, START + 65 * MINUTE)
    assert found.reasons[0] == "GPU duty 0 % since 2026-11-06 13:05 UTC"
    assert found.families == (DUTY, CPU, IO)


def test_story_2_a_slow_download_is_work_and_the_timer_starts_at_its_end() -> None:
    rest = at_rest(460)
    known = [one for one in rest if one.signal not in (NETWORK, DISK)]
    known += [*signal(NETWORK, lambda m: 6.1e6 if m < 300 else 900, 460), *signal(DISK, lambda m: 6.1e6 if m < 300 else 0, 460)]
    for minute in range(46, 300):
        found = judged([one for one in known if one.at <= START + minute * MINUTE], minute)
        assert found.state == ACTIVE
        assert found.reasons[0].startswith("network")
    ended = judged([one for one in known if one.at <= START + 346 * MINUTE], 346)
    assert (ended.state, ended.since) == (IDLE, START + 300 * MINUTE)


def test_story_3_compiling_and_evaluating_on_the_cpu_is_work_and_holding_memory_is_not() -> None:
    held = [*signal(GPU_UTIL, 0, 100), *signal("gpu_memory_used", 50, 100), *signal(NETWORK, 0, 100)]
    compiled = [*held, *signal(CPU_CORES, lambda m: 1.0 if m < 40 else 12.0, 100)]
    for minute in (45, 69, 100):
        assert judged([one for one in compiled if one.at <= START + minute * MINUTE], minute).state == ACTIVE
    asleep = [one for one in (*held, *signal(CPU_CORES, 0.01, 100)) if one.at <= START + WINDOW]
    found = judged(asleep, 45, seen=machine())
    assert (found.state, found.since) == (IDLE, START)


def test_story_4_an_open_editor_is_no_work_and_doubles_the_grace() -> None:
    known = [*at_rest(180), *signal(CONNECTIONS, 1, 180), *signal(INPUT_AGE, lambda m: (m + 200) * 60, 180)]
    found = judged(known, 180)
    assert (found.state, found.attended) == (IDLE, True)
    typed = [*known[:-1], sample(INPUT_AGE, 180, 20 * 60)]
    assert judged(typed, 180).state == ACTIVE
    later = [one for one in known if one.signal != INPUT_AGE] + signal(
        INPUT_AGE, lambda m: (m - 100) * 60 if m >= 100 else 0, 180
    )
    assert judged(later, 180).since == START + 100 * MINUTE


def hang(minutes: int, steps: Callable[[int], float]) -> list[Sample]:
    """Eight GPUs at 100 % and 80 W of 700 from minute 30 on."""
    watts = signal(GPU_POWER, lambda m: 8 * (80 if m >= 30 else 600), minutes)
    return [*signal(GPU_UTIL, 100, minutes), *watts, *signal(GPU_POWER_LIMIT, 700, minutes), *signal(STEP, steps, minutes)]


def test_story_5_a_hang_is_hung_since_its_last_step_until_steps_move_again() -> None:
    found = judged(hang(50, lambda m: min(m, 29)), 50)
    assert (found.state, found.since) == (HUNG, START + 30 * MINUTE)
    assert judged(hang(50, lambda m: min(m, 29) if m < 50 else 31), 50).state == ACTIVE


@pytest.mark.parametrize("left_out", [GPU_POWER, GPU_POWER_LIMIT])
def test_without_power_and_its_limit_nothing_is_called_hung(left_out: str) -> None:
    known = [one for one in hang(50, lambda _: 29) if one.signal != left_out]
    assert judged(known, 50).state == ACTIVE
    assert judged(hang(50, lambda _: 29), 50, power_limit_w=700).state == HUNG


def test_story_8_one_busy_gpu_of_eight_is_active_and_seven_are_wasted() -> None:
    known = [*signal(GPU_UTIL, 95, 100), *signal(GPU_BUSY_COUNT, 1, 100), *signal(CPU_CORES, 1, 100)]
    found = judged(known, 100)
    assert (found.state, found.wasted_share, found.since) == (ACTIVE, 0.875, START)


@pytest.mark.parametrize(
    ("names", "confidence"),
    [
        ((GPU_UTIL,), 0.6),
        ((GPU_UTIL, DISK), 0.6),
        ((GPU_UTIL, CPU_UTIL), 0.8),
        ((GPU_UTIL, CPU_CORES, NETWORK), 0.9),
        ((GPU_UTIL, CPU_CORES, NETWORK, AGENT_ALIVE), 0.97),
        ((GPU_UTIL, CPU_CORES, NETWORK, AGENT_ALIVE, HEARTBEAT), 0.99),
        ((CPU_CORES, NETWORK, AGENT_ALIVE), 0.8),
    ],
)
def test_confidence_is_capped_by_what_was_measured(names: Sequence[str], confidence: float) -> None:
    known = [one for name in names for one in signal(name, 1 if name == AGENT_ALIVE else 0, 60)]
    found = judged(known, 60)
    assert (found.state, found.confidence) == (IDLE, confidence)
    assert ("confidence at most" in " ".join(found.reasons)) == (confidence < 0.99)


@pytest.mark.parametrize(("names", "confidence"), [((CPU_CORES,), 0.5), ((CPU_CORES, NETWORK), 0.55)])
def test_a_quiet_processor_alone_is_enough_to_tell_people_and_no_more(names: Sequence[str], confidence: float) -> None:
    found = judged([one for name in names for one in signal(name, 0, 60)], 60)
    assert (found.state, found.confidence) == (IDLE, confidence)
    assert "GPU duty is not measured" in " ".join(found.reasons)


@pytest.mark.parametrize("names", [(), (GPU_POWER_BUSIEST, GPU_POWER_LIMIT), ("gpu_temperature_c",)])
def test_without_duty_or_an_agent_it_is_unknown(names: Sequence[str]) -> None:
    found = judged([one for name in names for one in signal(name, 0, 60)], 60)
    assert (found.state, found.confidence) == (UNKNOWN, 0)
    assert "enrol an agent" in found.reasons[0]


def test_a_family_that_fell_silent_makes_it_unknown_unless_the_policy_does_without() -> None:
    known = [*signal(GPU_UTIL, 0, 60), *signal(CPU_CORES, 0, 57)]
    assert judged(known, 60).state == UNKNOWN
    assert "CPU last arrived at 2026-11-06 12:57 UTC" in judged(known, 60).reasons
    assert judged(known, 60, needs=(DUTY,)).state == IDLE
    assert judged([*known, *signal(AGENT_ALIVE, 1, 60)], 60, needs=(AGENT,)).state == IDLE


def test_a_sample_two_intervals_old_is_fresh_and_an_older_one_is_not() -> None:
    known = signal(GPU_UTIL, 0, 60)
    assert [judged(known, at).state for at in (60, 62, 62.1)] == [IDLE, IDLE, UNKNOWN]
    assert judged(known, 70, lag=10 * MINUTE).state == IDLE


def test_samples_of_the_future_are_ignored_and_make_it_unknown() -> None:
    jumped = [*at_rest(60), sample(GPU_UTIL, 70, 90)]
    assert judged(jumped, 60).state == UNKNOWN
    assert "a clock jumped" in judged(jumped, 60).reasons[0]
    assert judged([*at_rest(60), sample(GPU_UTIL, 60.05, 0)], 60).state == IDLE, "three seconds are no jump"


def test_what_was_before_since_never_counts() -> None:
    known = [*signal(GPU_UTIL, lambda m: 99 if m < 100 else 0, 160)]
    found = judged(known, 160, since=START + 110 * MINUTE)
    assert (found.state, found.since) == (IDLE, START + 110 * MINUTE)
    gap = judged(signal(GPU_UTIL, 0, 99), 120, since=START + 119 * MINUTE)
    assert gap.state == UNKNOWN


def test_it_is_warming_until_its_first_work_or_for_the_longest_warm_up() -> None:
    assert judged([], 10, seen=machine()).state == WARMING
    assert judged(at_rest(40), 40, seen=machine()).state == WARMING
    assert judged([], 45, seen=machine()).state == UNKNOWN
    assert judged(at_rest(45), 45, seen=machine()).state == IDLE
    worked = [*signal(GPU_UTIL, lambda m: 90 if m < 5 else 0, 40)]
    assert judged(worked, 40, seen=machine(), window=20 * MINUTE).state == IDLE
    assert judged(at_rest(20), 20, seen=machine(), warmup_max=15 * MINUTE).state == IDLE


def test_a_declared_phase_is_work_until_it_ends_and_the_timer_starts_then() -> None:
    assert judged(at_rest(90), 90, phase_until=START + 91 * MINUTE).state == ACTIVE
    ended = judged(at_rest(90), 90, phase_until=START + 80 * MINUTE)
    assert (ended.state, ended.since) == (IDLE, START + 80 * MINUTE)


def test_a_single_noisy_sample_resets_nothing_and_stops_the_act() -> None:
    noisy = [one for one in at_rest(60) if (one.signal, one.at) != (GPU_UTIL, START + 60 * MINUTE)]
    noisy.append(sample(GPU_UTIL, 60, 60))
    found = judged(noisy, 60)
    assert (found.state, found.since) == (IDLE, START)
    assert probe_activity(noisy, START + 60 * MINUTE, MINUTE) == "GPU duty 60 % just now"
    assert probe_activity(noisy, START + 63 * MINUTE, MINUTE) == ""


@pytest.mark.parametrize(
    ("name", "before", "value", "why"),
    [
        (CPU_CORES, 0, 0.2, "CPU 0.2 cores just now"),
        (NETWORK, 0, 1.5e6, "network 1.5e+03 kB/s just now"),
        (STEP, 7, 8, "steps changed just now"),
        (QUEUE_JOBS, 0, 1, "1 job in the queue just now"),
        (INPUT_AGE, 9000, 60, "keyboard input 1 min ago"),
        (GPU_POWER_BUSIEST, 60, 130, "power of the busiest GPU 130 W just now"),
    ],
)
def test_any_work_stops_the_act(name: str, before: float, value: float, why: str) -> None:
    known = [one for one in at_rest(60) if one.signal != name] + signal(name, before, 59)
    now = START + 60 * MINUTE
    assert probe_activity(known, now, MINUTE) == ""
    assert probe_activity([*known, sample(name, 60, value)], now, MINUTE) == why


def test_power_counts_above_its_own_floor_and_15_percent_of_the_limit() -> None:
    known = [*signal(GPU_UTIL, 0, 60), *signal(GPU_POWER_LIMIT, 400, 60)]
    below, above = (signal(GPU_POWER_BUSIEST, lambda m, w=w: 55 if m < 30 else w, 60) for w in (115, 116))  # type: ignore[misc]  # w is bound now
    assert judged([*known, *below], 60).state == IDLE
    assert judged([*known, *above], 60).state == ACTIVE


@pytest.mark.parametrize(("missing", "state"), [(100, IDLE), (180, ACTIVE), (199, ACTIVE)])
def test_a_floor_is_believed_where_no_sample_of_the_window_is_missing(missing: int, state: str) -> None:
    high = [one for one in signal(GPU_POWER_BUSIEST, 62, 200) if one.at != START + missing * MINUTE]
    known = [*signal(GPU_UTIL, 0, 200), *signal(GPU_POWER_LIMIT, 400, 200), *high]
    assert judged(known, 200).state == state


def test_two_gigabytes_in_a_window_are_work_however_they_are_spread() -> None:
    burst = [one for one in at_rest(60) if one.signal != DISK]
    written = [*burst, *signal(DISK, lambda m: 35e6 if m == 50 else 0, 60)]
    assert judged(written, 60).state == ACTIVE
    less = [*burst, *signal(DISK, lambda m: 30e6 if m == 50 else 0, 60)]
    assert judged(less, 60).state == IDLE
