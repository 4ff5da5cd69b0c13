"""Holds: where one counts, for how long, and what cannot be one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from costguard.budgets.budget import MATCH_ALL, Budget, ResourceFilter
from costguard.budgets.hold import (
    COMMITTED,
    HOLD_DURATION_MAX,
    HOLD_NANO_MAX,
    Hold,
    counts_in_filter,
    is_open_hold,
    sum_open_holds,
)
from costguard.errors import InputError
from costguard.reporting.statement.sections import QuotedRun, group_runs_by_job
from costguard.values.money import Money
from costguard.views.report_sections import _build_quoted_table

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
        (MATCH_ALL, True, True),
        (ResourceFilter(providers=("aws",)), True, True),
        (ResourceFilter(providers=("gcp",)), False, True),
        (ResourceFilter(accounts=("main",)), True, True),
        (ResourceFilter(owners=("bob",)), False, True),
        (ResourceFilter(gpus=("T4",)), False, True),
        (ResourceFilter(regions=("us-east-1",), tiers=("spot",)), True, True),
        (ResourceFilter(kinds=("instance",)), True, True),
        (ResourceFilter(kinds=("volume",)), False, False),
        (ResourceFilter(labels=VISION), True, True),
        (ResourceFilter(labels=(("team", ("robotics",)),)), False, True),
        (ResourceFilter(labels=(*VISION, ("project", ("x",)))), True, True),
    ],
)
def test_a_hold_counts_wherever_its_run_may_fall(match: ResourceFilter, fits: bool, may_fit: bool) -> None:  # noqa: FBT001 - columns
    assert counts_in_filter(HOLD, match) is fits
    assert counts_in_filter(BARE, match) is may_fit


def test_a_hold_counts_until_it_expires_or_is_ended() -> None:
    assert is_open_hold(HOLD, NOON)
    assert is_open_hold(HOLD, HOLD.expires_at - timedelta(microseconds=1))
    assert not is_open_hold(HOLD, HOLD.expires_at)
    assert not is_open_hold(replace(HOLD, ended_at=NOON, ended_by="released"), NOON)


def test_what_is_held_of_a_budget_are_its_open_holds_in_its_currency() -> None:
    budget = Budget(name="vision", cap=Money.parse("100"), match=ResourceFilter(labels=VISION))
    other = replace(HOLD, labels=(("team", "robotics"),))
    in_euro = replace(HOLD, money=Money.parse("7", "EUR"))
    ended = replace(HOLD, ended_at=NOON, ended_by="committed", spent=Money.parse("1"))
    assert sum_open_holds(budget, [HOLD, BARE, other, in_euro, ended], NOON) == Money.parse("5.98")
    assert sum_open_holds(budget, [], NOON) == Money.parse("0")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": ""}, "hold.id"),
        ({"id": "a\nb"}, "hold.id"),
        ({"why": "x" * 501}, "longer than 500 characters"),
        ({"money": Money.parse("0")}, "more than zero"),
        ({"money": Money(nano=HOLD_NANO_MAX + 1)}, "at most a billion"),
        ({"expires_at": NOON}, "expires before it starts"),
        ({"expires_at": NOON + HOLD_DURATION_MAX + timedelta(seconds=1)}, "more than 366 days"),
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


TEN = datetime(2026, 11, 22, 10, tzinfo=UTC)


def quote(number: int, held: str, spent: str, job: str = "llama", currency: str = "USD") -> QuotedRun:
    at = TEN + timedelta(hours=number)
    hold = Hold(
        id=f"{job}.{number}",
        money=Money.parse(held, currency),
        who="ada",
        why=f"job {job}, attempt {number}",
        taken_at=at,
        expires_at=at + timedelta(days=1),
        labels=(("job", job),) if job else (),
        ended_at=at + timedelta(minutes=30),
        ended_by=COMMITTED,
        spent=Money.parse(spent, currency),
    )
    return QuotedRun(hold=hold, actual=Money.parse(spent, currency))


def test_the_attempts_of_a_job_are_one_row_more_and_runs_without_a_job_none() -> None:
    quotes = (quote(1, "14.94", "6.20"), quote(2, "3", "2", job=""), quote(3, "5.98", "4.10"), quote(4, "1", "1", job="other"))
    llama, other = group_runs_by_job(quotes)
    assert (llama.job, llama.attempts, llama.quoted, llama.actual) == ("llama", 2, Money.parse("14.94"), Money.parse("10.30"))
    assert other.attempts == 1
    rows = _build_quoted_table(quotes).rows
    assert [row[0] for row in rows] == ["llama.1", ".2", "llama.3", "llama: 2 attempts", "other.4"]
    assert rows[3][3:] == ("$14.94", "$10.30", "$-4.64")
