"""Notices promise what the limits allow: the forecast of sends, and announcements that are taken back."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction

import pytest

from costguard.guard.action_plan import build_action_plan
from costguard.guard.alerts.alert import WARNING, WITHDRAWN, Alert, AlertRoute
from costguard.guard.alerts.dispatch import dispatch_alerts
from costguard.guard.limits import Headroom, SendSchedule
from costguard.guard.policy import STOP, Rails
from tests.guard.cases import around, case, friday, idle, machine, mark_told, minutes, policy
from tests.guard.test_railing import sent as request
from tests.guard.test_told_first import climb

NOW = friday(19, 5)
ONE_A_DAY = Rails(fleet_share_day=Fraction(1, 100), acts_least_day=1)


@pytest.mark.parametrize(
    ("due", "sent", "rails", "times"),
    [
        ([NOW], [], Rails(), [NOW]),
        ([NOW + minutes(15)], [], Rails(), [NOW + minutes(15)]),
        ([NOW] * 16, [], Rails(), [NOW + minutes(n) for n in (*[0] * 5, *[1] * 5, *[2] * 5, 10)]),
        ([NOW] * 3, [], Rails(acts_per_run=1, acts_per_10m=2), [NOW, NOW + minutes(1), NOW + minutes(10)]),
        ([NOW, NOW], [NOW - minutes(575)], ONE_A_DAY, [NOW + minutes(865), NOW + minutes(865) + timedelta(days=1)]),
        ([NOW + timedelta(days=2)], [NOW - minutes(1)], ONE_A_DAY, [NOW + timedelta(days=2)]),
    ],
)
def test_each_act_goes_as_soon_as_every_limit_has_room(
    due: list[datetime], sent: list[datetime], rails: Rails, times: list[datetime]
) -> None:
    queue = SendSchedule([request(at) for at in sent], 30, rails, now=NOW, interval=minutes(1))
    found = [queue.add(one) for one in due]
    assert [at for at, _ in found] == times
    assert [bool(why) for _, why in found] == [at > max(one, NOW) for one, (at, _) in zip(due, found, strict=True)]


def test_limits_of_zero_let_nothing_go() -> None:
    at, why = SendSchedule([], 30, Rails(acts_per_10m=0), now=NOW, interval=minutes(1)).add(NOW)
    assert (at.year, why) == (9999, "0 in 10 min")


def test_an_act_that_loses_data_waits_for_its_hour_and_others_pass_it() -> None:
    queue = SendSchedule([], 30, Rails(), now=NOW, interval=minutes(1))
    lost = [queue.add(NOW, irreversible=True) for _ in range(3)]
    assert [at for at, _ in lost] == [NOW, NOW + minutes(60), NOW + minutes(120)]
    assert lost[1][1] == "1 in an hour that loses data"
    assert [queue.add(NOW)[0] for _ in range(4)] == [NOW] * 4
    assert queue.add(NOW) == (NOW + minutes(1), "5 act(s) a run")


def test_what_waits_for_a_limit_says_so_and_an_approval_passes_it() -> None:
    rule = policy()
    one = replace(machine(), seen_at=NOW, first_seen_at=NOW - timedelta(days=1))
    told = mark_told(climb(rule, friday(18, 50)), rule, 0, friday(18, 50))
    told = replace(told, delivered_at=friday(18, 50))
    full = Headroom(acts=0, irreversible=1, why="1 of 1", in_run=1)
    spent = around(NOW, rails=ONE_A_DAY, fleet=30, sent=(request(friday(9, 30)),), room=full)
    (stop,) = [p for p in build_action_plan([case(one, rule, idle(friday(18, 5)), NOW, told)], spent) if p.step.do == STOP]
    assert stop.held_by == (("rate", "1 of 1"),)
    assert (stop.expected_at, stop.limit) == (friday(9, 30) + timedelta(days=1), "1 in a day")
    yes = case(one, rule, idle(friday(18, 5)), NOW, told, approved=frozenset((STOP,)))
    (now,) = [p for p in build_action_plan([yes], spent) if p.step.do == STOP]
    assert now.is_ready(NOW)


ROUTE = AlertRoute(name="team", channels=("slack",))


def announced(due: datetime | None, *, withdraws: bool = False) -> Alert:
    return Alert(
        topic="policy:idle-gpu",
        subject="aws/1/us/i-1",
        owner="ada",
        severity=WARNING,
        what="stop",
        at=NOW,
        due=due,
        withdraws=withdraws,
    )


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (announced(NOW + minutes(15)), []),
        (announced(NOW + minutes(45)), []),
        (announced(NOW + minutes(90)), [WITHDRAWN]),
        (announced(None, withdraws=True), [WITHDRAWN]),
        (announced(None), []),
    ],
    ids=["as it was", "a little later", "much later", "held for good", "done"],
)
def test_an_announcement_that_no_longer_holds_is_taken_back_once(then: Alert, why: list[str]) -> None:
    _, states = dispatch_alerts([announced(NOW + minutes(15))], (), now=NOW, routes=(ROUTE,))
    messages, states = dispatch_alerts([then], states, now=NOW + minutes(1), routes=(ROUTE,))
    assert [one.why_now for one in messages] == why
    again, _ = dispatch_alerts([then], states, now=NOW + minutes(2), routes=(ROUTE,))
    assert again == ()
