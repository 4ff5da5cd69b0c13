"""Whose a resource is, what protects it, and how long it is kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from costguard.guard.overrides import (
    APPROVE,
    ARM,
    FREEZE,
    LEASE,
    PROTECT,
    SNOOZE,
    Override,
    decide_lease,
    find_armed_level,
    find_freeze,
    find_lease,
    find_lease_end,
    find_owner,
    find_protection,
    find_snooze,
    list_approved_acts,
)
from costguard.guard.policy import NOTIFY, OBSERVE, STOP, TERMINATE
from costguard.metering.observation import Handling, identify_incarnation
from costguard.values.money import Money, Rate
from tests.books import NOW
from tests.guard.cases import machine, minutes, policy, wish

NEVER = ("label:costguard=never",)
ONE = machine()
LIFE = identify_incarnation(ONE.observation)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("labels", "owner"),
    [
        ((("Owner", "bob"), ("owner", "eve")), "eve"),
        ((("OWNER", "bob"),), "bob"),
        ((("owner", " "),), "ada"),
        ((), "ada"),
    ],
)
def test_an_owner_comes_from_its_labels_and_else_from_its_provider(labels: tuple[tuple[str, str], ...], owner: str) -> None:
    assert find_owner(machine(labels=labels).observation, ["label:owner", "tag:Owner"]) == owner


@pytest.mark.parametrize(
    ("key", "value", "protects", "warned"),
    [
        ("costguard", "never", True, False),
        ("costguard", "Never", True, True),
        ("costgaurd", "never", True, True),
        ("costguard", "nevr", True, True),
        ("costguard", "protcted", True, True),
        ("protected", "true", True, True),
        ("protcted", "yes", True, True),
        ("protected", "false", False, False),
        ("costguard", "always", False, False),
        ("project", "llm", False, False),
        ("costguard", "x" * 10_000, False, False),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_label_protects_and_a_slip_of_the_pen_does_too(key: str, value: str, protects: bool, warned: bool) -> None:  # noqa: FBT001 - a case
    found = find_protection(machine(labels=((key, value),)).observation, [], NEVER, None, NOW)
    assert (found.protected, bool(found.warning)) == (protects, warned)


def test_a_protection_that_vanished_goes_on_for_24_h_with_a_warning() -> None:
    bare = ONE.observation
    assert find_protection(bare, [], NEVER, NOW - DAY + minutes(1), NOW).warning
    assert not find_protection(bare, [], NEVER, NOW - DAY, NOW).protected


def test_a_wish_and_the_provider_protect_as_well() -> None:
    held = wish(PROTECT, ONE, NOW, life=None, key=LIFE.key)
    assert find_protection(ONE.observation, [held], NEVER, None, NOW).protected
    assert not find_protection(ONE.observation, [replace(held, lifted_at=NOW)], NEVER, None, NOW).protected
    locked = machine(handling=Handling(protected=("terminate",))).observation
    assert find_protection(locked, [], (), None, NOW).why == "its provider protects it against terminate"


def test_a_lease_is_of_one_life_and_ends_at_its_end() -> None:
    lease = wish(LEASE, ONE, NOW, NOW + HOUR)
    assert find_lease(LIFE, [lease], NOW + HOUR - minutes(1)) == lease
    assert find_lease(LIFE, [lease], NOW + HOUR) is None
    assert find_lease_end(LIFE, [lease], NOW + HOUR) == NOW + HOUR
    assert find_lease_end(LIFE, [lease], NOW) is None
    restarted = LIFE._replace(started_at=NOW)
    assert find_lease(restarted, [lease], NOW) is None


def test_story_4_two_hours_cost_up_to_5_98_and_the_fourth_renewal_is_refused() -> None:
    rate, taken = Rate.parse("2.99"), list[Override]()
    for number in range(4):
        at = NOW + 2 * HOUR * number
        answer = decide_lease(LIFE, taken, [policy()], 2 * HOUR, at, rate=rate)
        assert (answer.allowed, answer.renewals, answer.costs) == (True, number, Money.parse("5.98"))
        taken.append(wish(LEASE, ONE, at, at + 2 * HOUR))
    refused = decide_lease(LIFE, taken, [policy()], 2 * HOUR, NOW + 8 * HOUR, rate=rate)
    assert (refused.allowed, refused.why) == (False, "idle-gpu allows 3 renewals; this would be number 4")
    assert decide_lease(LIFE, taken, [policy()], 2 * HOUR, NOW + 32 * HOUR).allowed


@pytest.mark.parametrize(
    ("hours", "why"), [(25, "idle-gpu allows leases of at most 24 h"), (0, "above zero"), (-1, "above zero")]
)
def test_a_lease_that_is_too_long_or_negative_is_refused(hours: int, why: str) -> None:
    answer = decide_lease(LIFE, [], [policy()], hours * HOUR, NOW)
    assert not answer.allowed
    assert why in answer.why


def arming(level: str, at: timedelta, until: timedelta = 90 * DAY) -> Override:
    return wish(ARM, ONE, NOW + at, NOW + at + until, subject="idle-gpu", value=level, life=None)


@pytest.mark.parametrize(
    ("file", "wishes", "level"),
    [
        (STOP, [arming(STOP, -DAY)], STOP),
        (STOP, [arming(STOP, -90 * DAY)], NOTIFY),
        (STOP, [], NOTIFY),
        (OBSERVE, [arming(TERMINATE, -DAY)], OBSERVE),
        (STOP, [arming(TERMINATE, -DAY)], STOP),
        (TERMINATE, [arming(TERMINATE, -2 * DAY), arming(NOTIFY, -DAY)], NOTIFY),
        (STOP, [replace(arming(STOP, -DAY), subject="another")], NOTIFY),
        (STOP, [replace(arming(STOP, -DAY), value="everything")], NOTIFY),
    ],
)
def test_a_policy_goes_as_far_as_both_its_file_and_its_newest_arming_allow(
    file: str, wishes: list[Override], level: str
) -> None:
    assert find_armed_level(policy(arm=file), wishes, NOW).level == level


@pytest.mark.parametrize(
    ("value", "level", "why"),
    [
        ("stop abcd", STOP, ""),
        ("stop 9999", OBSERVE, "it was edited since ada armed it, so it only observes: costguard policy accept abcd"),
        ("notify 9999", NOTIFY, "ada armed it for notify"),
        ("stop", NOTIFY, "it was armed without a digest of what it means, by an older version: costguard policy accept abcd"),
    ],
)
def test_an_arming_belongs_to_what_the_policy_meant(value: str, level: str, why: str) -> None:
    found = find_armed_level(policy(arm=STOP, digest="abcd"), [arming(value, -DAY)], NOW)
    assert (found.level, found.explain()) == (level, why)


def test_a_freeze_holds_all_and_one_of_a_machine_holds_that() -> None:
    all_of_it = wish(FREEZE, ONE, NOW, life=None)
    one = replace(all_of_it, key=LIFE.key)
    other = machine("other").observation.key
    assert find_freeze([all_of_it], other, NOW) == all_of_it
    assert (find_freeze([one], LIFE.key, NOW), find_freeze([one], other, NOW)) == (one, None)


def test_a_snooze_quiets_its_policy_or_its_machine() -> None:
    of_policy = wish(SNOOZE, ONE, NOW, NOW + HOUR, life=None, subject="idle-gpu")
    assert find_snooze(LIFE, "idle-gpu", [of_policy], NOW) == of_policy
    assert find_snooze(LIFE, "other", [of_policy], NOW) is None
    assert find_snooze(LIFE, "other", [wish(SNOOZE, ONE, NOW, NOW + HOUR)], NOW) is not None


def test_a_yes_binds_to_one_life() -> None:
    yes = wish(APPROVE, ONE, NOW, NOW + HOUR, subject=TERMINATE)
    assert list_approved_acts(LIFE, [yes], NOW) == {TERMINATE}
    assert list_approved_acts(LIFE._replace(started_at=NOW), [yes], NOW) == frozenset()
    assert list_approved_acts(LIFE, [replace(yes, life=None, key=LIFE.key)], NOW) == frozenset()
