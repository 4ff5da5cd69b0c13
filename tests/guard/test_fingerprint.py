"""The hash of a plan is of its acts in an order of their own: what was accepted before a restart is accepted after it."""

from __future__ import annotations

from datetime import timedelta

from costguard.guard.action_plan import build_action_plan
from costguard.guard.limits import compute_plan_fingerprint
from tests.books import NOW
from tests.guard.cases import around, case, idle, machine, policy

ACTS = 40


def test_the_acts_of_a_plan_are_hashed_in_order_whatever_a_process_makes_of_their_set() -> None:
    works = idle(NOW - timedelta(hours=1))
    cases = [case(machine(f"i-{n * 7919 % 1000:03d}"), policy(), works, NOW) for n in range(ACTS)]
    hashed = compute_plan_fingerprint(build_action_plan(cases, around(NOW)), bytes.decode).split("\n")
    assert len(hashed) == ACTS
    assert hashed == sorted(hashed)
