"""A hard cap stops as many machines as it needs once a person accepted it, at prices that two listings agree on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta

import pytest

from costguard.budgets.budget import Budget, ResourceFilter
from costguard.guard.cap_acceptance import find_accepted_caps, find_undoubted_caps, list_cap_acceptances, name_cap_policy
from costguard.guard.limits import ACCEPTED_CAPS, NEW_CAPS, OTHER_ACTS, compute_rooms, find_pool
from costguard.guard.overrides import ACCEPT, Override
from costguard.guard.policy import CAP_RULE, Rails
from costguard.values.money import Money
from tests.books import NOW
from tests.guard.cases import machine, minutes, policy
from tests.guard.test_railing import sent

CAP = Budget(name="all", cap=Money.parse("12000"), hard=True, zone=UTC)
PLAN = Override(id="p", what=ACCEPT, who="ada", why="the plan was read", at=NOW, subject="0123456789ab")


def accept(*budgets: Budget) -> list[Override]:
    return list_cap_acceptances(budgets, (), PLAN, lambda: "x")


@pytest.mark.parametrize(
    ("now", "accepted"),
    [
        (CAP, True),
        (replace(CAP, cap=Money.parse("15000")), True),
        (replace(CAP, cap=Money.parse("1200")), False),
        (replace(CAP, cap=Money.parse("12000", "EUR")), False),
        (replace(CAP, allow_irreversible=True), False),
        (replace(CAP, match=ResourceFilter(providers=("aws",))), False),
        (replace(CAP, name="other"), False),
        (replace(CAP, hard=False), False),
        (replace(CAP, warn=()), True),
    ],
    ids=[
        "as it was",
        "raised",
        "a tenth",
        "other money",
        "loses data",
        "other machines",
        "other name",
        "soft",
        "other warnings",
    ],
)
def test_an_acceptance_covers_the_cap_as_it_was_or_raised(now: Budget, accepted: bool) -> None:  # noqa: FBT001 - the outcome
    assert find_accepted_caps([now], accept(CAP), NOW) == (frozenset({"budget:all"}) if accepted else frozenset())


def test_the_newest_acceptance_decides_and_a_lifted_one_is_none() -> None:
    low = accept(replace(CAP, cap=Money.parse("1200")))
    high = [replace(one, at=NOW + minutes(1)) for one in accept(CAP)]
    assert not find_accepted_caps([replace(CAP, cap=Money.parse("1200"))], [*low, *high], NOW + minutes(2))
    assert not find_accepted_caps([CAP], [replace(one, lifted_at=NOW) for one in accept(CAP)], NOW + minutes(1))
    assert list_cap_acceptances([CAP], accept(CAP), replace(PLAN, at=NOW + minutes(1)), lambda: "y") == []


def test_a_cap_whose_price_one_listing_raised_acts_within_the_limits_of_others_until_the_next() -> None:
    accepted, live = frozenset({name_cap_policy(CAP)}), [machine("i-1")]
    key = live[0].observation.key
    assert find_undoubted_caps([CAP], accepted, live, {key}) == frozenset()
    assert find_undoubted_caps([CAP], accepted, live, ()) == accepted
    elsewhere = replace(CAP, match=ResourceFilter(providers=("vast",)))
    assert find_undoubted_caps([elsewhere], accepted, live, {key}) == accepted


def test_accepted_caps_have_limits_of_their_own_and_new_ones_share_those_of_all_acts() -> None:
    cap = policy(rule=CAP_RULE, name="budget:all")
    pools = [find_pool(cap, ()), find_pool(cap, {"budget:all"}), find_pool(policy(), {"idle-gpu"})]
    assert pools == [NEW_CAPS, ACCEPTED_CAPS, OTHER_ACTS]
    idle_stops = [sent(NOW - minutes(n)) for n in (1, 2, 3)]
    cap_stops = [replace(sent(NOW - minutes(n)), id=f"c{n}", rule=CAP_RULE) for n in range(1, 30)]
    rooms = compute_rooms([*idle_stops, *cap_stops], 100, Rails(), NOW)
    assert (rooms[OTHER_ACTS].acts, rooms[NEW_CAPS].acts) == (0, 0)
    assert rooms[ACCEPTED_CAPS].acts > 100
    free = compute_rooms(cap_stops, 100, Rails(), NOW + timedelta(minutes=1))
    assert free[OTHER_ACTS].acts == 1, "what caps stopped takes no room of others"
    narrow = compute_rooms(cap_stops, 100, Rails(caps=replace(Rails.unlimited(), acts_per_10m=9)), NOW)
    assert narrow[ACCEPTED_CAPS].acts == 0
