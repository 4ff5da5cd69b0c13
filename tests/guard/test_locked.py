"""Nobody is asked for an act that the machine's provider refuses."""

from __future__ import annotations

import pytest

from costguard.guard.action_plan import build_action_plan, resolve_step
from costguard.guard.alerts.rules import _list_told_steps
from costguard.guard.policy import ASK, NOTIFY, STOP, TERMINATE, PolicyStep
from costguard.metering.observation import Handling
from tests.guard.cases import around, case, friday, idle, machine, mark_told, minutes, policy

LOCKED = Handling(stops=False, terminates=True, protected=("stop", "terminate"))
OPEN = Handling(stops=False, terminates=True)
KEEPS = Handling(stops=True, terminates=True, protected=("terminate",), stop_loses=("375 GB of local SSD",))
ASKS = policy(PolicyStep(do=NOTIFY), PolicyStep(do=ASK, act=TERMINATE, after=minutes(15)))
SINCE, NOW = friday(18), friday(19)


@pytest.mark.parametrize("handling", [LOCKED, KEEPS], ids=["a locked pod", "deletion protection"])
def test_a_stop_of_a_protected_machine_becomes_no_question(handling: Handling) -> None:
    rule = policy()
    made = case(machine(handling=handling), rule, idle(SINCE), NOW)
    assert resolve_step(rule.then[1], made).do == STOP
    (stop,) = [one for one in build_action_plan([made], around(NOW)) if one.number == 1]
    assert "provider_protection" in [reason for reason, _ in stop.held_by]


def test_a_stop_that_its_provider_lacks_still_becomes_a_question() -> None:
    rule = policy()
    step = resolve_step(rule.then[1], case(machine(handling=OPEN), rule, idle(SINCE), NOW))
    assert (step.do, step.act) == (ASK, TERMINATE)


@pytest.mark.parametrize(("handling", "held"), [(LOCKED, True), (OPEN, False)])
def test_a_question_of_the_policy_is_held_while_its_provider_refuses_the_act(handling: Handling, held: bool) -> None:  # noqa: FBT001 - a case
    made = case(machine(handling=handling), ASKS, idle(SINCE), NOW)
    (ask,) = [one for one in build_action_plan([made], around(NOW)) if one.number == 1]
    assert ask.step.do == ASK
    assert ("provider_protection" in [reason for reason, _ in ask.held_by]) == held


@pytest.mark.parametrize(("handling", "told"), [(LOCKED, [0]), (OPEN, [0, 1])])
@pytest.mark.parametrize("rule", [ASKS, policy()], ids=["asks", "has no stop"])
def test_a_question_ends_when_the_machine_is_locked(rule: object, handling: Handling, told: list[int]) -> None:
    chosen = ASKS if rule is ASKS else policy()
    first = case(machine(handling=OPEN), chosen, idle(SINCE), NOW)
    assert first.climb is not None
    climb = mark_told(mark_told(first.climb, chosen, 0, NOW), chosen, 1, NOW)
    made = case(machine(handling=handling), chosen, idle(SINCE), NOW, climb)
    assert _list_told_steps(made, (0, 1)) == told
