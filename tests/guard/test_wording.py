"""What messages say: every story's number to the cent."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import OVER_CAP, Admission, BudgetStatus
from costguard.budgets.hold import Hold
from costguard.budgets.spend_forecast import WEEKS
from costguard.guard.alerts import alert, fleet, watchdog
from costguard.guard.alerts.alert import INFO, PAGE, WARNING, Alert, AlertSubject, Notification
from costguard.guard.alerts.denial import build_denial, build_denial_alert
from costguard.guard.alerts.fleet import explain_cap
from costguard.guard.alerts.rates import describe_hourly_cost
from costguard.guard.cap_forecast import CapForecast, forecast_cap
from costguard.guard.limits import Breaker
from costguard.guard.policy import Rails
from costguard.guard.signals import IDLE, Activity
from costguard.metering.meter import COMPUTE, Meter, PriceRange
from costguard.notifiers import format_body, format_title
from costguard.settings import load_zone
from costguard.values.calendar import Period
from costguard.values.money import Money, MoneyInterval, Rate
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.text_format import format_local_time
from tests.books import NOW, live, meter

IDLE_SINCE = datetime(2026, 11, 20, 18, 5, tzinfo=UTC)
NOTICED = IDLE_SINCE + timedelta(minutes=45)
DUE = NOTICED + timedelta(minutes=15)
WORK = Activity(
    state=IDLE, confidence=0.9, reasons=("GPU duty 0 % since 18:05", "CPU 0.01 cores", "disk 0 B/s"), since=IDLE_SINCE
)


def usd(text: str) -> Money:
    return Money.parse(text, "USD")


def rate(text: str) -> Rate:
    return Rate.parse(text, "USD")


def matter(price: str | None = "32.77", **changes: object) -> AlertSubject:
    said: dict[str, object] = {
        "topic": "policy:idle-gpu",
        "key": ResourceKey("aws", "1111", "us-east-1", "i-0abc"),
        "owner": "ann",
        "name": "train-3",
        "told": "8x A100 80GB",
        "rate": None if price is None else rate(price),
    }
    return AlertSubject(**(said | changes))  # type: ignore[arg-type]


def message_of(*notices: Alert) -> Notification:
    [first, *_] = notices
    return Notification(
        id="1", channel="c", why_now="first", severity=first.severity, title=first.what, notices=notices, at=first.at
    )


def text_of(notice: Alert, now: datetime | None = None) -> str:
    message = message_of(notice)
    return f"{format_title(message, now=now)}\n{format_body(message, now=now)}"


def cap_of(spent: str, burn: str, cap: str = "500", name: str = "all") -> CapForecast:
    """The forecast of a hard cap whose stops take ten minutes."""
    period = Period(start=datetime(2026, 11, 1, tzinfo=UTC), end=datetime(2026, 12, 1, tzinfo=UTC))
    certain = MoneyInterval(low=usd(spent), expected=usd(spent), high=usd(spent))
    status = BudgetStatus(
        budget=Budget(name=name, cap=usd(cap), hard=True),
        period=period,
        spent=certain,
        burn=MoneyInterval(low=usd(burn), expected=usd(burn), high=usd(burn)),
        holds=usd("0"),
        forecast=certain,
        if_unchanged=certain,
        basis=WEEKS,
        fraction=Fraction(1),
        pace=None,
        time_to_cap_hours=None,
    )
    return forecast_cap(status, [], timedelta(seconds=600), NOTICED, fleet=1, poll=timedelta(seconds=60))


def test_an_idle_warning_says_all_that_somebody_needs() -> None:
    so_far = alert.compute_rate_cost(rate("32.77"), NOTICED - IDLE_SINCE)
    notice = alert.build_idle_alert(matter(), WORK, at=NOTICED, since=IDLE_SINCE, so_far=so_far)
    assert (
        text_of(notice)
        == """\
costguard: train-3 (8x A100 80GB) has been idle since 18:05 UTC
cost: $32.7700 an hour, $24.58 so far; owner: ann
to keep it: costguard keep aws/1111/us-east-1/i-0abc --for 4h
why: idle since 18:05 UTC (45 min): GPU duty 0 % since 18:05; CPU 0.01 cores; disk 0 B/s (confidence 0.90)
next: only this notification [Sent now because it is new, at 2026-11-20 18:50 UTC.]"""
    )


def test_story_1_the_stop_says_that_62_idle_minutes_cost_33_86() -> None:
    confirmed = IDLE_SINCE + timedelta(minutes=62)
    cost = alert.compute_rate_cost(rate("32.77"), confirmed - IDLE_SINCE)
    notice = alert.build_done_alert(
        matter("0.0548"), act="stop", at=confirmed, asked_at=DUE, idle_cost=cost, saves=rate("32.77"), afterwards="$0.0548"
    )
    assert notice.severity == INFO
    told = text_of(notice)
    assert told.startswith("costguard: train-3 (8x A100 80GB) was stopped at 19:07 UTC\n")
    costs = "cost: saves $32.7700 an hour, hourly cost now: $0.0548, cost while idle: $33.86"
    assert f"\n{costs}; owner: ann; machine: aws/1111/us-east-1/i-0abc\n" in told
    assert not notice.keep


def test_a_planned_stop_says_in_four_lines_when_what_it_costs_how_to_keep_it_and_why() -> None:
    notice = alert.build_planned_alert(
        matter(), WORK, act="stop", due=DUE, at=NOTICED, since=IDLE_SINCE, so_far=usd("24.58"), loses=("ram",)
    )
    assert (
        text_of(notice, now=NOTICED + timedelta(seconds=4))
        == """\
costguard: train-3 (8x A100 80GB) stops at 19:05 UTC, in 15 min
cost: $32.7700 an hour, $24.58 so far; owner: ann
to keep it: costguard keep aws/1111/us-east-1/i-0abc --for 4h
why: idle since 18:05 UTC (45 min): GPU duty 0 % since 18:05; CPU 0.01 cores; disk 0 B/s (confidence 0.90); would be lost: ram \
[Sent now because it is new, at 2026-11-20 18:50 UTC.]"""
    )
    assert (notice.stage, notice.condition) == (1, "stop of train-3")
    assert "in 15 min" not in text_of(notice), "it may be read later"


def test_the_date_of_an_act_is_named_where_it_is_not_today() -> None:
    tomorrow, passed = NOTICED + timedelta(hours=6), NOTICED - timedelta(minutes=5)
    announced = [
        alert.build_planned_alert(matter(), WORK, act="terminate", due=due, at=NOTICED, since=IDLE_SINCE, so_far=None).what
        for due in (DUE, tomorrow, passed)
    ]
    assert [what.partition(") ")[2] for what in announced] == [
        "terminates at 19:05 UTC",
        "terminates at 2026-11-21 00:50 UTC",
        "was due to terminate at 18:45 UTC",
    ]


def test_each_of_several_machines_in_one_message_is_named_once() -> None:
    notices = [
        alert.build_planned_alert(matter(name=name), WORK, act="stop", due=DUE, at=NOTICED, since=IDLE_SINCE, so_far=None)
        for name in ("one", "two")
    ]
    body = format_body(message_of(*notices), now=NOTICED)
    assert [body.count(f"{name} (8x A100 80GB) stops at 19:05 UTC, in 15 min") for name in ("one", "two")] == [1, 1]


def test_story_10_a_hard_cap_says_when_stopping_had_to_start() -> None:
    notice = fleet.build_hard_cap_alert(cap_of("482.10", "98.32"), at=NOTICED)
    assert (notice.severity, notice.what) == (PAGE, "hard cap of budget all: $482.10 of $500.00 spent")
    assert "a stop takes 10 min, which costs $16.39: stopping starts at $483.61" in text_of(notice)


def test_story_22_an_act_that_was_not_confirmed_says_what_it_still_costs() -> None:
    notice = alert.build_unconfirmed_alert(matter(), act="stop", at=NOTICED, asked_at=NOTICED, sends=4, so_far=usd("5.46"))
    assert text_of(notice).startswith("costguard: PAGE: STOP NOT CONFIRMED: train-3 (8x A100 80GB), still $32.7700/h\n")


@pytest.mark.parametrize(
    ("notice", "severity", "says"),
    [
        (alert.build_blind_alert(matter(), at=NOTICED, since=None, why=(), so_far=None), WARNING, "is unknown"),
        (
            fleet.build_churn_alert(matter(), controller="asg/web", times=3, within=timedelta(hours=1), at=NOTICED),
            WARNING,
            "asg/web replaced its machines 3 times in 1 h",
        ),
        (
            fleet.build_breaker_alert(
                Breaker(opened_at=NOTICED, keys=(matter().key,) * 9, shared="all in us-east-1"),
                fleet=30,
                rails=Rails(),
                at=NOTICED,
            ),
            PAGE,
            "9 of 30 became idle or unknown within 10 min; in common: all in us-east-1",
        ),
        (
            fleet.build_inventory_drop_alert(ScopeKey("aws", "1", "us"), absent_count=8, of=10, at=NOTICED),
            PAGE,
            "8 of 10 resources of aws/1/us",
        ),
        (watchdog.build_ledger_unwritable_alert(why="disk full", at=NOTICED, since=NOTICED), PAGE, "disk full"),
        (
            fleet.build_provider_down_alert(
                "vast", scopes=[ScopeKey("vast", "a", "all")], why="401", since=NOTICED, rate=rate("2.99"), at=DUE
            ),
            WARNING,
            "vast refuses the credentials (1 scope)",
        ),
        (
            fleet.build_budget_alert(cap_of("900", "0", "3000", "vision").standing, says=["pace is ahead"], at=NOTICED),
            WARNING,
            "$900.00 of $3000.00",
        ),
    ],
    ids=["blind", "churn", "breaker", "inventory drop", "ledger", "provider down", "budget"],
)
def test_every_other_notice_says_what_it_is_about(notice: Alert, severity: str, says: str) -> None:
    assert notice.severity == severity
    assert says in text_of(notice)
    assert dict(notice.facts)["next"]


def test_people_are_told_by_the_clocks_of_their_zone() -> None:
    berlin = load_zone("Europe/Berlin", "zone")
    notice = alert.build_planned_alert(
        matter(zone=berlin), WORK, act="stop", due=DUE, at=NOTICED, since=IDLE_SINCE, so_far=None, loses=()
    )
    text = text_of(notice)
    assert "stops at 20:05 CET" in text
    assert "since 19:05 CET (45 min): " in text
    assert notice.at == NOTICED
    assert format_local_time(NOTICED, load_zone("America/Sao_Paulo", "zone")) == "2026-11-20 15:50 America/Sao_Paulo"


def test_a_cap_tells_what_is_spent_how_fast_and_when_it_would_be_reached() -> None:
    cap = cap_of("484", "98.32")
    assert explain_cap(cap, NOTICED, UTC) == (
        "at least $484.00 of $500.00 of budget all is spent",
        "at $98.3200 an hour the cap is reached about 18:59 UTC",
        "a stop is confirmed after 10 min, so stopping starts at $483.61",
    )


def test_a_refused_run_is_recorded_and_told_with_who_asked() -> None:
    hold = Hold(
        id="h",
        money=usd("8.97"),
        who="bot",
        why="pod3",
        owner="ada b",
        taken_at=NOTICED,
        expires_at=NOTICED + timedelta(days=1),
    )
    no = Admission(admitted=False, reason=OVER_CAP, asked=usd("8.97"), budget="agent", left=usd("-6.00"), cap=usd("40"))
    wish = build_denial(hold, no, NOTICED, "w1")
    assert wish is not None
    notice = build_denial_alert(wish)
    assert notice is not None
    assert (notice.topic, notice.owner, notice.once) == ("denied:agent", "ada b", True)
    assert "8.97" in notice.what
    assert dict(notice.facts)["requested by"] == "bot"
    assert build_denial(hold, replace(no, admitted=True), NOTICED, "w1") is None


def test_an_address_with_token_in_it_that_cannot_be_reached_is_no_refused_key() -> None:
    """Google's keys are exchanged at an address that ends in /token."""
    scope = ScopeKey("gcp", "acme-lab", "project")
    why = "POST https://oauth2.googleapis.com/token: no connection (ConnectError)"
    alert = fleet.build_provider_down_alert("gcp", scopes=[scope], why=why, since=NOTICED, rate=None, at=DUE)
    assert alert.what == "gcp cannot be reached (1 scope)"
    told = fleet.build_provider_down_alert("gcp", scopes=[scope], why=f"{why}; 401", since=NOTICED, rate=None, at=DUE)
    assert told.what == "gcp refuses the credentials (1 scope)"


def test_a_stated_price_an_estimate_and_none_are_told_apart() -> None:
    estimate = Meter(COMPUTE, PriceRange(50_000_000, 100_000_000, 120_000_000, known=False))
    nothing = replace(estimate, price=PriceRange(0, 0, 3_440_000_000, known=False))
    said = [describe_hourly_cost(live("i-1", one), NOW) for one in (meter(10**9), estimate, nothing)]
    assert said == ["$1.0000", "about $0.10 (an estimate: $0.05 to $0.12)", "unpriced, at most $3.44"]


def test_a_machine_that_bills_nothing_has_no_rate() -> None:
    assert "unpriced" not in describe_hourly_cost(live("i-1"), NOW)
