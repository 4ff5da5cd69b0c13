"""What is unusual by its own past: bursts raise the limit, one cause is one anomaly, people who join are none."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from costguard.guard.anomalies import (
    HOURS_BACK,
    Anomaly,
    BurningLine,
    PastCost,
    SpendHistory,
    Subject,
    find_anomalies,
    learn_usual_spend,
)
from costguard.metering.meter import COMPUTE
from costguard.values.instant import HOUR_US, to_micros
from costguard.values.money import NANO
from costguard.values.resource import INSTANCE, Attribution, ResourceKey

NOW = datetime(2026, 7, 7, 10, tzinfo=UTC)  # a Tuesday
HOUR = to_micros(NOW) // HOUR_US


def whose(owner: str, **more: str) -> Attribution:
    values = {"provider": "sim", "account": "main", "region": "us", "kind": INSTANCE, "gpu": "H100", "owner": owner, **more}
    return Attribution(**values, gpu_count=1)  # type: ignore[arg-type]


def spent(owner: str, day: int, dollars: float, *, at: int = 10, hours: int = 1) -> PastCost:
    """`dollars` an hour for `hours`, `day` days ago."""
    first = HOUR - day * 24 + at - 10
    return PastCost(whose(owner), COMPUTE, "USD", first, first + hours - 1, round(dollars * hours * NANO), 0)


def line(owner: str, dollars: float, name: str = "m", *, ago: float = 0, **more: str) -> BurningLine:
    where = whose(owner, **more)
    return BurningLine(
        key=ResourceKey(where.provider, where.account, where.region, name),
        name=name,
        attribution=where,
        charge=COMPUTE,
        part="",
        currency="USD",
        rate=round(dollars * NANO),
        quantity=1,
        since=NOW - timedelta(hours=ago),
    )


def find(past: Iterable[PastCost], *lines: BurningLine, floor: int = 20) -> list[Anomaly]:
    usual = learn_usual_spend(SpendHistory(costs=list(past)), lines, now=NOW, zone=UTC, floor_per_day=floor)
    return find_anomalies(usual, lines, now=NOW)


def test_steady_spending_leaves_its_history_at_once_and_bursts_only_beyond_themselves() -> None:
    steady = [spent("ada", day, 10) for day in range(1, 36)]
    bursts = [*steady, spent("ada", 10, 20, at=11), spent("ada", 20, 20, at=15)]
    assert [one.subject.name for one in find(steady, line("ada", 25))] == ["ada"]
    assert find(bursts, line("ada", 25)) == []
    assert [one.subject.name for one in find(bursts, line("ada", 60))] == ["ada"]


def test_one_past_anomaly_hides_no_other_one() -> None:
    past = [*(spent("ada", day, 10) for day in range(1, 36)), spent("ada", 14, 500, at=12)]
    assert [one.subject.name for one in find(past, line("ada", 40))] == ["ada"]


def test_the_same_machines_are_one_anomaly_and_two_causes_are_two() -> None:
    past = [spent(owner, day, 10) for day in range(1, 36) for owner in ("ada", "bob")]
    usual = [line("ada", 10, "a"), line("bob", 10, "b")]
    one = find(past, *usual, line("ada", 30, "more", ago=0))
    assert [(anomaly.subject, [of.name for of in anomaly.lines]) for anomaly in one] == [
        (Subject("owner", "ada", "USD"), ["more"])
    ]
    two = find(past, *usual, line("ada", 30, "more", ago=0), line("bob", 30, "other", ago=0))
    assert [anomaly.subject.name for anomaly in two] == ["ada", "bob"]


def test_what_several_owners_cost_together_is_told_by_gpu() -> None:
    past = [spent(f"owner-{number}", day, 3) for day in range(1, 36) for number in range(9)]
    lines = [line(f"owner-{number}", 6, f"m{number}") for number in range(9)]
    assert [one.subject[:2] for one in find(past, *lines, floor=100)] == [("gpu", "H100")]


def test_who_joins_is_not_unusual_and_a_machine_without_an_owner_is() -> None:
    past = [spent("ada", day, 40) for day in range(1, 36)]
    joined = find(past, line("ada", 40, "a"), line("newcomer", 15, "n"))
    assert [one.subject[:2] for one in joined] == [("gpu", "H100")]  # what everybody costs there
    assert [one.subject[:2] for one in find(past, line("ada", 40, "a"), line("", 15, "n"))] == [("owner", "")]


def test_an_excess_below_the_floor_or_in_a_short_history_is_silent() -> None:
    past = [spent("ada", day, 1) for day in range(1, 36)]
    assert find(past, line("ada", 1.8)) == []
    assert [one.subject.name for one in find(past, line("ada", 2))] == ["ada"]
    assert find([one for one in past if one.first > HOUR - 13 * 24], line("ada", 50)) == []


def test_a_history_longer_than_five_weeks_counts_from_its_last_five() -> None:
    long_span = PastCost(whose("ada"), COMPUTE, "USD", HOUR - 2 * HOURS_BACK, HOUR - 1, 10 * NANO * 2 * HOURS_BACK, 0)
    assert find([long_span], line("ada", 10)) == []
    assert [one.subject.name for one in find([long_span], line("ada", 25))] == ["ada"]
