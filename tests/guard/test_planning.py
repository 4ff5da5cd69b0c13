"""The plan lists everything that holds a step back, and never ends by itself what was to be stopped."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from costguard.guard.action_plan import PolicyCase, build_action_plan
from costguard.guard.escalation import advance_escalation
from costguard.guard.limits import Breaker, Headroom
from costguard.guard.overrides import FREEZE, LEASE, PHASE, Protection
from costguard.guard.policy import (
    ASK,
    CAP_RULE,
    HOLD_REASONS,
    HOOK,
    NOTIFY,
    OBSERVE,
    STOP,
    TERMINATE,
    EscalationState,
    Policy,
    PolicyStep,
    Proposal,
)
from costguard.guard.policy_evaluation import compute_waiting_cost
from costguard.guard.signals import Activity
from costguard.metering.observation import Handling
from costguard.metering.spending import LiveResource
from tests.books import AWS
from tests.guard.cases import LAMBDA, around, case, friday, idle, judged, machine, mark_told, minutes, policy, wish

ENDED, TOLD, DUE = friday(18, 5), friday(18, 50), friday(19, 5)
LOSES = Handling(stops=True, terminates=True, stop_loses=("1900 GB of local disk",), terminate_loses=("its disk",))
NO_STOP = Handling(stops=False, terminates=True, terminate_loses=("1900 GiB of local disk",))


OPEN = Breaker(opened_at=DUE, keys=(machine().observation.key,), shared="")


def told(one: LiveResource, rule: Policy, work: Activity | None = None, *steps: int) -> EscalationState:
    climb = advance_escalation(None, judged(one, rule, work or idle(ENDED), TOLD), stopped=False)
    assert climb is not None
    for number in steps or (0,):
        climb = mark_told(climb, rule, number, TOLD)
    return climb


def due(one: LiveResource | None = None, rule: Policy | None = None, now: datetime = DUE, **stated: Any) -> PolicyCase:  # noqa: ANN401 - any field
    """A machine whose stop is due now, and that nothing holds."""
    one, rule = one or machine(), rule or policy()
    seen = seen_now(one, now)
    return case(seen, rule, stated.pop("work", idle(ENDED)), now, told(one, rule), **stated)


def seen_now(one: LiveResource, now: datetime) -> LiveResource:
    return replace(one, seen_at=now, first_seen_at=now - timedelta(days=1)) if one.seen_at > now else one


def last(*cases: PolicyCase, now: datetime = DUE, **more: Any) -> Proposal:  # noqa: ANN401 - any field
    return build_action_plan(cases, around(now, **more))[-1]


def reasons(proposal: Proposal) -> list[str]:
    assert {name for name, _ in proposal.held_by} <= set(HOLD_REASONS)
    assert all(says for _, says in proposal.held_by)
    return [name for name, _ in proposal.held_by]


FROZEN = wish(FREEZE, machine(), TOLD)


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ({"protection": Protection(protected=True, why="its label")}, "protected"),
        ({"lease": wish(LEASE, machine(), TOLD, friday(21))}, "leased"),
        ({"phase": wish(PHASE, machine(), TOLD, friday(21))}, "phase"),
        ({"frozen": FROZEN}, "frozen"),
        ({"level": NOTIFY}, "not_armed"),
        ({"owner": ""}, "not_ours"),
        ({"polls": 2}, "first_seen"),
        ({"in_doubt": "a stop of 18:00 is not settled"}, "in_doubt"),
        ({"work": idle(ENDED, coverage=0.79)}, "not_confident"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_reason_holds_a_stop_by_itself(stated: dict[str, Any], reason: str) -> None:
    assert reasons(last(due(**stated))) == [reason]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"held": (("clock", "they disagree"),)}, "clock"),
        ({"breaker": OPEN}, "breaker"),
        ({"quarantine": {AWS: "3 of 4 are gone"}}, "quarantine"),
        ({"room": Headroom(acts=0, irreversible=1, why="1 of 1 in 10 min are done")}, "rate"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_rail_holds_a_stop_by_itself(more: dict[str, Any], reason: str) -> None:
    assert reasons(last(due(), **more)) == [reason]


@pytest.mark.parametrize(
    ("handling", "reason"),
    [
        (replace(LOSES, stop_loses=(), controller="auto-scaling group train"), "controller"),
        (Handling(), "no_act"),
        (replace(LOSES, stop_loses=(), protected=("terminate",)), "provider_protection"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_h27_what_acting_would_do_holds_a_stop(handling: Handling, reason: str) -> None:
    assert reasons(last(due(machine(handling=handling)))) == [reason]


def test_h27_a_stop_that_loses_what_nobody_allowed_is_asked_about_and_never_done_by_itself() -> None:
    found = last(due(machine(handling=LOSES)))
    assert (found.step.do, found.step.act) == (ASK, STOP)


def test_what_was_not_seen_lately_is_not_stopped() -> None:
    stale = replace(machine(), seen_at=friday(19, 1))
    assert reasons(last(due(stale))) == ["stale"]


def test_story_19_where_there_is_no_stop_it_is_asked_about_with_the_price_of_waiting_and_never_ended() -> None:
    one, rule = machine(nano=LAMBDA, handling=NO_STOP), policy(arm=TERMINATE)
    ask = last(due(one, rule))
    assert (ask.step.do, ask.step.act, ask.is_ready(DUE)) == (ASK, TERMINATE, True)
    price = compute_waiting_cost(one, DUE)
    assert price is not None
    assert price.format() == "11.96"
    asked = case(seen_now(one, DUE), rule, idle(ENDED), DUE, told(one, rule, None, 0, 1))
    waits = last(asked)
    assert (waits.step.do, reasons(waits)) == (ASK, ["asked"])
    assert "waiting costs 11.96 USD per 30 min" in waits.held_by[0][1]


def test_story_19_with_allow_irreversible_its_terminate_step_goes_and_without_it_it_does_not() -> None:
    steps = (PolicyStep(do=NOTIFY), PolicyStep(do=TERMINATE, after=minutes(15)))
    one, rule = machine(nano=LAMBDA, handling=NO_STOP), policy(*steps, arm=TERMINATE, allow_irreversible=True)
    assert last(due(one, rule)).is_ready(DUE)
    strict = replace(rule, allow_irreversible=False)
    assert reasons(last(due(one, strict))) == ["irreversible"]
    assert reasons(last(due(one, replace(rule, arm=STOP), level=STOP))) == ["not_armed"]


def test_a_machine_that_has_neither_stop_nor_terminate_is_no_question() -> None:
    one = machine(nano=LAMBDA, handling=Handling(stops=False, terminates=False))
    step = last(due(one, policy(arm=TERMINATE)))
    assert (step.step.do, "no_act" in reasons(step)) == (STOP, True)


def test_h27_no_level_below_terminate_ever_ends_a_machine() -> None:
    for handling in (NO_STOP, LOSES, Handling()):
        rule = policy(allow_irreversible=True)
        proposals = build_action_plan([due(machine(handling=handling), rule)], around(DUE))
        assert not any(p.step.do == TERMINATE and p.is_ready(DUE) for p in proposals)


def test_a_yes_does_what_was_asked_about_and_lifts_no_rail() -> None:
    one, rule = machine(nano=LAMBDA, handling=NO_STOP), policy(arm=NOTIFY)
    answered = case(seen_now(one, DUE), rule, idle(ENDED), DUE, told(one, rule, None, 0, 1), approved=frozenset([TERMINATE]))
    act = last(answered)
    assert (act.step.do, act.is_ready(DUE)) == (TERMINATE, True)
    assert reasons(last(replace(answered, frozen=FROZEN))) == ["frozen"]
    assert reasons(last(answered, room=Headroom(acts=1, irreversible=0, why=""))) == ["rate"]


def test_a_lease_does_not_beat_a_hard_cap_and_neither_does_a_phase() -> None:
    rule = policy(rule=CAP_RULE)
    lease, phase = wish(LEASE, machine(), TOLD, friday(21)), wish(PHASE, machine(), TOLD, friday(21))
    assert last(due(rule=rule, lease=lease, phase=phase), breaker=OPEN).is_ready(DUE)


def test_a_hook_waits_for_the_freeze_and_a_notice_does_not() -> None:
    rule = policy(PolicyStep(do=NOTIFY), PolicyStep(do=HOOK, run="checkpoint", after=minutes(15)))
    assert reasons(last(due(rule=rule, frozen=FROZEN))) == ["frozen"]
    first = build_action_plan([case(machine(), policy(), idle(ENDED), TOLD, frozen=FROZEN)], around(TOLD))[0]
    assert (first.step.do, first.is_ready(TOLD)) == (NOTIFY, True)


def test_h26_of_many_that_are_due_only_as_many_go_as_the_rails_allow_and_caps_go_first() -> None:
    cap = replace(policy(rule=CAP_RULE), name="budget:all")
    cases = [due(machine(f"i-{n}")) for n in range(4)] + [due(machine("i-9"), cap)]
    proposals = build_action_plan(cases, around(DUE, room=Headroom(acts=2, irreversible=1, why="at most 2")))
    gone = {p.verdict.life.key.id for p in proposals if p.step.do == STOP and p.is_ready(DUE)}
    assert gone == {"i-0", "i-9"}
    assert sum(dict(p.held_by).get("rate") == "at most 2" for p in proposals) == 3


def test_neither_a_notice_nor_what_is_held_takes_any_room() -> None:
    fresh = case(seen_now(machine("i-0"), TOLD), policy(), idle(ENDED), TOLD)
    notice = build_action_plan([fresh], around(TOLD, room=Headroom(acts=0, irreversible=0, why="no room")))[0]
    assert (notice.step.do, reasons(notice)) == (NOTIFY, [])
    held = due(machine("i-1"), frozen=FROZEN)
    found = build_action_plan([held, due(machine("i-2"))], around(DUE, room=Headroom(acts=1, irreversible=1, why="at most 1")))
    stops = {p.verdict.life.key.id: reasons(p) for p in found if p.step.do == STOP}
    assert stops == {"i-1": ["frozen"], "i-2": []}


def test_two_policies_do_not_act_on_one_machine_in_one_run() -> None:
    other = replace(policy(), name="other")
    proposals = build_action_plan([due(), due(rule=other)], around(DUE))
    assert sum(p.is_ready(DUE) for p in proposals if p.step.do == STOP) == 1


def test_what_is_stopped_already_is_not_stopped_and_what_is_absent_is_not_touched() -> None:
    rests = machine(state="stopped", stopped_at=friday(19))
    assert build_action_plan([case(rests, policy(), idle(ENDED), DUE, told(rests, policy()))], around(DUE)) == ()
    assert build_action_plan([due(replace(machine(), absent_at=DUE))], around(DUE)) == ()


def test_story_1_minute_by_minute_there_is_one_notice_at_18_50_and_one_stop_at_19_05() -> None:
    one, rule, climb, deeds = machine(), policy(), None, list[tuple[str, datetime]]()
    for minute in range(90):
        now = ENDED + minutes(minute)
        found = case(replace(one, seen_at=now), rule, idle(ENDED), now, climb)
        climb = found.climb
        for proposal in build_action_plan([found], around(now)):
            if proposal.is_ready(now):
                assert climb is not None
                climb = mark_told(climb, rule, proposal.number, now)
                deeds.append((proposal.step.do, now))
    assert deeds == [(NOTIFY, TOLD), (STOP, DUE)]


def test_everything_that_holds_is_listed_and_not_the_first_alone() -> None:
    stop = last(due(frozen=FROZEN, owner="", level=OBSERVE, polls=0), held=(("ledger", "the disk is full"),))
    assert set(reasons(stop)) == {"frozen", "not_ours", "not_armed", "first_seen", "ledger"}
