"""Settings that never ran act once somebody read their plan, or once they are known to mean little (H25)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from costguard.guard.action_plan import PolicyCase, build_action_plan
from costguard.guard.context import GuardConfig
from costguard.guard.evaluation import GuardEvaluation
from costguard.guard.overrides import ACCEPT, Override
from costguard.guard.policy import Policy, Rails
from costguard.guard.signals import Activity
from costguard.services.guarding.guard import ACCEPTED_SETTINGS_FACT, FIRST_RUN_EXTRA, FIRST_SETTINGS_FACT, explain_unaccepted
from tests.guard.cases import around, case, friday, idle, machine, minutes, policy

NOW = friday(18, 5)
RULE = policy()
PLAN = "3f9a" * 16
MANY, FEW, FLEET = 9, 1, 9


def survey(works: Sequence[Activity], now: datetime) -> GuardEvaluation:
    """What a run found over machines that do this."""
    cases: list[PolicyCase] = [case(machine(f"i-{n}"), RULE, work, now) for n, work in enumerate(works)]
    return GuardEvaluation(
        at=now,
        works={},
        cases=tuple(cases),
        proposals=build_action_plan(cases, around(now)),
        climbs=(),
        sighted=(),
        foresights=(),
        breaker=None,
        quarantine={},
        fleet=FLEET,
    )


def idling(count: int, now: datetime = NOW) -> GuardEvaluation:
    return survey([idle(NOW - minutes(60))] * count, now)


def asked(found: GuardEvaluation, facts: dict[str, str], *wishes: Override, rule: Policy = RULE) -> str:
    rules = GuardConfig(admin_route=True, policies=(rule,), interval=minutes(1), rails=Rails())
    return explain_unaccepted(found, rules, wishes, facts, digest=lambda data: hashlib.sha256(data).hexdigest(), plan_hash=PLAN)


def yes(subject: str = PLAN[:12], until: timedelta = FIRST_RUN_EXTRA) -> Override:
    return Override(id="w", what=ACCEPT, who="ada", why="read", at=NOW - FIRST_RUN_EXTRA, until=NOW + until, subject=subject)


def test_settings_that_mean_much_wait_for_a_yes_run_after_run_and_then_act_without_another() -> None:
    facts = dict[str, str]()
    for minute in range(3):
        assert asked(idling(MANY, NOW + minutes(minute)), facts).startswith("it would act on 9 of 9 machines")
    assert facts[FIRST_SETTINGS_FACT].endswith(NOW.isoformat())
    assert ACCEPTED_SETTINGS_FACT not in facts
    assert asked(idling(MANY), facts, yes()) == ""
    assert FIRST_SETTINGS_FACT not in facts
    assert asked(idling(MANY, NOW + minutes(5)), facts) == ""


@pytest.mark.parametrize("wish", [yes("0000"), yes(""), yes(until=timedelta())], ids=["another plan", "no plan", "it is over"])
def test_a_yes_to_something_else_is_none(wish: Override) -> None:
    facts = dict[str, str]()
    assert asked(idling(MANY), facts, wish)
    assert ACCEPTED_SETTINGS_FACT not in facts


def test_settings_that_mean_little_act_at_once() -> None:
    facts = dict[str, str]()
    assert asked(idling(FEW), facts) == ""
    assert ACCEPTED_SETTINGS_FACT in facts


def test_what_cannot_be_judged_yet_is_waited_for_as_long_as_a_policy_waits_and_an_hour() -> None:
    facts, over = dict[str, str](), RULE.hold + FIRST_RUN_EXTRA
    for after in (timedelta(), over - minutes(1)):
        assert asked(survey([Activity()] * MANY, NOW + after), facts) == ""
        assert ACCEPTED_SETTINGS_FACT not in facts
    assert asked(idling(MANY, NOW + over - minutes(1)), dict(facts))  # it turned out to mean much
    assert asked(survey([Activity()] * MANY, NOW + over), facts) == ""
    assert ACCEPTED_SETTINGS_FACT in facts


def test_other_settings_are_asked_about_anew() -> None:
    facts = dict[str, str]()
    assert asked(idling(FEW), facts) == ""
    other = policy(hold=minutes(30))
    assert asked(idling(MANY), facts, rule=other)
    assert asked(idling(MANY), facts, rule=RULE) == ""
