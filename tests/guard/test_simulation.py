"""What a simulation adds up: parts come to their whole, to the nano-unit, and what was false is listed and never subtracted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from costguard.guard.replay.checkpoints import find_change_points
from costguard.guard.replay.history import (
    RecordedChange,
    ResourceHistory,
    ScopeListings,
    estimate_hourly_interval,
    expand_sample_hours,
    find_gaps,
)
from costguard.guard.replay.simulation import (
    NO,
    NOT_KNOWN,
    YES,
    PolicySimulation,
    SimulatedStop,
    Simulation,
    sum_cost_intervals,
)
from costguard.guard.signals import Activity, estimate_sample_interval
from costguard.metering.observation import Observation
from costguard.metering.spending import PollStretch
from costguard.values.calendar import Period
from costguard.values.instant import from_micros
from costguard.values.money import Money, MoneyInterval
from costguard.values.resource import Incarnation, ResourceKey, ScopeKey
from costguard.values.sample import GPU_UTIL, SampleHour

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
KEY = ResourceKey("aws", "1", "us-east-1", "i-1")
MINUTE = timedelta(minutes=1)
SCOPE = ScopeKey("aws", "1", "us-east-1")


def interval(low: int, more: int, most: int, currency: str = "USD") -> MoneyInterval:
    ends = (low, low + more, low + more + most)
    return MoneyInterval(
        **{name: Money(nano=nano, currency=currency) for name, nano in zip(("low", "expected", "high"), ends, strict=True)}
    )


AMOUNTS = st.builds(interval, *[st.integers(0, 10**13)] * 3, currency=st.sampled_from(("USD", "EUR")))


def stop(avoided: MoneyInterval, rest: MoneyInterval, policy: str, number: int, false: str) -> SimulatedStop:
    at = NOON + number * MINUTE
    return SimulatedStop(
        life=Incarnation(KEY, NOON),
        name="box",
        owner="ada",
        gpu="",
        policy=policy,
        act="stop",
        work=Activity(),
        since=NOON,
        told_at=NOON,
        wanted_at=at,
        at=at,
        until=at + MINUTE,
        because="worked",
        worked_at=None,
        false_stop=false,
        avoided=(avoided,),
        at_rest=(rest,),
    )


STOPS = st.lists(
    st.builds(stop, AMOUNTS, AMOUNTS, st.sampled_from("ab"), st.integers(0, 99), st.sampled_from((YES, NO, NOT_KNOWN)))
)


def simulation(stops: list[SimulatedStop]) -> Simulation:
    tried = tuple(
        PolicySimulation(name=name, level="observe", stops=tuple(s for s in stops if s.policy == name)) for name in "ab"
    )
    period = Period(start=NOON, end=NOON + timedelta(days=1))
    return Simulation(period=period, at=NOON, interval=MINUTE, resources=1, policies=tried)


@given(STOPS)
def test_the_parts_of_what_was_saved_come_to_the_whole(stops: list[SimulatedStop]) -> None:
    found = simulation(stops)
    assert sorted(found.saved, key=lambda m: m.low.currency) == list(sum_cost_intervals(one.saved for one in stops))
    assert len(found.stops) == len(stops)
    for currency in ("USD", "EUR"):
        whole = sum(m.expected.nano for m in found.saved if m.low.currency == currency)
        avoided = sum(m.expected.nano for one in stops for m in one.avoided if m.low.currency == currency)
        rest = sum(m.expected.nano for one in stops for m in one.at_rest if m.low.currency == currency)
        assert whole == avoided - rest


@given(STOPS)
def test_a_false_stop_is_counted_and_subtracted_nowhere(stops: list[SimulatedStop]) -> None:
    found = simulation(stops)
    assert sum(one.count_false_stops() for one in found.policies) == sum(s.false_stop == YES for s in stops)
    answers = [sum(one.count_false_stops(answer) for answer in (YES, NO, NOT_KNOWN)) for one in found.policies]
    assert answers == [len(one.stops) for one in found.policies]
    assert found.saved == sum_cost_intervals(one.saved for one in stops)


@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=6))
def test_samples_made_of_hours_keep_number_lowest_and_highest(hours: list[tuple[int, float, float]]) -> None:
    made = [
        SampleHour(start=NOON + n * timedelta(hours=1), count=count, sum=0.0, lowest=min(a, b), highest=max(a, b))
        for n, (count, a, b) in enumerate(hours)
    ]
    every = estimate_hourly_interval(made, MINUTE)
    ats, values = expand_sample_hours(made, every, ())
    assert len(ats) == sum(count for count, _, _ in hours)
    assert all(a < b for a, b in pairwise(ats))
    for one in made:
        inside = [v for at, v in zip(ats, values, strict=True) if one.start <= from_micros(at) < one.start + timedelta(hours=1)]
        assert (len(inside), max(inside)) == (one.count, one.highest)
        assert min(inside) >= one.lowest
    if len(ats) > 1 and max(count for count, _, _ in hours) > 1:
        assert estimate_sample_interval({GPU_UTIL: (ats, values)}, MINUTE) >= every - timedelta(microseconds=1)


def test_a_sample_that_did_not_come_turns_what_is_known() -> None:
    minutes = [*range(30), *range(40, 60)]
    ats = [int((NOON + n * MINUTE).timestamp()) * 10**6 for n in minutes]
    found = find_change_points({GPU_UTIL: (ats, [0.0] * len(ats))}, MINUTE, 45 * MINUTE, 1)
    assert {NOON + 29 * MINUTE, NOON + 40 * MINUTE} <= set(found)


def test_nothing_that_was_said_later_is_known_before() -> None:
    runs, rests = Observation(key=KEY, state="running"), Observation(key=KEY, state="stopped")
    said = (
        RecordedChange(at=NOON, seen=runs),
        RecordedChange(at=NOON + 9 * MINUTE, seen=rests),
        RecordedChange(at=NOON + 20 * MINUTE, seen=None),
    )
    past = ResourceHistory(key=KEY, scope=SCOPE, first_seen_at=NOON, said=said)
    assert past.get_observation(NOON - MINUTE) is None
    assert past.get_observation(NOON + 8 * MINUTE) == (runs, None)
    assert past.get_observation(NOON + 9 * MINUTE) == (rests, None)
    assert past.get_observation(NOON + 30 * MINUTE) == (rests, NOON + 20 * MINUTE)


def stretch(start: int, end: int, polls: int, outcome: str = "complete") -> PollStretch:
    return PollStretch(scope=SCOPE, outcome=outcome, start=NOON + start * MINUTE, end=NOON + end * MINUTE, polls=polls)


def test_listings_are_counted_as_if_they_had_come_evenly() -> None:
    lookout = ScopeListings(stretches=(stretch(0, 10, 11), stretch(20, 20, 1), stretch(30, 40, 3, "failed")))
    assert lookout.count_listings(NOON, NOON + 10 * MINUTE) == 11
    assert lookout.count_listings(NOON + 4 * MINUTE, NOON + 6 * MINUTE) == 3
    assert lookout.count_listings(NOON, NOON + 60 * MINUTE) == 12
    assert lookout.find_last_listing(NOON + 5.5 * MINUTE) == NOON + 5 * MINUTE
    assert lookout.find_last_listing(NOON + 35 * MINUTE) == NOON + 20 * MINUTE
    assert find_gaps(lookout.stretches, 5 * MINUTE) == (NOON + 20 * MINUTE, NOON + 30 * MINUTE)
