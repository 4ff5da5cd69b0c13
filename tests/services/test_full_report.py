"""What a report says beside its groups, over ledgers that played stories filled: waste, what acts saved, disks at rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from costguard.budgets.budget import Budget, ResourceFilter
from costguard.budgets.hold import Hold
from costguard.ledger.reports.reader import ReportReader
from costguard.metering.billing import CAREFUL_RULE
from costguard.reporting.statement.groups import DEFAULT_GROUP_KEYS
from costguard.reporting.statement.period import ReportPeriod
from costguard.reporting.statement.savings import Saving
from costguard.reporting.statement.statement import Statement
from costguard.services.guarding.status import build_status
from costguard.services.report.report import ReportQuestion, build_full_statement
from costguard.testing.machine import FLOOR_W
from costguard.values.calendar import Period, find_day, find_month, make_month
from costguard.values.instant import HOUR_US
from costguard.values.money import Money
from costguard.views.report import build_report_document
from tests.books import AWS, NOW, VAST, FakeBooks, at, attribution, live, meter, money, scope_now, spent, state_month, stretch
from tests.stories import parse_story, play_story
from tests.stories.guard_player import GuardPlayer
from tests.stories.player import PollPlayer, StoryOutcome

MONDAY = datetime(2026, 11, 9, 9, tzinfo=UTC)
WEEKEND = """
title: Forgotten weekend
hazard: GUARD 9.1
start: 2026-11-06 17:45
end: 19:10
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 2m
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  17:45  box busy
  18:05  box quiet
"""
START = datetime(2026, 11, 6, 16, tzinfo=UTC)
HEAD = """
title: {title}
hazard: GUARD 9
start: 2026-11-06 16:00
end: {end}
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 2m
policies
  idle-gpu  arm stop, gpu, when idle, for 20m, notify, +10m stop
events
  16:00  box busy
"""


def told(
    outcome: StoryOutcome,
    start: datetime,
    end: datetime,
    *,
    at: datetime = MONDAY,
    drawn: bool = False,
    before: Period | None = None,
) -> Statement:
    before = before or make_month(2026, 10, UTC)
    question = ReportQuestion(
        asked=ReportPeriod(
            period=Period(start=start, end=end), label="played", before=before, before_label=f"{before.start:%Y-%m}"
        ),
        by=("owner",),
        zone=UTC,
        as_of=at,
        pause=timedelta(minutes=5),
        group_from=("label:cluster",),
        drawn=drawn,
    )
    with ReportReader(outcome.stage.ledger_url, rules=outcome.stage.rules) as accounts:
        return build_full_statement(accounts=accounts, question=question, rules=outcome.stage.rules)


def story(tmp_path: Path, events: str, *, end: str) -> StoryOutcome:
    text = HEAD.format(title="report", end=end).lstrip() + events
    return play_story(parse_story(text), PollPlayer, tmp_path)


def only(found: Statement) -> Saving:
    (one,) = found.saved.savings
    return one


@pytest.fixture(scope="module")
def weekend(tmp_path_factory: pytest.TempPathFactory) -> StoryOutcome:
    """GUARD 9.1: idle from 18:05 on Friday, stopped by 19:07. Nobody comes, and nobody looks, before Monday at 09:00."""
    text = WEEKEND.lstrip()
    return play_story(parse_story(text), GuardPlayer, tmp_path_factory.mktemp("weekend"))


def test_the_forgotten_weekend_saved_what_the_story_says(weekend: StoryOutcome) -> None:
    found = told(weekend, make_month(2026, 11, UTC).start, make_month(2026, 11, UTC).end)
    saving = only(found)
    assert (saving.at, saving.act.act, saving.false) == (START.replace(hour=19, minute=7), "stop", False)
    assert saving.avoided.expected.format() == "2027.92"
    assert saving.rest.format() == "3.39"
    assert saving.usd.format_ends() == {"low": "0.00", "expected": "2024.53", "high": "2024.53"}
    assert found.saved.get_net("USD") == saving.usd
    assert "Saved by the guard: $2,024.53 (0.00 to 2,024.53), by 1 act." in build_report_document(found).lead


def test_days_of_a_saving_add_up_to_it(weekend: StoryOutcome) -> None:
    days = [START.replace(hour=0) + timedelta(days=n) for n in range(4)]
    parts = [told(weekend, day, day + timedelta(days=1)).saved.get_net("USD") for day in days]
    whole = told(weekend, days[0], days[-1] + timedelta(days=1)).saved.get_net("USD")
    assert sum(part.expected.nano for part in parts) == pytest.approx(whole.expected.nano, abs=4)


def test_the_disk_of_a_machine_at_rest_is_said_apart(weekend: StoryOutcome) -> None:
    rest = told(weekend, START.replace(hour=19, minute=7), START + timedelta(days=2, hours=17)).rest
    assert rest.machines == 1
    assert [money.expected.format() for money in rest.money] == ["3.39"]
    whole = told(weekend, START, START + timedelta(days=2, hours=17)).rest
    assert whole == rest, "while it ran its disk was not at rest"


def test_idle_minutes_are_waste_and_what_could_not_be_judged_is_unknown(weekend: StoryOutcome) -> None:
    found = told(weekend, START, START + timedelta(days=3))
    (group,) = found.usd.groups
    assert group.waste is not None
    # quiet from the sample of 18:05 until 19:07, when it stopped: in the hour that also holds work, and in the next
    assert (Money(nano=group.waste.idle).format(), group.waste.idle_us) == ("33.86", 62 * 60 * 10**6)
    assert group.waste.partly == 0
    kwh = 8 * FLOOR_W * 62 / 60 / 1000  # by single samples before 19:00, by the mean of the hour after
    assert group.waste.idle_kwh == pytest.approx(kwh)
    assert f"Idle: $33.86 (1.0 h, GPUs drew {kwh:.2f} kWh), and" in " ".join(build_report_document(found).lead)
    paid_h, measured_h = group.gpu_milli_us / 1000 / HOUR_US, group.waste.measured_gpu_us / HOUR_US
    used_h = group.waste.used_gpu_us / HOUR_US
    # 8 GPUs: a quarter of an hour of samples before 18:00, then 67 minutes; at 92 % until 18:05
    assert (paid_h, measured_h) == pytest.approx((8 * 187 / 60, 8 * (15 + 67) / 60))
    assert used_h == pytest.approx(8 * 0.92 * 20 / 60, abs=0.2)
    assert f"GPUs: paid {paid_h:.1f} GPU-hours, used {used_h:.1f} (" in " ".join(build_report_document(found).lead)
    assert group.judged_share == pytest.approx(127 / 187, abs=0.001)  # from 17:00 on: nothing measured the hour before


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> StoryOutcome:
    """Two hours of work."""
    return story(tmp_path_factory.mktemp("busy"), "", end="18:00")


def test_without_acts_nothing_is_saved(tmp_path: Path) -> None:
    outcome = story(tmp_path, "  16:10  box quiet\n", end="18:00")
    found = told(outcome, START, START + timedelta(days=1), at=outcome.end)
    assert (found.saved.savings, found.saved.get_net("USD").expected.nano) == ((), 0)
    (group,) = found.usd.groups
    assert group.waste is not None
    assert Money(nano=group.waste.idle).format() == "60.08"  # 16:10 to 18:00; it was created an hour before the start


def test_a_running_period_has_the_forecast_of_the_status(busy: StoryOutcome) -> None:
    end = START + timedelta(hours=12)
    found = told(busy, START, end, at=busy.end)
    (forecast,), spent = found.forecast, found.usd.total.expected
    left = (end - busy.end) / timedelta(hours=1)
    assert float(forecast.if_unchanged.expected.to_decimal()) == pytest.approx(
        float(spent.to_decimal()) + left * (32.77 + 500 * 0.08 / 730), abs=0.01
    )


def test_a_period_that_is_over_has_no_forecast_though_its_disk_bills_on(weekend: StoryOutcome) -> None:
    assert told(weekend, START, START + timedelta(days=1)).forecast == ()


def test_a_running_period_is_compared_with_as_much_of_the_one_before(busy: StoryOutcome) -> None:
    half, now = timedelta(minutes=30), busy.end
    before = Period(start=now - 3 * half, end=now - half)
    found = told(busy, now - half, now + half, at=now, before=before).before
    assert found is not None
    assert found.part.total == told(busy, before.start, before.start + half).usd.total
    assert found.usd.total == told(busy, before.start, before.end).usd.total != found.part.total


def test_the_idle_share_is_drawn_by_day_where_it_is_known(weekend: StoryOutcome) -> None:
    found = told(weekend, START, START + timedelta(days=3), drawn=True)
    chart = next(one for one in build_report_document(found).charts if one.title == "Idle share by day")
    assert chart.labels[0] == "2026-11-06"
    waste = found.usd.groups[0].waste
    assert waste is not None
    assert chart.series[0].values == (round(100 * waste.idle / waste.judged, 2), None, None, None)


RULES = {"aws": replace(CAREFUL_RULE, provider="aws", not_counted=("snapshots",))}
AFTER = at(3, month=12)


def stated(
    books: FakeBooks, *, as_of: datetime = AFTER, of: tuple[int, int] = (2026, 11), by: Sequence[str] = DEFAULT_GROUP_KEYS
) -> Statement:
    return state_month(books, of, by, as_of, RULES)


def test_a_scope_with_a_hole_makes_it_incomplete() -> None:
    found = stated(FakeBooks(known=(scope_now(),), polled=(stretch(at(1), at(9)), stretch(at(10), AFTER))))
    assert found.incomplete
    assert [unseen.length for unseen in found.unseen] == [timedelta(days=1)]


def test_the_running_month_is_judged_as_far_as_it_has_come() -> None:
    found = stated(FakeBooks(known=(scope_now(),), polled=(stretch(at(1), NOW),)), as_of=NOW)
    assert (found.running, found.incomplete) == (True, False)


def test_a_month_that_lies_ahead_is_zero_and_nobody_is_blamed_for_it() -> None:
    found = stated(FakeBooks(known=(scope_now(),), polled=(stretch(at(1), NOW),)), as_of=NOW, of=(2027, 3))
    assert (found.ahead, found.blank, found.incomplete) == (True, False, False)
    assert found.usd.total.high == Money.parse(0)
    assert found.not_modelled == ()


def test_a_month_before_the_first_look_is_blank() -> None:
    found = stated(FakeBooks(known=(scope_now(),), polled=(stretch(at(1), NOW),)), as_of=NOW, of=(2026, 3))
    assert (found.blank, found.incomplete) == (True, True)
    assert found.unseen[0].never


def test_money_that_a_provider_dated_back_is_not_blank() -> None:
    found = stated(FakeBooks(spent=(spent(money("3")),), known=(scope_now(),)), as_of=NOW, of=(2026, 10))
    assert (found.blank, found.incomplete) == (False, True)


def test_each_provider_says_what_its_rule_leaves_out() -> None:
    books = FakeBooks(spent=(spent(money("3")),), known=(scope_now(VAST), scope_now(AWS)))
    found = stated(books).not_modelled
    assert found[0] == ("aws", "snapshots")
    assert [provider for provider, _ in found] == ["aws", "vast"]
    assert found[1][1] == CAREFUL_RULE.not_counted[0]


HOLD = Hold(id="h1", money=Money.parse(12), who="ada", why="run", taken_at=at(21, 11), expires_at=at(21, 18))


def test_the_month_is_asked_for_in_the_zone_as_known_now() -> None:
    books, zone = FakeBooks(), ZoneInfo("Europe/Berlin")
    found = build_status(books=books, now=NOW, zone=zone)
    assert books.asked == ((find_month(NOW, zone), NOW),)
    assert found.month == find_month(NOW, zone)


def test_budgets_of_one_period_share_a_question() -> None:
    books = FakeBooks()
    budgets = [Budget(name=n, cap=Money.parse(40), period=p) for n, p in (("a", "day"), ("b", "day"), ("c", "month"))]
    found = build_status(books=books, budgets=budgets, now=NOW, zone=UTC)
    assert [period for period, _ in books.asked].count(find_day(NOW, UTC)) == 1
    assert [standing.budget.name for standing in found.budgets] == ["a", "b", "c"]


def test_a_budget_counts_what_matches_it_with_its_burn_and_its_holds() -> None:
    books = FakeBooks(
        spent=(spent(money("5", "6", "7")), spent(money("100"), attribution(owner="bob"))),
        resources=(live("i-1", meter(2 * 10**9)), live("i-2", meter(50 * 10**9), owner="bob")),
    )
    budget = Budget(name="ada", cap=Money.parse(40), period="day", match=ResourceFilter(owners=("ada",)))
    (found,) = build_status(books=books, budgets=[budget], holds=[HOLD], now=NOW, zone=UTC).budgets
    assert (found.spent, found.burn, found.holds) == (money("5", "6", "7"), money("2"), Money.parse(12))
    assert found.if_unchanged == money("29", "30", "31")
