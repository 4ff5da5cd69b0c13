"""The eight rules of metering, as stories of one scope. A machine costs a dollar a minute, so dollars are minutes."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.metering.accrual import find_suspect_absences
from costguard.metering.inventory import Complete, Failed, Inventory, Partial
from costguard.metering.observation import Disk, Observation, Price, TrafficCounter
from costguard.values.money import Rate
from costguard.values.resource import KINDS, STATES
from tests.campaign import examples
from tests.metering.stories import RULE, Story, key, machine, minute

UNTOLD = replace(RULE, restarts="unstated")
LAGGING = replace(RULE, lag_s=60)
GONE = frozenset({key()})


def untold(name: str = "i-1", **stated: object) -> Observation:
    """A machine whose provider states no times."""
    return machine(name, **{"started_at": None, **stated})


def test_a_stated_start_and_stop_are_charged_to_the_second() -> None:
    story = Story()
    story.listed(1, machine())
    story.listed(2, machine())
    story.listed(91, machine(state="stopped", stopped_at=minute(90.5)))
    assert story.exactly(500) == Decimal("90.5")


def test_a_poll_without_change_writes_nothing_but_coverage() -> None:
    story = Story()
    story.listed(1, machine(), machine("i-2"))
    same = story.listed(2, machine("i-2"), machine())
    assert (same.logged, same.closed, same.opened, same.corrected, same.fresh) == ((), (), (), (), True)
    assert same.state.resources is story.state.resources


def test_a_machine_found_late_is_back_dated_to_its_stated_start() -> None:
    story = Story()
    story.listed(1, machine("i-2"))
    story.listed(600, machine("i-2"), machine(started_at=minute(300)))
    assert story.exactly(600) == 300


def test_a_machine_found_after_it_stopped_is_charged_for_its_run() -> None:
    story = Story()
    story.listed(600, machine(state="stopped", started_at=minute(100), stopped_at=minute(130)))
    assert story.exactly(600) == 30


def test_a_watchdog_that_slept_charges_what_really_ran() -> None:
    story = Story()
    story.listed(1, machine())
    story.listed(5000, machine())
    assert story.exactly(5000) == 5000


def test_an_open_span_surely_reaches_as_far_as_its_scope_is_covered() -> None:
    story = Story()
    story.listed(10, machine())
    story.poll(20, Failed("timeout"))
    assert story.cost(30) == (10, 30, 30)


def test_a_vanished_machine_costs_at_most_the_minute_that_nobody_saw() -> None:
    story = Story()
    story.listed(10, machine())
    story.listed(11)
    story.listed(12)
    assert story.cost(999) == (10, Decimal("10.5"), 11)


def test_one_listing_without_it_settles_nothing() -> None:
    story = Story()
    story.listed(10, machine())
    story.listed(11)
    assert story.cost(20) == (10, Decimal("10.5"), 20)
    story.listed(12, machine())
    assert story.exactly(12) == 12


def test_two_listings_within_a_minute_settle_nothing() -> None:
    story = Story()
    story.listed(10, machine())
    story.listed(11)
    story.listed(11.5)
    assert story.cost(20)[2] == 20


def test_partial_and_failed_listings_prove_no_absence() -> None:
    story = Story()
    story.listed(10, machine(), machine("i-2"))
    for at in range(11, 30):
        story.poll(at, Partial((machine("i-2"),), "page 2 was lost") if at % 2 else Failed("timeout"))
    assert not any(span.end for span in story.spans)
    story.listed(30, machine(), machine("i-2"))
    assert story.exactly(30) == 30


def test_a_partial_listing_shows_what_is_new_and_what_changed() -> None:
    story = Story()
    story.listed(10, machine())
    stopped = machine(state="stopped", stopped_at=minute(12))
    story.poll(15, Partial((stopped, machine("i-2", started_at=minute(13))), "page 2 was lost"))
    assert story.exactly(15) == 12
    assert story.cost(15, name="i-2") == (2, 2, 2)


def test_a_machine_that_vanished_and_came_back_had_never_gone() -> None:
    story = Story()
    story.listed(10, machine())
    for at in (11, 12, 13):
        story.listed(at)
    back = story.listed(14, machine())
    assert [fix.reason for fix in back.corrected] == ["seen again, and it is still the same run"]
    assert story.exactly(14) == 14
    story.listed(20, machine(state="stopped", stopped_at=minute(19)))
    assert story.exactly(30) == 19


def test_too_many_gone_at_once_are_not_believed() -> None:
    story, names = Story(), ("i-1", "i-2", "i-3")
    story.listed(10, *(machine(name) for name in names))
    for at in range(11, 60):
        assert find_suspect_absences(story.state, Complete(())) != ()
        assert story.listed(at).outcome == "partial"
    assert story.cost(60) == (10, 60, 60)
    story.listed(60, *(machine(name) for name in names))
    assert story.exactly(60) == 60


def test_one_that_was_looked_up_and_is_gone_has_ended() -> None:
    story, names = Story(), ("i-1", "i-2", "i-3")
    story.listed(10, *(machine(name) for name in names))
    story.poll(11, Complete(()), gone=GONE)
    assert story.cost(60) == (10, Decimal("10.5"), 11)
    assert story.cost(60, name="i-2")[2] == 60


def test_a_lie_is_no_truer_for_having_been_caught_once() -> None:
    story, names = Story(), ("i-1", "i-2", "i-3")
    story.listed(10, *(machine(name) for name in names))
    story.poll(11, Complete(()), gone=GONE)
    for at in (12, 13, 14):
        assert story.listed(at).outcome == "partial"
    story.listed(15, machine("i-2"), machine("i-3"))
    assert story.cost(15, name="i-2") == (15, 15, 15)


def test_a_restart_inside_a_gap_ends_one_run_and_begins_another() -> None:
    story = Story()
    story.listed(10, machine())
    story.listed(14, machine(started_at=minute(13)))
    assert story.cost(14) == (11, Decimal("12.5"), 14)
    anchors = [span.anchor for span in story.spans if span.end is None]
    assert anchors == [minute(13)]


def test_a_restart_whose_stop_is_stated_is_exact() -> None:
    story = Story()
    story.listed(10, machine())
    story.listed(14, machine(started_at=minute(13), stopped_at=minute(11)))
    assert story.exactly(14) == 12


def test_a_price_that_rose_before_an_unseen_restart_is_within_bounds() -> None:
    story = Story()
    story.listed(10, machine())
    story.listed(14, machine(started_at=minute(13), prices=(Price(Rate.parse("120")),)))
    assert story.cost(14) == (10 + 1, Decimal("13.75"), 10 + 6 + 2)


def test_before_the_day_of_a_price_a_run_that_nobody_saw_begin_had_the_price_known_before() -> None:
    story = Story()
    story.listed(10, machine())
    dearer = machine(started_at=minute(20), prices=(Price(Rate.parse("120"), since=minute(30)),))
    story.listed(40, dearer)
    story.listed(41, dearer)
    low, _, high = story.cost(41)
    assert (low, high) == (10 + 10 + 11 * 2, 10 + 2 * 10 + 10 + 11 * 2)


def test_a_long_gap_may_hide_more_than_the_last_stop() -> None:
    story = Story()
    story.listed(10, machine())
    story.listed(500, machine(started_at=minute(490), stopped_at=minute(480)))
    assert story.cost(500) == (20, 255, 490)


def test_a_start_that_nobody_stated_lies_between_two_listings() -> None:
    story = Story()
    story.listed(10)
    story.listed(12, untold())
    story.listed(13, untold())
    assert story.cost(13) == (1, 2, 3)


def test_a_provider_that_states_no_start_is_believed_between_close_looks() -> None:
    story = Story(UNTOLD)
    for at in range(1, 60):
        story.listed(at, untold())
    assert story.exactly(59) == 58


def test_a_provider_that_states_no_start_may_have_stopped_in_a_long_gap() -> None:
    story = Story(UNTOLD)
    story.listed(1, untold())
    story.listed(10, untold())
    story.listed(40, untold())
    assert story.cost(40) == (0, 39, 39)
    story.listed(41, untold())
    assert story.cost(41) == (1, 40, 40)


def test_where_one_id_is_one_run_a_long_gap_hides_nothing() -> None:
    story = Story(replace(RULE, restarts="never"))
    story.listed(1, untold())
    story.listed(500, untold())
    assert story.exactly(500) == 499


def test_stated_prices_change_when_the_provider_says() -> None:
    story = Story()
    before = Price(Rate.parse("60"), since=minute(-60))
    story.listed(1, machine(prices=(before,)))
    story.listed(
        30, machine(prices=(before, Price(Rate.parse("120"), since=minute(10)), Price(Rate.parse("30"), since=minute(20))))
    )
    assert story.exactly(30) == 10 + 20 + 5


def test_a_price_that_changed_unseen_lies_between_both() -> None:
    story = Story()
    story.listed(1, machine())
    story.listed(11, machine(prices=(Price(Rate.parse("120")),)))
    assert story.cost(11) == (11, 16, 21)


def test_an_older_page_from_a_cache_changes_no_price_and_no_run() -> None:
    story = Story(LAGGING)
    old = Price(Rate.parse("60"), since=minute(-60))
    new = (old, Price(Rate.parse("120"), since=minute(10)))
    story.listed(11, machine(prices=new, started_at=minute(5)))
    stale = story.listed(12, machine(prices=(old,), started_at=minute(5)))
    older = story.listed(13, machine(prices=new, started_at=minute(1)))
    assert (stale.opened, older.opened, stale.logged, older.logged) == ((), (), (), ())


def test_a_listing_that_lags_proves_less() -> None:
    story = Story(LAGGING)
    story.listed(10, machine())
    story.listed(11)
    story.listed(12)
    assert story.cost(20) == (9, 10, 11)


def test_a_slow_answer_proves_only_up_to_when_it_was_asked_for() -> None:
    story = Story()
    story.poll(12, Complete((machine(),)), asked=10)
    story.poll(15, Complete(()), asked=14)
    story.listed(17)
    assert story.cost(30) == (10, Decimal("12.5"), 15)


def test_a_stopped_machine_pays_for_its_disk_at_its_own_price() -> None:
    story = Story()
    disks = (Disk(1000, "disk"),)
    story.listed(0, machine(disks=disks))
    story.listed(61, machine(state="stopped", stopped_at=minute(60), disks=disks))
    story.listed(120, machine(state="stopped", stopped_at=minute(60), disks=disks))
    assert story.exactly(120) == 60
    assert story.exactly(120, charge_of="storage") == 1 + 2


def test_a_volume_bills_until_it_is_gone_and_never_stops() -> None:
    story = Story(UNTOLD)
    volume = Observation(key=key("v"), kind="volume", state="running", disks=(Disk(1000, "disk"),), created_at=minute(-60))
    story.listed(0, volume)
    story.listed(600, volume)
    assert story.exactly(600, charge_of="storage", name="v") == 11


def test_an_address_bills_by_the_hour() -> None:
    story = Story(replace(RULE, restarts="never"))
    address = Observation(
        key=key("a"), kind="address", state="running", prices=(Price(Rate.parse("0.005")),), created_at=minute(0)
    )
    story.listed(30, address)
    assert story.exactly(30, charge_of="address", name="a") == Decimal("0.0025")


def test_an_unknown_price_is_bounded_and_never_nothing() -> None:
    story = Story(ceilings={"H100-SXM": 12 * 10**9})
    story.listed(0, machine(prices=()))
    story.listed(60, machine(prices=()))
    assert story.cost(60) == (0, 0, 12)
    assert not story.spans[0].meter.price.known


def test_a_new_owner_pays_from_the_moment_it_is_seen() -> None:
    story = Story()
    story.listed(0, machine(owner="ann"))
    story.listed(30, machine(owner="bob"))
    story.listed(60, machine(owner="bob"))
    assert [(s.attribution.owner, s.start, s.end) for s in story.spans] == [
        ("ann", minute(0), minute(30)),
        ("bob", minute(30), None),
    ]
    assert story.exactly(60) == 60


def test_the_same_poll_twice_changes_nothing_the_second_time() -> None:
    story = Story()
    story.listed(1, machine())
    spans, state = list(story.spans), story.state
    again = story.listed(1, machine(state="stopped", stopped_at=minute(0.5)))
    assert not again.fresh
    assert (story.spans, story.state) == (spans, state)


@pytest.mark.parametrize("at", [-60 * 24 * 365 * 40, 60 * 24 * 400])
def test_an_impossible_start_is_not_believed(at: float) -> None:
    story = Story()
    story.listed(10)
    accrued = story.listed(12, machine(started_at=minute(at)))
    assert any("is ignored" in note for note in accrued.notes)
    story.listed(13, machine(started_at=minute(at)))
    assert story.cost(13) == (1, 2, 3)


def test_a_clock_a_little_ahead_starts_no_new_run_with_every_poll() -> None:
    story = Story()
    story.listed(10, machine(started_at=minute(10.1)))
    assert story.listed(11, machine(started_at=minute(10.1))).opened == ()
    assert story.exactly(11) == Decimal("0.9")


def test_one_id_twice_and_differently_leaves_the_resource_as_it_was() -> None:
    story = Story()
    story.listed(1, machine(), machine("i-2"))
    torn = story.listed(2, machine(), machine(state="stopped", stopped_at=minute(1)), machine("i-2"))
    assert (torn.outcome, torn.opened, torn.closed) == ("partial", (), ())
    assert "i-1 appears twice in one listing" in torn.why


def test_currencies_are_never_mixed_in_one_span() -> None:
    story = Story()
    story.listed(0, machine())
    story.listed(10, machine(prices=(Price(Rate.parse("60", "EUR")),)))
    story.listed(20, machine(prices=(Price(Rate.parse("60", "EUR")),)))
    lasting = [(s.meter.price.currency, s.end) for s in story.spans if s.end is None or s.end > s.start]
    assert lasting == [("USD", minute(10)), ("EUR", None)]


def test_a_spot_price_may_have_moved_while_nobody_looked() -> None:
    story = Story(ceilings={"H100-SXM": 240 * 10**9})
    spot = machine(tier="spot", started_at=minute(10))
    story.listed(10, spot)
    story.listed(20, spot)
    story.listed(21)
    story.listed(22)
    assert story.cost(30) == (10, Decimal("10.5"), 14)


def test_what_a_spot_machine_cost_before_the_first_look_is_not_what_it_costs_now() -> None:
    story = Story(ceilings={"H100-SXM": 240 * 10**9})
    story.listed(10, machine(tier="spot"))
    story.listed(20, machine(tier="spot"))
    assert story.cost(20) == (10, 20, 50)


DISK = Disk(1000, "disk")
GROWN = Disk(3000, "disk")


def test_a_stated_restart_does_not_date_a_disk_that_grew() -> None:
    story = Story()
    story.listed(0, machine(disks=(DISK,)))
    story.listed(600, machine(disks=(GROWN,), started_at=minute(590), stopped_at=minute(580)))
    low, _, high = story.cost(600, charge_of="storage")
    assert low <= 11
    assert high >= 30.3
    story.listed(660, machine(disks=(GROWN,), started_at=minute(590), stopped_at=minute(580)))
    assert story.cost(660, charge_of="storage")[0] == low + 3


def test_a_stated_stop_does_not_date_a_price_that_fell() -> None:
    story = Story()
    story.listed(0, machine())
    story.listed(600, machine(started_at=minute(60), stopped_at=minute(50), prices=(Price(Rate.parse("6")),)))
    low, _, high = story.cost(600)
    assert low <= 54
    assert high >= 590


def test_a_machine_that_was_off_may_have_run_in_a_long_gap() -> None:
    story = Story()
    story.listed(0, machine(state="stopped", started_at=minute(-60), stopped_at=minute(-30)))
    story.listed(600, machine(started_at=minute(590), stopped_at=minute(580)))
    assert story.cost(600) == (30 + 10, 30 + 10, 30 + 580 + 10)


def test_a_run_that_a_long_gap_hides_may_have_had_the_price_that_is_found_after_it() -> None:
    story = Story()
    story.listed(0, machine(state="stopped", started_at=minute(-60), stopped_at=minute(-30)))
    story.listed(600, machine(started_at=minute(590), stopped_at=minute(580), prices=(Price(Rate.parse("600")),)))
    low, _, high = story.cost(600)
    assert (low, high) == (30 + 10, 30 + 10 * 580 + 10 * 10)  # a dollar a minute before, ten after: the hidden run at either


def test_a_run_that_a_long_gap_hides_may_have_had_the_disk_that_is_found_after_it() -> None:
    story = Story(rule=UNTOLD)
    story.listed(0, untold(state="stopped", disks=(DISK,)))
    story.listed(600, untold(state="stopped", disks=(GROWN,)))
    low, _, high = story.cost(600, charge_of="storage")
    assert low <= 10
    assert high >= 30


def test_a_machine_that_was_off_and_vanished_in_a_long_gap_may_have_run() -> None:
    story = Story()
    story.listed(0, machine(state="stopped", started_at=minute(-60), stopped_at=minute(-30)))
    story.listed(600)
    story.listed(601)
    assert story.cost(700) == (30, 30, 30 + 600)


def test_a_stop_that_belongs_to_no_known_run_tells_of_a_hidden_one() -> None:
    story = Story()
    story.listed(0, machine(state="stopped", started_at=minute(-60), stopped_at=minute(-30)))
    story.listed(4, machine(started_at=minute(3), stopped_at=minute(2)))
    assert story.cost(4) == (30 + 1, 30 + 1, 30 + 2 + 1)


def test_dated_prices_bound_what_nobody_saw() -> None:
    story = Story()
    prices = (
        Price(Rate.parse("60"), since=minute(-9)),
        Price(Rate.parse("600"), since=minute(100)),
        Price(Rate.parse("60"), since=minute(500)),
    )
    story.listed(10, machine(prices=prices[:1]))
    story.listed(610, machine(started_at=minute(600), prices=prices))
    assert story.cost(610)[2] >= 10 + 90 + 4000


def test_a_start_stated_wrongly_once_is_corrected_in_time() -> None:
    story = Story()
    story.listed(1, machine(started_at=minute(3)))
    for at in range(2, 30):
        story.listed(at, machine())
    stopped = story.listed(30, machine(state="stopped", stopped_at=minute(29.5)))
    assert stopped.closed
    assert story.cost(60)[2] <= 30


def test_traffic_is_counted_by_the_gigabyte_and_priced_as_stated() -> None:
    story = Story(UNTOLD)
    counters = [(TrafficCounter("traffic", mb, 2 * 10**7),) for mb in (0, 500, 2500, 2600)]
    for at, counted in enumerate(counters):
        story.listed(at, untold(counters=counted))
    assert story.exactly(10, charge_of="traffic") == Decimal("0.05")
    story.listed(10, untold(counters=(TrafficCounter("traffic", 100, 2 * 10**7),), state="stopped"))
    assert story.exactly(10, charge_of="traffic") == Decimal("0.052")


def test_a_machine_that_is_listed_as_ended_is_settled_at_once() -> None:
    story = Story()
    story.listed(0, machine(disks=(Disk(1000, "disk"),)))
    story.listed(60, machine(state="ended", stopped_at=minute(30), disks=(Disk(1000, "disk"),)))
    for at in range(61, 70):
        assert story.listed(at).logged == ()
    assert story.exactly(100) == 30
    assert story.exactly(100, charge_of="storage") == Decimal("0.5")


def test_what_is_gone_stays_gone_whatever_else_is_said_of_it() -> None:
    story = Story()
    story.listed(0, machine())
    story.listed(31, machine(state="stopped", stopped_at=minute(30)))
    story.listed(61, machine(state="ended", stopped_at=minute(60)))
    assert story.listed(62, machine(state="ended", stopped_at=minute(60), owner="bob")).opened == ()
    assert story.exactly(100) == 30


def test_an_id_that_is_used_again_is_a_new_life() -> None:
    story = Story()
    story.listed(0, machine())
    story.listed(60, machine(state="ended", stopped_at=minute(30)))
    story.listed(61)
    story.listed(100, machine(started_at=minute(90)))
    assert story.exactly(100) == 40


def test_minutes_that_were_boot_time_are_not_computing() -> None:
    story = Story(UNTOLD)
    story.listed(0)
    story.listed(1, untold(state="starting"))
    story.listed(2, untold())
    story.listed(3, untold())
    assert story.cost(3) == (1, Decimal("1.5"), 2)


def test_a_scope_knows_which_of_its_machines_are_suspect_only_when_it_is_many() -> None:
    story = Story()
    story.listed(0, *(machine(f"i-{n}") for n in range(8)))
    assert find_suspect_absences(story.state, Complete(tuple(machine(f"i-{n}") for n in range(4)))) == ()
    assert len(find_suspect_absences(story.state, Complete(tuple(machine(f"i-{n}") for n in range(3))))) == 5
    assert find_suspect_absences(story.state, Failed("timeout")) == ()


def test_an_answer_that_was_asked_for_before_the_last_one_changes_nothing_however_late_it_comes() -> None:
    story = Story()
    story.poll(10, Complete((machine(),)), asked=10)
    overtaken = story.poll(12, Complete(()), asked=9)
    assert not overtaken.fresh
    story.listed(13)
    assert story.cost(13) == (10, 11.5, 13)  # missed once, and once is no proof


def test_of_two_answers_of_one_moment_the_first_counts() -> None:
    story = Story()
    story.poll(10, Complete((machine(),)), asked=10)
    assert not story.poll(11, Complete(()), asked=10).fresh


MINUTES = st.integers(-3000, 3000)
TIMES = st.none() | MINUTES.map(minute)
PRICES = st.lists(st.builds(Price, st.none() | st.integers(1, 200).map(Rate.parse), TIMES), max_size=3).map(
    lambda found: tuple(sorted(found, key=lambda p: (p.since is not None, p.since or minute(0))))
)


DISKS = ((), (Disk(10, "disk"),), (Disk(10, "disk"), Disk(20, "disk"), Disk(5, "odd")), (Disk(None, "disk"),))


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    return Observation(
        key=key(draw(st.sampled_from(("i-1", "i-2", "i-3")))),
        kind=draw(st.sampled_from(KINDS)),
        state=draw(st.sampled_from(STATES)),
        gpu="H100-SXM",
        gpu_count=1,
        tier=draw(st.sampled_from(("on-demand", "spot"))),
        owner=draw(st.sampled_from(("", "ann"))),
        created_at=draw(TIMES),
        started_at=draw(TIMES),
        stopped_at=draw(TIMES),
        prices=draw(PRICES),
        disks=draw(st.sampled_from(DISKS)),
        counters=draw(
            st.sampled_from(((), (TrafficCounter("traffic", 5000, 10**7),), (TrafficCounter("traffic", 9000, 10**7),)))
        ),
    )


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    items = tuple(draw(st.lists(observations(), max_size=3)))
    kinds: tuple[Inventory, ...] = (Complete(items), Complete(items), Partial(items, "page 2"), Failed("timeout"))
    return draw(st.sampled_from(kinds))


RULES = st.builds(
    lambda restarts, lag: replace(RULE, restarts=restarts, lag_s=lag),
    st.sampled_from(("stated", "unstated", "never")),
    st.sampled_from((0, 60)),
)
POLLS = st.lists(st.tuples(st.integers(1, 200), inventories()), min_size=1, max_size=8)


@settings(max_examples=examples(400), deadline=None)
@given(rule=RULES, polls=POLLS)
def test_whatever_is_said_spans_never_overlap_and_amounts_are_in_order(
    rule: object, polls: list[tuple[int, Inventory]]
) -> None:
    story, at = Story(rule, ceilings={"H100-SXM": 10**10}), 0  # type: ignore[arg-type]  # drawn from RULES
    for step, inventory in polls:
        at += step
        story.poll(at, inventory)
        for name in ("i-1", "i-2", "i-3"):
            for charge in ("compute", "storage", "address", "traffic"):
                low, expected, high = story.cost(at, charge_of=charge, name=name)
                assert 0 <= low <= expected <= high
        spans, state = list(story.spans), story.state
        assert not story.poll(at, inventory).fresh
        assert (story.spans, story.state) == (spans, state)


def test_a_stale_page_does_not_bring_back_what_has_stopped() -> None:
    story = Story(LAGGING)
    story.listed(1, machine())
    story.listed(11, machine(state="stopped", stopped_at=minute(10)))
    story.listed(11.5, machine())
    assert story.exactly(20) == 10
