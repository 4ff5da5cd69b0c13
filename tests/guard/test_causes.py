"""Why machines idle or hang: a process that ended, nodes that wait for another, kernels that spin, GPUs that nobody uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from costguard.guard.action_plan import build_action_plan
from costguard.guard.activity import classify_activity, probe_activity
from costguard.guard.grouping import apply_launch_activity, find_launch, is_launched_with
from costguard.guard.limits import drop_explained_turns, select_cheap_ends
from costguard.guard.policy import HOLDS, STOP
from costguard.guard.signals import ACTIVE, HELD, HUNG, IDLE, RELEASED, UNKNOWN, Activity
from costguard.metering.observation import Price
from costguard.settings.conditions import read_condition
from costguard.values.resource import ResourceKey
from costguard.values.sample import (
    AGENT_ALIVE,
    CPU_CORES,
    DISK,
    GPU_MEMORY_USED,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_UTIL,
    NETWORK,
    QUEUE_JOBS,
    STEP,
    Sample,
)
from tests.books import NOW, live
from tests.guard.cases import STOPS, around, case, idle, machine, policy
from tests.guard.traces import MINUTE, START, sample
from tests.guard.traces import machine as observe

BLOCK = Price(None, None, "capacity block, paid up front", prepaid=True)
TEN_MINUTES = timedelta(minutes=10)
Value = float | Callable[[int], float]
ENDED: dict[str, Value] = {
    GPU_UTIL: lambda m: 95 if m < 60 else 0,
    GPU_POWER_BUSIEST: lambda m: 380 if m < 60 else 60,
    GPU_POWER_LIMIT: 400,
    GPU_MEMORY_USED: lambda m: 70 if m < 60 else 0,
    CPU_CORES: lambda m: 4 if m < 60 else 0.01,
    AGENT_ALIVE: 1,
}
"""A job that ends after an hour and frees its memory, as an agent shows it."""


def judge(signals: dict[str, Value], at: int, gpus: float = 8) -> Activity:
    """With a sample a minute of each of `signals`."""
    samples: list[Sample] = [
        sample(name, m, value(m) if callable(value) else value) for name, value in signals.items() for m in range(at + 1)
    ]
    seen = observe(gpus, START - timedelta(days=1))
    return classify_activity(seen, samples, now=START + at * MINUTE, since=START, poll=MINUTE, window=45 * MINUTE)


@pytest.mark.parametrize(
    ("signals", "memory"),
    [
        pytest.param({}, RELEASED, id="its process ended"),
        pytest.param({GPU_MEMORY_USED: 70}, HELD, id="a process stays"),
        pytest.param({GPU_MEMORY_USED: 0}, "", id="it held none before"),
        pytest.param({GPU_POWER_BUSIEST: lambda m: 380 if m < 60 else 3}, "", id="no GPU draws 3 of 400 W"),
        pytest.param({AGENT_ALIVE: 0}, "", id="no agent reports"),
    ],
)
def test_memory_shows_whether_the_process_ended(signals: dict[str, Value], memory: str) -> None:
    work = judge({**ENDED, **signals}, 130)
    assert (work.state, work.gpu_memory) == (IDLE, memory)


def key(number: int) -> ResourceKey:
    return ResourceKey("aws", "1", "eu-west-1", f"i-{number}")


@pytest.mark.parametrize(
    ("ended", "activated", "counted"),
    [
        pytest.param(range(6), [], 0, id="six jobs end together"),
        pytest.param((), [], 6, id="nobody knows why"),
        pytest.param(range(6), [NOW] * 6, 6, id="swapped signals: as many begin"),
        pytest.param(range(6), [NOW - timedelta(hours=1)] * 6, 0, id="others began an hour ago"),
        pytest.param(range(6), [NOW] * 2, 0, id="two others begin"),
    ],
)
def test_ends_that_are_explained_are_no_mass_change(ended: range, activated: list[datetime], counted: int) -> None:
    turned = {key(n): NOW + n * MINUTE for n in range(6)}
    assert len(drop_explained_turns(turned, [key(n) for n in ended], activated, TEN_MINUTES)) == counted


@pytest.mark.parametrize(("nano", "cheap"), [(3_900_000_000, 6), (32_770_000_000, 0), (None, 0)])
def test_ends_count_where_they_cost_much(nano: int | None, cheap: int) -> None:
    machines = [machine(f"i-{n}", nano) if nano else live(f"i-{n}") for n in range(6)]
    assert len(select_cheap_ends(machines, NOW)) == cheap


HANG: dict[str, Value] = {GPU_UTIL: 100, GPU_POWER_LIMIT: 700, CPU_CORES: 8, NETWORK: 900, AGENT_ALIVE: 1}


@pytest.mark.parametrize(
    ("power", "gpus", "state"),
    [
        pytest.param(80, 8, HUNG, id="eight spin at 80 W"),
        pytest.param(230, 8, HUNG, id="eight spin at a third of the limit"),
        pytest.param(80, 1, HUNG, id="one spins at 80 W"),
        pytest.param(230, 1, ACTIVE, id="one decodes at a third of the limit"),
        pytest.param(lambda m: 80 + 20 * (m % 2), 8, HUNG, id="eight spin at 80 to 100 W"),
        pytest.param(lambda m: 210 + 16 * (m % 2), 8, ACTIVE, id="eight decode at 210 to 226 W"),
        pytest.param(lambda m: 80 + 14 * (m % 2), 1, ACTIVE, id="one runs light kernels"),
        pytest.param(lambda m: 130 + 60 * (m % 2), 8, ACTIVE, id="power that moves is work"),
        pytest.param(300, 8, ACTIVE, id="more than a third is work"),
    ],
)
def test_a_hang_without_a_step_counter_is_known_by_flat_power(power: Value, gpus: int, state: str) -> None:
    signals = {**HANG, GPU_POWER_BUSIEST: lambda m: 600 if m < 30 else power(m) if callable(power) else power}
    assert judge(signals, 35, gpus).state == ACTIVE
    work = judge(signals, 42, gpus)
    assert work.state == state
    assert state == ACTIVE or work.confidence < 0.9


def test_a_hang_with_jobs_in_its_queue_is_told_later() -> None:
    assert judge({**HANG, GPU_POWER_BUSIEST: 80, QUEUE_JOBS: 1}, 42).state == ACTIVE


def test_the_last_look_at_a_hang_ignores_what_a_hang_keeps_busy() -> None:
    def probe(signals: dict[str, Value]) -> str:
        samples = [
            sample(name, m, value(m) if callable(value) else value) for name, value in signals.items() for m in range(16)
        ]
        return probe_activity(samples, START + 15 * MINUTE, MINUTE, observe(8), hung=True)

    hang: dict[str, Value] = {**HANG, GPU_POWER_BUSIEST: 80, STEP: 7}
    assert probe(hang) == ""
    signs: dict[str, Value] = {STEP: lambda m: m, NETWORK: 5e6, GPU_POWER_BUSIEST: 400, QUEUE_JOBS: 1}
    for signal, value in signs.items():
        assert probe({**hang, signal: value}), signal
    over = "the hang is over, or is not measured now"
    for signal in (GPU_UTIL, GPU_POWER_BUSIEST, GPU_POWER_LIMIT):  # missing, and zero
        assert probe({name: value for name, value in hang.items() if name != signal}) == over, signal
        assert probe({**hang, signal: 0}) == over, signal
    assert probe({}) == over
    stale = [one for name in (GPU_UTIL, GPU_POWER_BUSIEST) for one in [sample(name, m, 100) for m in range(12)]]
    assert probe_activity(stale, START + 15 * MINUTE, MINUTE, observe(8), hung=True) == over


@pytest.mark.parametrize("watts", [0, lambda m: 0 if m == 40 else 80])
def test_zero_watts_are_no_hang(watts: Value) -> None:
    assert judge({**HANG, GPU_POWER_BUSIEST: watts, STEP: 7}, 42).state == ACTIVE


def test_memory_that_was_freed_long_before_is_no_end_of_now() -> None:
    freed: dict[str, Value] = {GPU_MEMORY_USED: lambda m: 70 if m < 10 else 0, GPU_UTIL: lambda m: 95 if m < 10 else 0}
    signals = {**ENDED, **freed, GPU_POWER_BUSIEST: 60, CPU_CORES: lambda m: 4 if m < 120 else 0.01}
    assert judge(signals, 200).gpu_memory == ""


def test_weak_work_of_a_day_is_remembered_after_it_ended() -> None:
    def until_15_hours(value: float) -> Value:
        return lambda m: value if m < 900 else 0

    ended = {**WEAK, GPU_UTIL: until_15_hours(3), CPU_CORES: until_15_hours(0.15), NETWORK: until_15_hours(0.5e6)}
    work = judge(ended, 1100, gpus=1)
    assert (work.state, work.since) == (IDLE, START + 900 * MINUTE)
    assert judge(WEAK, 300, gpus=1).gpu_unused_since is None


def test_a_unit_that_changes_in_the_middle_of_a_run_is_no_idleness() -> None:
    signals = {**ENDED, GPU_UTIL: lambda m: 92 if m < 60 else 0.92}
    assert judge(signals, 130).state == UNKNOWN


@pytest.mark.parametrize("signals", [{CPU_CORES: 1.0}, {QUEUE_JOBS: 3}])
def test_a_gpu_that_only_a_loop_or_a_queue_keeps_is_unused_since_its_last_work(signals: dict[str, Value]) -> None:
    work = judge({**ENDED, **signals}, 200)
    assert (work.state, work.gpu_unused_since) == (ACTIVE, START + 60 * MINUTE)
    assert judge({**ENDED, **signals, NETWORK: 6e6}, 200).gpu_unused_since is None


@pytest.mark.parametrize(
    ("memory", "since", "mate", "state"),
    [
        (HELD, 100, ACTIVE, ACTIVE),
        (HELD, 100, "", IDLE),
        (HELD, 361, ACTIVE, IDLE),
    ],
)
def test_a_node_that_holds_its_memory_waits_for_those_launched_with_it(memory: str, since: int, mate: str, state: str) -> None:
    own = idle(NOW - since * MINUTE, gpu_memory=memory)
    rank_0 = machine("n0", gpu_count=8).observation
    work = apply_launch_activity(own, [(rank_0, Activity(state=mate, since=NOW, confidence=0.9))] if mate else [], NOW)
    assert work.state == state
    assert state == IDLE or (work.wasted_share == 1 and "n0" in work.reasons[0])


def test_nodes_of_one_owner_type_and_time_were_launched_together() -> None:
    one = machine("n0", gpu_count=8, gpu="H100", created_at=NOW).observation
    late = machine("n1", gpu_count=8, gpu="H100", created_at=NOW + 11 * MINUTE).observation
    soon = machine("n2", gpu_count=8, gpu="H100", created_at=NOW + 9 * MINUTE).observation
    assert find_launch(one, "ada") == find_launch(soon, "ada") != find_launch(soon, "eve")
    assert is_launched_with(one, soon)
    assert not is_launched_with(one, late)
    assert find_launch(one, "") is None
    assert find_launch(machine("n3", gpu_count=1, created_at=NOW).observation, "ada") is None


@pytest.mark.parametrize("paid", [{"handling": replace(STOPS, committed="reserved until May")}, {"prices": (BLOCK,)}])
def test_a_stop_that_saves_nothing_is_told_and_not_done(paid: dict[str, Any]) -> None:
    rule, now = policy(hold=timedelta()), NOW
    for approved, holds in ((frozenset[str](), {"saves_nothing"}), (frozenset(("stop",)), set[str]())):
        one = replace(case(machine(**paid), rule, idle(now - timedelta(hours=2)), now), approved=approved)
        stop = next(p for p in build_action_plan([one], around(now)) if p.step.do == STOP)
        assert {reason for reason, _ in stop.held_by} & {"saves_nothing"} == holds


@pytest.mark.parametrize(("confidence", "asks"), [(0.97, False), (0.6, True)])
def test_a_hang_that_is_only_likely_is_asked_about(confidence: float, asks: object) -> None:
    when = read_condition('state == "hung" && confidence >= 0.9', "when")
    rule = replace(policy(hold=timedelta()), when=when)
    work = Activity(state=HUNG, confidence=confidence, since=NOW - timedelta(hours=1), reasons=("power 80 W",), coverage=1.0)
    one = case(machine(), rule, work, NOW)
    assert (one.verdict.finding, one.verdict.short) == (HOLDS, asks)


WEAK: dict[str, Value] = {GPU_UTIL: 3, CPU_CORES: 0.15, NETWORK: 0.5e6, DISK: 0, AGENT_ALIVE: 1}


@pytest.mark.parametrize(
    ("signals", "state"),
    [
        pytest.param({}, ACTIVE, id="a training that starves for data"),
        pytest.param({GPU_UTIL: 0, CPU_CORES: 0.05, NETWORK: 0.6e6, DISK: 0.6e6}, ACTIVE, id="a slow upload"),
        pytest.param({GPU_UTIL: 0, CPU_CORES: 0.05, NETWORK: 20e3, DISK: 60e3}, IDLE, id="at rest"),
        pytest.param({GPU_UTIL: 0, CPU_CORES: 0.19, NETWORK: 20e3}, IDLE, id="one signal alone is noise"),
        pytest.param({GPU_UTIL: 0, CPU_CORES: 0.1, NETWORK: 0.25e6, DISK: 0.3e6}, IDLE, id="noise of many signals"),
        pytest.param(
            {GPU_UTIL: 0, CPU_CORES: lambda m: 0.19 if m % 20 == 0 else 0.02, NETWORK: lambda m: 9e5 if m % 20 == 0 else 900},
            IDLE,
            id="what runs once in a while",
        ),
    ],
)
def test_weak_signals_are_work_together(signals: dict[str, Value], state: str) -> None:
    assert judge({**WEAK, **signals}, 120, gpus=1).state == state


def test_a_machine_is_idle_since_its_weak_work_ended() -> None:
    signals: dict[str, Value] = {
        **WEAK,
        GPU_UTIL: lambda m: 3 if m < 100 else 0,
        CPU_CORES: lambda m: 0.15 if m < 100 else 0.01,
    }
    assert judge(signals, 110, gpus=1).state == ACTIVE
    work = judge(signals, 160, gpus=1)
    assert work.state == IDLE
    assert work.since is not None
    assert START + 100 * MINUTE <= work.since <= START + 101 * MINUTE


def test_a_machine_at_rest_is_idle_since_the_same_time_however_long_it_lasts() -> None:
    assert {judge(ENDED, at).since for at in (120, 180, 240, 300)} == {START + 60 * MINUTE}
