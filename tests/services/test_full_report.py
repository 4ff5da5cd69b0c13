"""What a report says beside its groups, over ledgers that played stories filled: waste, what acts saved, disks at rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.ledger.reports.reader import ReportReader
from costguard.reporting.statement.period import ReportPeriod
from costguard.reporting.statement.savings import Saving
from costguard.reporting.statement.statement import Statement
from costguard.services.report.report import ReportQuestion, build_full_statement
from costguard.testing.machine import FLOOR_W
from costguard.values.calendar import Period, make_month
from costguard.values.money import Money
from costguard.views.report import build_report_document
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
    assert "Saved by the guard: $2024.53 (0.00 to 2024.53), by 1 act." in build_report_document(found).lead


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
    assert float(forecast.expected.to_decimal()) == pytest.approx(
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
