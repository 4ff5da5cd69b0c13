"""The fleets of the guard's benchmark state their truth, and the benchmark counts against it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.fleet_traces import KINDS, STEPS_A_DAY, FleetMachine, break_source, draw_fleet
from bench.guard_fleets import RAILS, Sight, play_guarded, play_peer, write_policies
from costguard.values import sample as signals


def test_a_fleet_is_drawn_from_its_seed() -> None:
    fleet = draw_fleet(seed=4, days=1)
    assert [one.kind for one in fleet] == [kind for kind, count in KINDS.items() for _ in range(count)]
    assert len(fleet) == 42
    assert fleet == draw_fleet(seed=4, days=1)
    assert {len(of) for one in fleet for of in (one.uses, *one.values.values())} == {STEPS_A_DAY}


def test_a_peer_that_stops_everything_is_charged_with_what_somebody_needed() -> None:
    machine = _select_machine("batch")
    needed = [step for step, (_, is_needed) in enumerate(machine.uses) if is_needed]
    score = play_peer([machine], lambda _machine, _step: True, 1)
    wrong = [step for step, _, is_needed in score.sent if is_needed]
    assert wrong[0] == needed[0]
    assert set(wrong) <= set(needed)
    assert score.saved > 0.9 * score.idle
    assert score.format_row("all", 1 / 7).split()[1] == f"{7 * len(wrong):.1f}"


def test_the_guard_stops_a_machine_an_hour_after_its_job_ended() -> None:
    machine = _select_machine("batch")
    ended = max(step for step, (_, is_needed) in enumerate(machine.uses) if is_needed) + 1
    score = play_guarded([machine], {}, rails=RAILS["as shipped"], sight=Sight(policies=write_policies()))
    stops = [step for step, _, is_needed in score.sent if not is_needed and step >= ended]
    assert stops[:1] == [ended + 12]
    assert not any(is_needed for _, _, is_needed in score.sent)


@pytest.mark.parametrize(
    ("how", "expected"), [("frozen", [7.0, 7.0]), ("zeroed", [0.0, 0.0]), ("swapped", [90.0, 91.0]), ("rescaled", [0.08, 0.09])]
)
def test_a_source_that_breaks_changes_what_is_measured_from_then_on(how: str, expected: list[float]) -> None:
    machine, other = draw_fleet(seed=4, days=1)[:2]
    one = replace(machine, values={signals.GPU_UTIL: [6.0, 7.0, 8.0, 9.0], signals.AGENT_ALIVE: [1.0] * 4})
    other = replace(other, values={signals.GPU_UTIL: [0.0, 0.0, 90.0, 91.0], signals.AGENT_ALIVE: [1.0] * 4})
    broken = break_source([one, other], how, 2)[0].values
    assert broken[signals.GPU_UTIL] == [6.0, 7.0, *expected]
    assert broken[signals.AGENT_ALIVE] == [1.0] * 4


def _select_machine(kind: str) -> FleetMachine:
    return next(one for one in draw_fleet(seed=4, days=1) if one.kind == kind)
