"""What messages say: every story's number to the cent."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import OVER_CAP, Admission, BudgetStatus
from costguard.budgets.hold import Hold
from costguard.guard.alerts import alert, fleet
from costguard.guard.alerts.alert import INFO, PAGE, WARNING, Alert, AlertSubject, Notification
from costguard.guard.alerts.denial import build_denial, build_denial_alert
from costguard.guard.alerts.dispatch import ALERTS_SHOWN, format_body, format_title
from costguard.guard.alerts.fleet import explain_cap
from costguard.guard.cap_forecast import forecast_cap
from costguard.guard.limits import Breaker
from costguard.guard.policy import Rails
from costguard.guard.signals import IDLE, Activity
from costguard.settings import load_zone
from costguard.values.calendar import Period
from costguard.values.money import Money, MoneyInterval, Rate
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.text_format import format_local_time

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
        "told": "8xA100-80GB",
        "rate": None if price is None else rate(price),
    }
    return AlertSubject(**(said | changes))  # type: ignore[arg-type]


def text_of(notice: Alert) -> str:
    message = Notification(
        id="1", channel="c", why_now="first", severity=notice.severity, title=notice.what, notices=(notice,), at=notice.at
    )
    return f"{format_title(message)}\n{format_body(message)}"


def test_an_idle_warning_says_all_that_somebody_needs() -> None:
    so_far = alert.compute_rate_cost(rate("32.77"), NOTICED - IDLE_SINCE)
    notice = alert.build_idle_alert(matter(), WORK, at=NOTICED, since=IDLE_SINCE, so_far=so_far, then="stop", then_at=DUE)
    assert (
        text_of(notice)
        == """\
costguard: train-3 (8xA100-80GB) is idle since 2026-11-20 18:05 UTC
Sent now because it is new, at 2026-11-20 18:50 UTC.

train-3 (8xA100-80GB) is idle since 2026-11-20 18:05 UTC
  of what: aws/1111/us-east-1/i-0abc
  whose: ann
  since: 2026-11-20 18:05 UTC (45 min)
  why: GPU duty 0 % since 18:05; CPU 0.01 cores; disk 0 B/s (confidence 0.90)
  so far: $24.58
  per hour: $32.7700
  next: stop at 2026-11-20 19:05 UTC
  to keep it: costguard keep aws/1111/us-east-1/i-0abc --for 4h"""
    )


def test_story_1_the_stop_says_that_62_idle_minutes_cost_33_86() -> None:
    confirmed = IDLE_SINCE + timedelta(minutes=62)
    cost = alert.compute_rate_cost(rate("32.77"), confirmed - IDLE_SINCE)
    notice = alert.build_done_alert(
        matter("0.0548"), act="stop", at=confirmed, asked_at=DUE, idle_cost=cost, saves=rate("32.77"), afterwards="$0.0548"
    )
    assert notice.severity == INFO
    assert "cost while idle: $33.86" in text_of(notice)
    assert "still per hour: $0.0548" in text_of(notice)
    assert not notice.keep


def test_story_19_an_ask_says_that_waiting_costs_11_96_per_30_minutes() -> None:
    notice = alert.build_question_alert(
        matter("23.92"), WORK, act="terminate", at=NOTICED, since=IDLE_SINCE, so_far=usd("17.94"),
        loses=("all data on its disk",), because="its provider has no stop",
    )  # fmt: skip
    text = text_of(notice)
    assert "waiting costs: $11.96 per 30 min" in text
    assert "would be lost: all data on its disk" in text
    assert "nothing: without an answer it stays as it is" in text


def test_story_10_a_hard_cap_says_when_stopping_had_to_start() -> None:
    notice = fleet.build_hard_cap_alert(
        "all", owner="", spent=usd("482.10"), cap=usd("500"), rate=rate("98.32"), reaction=timedelta(seconds=600),
        stops=("i-1",), at=NOTICED,
    )  # fmt: skip
    assert notice.severity == PAGE
    assert "to stop takes 10 min, which costs $16.39: stopping starts at $483.61" in text_of(notice)


def test_story_22_an_act_that_was_not_confirmed_says_what_it_still_costs() -> None:
    notice = alert.build_unconfirmed_alert(matter(), act="stop", at=NOTICED, asked_at=NOTICED, sends=4, so_far=usd("5.46"))
    assert (
        format_title(
            Notification(id="1", channel="", why_now="first", severity=PAGE, title=notice.what, notices=(notice,), at=NOTICED)
        )
        == "costguard: PAGE: STOP NOT CONFIRMED: train-3 (8xA100-80GB), still $32.7700/h"
    )


def test_an_unknown_price_is_said_to_be_unknown() -> None:
    notice = alert.build_unconfirmed_alert(matter(None), act="stop", at=NOTICED, asked_at=NOTICED, sends=1, so_far=None)
    assert "at an unknown price" in notice.what
    assert "$" not in text_of(notice)


@pytest.mark.parametrize(
    ("notice", "severity", "says"),
    [
        (alert.build_blind_alert(matter(), at=NOTICED, since=None, why=(), so_far=None), WARNING, "is unknown"),
        (
            alert.build_churn_alert(matter(), controller="asg/web", times=3, within=timedelta(hours=1), at=NOTICED),
            WARNING,
            "asg/web replaces its machines: 3 times in 1 h",
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
        (fleet.build_ledger_unwritable_alert(why="disk full", at=NOTICED, since=NOTICED), PAGE, "disk full"),
        (
            fleet.build_provider_down_alert(
                "vast", scopes=[ScopeKey("vast", "a", "all")], why="401", since=NOTICED, rate=rate("2.99"), at=DUE
            ),
            WARNING,
            "vast refuses the credentials (1 scope)",
        ),
        (
            fleet.build_budget_alert(
                "vision", owner="", says=["pace is ahead"], spent=usd("900"), cap=usd("3000"), rate=None, at=NOTICED
            ),
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


def test_a_message_of_a_thousand_notices_writes_out_twenty() -> None:
    notices = (alert.build_blind_alert(matter(), at=NOTICED, since=None, why=(), so_far=None),) * 1000
    message = Notification(id="1", channel="c", why_now="first", severity=WARNING, title="t", notices=notices, at=NOTICED)
    assert f"and {1000 - ALERTS_SHOWN} more: costguard status" in format_body(message)


def test_people_are_told_by_the_clocks_of_their_zone() -> None:
    berlin = load_zone("Europe/Berlin", "zone")
    notice = alert.build_planned_alert(
        matter(zone=berlin), WORK, act="stop", due=DUE, at=NOTICED, since=IDLE_SINCE, so_far=None, loses=()
    )
    text = text_of(notice)
    assert "is due at 2026-11-20 20:05 CET" in text
    assert "since: 2026-11-20 19:05 CET (45 min)" in text
    assert notice.at == NOTICED
    assert format_local_time(NOTICED, load_zone("America/Sao_Paulo", "zone")) == "2026-11-20 15:50 America/Sao_Paulo"


def test_a_cap_tells_what_is_spent_how_fast_and_when_it_would_be_reached() -> None:
    budget = Budget(name="all", cap=usd("500"), hard=True)
    burn = MoneyInterval(low=usd("98.32"), expected=usd("98.32"), high=usd("98.32"))
    spent = MoneyInterval(low=usd("484"), expected=usd("484"), high=usd("484"))
    period = Period(start=datetime(2026, 11, 1, tzinfo=UTC), end=datetime(2026, 12, 1, tzinfo=UTC))
    standing = BudgetStatus(
        budget=budget,
        period=period,
        spent=spent,
        burn=burn,
        holds=usd("0"),
        forecast=spent,
        fraction=Fraction(484, 500),
        pace=None,
        time_to_cap_hours=None,
    )
    cap = forecast_cap(standing, [], timedelta(seconds=600), NOTICED, fleet=1, poll=timedelta(seconds=60))
    assert explain_cap(cap, NOTICED, UTC) == (
        "$484.00 of $500.00 of budget all is surely spent",
        "at $98.3200 an hour the cap is reached about 2026-11-20 18:59 UTC",
        "a stop is confirmed after 10 min, so it acts at $483.61",
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
    assert dict(notice.facts)["who asked"] == "bot"
    assert build_denial(hold, replace(no, admitted=True), NOTICED, "w1") is None


def test_an_address_with_token_in_it_that_cannot_be_reached_is_no_refused_key() -> None:
    """Google's keys are exchanged at an address that ends in /token."""
    scope = ScopeKey("gcp", "acme-lab", "project")
    why = "POST https://oauth2.googleapis.com/token: no connection (ConnectError)"
    alert = fleet.build_provider_down_alert("gcp", scopes=[scope], why=why, since=NOTICED, rate=None, at=DUE)
    assert alert.what == "gcp cannot be asked (1 scope)"
    told = fleet.build_provider_down_alert("gcp", scopes=[scope], why=f"{why}; 401", since=NOTICED, rate=None, at=DUE)
    assert told.what == "gcp refuses the credentials (1 scope)"
