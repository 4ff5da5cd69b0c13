"""What a provider says is believed where it can be, and what cannot be is said and left out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.errors import InputError
from costguard.metering.inventory import Complete, Failed, Partial, Poll, remove_duplicates
from costguard.metering.observation import (
    MOST_GPUS,
    PROVIDER_CLOCK_AHEAD_MAX,
    Observation,
    drop_impossible_times,
    parse_hourly_rate,
)
from costguard.values.money import NANO, Rate
from costguard.values.resource import Attribution, ResourceKey, ScopeKey

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def seen(id_: str = "i-1", /, **more: object) -> Observation:
    plain = Observation(key=ResourceKey("acme", "team", "eu", id_), state="running")
    return replace(plain, **more)  # type: ignore[arg-type]


# Prices.


@pytest.mark.parametrize(
    ("value", "nano"),
    [
        ("2.49", 2_490_000_000),
        (2, 2 * NANO),
        (2.5, 2_500_000_000),
        (Decimal("32.7726"), 32_772_600_000),
        ("0.0000000005", None),  # half a nano-dollar rounds to even: to nothing
        ("0.0000000006", 1),
        ("1e2", 100 * NANO),
        ("1000", 1000 * NANO),
    ],
)
def test_a_price_is_a_decimal_of_dollars_an_hour(value: object, nano: int | None) -> None:
    rate, why = parse_hourly_rate(value)
    assert rate == (Rate(nano_per_hour=nano) if nano else None)
    assert bool(why) is (nano is None)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "is missing"),
        ("", "is missing"),
        (0, "unknown, not free"),
        ("0.000", "unknown, not free"),
        (-1, "unknown, not free"),
        ("-0.5", "unknown, not free"),
        (float("nan"), "unknown, not free"),
        ("NaN", "unknown, not free"),
        ("sNaN", "unknown, not free"),
        (float("inf"), "unknown, not free"),
        ("-Infinity", "unknown, not free"),
        (True, "unknown, not free"),
        (1e9, "more than any machine costs"),
        ("1e900000", "more than any machine costs"),
        ("1000.01", "more than any machine costs"),
        ("free", "not a number"),
        ("$2.49", "not a number"),
        ("2,49", "not a number"),
        (["2.49"], "not a number"),
        ({}, "not a number"),
        (b"2.49", "not a number"),
        ("1e-12", "less than a nano-dollar"),
        ("1e-999999999999999999", "nano-dollar"),
    ],
)
def test_a_price_that_cannot_be_is_unknown_and_says_why(value: object, words: str) -> None:
    rate, why = parse_hourly_rate(value, field="pod.cost")
    assert rate is None
    assert words in why
    assert why.startswith("pod.cost")
    assert len(why) < 160


def test_what_is_shown_of_a_bad_price_cannot_act_on_a_terminal() -> None:
    for value in ("\x1b[31mred", "2\n3", "\u202e2", ["\x1b"], "9" * 10_000 + "x"):
        _, why = parse_hourly_rate(value)
        assert why.isprintable()
        assert len(why) < 160


@pytest.mark.parametrize(
    ("gpus", "usd", "believed"),
    [
        (8, "8000", True),
        (8, "8001", False),
        (0, "1000", True),
        (0, "1001", False),
        (0.125, "1000", True),
        (-3, "1001", False),
        (float("nan"), "1001", False),
        (float("inf"), "1001", False),
        (MOST_GPUS, "34000", True),
        (MOST_GPUS, "34001", False),
    ],
)
def test_the_highest_price_believed_grows_with_the_gpus(gpus: float, usd: str, believed: bool) -> None:  # noqa: FBT001 - a column of the table
    assert (parse_hourly_rate(usd, gpus=gpus)[0] is not None) is believed


@given(
    st.one_of(st.none(), st.booleans(), st.text(), st.floats(), st.integers(), st.decimals(), st.binary(), st.lists(st.text()))
)
def test_whatever_is_stated_is_a_price_that_can_be_or_unknown_with_a_reason(value: object) -> None:
    rate, why = parse_hourly_rate(value)
    assert (rate is None) is bool(why)
    assert rate is None or 0 < rate.nano_per_hour <= 1000 * NANO


# Times.


def test_a_time_in_the_future_is_dropped_and_the_rest_kept() -> None:
    item = seen(started_at=AT + PROVIDER_CLOCK_AHEAD_MAX + timedelta(seconds=1), created_at=AT - HOUR, gpu="L4")
    kept, notes = drop_impossible_times(item, AT)
    assert kept == replace(item, started_at=None)
    assert len(notes) == 1
    assert "acme i-1: started_at 2026-11-21 12:05 is in the future" in notes[0]


def test_a_clock_that_runs_a_little_ahead_is_believed() -> None:
    item = seen(started_at=AT + PROVIDER_CLOCK_AHEAD_MAX)
    assert drop_impossible_times(item, AT) == (item, ())


@pytest.mark.parametrize("name", ["created_at", "started_at", "stopped_at"])
def test_a_time_before_2000_is_an_empty_field(name: str) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    kept, notes = drop_impossible_times(seen(**{name: epoch}), AT)
    assert getattr(kept, name) is None
    assert f"{name} 1970-01-01 00:00 is before 2000" in notes[0]
    first = datetime(2000, 1, 1, tzinfo=UTC)
    assert drop_impossible_times(seen(**{name: first}), AT)[1] == ()


@pytest.mark.parametrize("state", ["stopped", "ended"])
def test_a_stop_before_the_start_is_dropped_where_the_run_is_over(state: str) -> None:
    kept, notes = drop_impossible_times(seen(state=state, started_at=AT - HOUR, stopped_at=AT - 2 * HOUR), AT)
    assert (kept.started_at, kept.stopped_at) == (AT - HOUR, None)
    assert "before started_at" in notes[0]


def test_a_running_machine_keeps_the_stop_of_its_last_run() -> None:
    item = seen(started_at=AT - HOUR, stopped_at=AT - 2 * HOUR)
    assert drop_impossible_times(item, AT) == (item, ())


def test_a_start_a_few_milliseconds_before_its_creation_is_believed() -> None:
    """A RunPod pair that was captured: `startedAt` 6 ms before `createdAt`."""
    item = seen(created_at=AT - HOUR, started_at=AT - HOUR - timedelta(milliseconds=6))
    assert drop_impossible_times(item, AT) == (item, ())


moments = st.none() | st.datetimes(timezones=st.just(UTC))


@given(moments, moments, moments, st.sampled_from(("running", "stopped", "ended")))
def test_what_is_believed_once_is_believed_again(
    created: datetime | None, started: datetime | None, stopped: datetime | None, state: str
) -> None:
    kept, _ = drop_impossible_times(seen(state=state, created_at=created, started_at=started, stopped_at=stopped), AT)
    assert drop_impossible_times(kept, AT) == (kept, ())


# Values that cannot be built.


@pytest.mark.parametrize(
    "change",
    [
        {"state": "sleeping"},
        {"tier": "gold"},
        {"key": ResourceKey("", "team", "eu", "i-1")},
        {"key": ResourceKey("acme", "", "eu", "i-1")},
        {"key": ResourceKey("acme", "team", "eu", "")},
        {"started_at": AT.replace(tzinfo=None)},
        {"stopped_at": AT.astimezone(timezone(HOUR))},
        {"gpu_count": -1},
        {"gpu_count": float("nan")},
        {"gpu_count": float("inf")},
        {"gpu_count": MOST_GPUS + 1},
    ],
)
def test_an_observation_that_cannot_be_is_refused_by_its_resource(change: dict[str, object]) -> None:
    with pytest.raises(InputError, match="resource"):
        seen(**change)


def test_spending_is_grouped_by_few_labels_in_lower_case() -> None:
    labels = (("Name", "train-7"), ("Project", "llama"), ("team", "Vision"))
    assert seen(labels=labels).attribution.labels == (("project", "llama"), ("team", "Vision"))
    assert seen().attribution == Attribution("acme", "team", "eu", "instance", tier="on-demand")
    with pytest.raises(InputError, match="kind"):
        _ = seen(kind="cluster").attribution


# Listings.

ONE, TWO, THREE = seen("i-1"), seen("i-2"), seen("i-3")
OTHER_ONE = seen("i-1", state="stopped")


def test_two_rows_that_agree_are_one() -> None:
    assert remove_duplicates(Complete((ONE, TWO, seen("i-1")))) == (Complete((ONE, TWO)), ())
    assert remove_duplicates(Partial((ONE, ONE), "page 2 failed")) == (Partial((ONE,), "page 2 failed"), ())


def test_two_rows_that_differ_leave_the_listing_partial_and_neither_is_believed() -> None:
    found, notes = remove_duplicates(Complete((ONE, TWO, OTHER_ONE)))
    assert found == Partial((TWO,), "i-1 appears twice in one listing, with different values")
    assert notes == ("i-1 appears twice in one listing, with different values",)


def test_a_partial_listing_stays_partial_for_its_own_reason_too() -> None:
    found, notes = remove_duplicates(Partial((ONE, OTHER_ONE, TWO, seen("i-2", name="b"), THREE), "page 3 failed"))
    assert found == Partial((THREE,), "page 3 failed; i-1 and 1 more appear twice in one listing, with different values")
    assert notes == ("i-1 and 1 more appear twice in one listing, with different values",)


@given(st.lists(st.sampled_from((ONE, OTHER_ONE, TWO, THREE, seen("i-3"))), max_size=8))
def test_a_listing_without_doubles_has_each_id_at_most_once_and_none_is_made_up(items: list[Observation]) -> None:
    found, notes = remove_duplicates(Complete(tuple(items)))
    assert not isinstance(found, Failed)
    keys = [item.key for item in found.items]
    assert len(set(keys)) == len(keys)
    assert set(found.items) <= set(items)
    assert isinstance(found, Complete) is (not notes)
    assert isinstance(found, Partial) or {item.key for item in items} == set(keys)


SCOPE = ScopeKey("acme", "team", "eu")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"at": datetime(1999, 12, 31, tzinfo=UTC)}, "between 2000 and 2200"),
        ({"at": datetime(2200, 1, 1, tzinfo=UTC)}, "between 2000 and 2200"),
        ({"at": AT.replace(tzinfo=None)}, "UTC"),
        ({"asked_at": AT + timedelta(microseconds=1)}, "after the answer"),
        ({"scope": ScopeKey("acme", "", "eu")}, "scope"),
    ],
)
def test_a_poll_that_cannot_be_is_refused(change: dict[str, object], words: str) -> None:
    fields: dict[str, object] = {"scope": SCOPE, "at": AT, "inventory": Complete(()), **change}
    with pytest.raises(InputError, match=words):
        Poll(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["i-\0", "i-\ud800"])
def test_an_id_that_no_database_can_hold_is_refused(bad: str) -> None:
    with pytest.raises(InputError, match="cannot be stored"):
        Observation(key=ResourceKey("cloud", "lab", "here", bad), state="running")
