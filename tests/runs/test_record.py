"""A job over its attempts: hours and money add up, what is unknown stays so, and its file means the same when it is read."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from costguard.errors import InputError
from costguard.runs.record import (
    ENDED,
    LEASE_MIN,
    LOST,
    NEVER,
    OPEN,
    PLANNED,
    JobAttempt,
    JobMachine,
    JobRecord,
    JobTerms,
    build_job_hold,
    compute_lease_length,
    compute_share_left,
    find_hold_amount,
    parse_record,
    to_record_table,
)
from costguard.services.run_jobs.record_store import close_unwatched
from costguard.values.interval import Interval
from costguard.values.money import Money, MoneyInterval, Rate

TEN = datetime(2026, 11, 22, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
USD = MoneyInterval(low=Money.parse("7.47"), expected=Money.parse("9.96"), high=Money.parse("14.94"))
TERMS = JobTerms(machine=JobMachine(gpu="H100-SXM", count=1), hours=Interval(3.0, 4.0, 6.0), usd=USD, steps=1000)


def attempt(number: int, began: datetime, hours: float, **more: object) -> JobAttempt:
    facts: dict[str, object] = {
        "id": f"job.{number}",
        "number": number,
        "began_at": began,
        "seen_at": began + hours * HOUR,
        "host": "box",
        "boot": "b",
        "state": ENDED,
        "hourly": Rate.parse("2.49"),
    }
    return JobAttempt(**{**facts, **more})  # type: ignore[arg-type]  # facts by name, checked when it runs


def test_attempts_add_up() -> None:
    record = JobRecord(job="job", attempts=(attempt(1, TEN, 2.5, state=LOST), attempt(2, TEN + 3 * HOUR, 1)))
    assert record.seconds == 12600
    assert record.spent == Money.parse("8.715")


def test_an_attempt_at_an_unknown_price_leaves_the_money_unknown_and_one_that_never_began_does_not() -> None:
    record = JobRecord(job="job", attempts=(attempt(1, TEN, 1), attempt(2, TEN + 3 * HOUR, 1, hourly=None)))
    assert record.spent is None
    never = attempt(2, TEN, 0, state=NEVER, hourly=None)
    assert JobRecord(job="job", attempts=(attempt(1, TEN, 1), never)).spent == Money.parse("2.49")


def test_a_record_is_the_same_after_it_was_written_and_read() -> None:
    full = attempt(
        1, TEN, 1, status=143, why="SIGTERM", hold="h", held=USD.high, lease="l", quoted_hours=TERMS.hours, quoted_usd=USD,
        first_step=0, last_step=600,
    )  # fmt: skip
    record = JobRecord(job="job", attempts=(full, attempt(2, TEN + HOUR, 0, state=PLANNED, hourly=None)))
    assert parse_record(json.loads(json.dumps(to_record_table(record))), "f") == record


@pytest.mark.parametrize("broken", [None, [], {}, {"schema": "costguard.run-record/1"}])
def test_a_file_that_is_no_record_is_refused(broken: object) -> None:
    with pytest.raises(InputError, match="is not a record of a job"):
        parse_record(broken, "f.json")


@pytest.mark.parametrize(
    ("key", "value"), [("began_at", "soon"), ("number", "1"), ("state", "odd"), ("hourly", 3), ("id", None)]
)
def test_a_damaged_attempt_is_refused_and_named(key: str, value: object) -> None:
    table = json.loads(json.dumps(to_record_table(JobRecord(job="job", attempts=(attempt(1, TEN, 1),)))))
    table["attempts"][0][key] = value
    with pytest.raises(InputError, match=r"f\.json: is not a record of a job"):
        parse_record(table, "f.json")


def test_how_far_it_came_its_newest_attempt_says() -> None:
    far, anew, silent = (
        attempt(1, TEN, 1, last_step=600),
        attempt(2, TEN + HOUR, 1, last_step=10),
        attempt(3, TEN + 2 * HOUR, 1),
    )
    record = JobRecord(job="job", attempts=(far, anew, silent))
    assert (record.last_step, compute_share_left(record, 1000)) == (10, Fraction(99, 100))


def test_an_attempt_whose_end_was_seen_and_not_settled_has_ended() -> None:
    found = close_unwatched(attempt(1, TEN, 1, state=OPEN, status=7), lambda _: (), is_local=False)
    assert isinstance(found, JobAttempt)
    assert (found.state, found.status) == (ENDED, 7)


def test_the_next_attempt_holds_what_is_left() -> None:
    record = JobRecord(job="job", attempts=(attempt(1, TEN, 1, last_step=600),))
    assert compute_share_left(record, 1000) == Fraction(2, 5)
    assert compute_share_left(record, None) == 1
    assert compute_share_left(record, 500) == 1, "a count that does not fit says nothing"
    left = replace(TERMS, share=Fraction(2, 5))
    assert find_hold_amount(left, None) == Money.parse("5.976")
    assert compute_lease_length(left, timedelta(days=30)) in (timedelta(seconds=12960), timedelta(seconds=12961)), (
        "1.5 times 2.4 h"
    )
    hold = build_job_hold(attempt(2, TEN, 0), "job", Money.parse("5.976"), left, who="ada", labels={"team": "x"}, now=TEN)
    assert abs(hold.expires_at - TEN - timedelta(hours=1.5 * 2.4 + 1)) < timedelta(seconds=1)
    assert hold.labels == (("job", "job"), ("team", "x"))


def test_what_is_not_known_is_held_up_to_the_limit_or_not_at_all() -> None:
    unknown = JobTerms(machine=JobMachine())
    assert find_hold_amount(unknown, None) is None
    assert find_hold_amount(unknown, Money.parse("5")) == Money.parse("5")
    assert compute_lease_length(unknown, timedelta(days=30)) is None
    assert compute_lease_length(replace(TERMS, hours=Interval(0.0, 0.0, 0.01)), timedelta(days=30)) == LEASE_MIN


def test_an_open_attempt_is_closed_by_looking() -> None:
    going = attempt(1, TEN, 1, state=OPEN)
    assert close_unwatched(going, lambda _: [12], is_local=True) == [12]
    lost = close_unwatched(going, lambda _: [], is_local=True)
    assert isinstance(lost, JobAttempt)
    assert (lost.state, lost.seconds) == (LOST, 3600)
    elsewhere = close_unwatched(going, lambda _: [12], is_local=False)
    assert isinstance(elsewhere, JobAttempt)
    assert (elsewhere.state, "on box" in elsewhere.why) == (LOST, True)
    planned = close_unwatched(attempt(1, TEN, 0, state=PLANNED), lambda _: [], is_local=True)
    assert isinstance(planned, JobAttempt)
    assert planned.state == NEVER
    done = attempt(1, TEN, 1)
    assert close_unwatched(done, lambda _: [], is_local=True) == done
