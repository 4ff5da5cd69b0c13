"""A cap an hour is compared with what bills now: certainly for acts, at most for new runs, as expected for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction

import pytest

from costguard.budgets.budget import HOUR, RATE_THRESHOLDS, Budget, BudgetThreshold, ResourceFilter
from costguard.budgets.budget_status import BudgetStatus, compute_budget_status, list_budget_warnings
from costguard.budgets.hold import Hold, sum_open_rates
from costguard.errors import InputError
from costguard.guard.alerts.fleet import build_budget_alert, build_hard_cap_alert, explain_cap
from costguard.guard.cap_forecast import (
    CapCandidate,
    CapForecast,
    build_cap_policy,
    forecast_cap,
    forecast_caps,
    list_cap_verdicts,
)
from costguard.guard.policy import Rails
from costguard.guard.policy_evaluation import find_tightest_budget
from costguard.guard.scheduled_starts import StartPromise, explain_start_budget
from costguard.guard.signals import ACTIVE, Activity
from costguard.metering.burn import list_burns
from costguard.metering.meter import PriceRange
from costguard.metering.span import MAYBE
from costguard.metering.spending import LiveResource
from costguard.values.money import NANO, Money, Rate
from costguard.views.budget_status import build_budget_data, build_budget_table, describe_budget_spend
from costguard.views.status_line import build_over_budget_error
from tests.books import NOW, VAST, live, meter, money, unpriced
from tests.guard.cases import POLL, STOPS, idle

ADA = ResourceFilter(owners=("ada",))
REACTION = timedelta(seconds=420)


def box(name: str, dollars: int, **stated: object) -> LiveResource:
    return live(name, meter(dollars * NANO), handling=STOPS, **stated)  # type: ignore[arg-type]  # any field


def stand(*machines: LiveResource, cap: str = "12", match: ResourceFilter = ADA, holds: str = "0") -> BudgetStatus:
    budget = Budget(name="ada", cap=Money.parse(cap), period=HOUR, match=match, hard=True, warn=RATE_THRESHOLDS)
    return compute_budget_status(budget, (), list_burns(machines, NOW), holds=Money.parse(holds), now=NOW)


def foresee(*candidates: CapCandidate, cap: str = "12") -> CapForecast:
    return forecast_cap(stand(*(one.live for one in candidates), cap=cap), candidates, REACTION, NOW, fleet=100, poll=POLL)


def busy(machine: LiveResource, **stated: object) -> CapCandidate:
    work = Activity(state=ACTIVE, confidence=0.9, reasons=("GPU duty 98 %",), since=NOW)
    return CapCandidate(live=machine, work=work, **stated)  # type: ignore[arg-type]  # any field


def names(candidates: Iterable[CapCandidate]) -> list[str]:
    return [one.live.observation.key.id for one in candidates]


def test_what_runs_may_be_all_of_the_cap_and_not_a_nano_dollar_more() -> None:
    both = (busy(box("i-1", 8)), busy(box("i-2", 4)))
    assert not foresee(*both).acts
    assert foresee(*both, cap="11.999999999").acts


def test_machines_are_stopped_until_the_rest_is_within_the_cap_the_idle_one_first() -> None:
    small = replace(busy(box("i-2", 3)), work=idle(NOW))
    found = foresee(busy(box("i-1", 8)), small, busy(box("i-3", 2)))
    assert (found.acts, names(found.victims), found.enough) == (True, ["i-2"], True)
    assert found.overshoot == Money.parse("1"), "an hour, until the stop is confirmed"
    assert names(foresee(busy(box("i-1", 8)), busy(box("i-2", 3)), busy(box("i-3", 8))).victims) == ["i-1"]
    assert names(foresee(busy(box("i-1", 8)), busy(box("i-2", 8)), busy(box("i-3", 8))).victims) == ["i-1", "i-2"]


def test_the_reaction_and_the_rest_of_the_month_make_a_rate_cap_act_no_earlier() -> None:
    two = (busy(box("i-1", 6)), busy(box("i-2", 6)))
    found = forecast_cap(stand(*(one.live for one in two)), two, timedelta(days=30), NOW, fleet=2, poll=POLL, rails=Rails())
    assert (found.acts, found.overshoot.nano) == (False, 0)


def test_a_machine_that_nobody_sees_or_whose_price_nobody_knows_makes_no_act_likelier() -> None:
    sure = box("i-1", 8)
    unseen = replace(box("i-2", 8), seen_at=NOW - timedelta(hours=2))
    unknown = live("i-3", unpriced(9 * NANO), handling=STOPS)
    silent = replace(sure, open=(), unheard=tuple(replace(span, presence=MAYBE) for span in sure.open))
    absent = replace(box("i-4", 8), absent_at=NOW)
    for doubtful in (unseen, unknown, silent, absent):
        standing = stand(sure, doubtful)
        assert standing.spent.low == Money.parse("8"), doubtful
        assert standing.spent.high > Money.parse("12")
        assert not foresee(busy(sure), busy(doubtful)).acts
    assert stand(sure, unseen).notes == ("nobody could look since 10:00 UTC",)


def test_others_machines_and_other_currencies_do_not_count() -> None:
    euros = live("v-1", meter(9 * NANO, currency="EUR"), scope=VAST, handling=STOPS)
    standing = stand(box("i-1", 8), box("i-2", 8, owner="bob"), euros)
    assert standing.spent == money("8")
    assert standing.uncounted == ("EUR",)


def test_what_a_protected_machine_costs_draws_no_stop_onto_others() -> None:
    found = foresee(busy(box("i-1", 10), protected=True), busy(box("i-2", 4)))
    assert (found.acts, names(found.victims), names(found.untouched), found.enough) == (True, [], ["i-1"], False)
    both = foresee(busy(box("i-1", 10), protected=True), busy(box("i-2", 8)), busy(box("i-3", 8)))
    assert names(both.victims) == ["i-2"], "what the others cost is within the cap then"


def test_a_machine_whose_stop_loses_data_is_asked_about() -> None:
    found = foresee(busy(box("i-1", 14), loses=("its disk",)))
    assert (names(found.victims), names(found.asked)) == ([], ["i-1"])


def test_a_pod_that_never_boots_counts_at_its_stated_price() -> None:
    since = NOW - timedelta(hours=2)
    pod = live("i-2", handling=STOPS, state="starting", started_at=since, created_at=since)
    maybe = replace(meter(8 * NANO), price=PriceRange(0, 8 * NANO, 8 * NANO))
    pod = replace(
        pod, open=tuple(replace(span, meter=maybe, start=since, anchor=since) for span in box("i-2", 8).open), seen_at=NOW
    )
    candidates = (busy(box("i-1", 8)), busy(pod))
    (found,) = forecast_caps([stand(*(c.live for c in candidates))], candidates, REACTION, NOW, fleet=9, poll=POLL)
    assert (found.acts, found.standing.spent.low) == (True, Money.parse("16"))


def test_people_read_an_hour_wherever_a_cap_an_hour_is_named() -> None:
    found = foresee(busy(box("i-1", 8)), busy(box("i-2", 6)))
    standing = found.standing
    ((_, verdict),) = list_cap_verdicts([found], NOW)
    assert verdict.reasons[0] == "14.00 USD an hour runs, more than 12.00 USD/h"
    assert build_cap_policy(standing.budget).when.text == "what runs costs more than 12.00 USD/h"
    assert explain_cap(found, NOW, NOW.tzinfo or standing.budget.zone)[0] == (
        "at least $14.00 an hour runs under budget ada, which allows $12.00"
    )
    page = build_hard_cap_alert(found, at=NOW)
    assert page.what == "hard cap of budget ada: $14.00 of $12.00 an hour"
    assert dict(page.facts)["why"].startswith("a stop takes 7 min")
    (warning,) = list_budget_warnings(standing)
    assert warning.says == "what runs costs 117 % of 12.00 USD/h"
    assert build_budget_alert(standing, says=[warning.says], at=NOW).what == "budget ada: $14.00 of $12.00 an hour"
    assert describe_budget_spend(standing) == "$14.00 of $12.00, an hour now"
    refusal = build_over_budget_error([standing, stand(box("i-1", 12))])
    assert refusal is not None
    assert refusal.what == "over budget: ada: $14.00 of $12.00/h"
    data = build_budget_data(standing)
    assert [data[name] for name in ("cap", "left", "spent_share", "pace", "time_to_cap_hours")] == [
        *("12.00", "-2.00", 1.1667, None, None)
    ]
    table = build_budget_table([standing], None, NOW)
    assert table.rows[0][:4] == ("ada", "an hour now", "12.00 USD/h", "14.00")


def test_people_are_warned_of_what_is_expected_and_told_what_is_possible() -> None:
    unseen = replace(box("i-2", 8), absent_at=NOW)
    assert list_budget_warnings(stand(box("i-1", 8), unseen)) == ()
    (warning,) = list_budget_warnings(stand(box("i-1", 14), unseen))
    assert warning.says == "what runs costs between 117 and 183 % (117 % expected) of 12.00 USD/h"


def test_facts_of_money_in_a_period_are_of_no_cap_an_hour() -> None:
    of = box("i-1", 14)
    assert find_tightest_budget([stand(of)], of.observation.attribution) is None


def test_a_cap_an_hour_has_no_measure_but_what_runs() -> None:
    with pytest.raises(InputError, match="has for a cap an hour no measure"):
        Budget(name="ada", cap=Money.parse("12"), period=HOUR, warn=(BudgetThreshold(measure="pace", limit=Fraction(1)),))


def test_a_scheduled_start_that_would_pass_the_cap_is_not_made() -> None:
    def against(dollars: str, *promised: StartPromise, holds: str = "0") -> str:
        of, standings = box("i-9", 1).observation, [stand(box("i-1", 8), holds=holds)]
        rate, end = Rate.parse(dollars, "USD"), NOW + timedelta(hours=9)
        return explain_start_budget(of, "ada", rate, standings, start=NOW, end=end, promised=promised)

    assert against("4") == ""
    assert against("4.01") == "budget ada would be exceeded: $12.01 of $12.00 an hour"
    assert against("2", holds="3") == "budget ada would be exceeded: $13.00 of $12.00 an hour"
    other = StartPromise(name="i-8", attribution=box("i-8", 1).observation.attribution, rate=Rate.parse("3", "USD"))
    assert against("2", other) == "budget ada would be exceeded: $13.00 of $12.00 an hour"


HOLD = Hold(
    id="h1",
    money=Money.parse("40"),
    who="ada",
    why="run",
    owner="ada",
    taken_at=NOW - timedelta(hours=1),
    expires_at=NOW + timedelta(hours=9),
    hourly=Money.parse("8"),
)


def test_a_hold_adds_its_rate_until_machines_that_may_be_its_run_bill_as_much() -> None:
    def add(*machines: LiveResource, holds: Iterable[Hold] = (HOLD,)) -> str:
        return sum_open_rates(stand().budget, holds, list_burns(machines, NOW), NOW).format()

    def since(name: str, dollars: int, hours: float, **stated: object) -> LiveResource:
        of, begun = box(name, dollars, **stated), NOW - timedelta(hours=hours)
        return replace(of, open=tuple(replace(span, start=begun, anchor=begun) for span in of.open))

    assert add() == "8.00"
    assert add(since("i-1", 8, hours=2)) == "8.00", "it ran before"
    assert add(since("i-1", 8, hours=0.5)) == "0.00"
    assert add(since("i-1", 3, hours=0.5)) == "5.00"
    assert add(since("i-1", 8, hours=0.5, owner="bob")) == "8.00", "of somebody else"
    assert add(since("i-1", 8, hours=0.5), holds=(HOLD, replace(HOLD, id="h2"))) == "8.00", "one machine is one run"
    nobody = (replace(HOLD, hourly=None), replace(HOLD, expires_at=NOW), replace(HOLD, owner="bob"))
    assert add(holds=nobody) == "0.00"
    assert add(holds=(replace(HOLD, hourly=Money.parse("8", "EUR")),)) == "0.00"
