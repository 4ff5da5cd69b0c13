"""Labelled traces acted by a machine, measured by a real agent, judged by the watchdog: the same verdicts, and no false stop.

COSTGUARD_TRACES=20 plays all variants of each kind; `-s` shows a table.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from costguard.guard.alerts.blind import REPORTS, SILENT
from costguard.guard.signals import ACTIVE, HUNG, IDLE, UNKNOWN, Activity
from costguard.values.sample import GPU_POWER_BUSIEST
from tests.agent.replaying import WARM, Replayed, Stage, lost, stage, stop, told, trace_of
from tests.guard.traces import HANGS, MINUTE, WASTE, WORK, Trace, dice_of, traced

VARIANTS = range(int(os.environ.get("COSTGUARD_TRACES", "1")))
SOON, LATER = 45 + 2, 2 * 45 + 2
"""Minutes after its begin within which waste is found where the traces are recorded directly (test_judging_traces)."""


def every(watchdog: Stage, kinds: Iterable[str]) -> Iterator[tuple[str, Replayed, Sequence[Activity]]]:
    """All variants of `kinds` with what is judged of them; prints a table, and what it cost."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    for kind in sorted(kinds):
        for variant in VARIANTS:
            played = watchdog.play(trace_of(kind, variant))
            found, directly = played.verdicts(WARM), played.directly(WARM)
            print(told(kind, variant, played, found, directly))  # noqa: T201 - a table for who asks for it
            idle = [[number for number, one in enumerate(of, WARM) if one.state == IDLE] for of in (found, directly)]
            assert set(idle[0]) <= set(idle[1]), f"{kind} {variant}: idle where the trace by itself is not"
            yield f"{kind} {variant}", played, found
    after = resource.getrusage(resource.RUSAGE_SELF)
    here = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"CPU: {here:.1f} s the watchdog, {watchdog.cpu_s:.1f} s the agents")  # noqa: T201 - as above


@pytest.mark.proof
def test_work_that_an_agent_measures_is_never_called_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, monkeypatch, machines=len(WORK) * len(VARIANTS)) as watchdog:
        for name, played, found in every(watchdog, WORK):
            assert lost(played) == [], name
            assert stop(found, played.began, 0.0) is None, name
            assert HUNG not in {one.state for one in found}, name


@pytest.mark.proof
def test_waste_that_an_agent_measures_is_found_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, monkeypatch, machines=len(WASTE) * len(VARIANTS)) as watchdog:
        for name, played, found in every(watchdog, WASTE):
            assert lost(played) == [], name
            limit = LATER if name.startswith(("monitoring-blips", "hourly-cron")) else SOON
            acted = stop(found, played.began)
            assert acted is not None, name
            assert 45 <= acted - WARM <= limit, name


def test_a_hang_that_an_agent_measures_is_found_and_is_never_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, monkeypatch, machines=len(HANGS) * len(VARIANTS)) as watchdog:
        for name, played, found in every(watchdog, HANGS):
            assert lost(played) == [], name
            assert [one.state for one in found[11:]] == [HUNG] * len(found[11:]), name
            assert {one.state for one in found} == {ACTIVE, HUNG}, name


def cooler(trace: Trace) -> Trace:
    """The same with a tenth less power: GPUs that draw at most 56 W at rest, less than could be work by itself."""
    minutes = [
        [replace(one, value=one.value * 0.9) if one.signal == GPU_POWER_BUSIEST else one for one in minute]
        for minute in trace.samples
    ]
    return replace(trace, samples=minutes)


@pytest.mark.proof
def test_an_agent_that_falls_silent_leaves_doubt_and_not_idleness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of GPUs that draw 62 W at rest a missing sample may have been a lower floor, so they may look like work; never idle."""
    with stage(tmp_path, monkeypatch, machines=2) as watchdog:
        resting = trace_of("memory-held", 0)
        for trace, expected in ((cooler(resting), {UNKNOWN}), (resting, {ACTIVE, UNKNOWN})):
            ended, last = watchdog.play(trace), len(trace.samples)
            assert ended.verdicts(last - 1, last)[0].state == IDLE
            assert {one.state for one in ended.verdicts(last + 3, last + 60)} <= expected
            assert (watchdog.state(ended, last), watchdog.state(ended, last + 4)) == (REPORTS, SILENT)


@pytest.mark.proof
def test_work_that_ends_while_the_agent_stands_still_is_not_called_idle_too_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From minute 57 to 82 nothing of it runs, and in between at 72 the work ends."""
    with stage(tmp_path, monkeypatch, machines=1) as watchdog:
        froze, woke, worked = 57, 82, WARM + 40
        trace = cooler(traced(dice_of("cpu-evaluation", 0), WORK["cpu-evaluation"], warm=WARM, length=40, after=70))
        played = watchdog.play(trace, frozen=(froze, woke))
        minutes = {(one.at - played.began) / MINUTE for one in played.samples}
        assert not [minute for minute in minutes if froze < minute <= woke]
        assert minutes >= set(range(woke + 1, len(trace.samples)))
        states = [one.state for one in played.verdicts(0)]
        assert IDLE not in states[: worked + 45]
        assert set(states[woke : woke + 20]) <= {ACTIVE, UNKNOWN}
        assert states[-1] == IDLE
