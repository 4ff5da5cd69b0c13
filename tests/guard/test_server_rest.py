"""Machines with an inference server: asked now, rarely, or never; with a loop that spins, or none; and an unreadable one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costguard.guard.activity import classify_activity, probe_activity
from costguard.guard.policy import HOLDS
from costguard.guard.signals import ACTIVE, IDLE, Activity
from costguard.settings.conditions import read_condition
from costguard.values.sample import (
    AGENT_ALIVE,
    CPU_CORES,
    CPU_UTIL,
    DISK,
    GPU_MEMORY_USED,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_UTIL,
    INPUT_AGE,
    NETWORK,
    SERVER_CORES,
    SERVER_REQUESTS,
    SERVER_TOKENS,
)
from tests.guard.cases import case, machine, policy
from tests.guard.test_causes import Value, judge
from tests.guard.traces import MINUTE, START, sample
from tests.guard.traces import machine as observe

HOUR = 60
AT_REST: dict[str, Value] = {
    GPU_UTIL: 0,
    GPU_POWER_BUSIEST: 70,
    GPU_POWER_LIMIT: 700,
    GPU_MEMORY_USED: 88,
    CPU_CORES: 0.02,
    CPU_UTIL: 0.1,
    NETWORK: 2e4,
    DISK: 1e3,
    INPUT_AGE: 9e5,
    AGENT_ALIVE: 1,
    SERVER_REQUESTS: 0,
    SERVER_TOKENS: 4000,
    SERVER_CORES: 0.02,
}
"""A server that holds its model and does nothing."""
SPINNING: dict[str, Value] = {**AT_REST, CPU_CORES: 1.02, CPU_UTIL: 1.4, SERVER_CORES: 1.0}


def asked_at(*minutes: int) -> Value:
    """The token counter of a server that answers a request in each of these minutes."""
    return lambda m: 4000 + 300 * sum(one <= m for one in minutes)


def sees(signals: dict[str, Value], at: int) -> tuple[str, float]:
    work = judge(signals, at, gpus=1)
    return work.state, work.confidence


@pytest.mark.parametrize(
    ("signals", "at", "verdict"),
    [
        pytest.param({**AT_REST, SERVER_TOKENS: asked_at(580)}, 600, (ACTIVE, 0.9), id="asked 20 minutes ago"),
        pytest.param({**AT_REST, SERVER_REQUESTS: 1}, 600, (ACTIVE, 0.9), id="a request waits"),
        pytest.param({**AT_REST, SERVER_TOKENS: asked_at(300)}, 600, (IDLE, 0.6), id="asked five hours ago"),
        pytest.param(AT_REST, 47 * HOUR - 1, (IDLE, 0.6), id="not asked for less than two days"),
        pytest.param(AT_REST, 48 * HOUR, (IDLE, 0.97), id="not asked for two days"),
        pytest.param({**AT_REST, SERVER_TOKENS: asked_at(700, 2100)}, 48 * HOUR, (IDLE, 0.6), id="asked twice in two days"),
        pytest.param({**AT_REST, SERVER_TOKENS: lambda m: 4000 if m < 2100 else 0}, 48 * HOUR, (IDLE, 0.6), id="began again"),
        pytest.param(SPINNING, 4 * HOUR - 1, (ACTIVE, 0.9), id="spins, and is not asked for less than four hours"),
        pytest.param(SPINNING, 4 * HOUR, (IDLE, 0.6), id="spins, and is not asked for four hours"),
        pytest.param(SPINNING, 48 * HOUR, (IDLE, 0.6), id="spins, and is not asked for two days"),
        pytest.param({**SPINNING, SERVER_TOKENS: asked_at(500)}, 600, (ACTIVE, 0.9), id="spins, and was asked"),
        pytest.param({**SPINNING, CPU_CORES: 1.3}, 600, (ACTIVE, 0.9), id="another process works beside it"),
        pytest.param({**SPINNING, NETWORK: 6e6}, 600, (ACTIVE, 0.97), id="a download runs beside it"),
        pytest.param({**SPINNING, GPU_UTIL: 30}, 600, (ACTIVE, 0.97), id="a GPU works"),
    ],
)
def test_a_server_is_judged_by_its_own_requests(signals: dict[str, Value], at: int, verdict: tuple[str, float]) -> None:
    assert sees(signals, at) == verdict


@pytest.mark.parametrize("missing", [SERVER_REQUESTS, SERVER_TOKENS, SERVER_CORES])
def test_a_spinning_server_that_lacks_one_signal_is_no_idle_machine(missing: str) -> None:
    signals = {name: value for name, value in SPINNING.items() if name != missing}
    assert sees(signals, 600) == (ACTIVE, 0.9)


def test_other_work_in_the_last_four_hours_keeps_a_spinning_server_from_being_idle() -> None:
    signals = {**SPINNING, CPU_CORES: lambda m: 9 if m == 420 else 1.02}
    assert sees(signals, 600) == (ACTIVE, 0.9)
    assert judge(signals, 660, gpus=1).since == START + 420 * MINUTE


def test_a_server_that_cannot_be_read_changes_nothing() -> None:
    unreadable = {name: value for name, value in AT_REST.items() if not name.startswith("server")}
    assert sees(unreadable, 600) == (IDLE, 0.97)
    spinning = {name: value for name, value in SPINNING.items() if not name.startswith("server")}
    assert judge(spinning, 600, gpus=1).gpu_unused_since == START


def judge_until(signals: dict[str, Value], last: int, at: int, memory: float) -> Activity:
    """The server answers the agent until minute `last`."""
    gone = {name: value for name, value in signals.items() if not name.startswith("server")}
    values = {**gone, GPU_MEMORY_USED: lambda m: 88 if m <= last else memory}
    samples = [sample(n, m, v(m) if callable(v) else v) for n, v in values.items() for m in range(at + 1)]
    samples += [sample(n, m, v) for n, v in signals.items() if n not in gone and not callable(v) for m in range(last + 1)]
    return classify_activity(
        observe(1, START - 1500 * MINUTE), samples, now=START + at * MINUTE, since=START, poll=MINUTE, window=45 * MINUTE
    )


@pytest.mark.parametrize(("memory", "confidence"), [(0, 0.97), (88, 0.6)], ids=["it ended", "it no longer answers"])
def test_a_server_counts_while_it_may_still_run(memory: float, confidence: float) -> None:
    work = judge_until(AT_REST, 500, 600, memory)
    assert (work.state, work.confidence) == (IDLE, confidence)


def test_of_a_server_people_are_told_and_asked_and_nothing_is_stopped_by_itself() -> None:
    work = judge(SPINNING, 600, gpus=1)
    rule = replace(policy(), when=read_condition('state == "idle" && confidence >= 0.9', "when"))
    verdict = case(machine(), rule, work, START + 600 * MINUTE).verdict
    assert (verdict.finding, verdict.short) == (HOLDS, True)
    assert work.reasons[0] == f"no request to the inference server since {START:%Y-%m-%d %H:%M} UTC: it may be asked again"
    assert work.reasons[1] == "its own loop uses the CPU"


@pytest.mark.parametrize("usual", [AT_REST, SPINNING], ids=["at rest", "spinning"])
@pytest.mark.parametrize(
    "signals", [{SERVER_REQUESTS: 1.0}, {SERVER_TOKENS: 4300.0}, {CPU_CORES: 1.3}, {NETWORK: 6e6}, {SERVER_CORES: 0.0}]
)
def test_what_works_right_before_the_act_cancels_it_and_the_servers_own_loop_does_not(
    usual: dict[str, Value], signals: dict[str, float]
) -> None:
    def probe(values: dict[str, float]) -> str:
        samples = [sample(name, m, value) for name, value in usual.items() for m in range(60) if not callable(value)]
        samples += [sample(name, 60, value) for name, value in (usual | values).items() if not callable(value)]
        return probe_activity(samples, START + 60 * MINUTE, MINUTE)

    assert not probe({})
    assert bool(probe(signals)) == (signals != {SERVER_CORES: 0.0} or usual is SPINNING)
