"""What is said while nobody can look is what the worst answer would make of it. A machine costs a dollar a minute."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from costguard.metering.accrual import (
    EMPTY_DOUBTED_FOR,
    POLL_GAP,
    find_dearest_meters,
    find_last_seen,
    find_unobserved_usage,
    needs_price_ceilings,
)
from costguard.metering.billing import BillingRule, TimeRule
from costguard.metering.inventory import Complete, CoverageGap, Failed, Partial, UncoveredScope
from costguard.metering.observation import Disk, Observation, Price
from costguard.metering.span import MAYBE, Span, compute_charge
from costguard.reporting.statement.history import CostByDay
from costguard.values.calendar import Period
from costguard.values.money import Rate
from costguard.values.resource import ScopeKey
from costguard.views.document import STACKED
from costguard.views.report_charts import list_report_charts
from tests.metering.stories import EVER, RULE, Dollars, Story, key, machine, minute
from tests.reporting.test_figures import SPENT

UNTOLD, NEVER = replace(RULE, restarts="unstated"), replace(RULE, restarts="never")
LAGGING = replace(RULE, lag_s=60)
CEILINGS = {"H100-SXM": 240 * 10**9}
DISK = (Disk(1000, "disk"),)
OFF = machine(state="stopped", stopped_at=minute(5), disks=DISK)
LOOKED, NOW, SECOND = 10, 60, 1 / 60
CENT = Decimal("0.01")
ONE = frozenset({key()})


def beside(story: Story, at: float) -> tuple[Span, ...]:
    """What may have billed beside what is open."""
    known, seen_at = story.state.resources[key()], find_last_seen(story.state.resources[key()], story.state)
    dearest = find_dearest_meters(known.observation, story.rule, story.ceilings)
    return find_unobserved_usage(known, seen_at, minute(at), rule=story.rule, dearest=dearest, gap=POLL_GAP)


def said(story: Story, at: float, charge_of: str = "compute") -> tuple[Dollars, Dollars, Dollars]:
    """What a statement holds of one charge."""
    low, expected, high = story.cost(at, charge_of=charge_of)
    more = [compute_charge(span, EVER) for span in beside(story, at) if span.meter.charge == charge_of]
    assert all((one.low.nano, one.expected.nano) == (0, 0) for one in more)
    return low, expected, high + sum(one.high.to_decimal() for one in more)


def silent(seen: Observation, rule: BillingRule = RULE) -> Story:
    """`seen` was listed at ten minutes, and its provider fails since."""
    story = Story(rule, ceilings=CEILINGS)
    story.listed(1, replace(seen, state="running", stopped_at=None) if seen.stopped_at else seen)
    story.listed(LOOKED, seen)
    for at in range(LOOKED + 1, NOW):
        story.poll(at, Failed("503"))
    return story


def answers(seen: Observation, rule: BillingRule, most: str) -> Iterator[Observation | None]:
    """Anything that the scope may say at last, as the rule allows. `most`: the highest price."""
    prices = [seen.prices] if seen.tier != "spot" else [seen.prices, (Price(Rate.parse(most)),)]
    on = seen.state == "running"
    for price in prices:
        again = replace(seen, prices=price)
        yield again
        if rule.restarts == "never" and seen.state == "stopped":
            continue
        for started in (LOOKED + SECOND, 30, NOW):
            times: dict[str, Any] = {"started_at": minute(started), "stopped_at": None} if rule.restarts == "stated" else {}
            yield replace(again, state="running", **times)
        for stopped in (LOOKED + 2 * SECOND, 40):
            times = {"stopped_at": minute(stopped)} if rule.restarts == "stated" else {}
            begun: dict[str, Any] = {"started_at": minute(LOOKED + SECOND)} if times and not on else {}
            yield replace(again, state="stopped", **times, **begun)
    yield None


SEEN = {
    "off": OFF,
    "on": machine(disks=DISK),
    "starting": machine(state="starting", started_at=None, created_at=minute(LOOKED - 1), disks=DISK),
    "a spot machine that is on": machine(tier="spot", disks=DISK),
    "a spot machine that is off": replace(OFF, tier="spot"),
}
RULES = {"stated": RULE, "unstated": UNTOLD, "never": NEVER, "lagging": LAGGING}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN)
@pytest.mark.parametrize("charge_of", ["compute", "storage"])
def test_meanwhile_as_much_is_said_as_the_worst_answer_makes_of_it_and_no_more(
    seen: Observation, rule: BillingRule, charge_of: str
) -> None:
    seen = replace(seen, started_at=None, stopped_at=None) if rule.restarts != "stated" else seen
    story, found = silent(seen, rule), list[Decimal]()
    meanwhile = said(story, NOW, charge_of)
    for answer in answers(seen, rule, "240"):
        told = deepcopy(story)
        gone = ONE if answer is None else frozenset()
        told.poll(NOW, Complete(() if answer is None else (answer,)), gone=gone)
        after = said(told, NOW, charge_of)
        assert meanwhile[0] - CENT <= after[0], answer
        assert after[2] <= meanwhile[2] + CENT, answer
        found.append(Decimal(after[2]))
    assert max(found) >= meanwhile[2] - Decimal("0.05")


def test_what_was_off_counts_as_off_for_five_minutes_and_then_since_the_look() -> None:
    story = silent(OFF)
    assert said(story, LOOKED + 5) == (5, 5, 5)
    assert said(story, LOOKED + 6) == (5, 5, 11)
    assert [(span.presence, span.start, span.end) for span in beside(story, LOOKED + 6) if span.meter.charge == "compute"] == [
        (MAYBE, minute(LOOKED), minute(LOOKED + 6))
    ]


def test_what_ended_for_good_runs_no_more_however_long_nobody_looks() -> None:
    story = silent(machine(state="ended", stopped_at=minute(5)))
    assert beside(story, 10**5) == ()
    assert beside(silent(replace(OFF, started_at=None), NEVER), 10**5) == ()


def test_a_price_on_demand_holds_and_one_of_spot_may_be_the_dearest() -> None:
    assert said(silent(machine()), NOW) == (10, 60, 60)
    assert said(silent(machine(tier="spot")), NOW) == (9, 60, 4 + 9 + 4 * 50)  # $4 a minute, and before it was found, too


def test_the_market_bounds_what_nobody_stated_a_price_of_and_what_is_spot() -> None:
    assert needs_price_ceilings(machine(prices=()), RULE)
    assert needs_price_ceilings(machine(tier="spot"), RULE)
    assert not needs_price_ceilings(machine(), RULE)


def test_a_disk_is_bounded_by_the_state_in_which_it_costs_most() -> None:
    _, expected, high = said(silent(machine(disks=DISK)), NOW, "storage")
    assert abs(high - expected - Decimal(50) / 60) < Decimal("1e-8")  # a dollar an hour more, for fifty minutes


def test_what_ran_before_the_look_is_not_counted_twice() -> None:
    """The lag of the look reaches into a run that is paid for already."""
    story = Story(LAGGING)
    story.listed(1, machine())
    story.listed(LOOKED, machine(state="stopped", stopped_at=minute(9.5)))
    (span,) = beside(story, NOW)
    assert (span.start, said(story, NOW)) == (minute(9.5), (Decimal("9.5"), Decimal("9.5"), 60))


def test_a_step_and_a_minimum_bound_what_may_have_run_as_well() -> None:
    stepped = replace(RULE, compute=TimeRule(bills=("running",), free=("stopped",), quantum_s=3600, minimum_s=60))
    assert said(silent(OFF, stepped), NOW)[2] == 120  # an hour for five minutes, and another one begun


def test_a_partial_listing_is_no_look_at_what_it_leaves_out() -> None:
    story = silent(OFF)
    story.poll(NOW, Partial((), "page 2 was lost"))
    assert said(story, NOW) == (5, 5, 55)


def test_an_empty_list_that_nobody_can_confirm_is_doubted_for_two_days() -> None:
    story = Story()
    story.listed(LOOKED, machine())
    for at in (LOOKED + 1, LOOKED + 2, LOOKED + EMPTY_DOUBTED_FOR / timedelta(minutes=1) - 1):
        story.poll(at, Complete(()), unanswered=ONE)
        assert (story.last and story.last.outcome, said(story, at)) == ("partial", (10, at, at))
    last = LOOKED + EMPTY_DOUBTED_FOR / timedelta(minutes=1)
    story.poll(last, Complete(()), unanswered=ONE)
    story.poll(last + 1, Complete(()), unanswered=ONE)
    assert said(story, 10**5) == (10, 10 + (last - 10) / 2, last)


FIRST = datetime(2026, 10, 1, tzinfo=UTC)
DAYS = CostByDay(
    by="owner", days=tuple(date(2026, 10, n) for n in range(1, 5)), parts={"ada": (0, 0, 5 * 10**9, 0), "ben": (0,) * 4}
)


def hole(begin: int, end: int, scope: str = "one") -> UncoveredScope:
    """Days `begin` to `end`, the last not among them, of one scope."""
    of = Period(start=FIRST + timedelta(days=begin), end=FIRST + timedelta(days=end))
    return UncoveredScope(scope=ScopeKey("acme", "lab", scope), holes=(CoverageGap(period=of),))


@pytest.mark.parametrize(
    ("scopes", "unseen", "values"),
    [
        (1, (), (0.0, 0.0, 5.0, 0.0)),
        (1, (hole(0, 2),), (None, None, 5.0, 0.0)),
        (1, (hole(0, 4),), (None, None, 5.0, None)),
        (2, (hole(0, 4),), (0.0, 0.0, 5.0, 0.0)),
        (2, (hole(0, 2), hole(1, 4, "two")), (0.0, None, 5.0, 0.0)),
    ],
    ids=["all seen", "two unseen", "what is known stands", "another scope was seen", "both unseen"],
)
def test_a_day_is_unknown_where_no_scope_was_seen_and_nothing_is_known(
    scopes: int, unseen: tuple[UncoveredScope, ...], values: tuple[float | None, ...]
) -> None:
    chart = next(iter(list_report_charts(replace(SPENT, days=DAYS, scopes=scopes, unseen=unseen))))
    assert chart.kind == STACKED
    assert chart.series[0].values == values
    assert [text == "" for text in chart.series[1].texts] == [value is None for value in values]
