"""Hard caps act early enough, on as few machines as needed; a prepaid balance's end is known beforehand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from fractions import Fraction

import pytest

from costguard.budgets.budget import Budget, ResourceFilter
from costguard.budgets.budget_status import BudgetStatus, compute_budget_status
from costguard.budgets.runway import compute_runway
from costguard.guard.cap_acceptance import (
    describe_cap,
    find_accepted_caps,
    find_undoubted_caps,
    list_cap_acceptances,
    name_cap_policy,
)
from costguard.guard.cap_forecast import (
    CapCandidate,
    CapForecast,
    build_cap_policy,
    compute_p95,
    estimate_reaction,
    forecast_cap,
    forecast_caps,
    list_cap_verdicts,
)
from costguard.guard.escalation import advance_escalation, list_due_steps
from costguard.guard.limits import ACCEPTED_CAPS, NEW_CAPS, OTHER_ACTS, compute_rooms, find_pool
from costguard.guard.overrides import ACCEPT, Override
from costguard.guard.policy import CAP_RULE, Rails
from costguard.guard.signals import ACTIVE, Activity
from costguard.metering.burn import list_burns
from costguard.metering.meter import PriceRange
from costguard.metering.observation import Handling
from costguard.metering.span import MAYBE
from costguard.metering.spending import LiveResource
from costguard.values.money import NANO, Money, PrepaidBalance, Rate
from tests.books import NOW, attribution, money, spent
from tests.guard.cases import H100, POD, POLL, idle, machine, mark_told, minutes, policy
from tests.guard.test_railing import sent

REACTION = timedelta(seconds=600)
BUSY = Activity(state=ACTIVE, confidence=0.9, reasons=("GPU duty 98 %",), since=NOW)


def stands(
    spending: str, *machines: LiveResource, cap: str = "500", high: str | None = None, match: ResourceFilter | None = None
) -> BudgetStatus:
    budget = Budget(
        name="all" if match is None else "some", cap=Money.parse(cap), hard=True, zone=UTC, match=match or ResourceFilter()
    )
    sums = [spent(money(spending, spending, high or spending), attribution())]
    return compute_budget_status(budget, sums, list_burns(machines, NOW), holds=Money(nano=0), now=NOW)


def seen(spending: str, *machines: CapCandidate, fleet: int = 100, high: str | None = None) -> CapForecast:
    lives = [c.live for c in machines]
    rails = Rails(fleet_share_10m=Fraction(10, 100), fleet_share_day=Fraction(20, 100), acts_least_day=1)
    return forecast_cap(stands(spending, *lives, high=high), machines, REACTION, NOW, fleet=fleet, poll=POLL, rails=rails)


def one(id_: str = "i-1", nano: int = H100, work: Activity = BUSY, **stated: object) -> CapCandidate:
    about = {k: stated.pop(k) for k in ("leased", "protected", "unclaimed", "priority", "cannot", "loses") if k in stated}
    return CapCandidate(live=machine(id_, nano, **stated), work=work, **about)  # type: ignore[arg-type]  # any field


def ids(found: CapForecast) -> list[str]:
    return [c.live.observation.key.id for c in found.victims]


def test_story_10_a_cap_of_500_acts_at_483_61_and_not_before() -> None:
    found = seen("482.10", one())
    assert found.acts_at.format() == "483.61"
    assert not found.acts
    assert found.overshoot == Money(nano=0)
    after_a_poll = seen("483.74", one())
    assert after_a_poll.acts
    assert ids(after_a_poll) == ["i-1"]


def test_h29_the_reaction_is_measured_where_it_can_be_and_assumed_in_the_open_where_not() -> None:
    usual = estimate_reaction(POLL, {})
    assert usual.total == timedelta(seconds=60 + 60 + 60 + 120 + 120)
    assert usual.assumed == ("judge", "grace", "stop", "confirm")
    slow = [timedelta(seconds=s) for s in range(1, 101)]
    assert compute_p95(slow) == timedelta(seconds=95)
    measured = estimate_reaction(POLL, {"stop": slow, "grace": [timedelta()] * 20, "judge": slow[:19]})
    assert dict(measured.parts)["stop"] == timedelta(seconds=95)
    assert dict(measured.parts)["grace"] == timedelta(seconds=60)
    assert measured.assumed == ("judge", "confirm")


def test_h29_the_overshoot_that_is_stated_counts_the_high_end_and_what_the_rails_let_wait() -> None:
    assert seen("490", one(), high="495").overshoot.format() == "11.39"
    two = seen("490", one("i-1"), one("i-2"), fleet=10)
    assert two.overshoot > seen("490", one("i-1"), one("i-2"), fleet=1000).overshoot


def test_what_may_have_billed_since_nobody_looked_stops_nothing_and_shows_in_the_overshoot() -> None:
    """Fifty machines at $98.32 that were off, in a scope that has been silent for a day: $118,000 at most, probably nothing."""
    off = machine("i-off", H100)
    off = replace(off, open=(), unheard=tuple(replace(span, presence=MAYBE) for span in off.open))
    silent = [one(), *[replace(one(), live=off)] * 50]
    found, alone = seen("482.10", *silent, high="118466.10"), seen("482.10", one())
    assert (found.acts, found.acts_at, ids(found)) == (False, alone.acts_at, ids(alone))
    assert found.overshoot > Money.parse("117966")
    assert ids(seen("483.74", *silent, high="118466.10")) == ["i-1"]


def test_a_cap_stops_idle_ones_first_then_those_without_a_lease_then_spot_then_what_burns_most() -> None:
    order = [
        one("idle", POD, idle(NOW)),
        one("spot", POD, tier="spot"),
        one("large", 2 * POD),
        one("small", POD),
        one("important", POD, priority=1),
        one("leased", POD, leased=True),
    ]
    found = seen("499.99", *reversed(order))
    assert ids(found) == ["idle", "spot", "large", "small", "important", "leased"]


def test_a_protected_machine_is_never_stopped_for_a_cap_but_told_about() -> None:
    found = seen("499", one("kept", protected=True))
    assert found.victims == ()
    assert [c.live.observation.key.id for c in found.untouched] == ["kept"]
    assert not found.enough


@pytest.mark.parametrize("protected", [True, False])
def test_what_must_not_be_touched_draws_no_stop_onto_another(*, protected: bool) -> None:
    """A tenant protects a machine of $98.32 an hour and labels it into the budget of others, who spend $1.00 an hour."""
    began = NOW - timedelta(hours=4)
    mine = one("mine", H100, started_at=began, protected=protected, unclaimed=not protected)
    mine = replace(mine, live=replace(mine.live, spent=money("393.28", "393.28", "393.28")))
    theirs = one("theirs", 10**9, started_at=began)
    for spending in ("484", "499.99", "600"):
        found = seen(spending, mine, theirs)
        assert found.acts, "people are paged"
        assert (ids(found), found.asked, found.enough) == ([], (), False)
        assert [c.live.observation.key.id for c in found.untouched] == ["mine"]
        assert list_cap_verdicts([found], NOW) == ()
    assert found.overshoot > seen("600", mine).overshoot, "theirs runs on, too"


def test_what_others_spent_themselves_is_stopped_beside_a_protected_machine() -> None:
    began = NOW - timedelta(hours=1)
    kept = one("kept", POD, protected=True, started_at=began)
    kept = replace(kept, live=replace(kept.live, spent=money("2.99", "2.99", "2.99")))
    assert ids(seen("499.90", kept, one("busy", H100, started_at=began))) == ["busy"]
    both = seen(
        "200", kept, one("a", 10**9), one("b", 10**9)
    )  # 9.5 days of November: 228 h at $1.00 each, and $681.72 of `kept`
    assert (ids(both), both.enough) == (["a"], False), "one of them, as if `kept` were not there"


def test_a_machine_that_is_older_than_the_period_is_not_thought_to_have_spent_its_life_in_it() -> None:
    year = one("year", POD, protected=True, started_at=NOW - timedelta(days=365))
    year = replace(year, live=replace(year.live, spent=money("26192.40", "26192.40", "26192.40")))
    period = stands("499", year.live).period
    past = Rate(nano_per_hour=POD, currency="USD").multiply_seconds(int((NOW - period.start).total_seconds()))
    for own, stops in (("499.90", ["busy"]), ("400", [])):
        spending = (Money.parse(own) + past).format()
        standing = stands(spending.replace(",", ""), year.live, one("busy", POD).live)
        found = forecast_cap(standing, [year, one("busy", POD)], REACTION, NOW, fleet=100, poll=POLL)
        assert (found.acts, ids(found)) == (True, stops)


@pytest.mark.parametrize("state", ["stopped", "stopping"])
def test_what_does_not_run_or_is_paid_for_anyway_is_no_victim(state: str) -> None:
    assert seen("499.99", one("a", state=state)).victims == ()
    assert seen("499.99", one("b", handling=Handling(stops=True, committed="reserved"))).victims == ()


def test_unknown_work_is_no_excuse_under_a_hard_cap_and_its_grace_is_60_s() -> None:
    found = seen("490", one(work=Activity()))
    ((victim, verdict),) = list_cap_verdicts([found], NOW)
    assert victim.work.state == "unknown"
    climb = advance_escalation(None, verdict, stopped=False)
    assert climb is not None
    (stop,) = list_due_steps(verdict, mark_told(climb, verdict.policy, 0, NOW), stopped=False)
    assert stop.at == NOW + timedelta(seconds=60)
    assert "490.00 of 500.00 USD" in verdict.reasons[0]


@pytest.mark.parametrize("low", [1, round(0.28 * H100)], ids=["median of its GPU", "market price"])
def test_an_estimated_price_makes_a_cap_act_no_earlier_than_its_low_end_does(low: int) -> None:
    """A cap of $10 with nothing spent: one machine of unknown price is expected to burn $16 until a stop is proven."""
    guessed = one("i-guessed", H100)
    (span,) = guessed.live.open
    price = PriceRange(low, H100, 2 * H100, known=False)
    live = replace(guessed.live, open=(replace(span, meter=replace(span.meter, price=price)),))
    known = one("i-known", NANO)
    standing = stands("0", live, known.live, cap="10", high="5")
    found = forecast_cap(standing, [replace(guessed, live=live), known], REACTION, NOW, fleet=100, poll=POLL)
    assert standing.burn.expected.nano == H100 + NANO
    assert not found.acts
    assert found.acts_at.nano == 10 * NANO - round(Fraction(low + NANO, 6))
    assert found.overshoot.nano > 0


def test_a_soft_budget_stops_nothing() -> None:
    soft = stands("499.99", machine())
    soft = replace(soft, budget=replace(soft.budget, hard=False))
    assert not forecast_cap(soft, [one()], REACTION, NOW, fleet=100, poll=POLL).acts


def test_the_tightest_budget_wins_and_what_it_stops_saves_the_wider_one_as_well() -> None:
    ada, bob = one("a", H100, owner="ada"), one("b", 2 * H100, owner="bob")
    wide = stands("490", ada.live, bob.live, cap="500")
    tight = stands("99", ada.live, bob.live, cap="100", match=ResourceFilter(owners=("ada",)))
    found = forecast_caps([wide, tight], [ada, bob], REACTION, NOW, fleet=100, poll=POLL, rails=Rails())
    stops = list_cap_verdicts(found, NOW)
    assert sorted((c.live.observation.key.id, v.policy.name) for c, v in stops) == [("a", "budget:all"), ("b", "budget:all")]
    assert [f.standing.budget.name for f in found] == ["all", "some"]


def pods() -> list[LiveResource]:
    volume = Handling(stops=True, terminates=True, stop_loses=("20 GB of container disk",))
    own = replace(volume, terminate_loses=("20 GB of container disk", "200 GB of volume disk"))
    safe = replace(volume, terminate_loses=("20 GB of container disk",))
    return [machine(f"pod-{n}", POD, handling=own if n == 1 else safe) for n in range(1, 5)]


def test_story_18_41_20_at_11_96_an_hour_last_3_44_h_and_one_pod_loses_its_volume() -> None:
    balance = PrepaidBalance(provider="aws", account="123", at=NOW, amount=Money.parse("41.20"))
    found = compute_runway(balance, pods(), NOW)
    assert found.hourly == Money.parse("11.96")
    assert found.left is not None
    assert f"{found.left / timedelta(hours=1):.2f}" == "3.44"
    assert found.short
    assert [(key.id, lost) for key, _, lost in found.loses] == [("pod-1", ("200 GB of volume disk",))]


def test_a_balance_that_is_spent_lasts_no_time_and_one_that_nothing_burns_for_ever() -> None:
    debt = PrepaidBalance(provider="aws", account="123", at=NOW, amount=Money.parse("-1"))
    assert compute_runway(debt, pods(), NOW).left == timedelta()
    assert compute_runway(replace(debt, amount=Money.parse("1")), [], NOW).left is None


def test_a_machine_whose_stop_loses_data_is_asked_about_and_counts_as_one_that_runs_on() -> None:
    lossy = one("lossy", 10**9, loses=("its local disk",))  # 9.5 days of November are left: 228 h at $1.00
    found = seen("400", lossy)
    assert found.victims == ()
    assert [c.live.observation.key.id for c in found.asked] == ["lossy"]
    assert found.overshoot.format() == "128.00"
    assert not found.enough
    spent_up = seen("499.90", lossy)
    ((_, verdict),) = list_cap_verdicts([spent_up], NOW)
    assert not verdict.policy.allow_irreversible
    allowed = stands("400", lossy.live)
    allowed = replace(allowed, budget=replace(allowed.budget, allow_irreversible=True))
    free = forecast_cap(allowed, [lossy], REACTION, NOW, fleet=100, poll=POLL)
    assert ids(free) == ["lossy"]
    assert free.asked == ()
    assert free.overshoot == Money(nano=0)
    assert build_cap_policy(allowed.budget).allow_irreversible


def test_a_cap_on_a_small_fleet_counts_the_days_that_the_rails_take_and_says_what_to_set() -> None:
    three = [one(f"i-{n}", 10**9) for n in range(3)]
    found = seen("499.99", *three, fleet=3)
    # within the reaction of 600 s all three cost $0.50; the second runs a day more, the third two: 72 h
    assert found.overshoot.format() == "72.49"
    assert found.short == (
        "[rails] allows 1 of its 3 stops at once, the last one waits 2 d (1 in a day): this cap can be exceeded by up to $72.49"
    )
    assert "1 in 10 min" in seen("499.99", *three, fleet=15).short
    assert seen("0", one("a", 10**6), one("b", 10**6), fleet=2).short == "", "nothing has to be stopped for it"


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
        *("as it was", "raised", "a tenth", "other money", "loses data", "other machines", "other name", "soft"),
        "other warnings",
    ],
)
def test_an_acceptance_covers_the_cap_as_it_was_or_raised(now: Budget, accepted: bool) -> None:  # noqa: FBT001 - the outcome
    assert find_accepted_caps([now], accept(CAP), NOW) == (frozenset({"budget:all"}) if accepted else frozenset())


def test_an_acceptance_of_a_total_covers_its_days() -> None:
    project = replace(CAP, period="total", start=NOW)
    assert find_accepted_caps([project], accept(project), NOW)
    assert not find_accepted_caps([replace(project, end=NOW + minutes(9))], accept(project), NOW)
    assert "start" not in describe_cap(CAP)  # acceptances of before budgets had days hold this text


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
    assert (rooms[OTHER_ACTS].acts, rooms[NEW_CAPS].acts) == (5, 0), "a new cap has the limits of what nobody accepted"
    assert rooms[ACCEPTED_CAPS].acts > 100
    free = compute_rooms(cap_stops, 100, Rails(), NOW + timedelta(minutes=1))
    assert free[OTHER_ACTS].acts == 5, "what caps stopped takes no room of others"
    narrow = compute_rooms(cap_stops, 100, Rails(caps=replace(Rails.unlimited(), acts_per_10m=9)), NOW)
    assert narrow[ACCEPTED_CAPS].acts == 0
