"""Holds: where one counts, for how long, and what cannot be one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from costguard.budgets.budget import EVERYTHING, Budget, Match
from costguard.budgets.hold import LONGEST, MOST_NANO, Hold, counts_in, held, is_open
from costguard.errors import InputError
from costguard.values.money import Money

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
VISION = (("team", ("vision",)),)
HOLD = Hold(
    id="h1",
    money=Money.parse("2.99"),
    who="alice",
    why="training",
    taken_at=NOON,
    expires_at=NOON + timedelta(hours=1),
    provider="aws",
    owner="alice",
    gpu="H100-SXM",
    labels=(("team", "vision"),),
)
BARE = replace(HOLD, provider="", owner="", gpu="", labels=())


@pytest.mark.parametrize(
    ("match", "fits", "may_fit"),
    [
        (EVERYTHING, True, True),
        (Match(providers=("aws",)), True, True),
        (Match(providers=("gcp",)), False, True),
        (Match(accounts=("main",)), True, True),
        (Match(owners=("bob",)), False, True),
        (Match(gpus=("T4",)), False, True),
        (Match(regions=("us-east-1",), tiers=("spot",)), True, True),
        (Match(kinds=("instance",)), True, True),
        (Match(kinds=("volume",)), False, False),
        (Match(labels=VISION), True, True),
        (Match(labels=(("team", ("robotics",)),)), False, True),
        (Match(labels=(*VISION, ("project", ("x",)))), True, True),
    ],
)
def test_a_hold_counts_wherever_its_run_may_fall(match: Match, fits: bool, may_fit: bool) -> None:  # noqa: FBT001 - columns
    assert counts_in(HOLD, match) is fits
    assert counts_in(BARE, match) is may_fit


@pytest.mark.parametrize("field", ["providers", "accounts", "regions", "owners", "gpus", "tiers", "kinds", "labels"])
def test_an_empty_selector_counts_no_hold(field: str) -> None:
    assert not counts_in(BARE, Match(**{field: ()}))
    assert not counts_in(HOLD, Match(**{field: ()}))


def test_a_label_without_values_counts_no_hold() -> None:
    assert not counts_in(BARE, Match(labels=(("team", ()),)))


def test_a_hold_counts_until_it_expires_or_is_ended() -> None:
    assert is_open(HOLD, NOON)
    assert is_open(HOLD, HOLD.expires_at - timedelta(microseconds=1))
    assert not is_open(HOLD, HOLD.expires_at)
    assert not is_open(replace(HOLD, ended_at=NOON, ended_by="released"), NOON)


def test_what_is_held_of_a_budget_are_its_open_holds_in_its_currency() -> None:
    budget = Budget(name="vision", cap=Money.parse("100"), match=Match(labels=VISION))
    other = replace(HOLD, labels=(("team", "robotics"),))
    in_euro = replace(HOLD, money=Money.parse("7", "EUR"))
    ended = replace(HOLD, ended_at=NOON, ended_by="committed", spent=Money.parse("1"))
    assert held(budget, [HOLD, BARE, other, in_euro, ended], NOON) == Money.parse("5.98")
    assert held(budget, [], NOON) == Money.parse("0")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": ""}, "hold.id"),
        ({"id": "a\nb"}, "hold.id"),
        ({"why": "x" * 501}, "over 500 characters"),
        ({"money": Money.parse("0")}, "more than zero"),
        ({"money": Money(nano=MOST_NANO + 1)}, "at most a billion"),
        ({"expires_at": NOON}, "expires before it is taken"),
        ({"expires_at": NOON + LONGEST + timedelta(seconds=1)}, "more than 366 days"),
        ({"taken_at": datetime(1999, 1, 1, tzinfo=UTC)}, "between 2000 and 2200"),
        ({"ended_at": NOON}, "one of ended_at and ended_by"),
        ({"ended_by": "released"}, "one of ended_at and ended_by"),
        ({"ended_at": NOON, "ended_by": "lost"}, "unknown value"),
        ({"spent": Money.parse("1", "EUR")}, "must be USD"),
        ({"spent": Money.parse("-1")}, "zero or more"),
    ],
)
def test_what_is_no_hold_cannot_be_made(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        replace(HOLD, **change)
