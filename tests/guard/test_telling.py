"""Who is told what, when, and why now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.guard.alerts.alert import INFO, PAGE, WARNING, Alert, AlertRoute, AlertState, Notification
from costguard.guard.alerts.dispatch import NOTIFICATIONS_PER_HOUR_MAX, dispatch_alerts
from costguard.guard.overrides import SNOOZE, Override
from costguard.notifiers import format_body
from costguard.settings import load_zone
from costguard.values.resource import ResourceKey

START = datetime(2026, 11, 20, 18, 50, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KEY = ResourceKey("aws", "1111", "us-east-1", "i-0abc")


def notice(subject: str = "/".join(KEY), **changes: object) -> Alert:
    said = {"topic": "policy:idle-gpu", "owner": "ann", "severity": WARNING, "what": f"{subject} is idle", "at": START}
    return Alert(subject=subject, **(said | changes))  # type: ignore[arg-type]


class Line:
    """Runs one after another, each with the states that the last one left."""

    def __init__(self, *routes: AlertRoute) -> None:
        self.routes = routes or (AlertRoute(name="all", channels=("slack",)),)
        self.states: tuple[AlertState, ...] = ()
        self.sent = list[Notification]()

    def run(
        self, after: timedelta, notices: Iterable[Alert] = (), snoozes: Sequence[Override] = (), *, after_gap: bool = False
    ) -> tuple[Notification, ...]:
        now = START + after
        messages, self.states = dispatch_alerts(
            notices, self.states, now=now, routes=self.routes, snoozes=snoozes, after_gap=after_gap
        )
        self.sent += messages
        return messages

    def reasons(self, after: timedelta, notices: Iterable[Alert] = (), **more: object) -> list[str]:
        return [one.why_now for one in self.run(after, notices, **more)]  # type: ignore[arg-type]


def snooze(**of: object) -> Override:
    return Override(id="w1", what=SNOOZE, who="ann", why="I know", at=START, **of)  # type: ignore[arg-type]


def test_what_is_new_is_told_at_once_and_not_again_a_minute_later() -> None:
    line = Line()
    assert line.reasons(0 * MINUTE, [notice()]) == ["first"]
    assert line.reasons(MINUTE, [notice()]) == []


def test_a_second_machine_of_the_same_owner_and_policy_joins_the_group() -> None:
    line = Line()
    line.run(0 * MINUTE, [notice()])
    [message] = line.run(5 * MINUTE, [notice(), notice("aws/1111/us-east-1/i-2")])
    assert message.why_now == "new_in_group"
    assert [one.subject for one in message.notices] == ["aws/1111/us-east-1/i-2"]


def test_notices_of_one_group_come_in_one_message_and_those_of_others_in_their_own() -> None:
    line = Line()
    messages = line.run(0 * MINUTE, [notice("a"), notice("b"), notice("c", owner="bob"), notice("d", topic="policy:other")])
    assert sorted(len(one.notices) for one in messages) == [1, 1, 2]


def test_a_page_is_put_together_only_with_those_of_the_same_policy_and_owner() -> None:
    line = Line(AlertRoute(name="all", channels=("pager",), group_by=()))
    pages = [notice("b", severity=PAGE), notice("c", severity=PAGE)]
    others = [replace(notice("d", severity=PAGE), owner="ben"), replace(notice("e", severity=PAGE), topic="rail:breaker")]
    messages = line.run(0 * MINUTE, [notice("a"), *pages, *others])
    assert sorted((one.severity, len(one.notices)) for one in messages) == [(PAGE, 1), (PAGE, 1), (PAGE, 2), (WARNING, 1)]


def test_of_many_machines_each_is_named_in_the_text_before_it_is_stopped() -> None:
    machines = [replace(notice(f"m{n:02d}", severity=PAGE), ahead=True) for n in range(45)]
    messages = Line().run(0 * MINUTE, machines)
    assert [len(one.notices) for one in messages] == [20, 20, 5]
    assert len({one.id for one in messages}) == len(messages)
    assert all(one.what in "".join(map(format_body, messages)) for one in machines)


@pytest.mark.parametrize("worse", [{"stage": 1}, {"severity": PAGE}], ids=["a later step", "a page"])
def test_what_gets_worse_is_told_at_once_and_only_once(worse: dict[str, Any]) -> None:
    line = Line()
    line.run(0 * MINUTE, [notice()])
    assert line.reasons(15 * MINUTE, [notice(**worse)]) == ["escalated"]
    assert line.reasons(16 * MINUTE, [notice(**worse)]) == []


def test_it_is_repeated_after_4_hours_24_hours_7_days_and_then_every_week() -> None:
    line = Line()
    at = [hour for hour in range(24 * 29) if line.run(timedelta(hours=hour), [notice()])]
    assert at == [0, 4, 24, 7 * 24, 14 * 24, 21 * 24, 28 * 24]
    assert {one.why_now for one in line.sent[1:]} == {"repeat_due"}


def test_a_repeat_is_left_out_that_comes_right_after_another_message() -> None:
    line = Line()
    line.run(0 * MINUTE, [notice()])
    line.run(timedelta(hours=3, minutes=55), [notice(stage=1)])
    assert line.reasons(timedelta(hours=4), [notice(stage=1)]) == []
    assert line.reasons(timedelta(hours=24), [notice(stage=1)]) == ["repeat_due"]


def test_what_is_over_is_told_once_after_it_has_settled() -> None:
    line = Line()
    line.run(0 * MINUTE, [notice(severity=PAGE)])
    told = [line.reasons(n * MINUTE) for n in range(20, 30)]
    assert told == [[], [], ["resolved"], *[[]] * 7]
    assert line.sent[-1].notices[0].what.startswith("resolved: ")


def test_what_flickers_is_told_neither_as_over_nor_as_new() -> None:
    line = Line()
    for n in range(60):
        line.run(n * MINUTE, [notice()] if n % 2 == 0 else [])
    assert [one.why_now for one in line.sent] == ["first"]


def test_that_it_was_done_is_the_end_of_its_warning_and_told_once() -> None:
    line = Line()
    line.run(0 * MINUTE, [notice()])
    line.run(15 * MINUTE, [notice(stage=1)])
    done = notice(stage=2, severity=INFO, what="it is stopped")
    assert line.reasons(17 * MINUTE, [done]) == ["resolved"]
    assert [line.reasons(n * MINUTE, [done] if n < 40 else []) for n in range(18, 60)] == [[]] * 42


def test_information_is_told_once_and_its_end_is_not_told() -> None:
    line = Line()
    line.run(0 * MINUTE, [notice(severity=INFO)])
    assert [line.reasons(timedelta(hours=n), [notice(severity=INFO)] if n < 30 else []) for n in range(1, 40)] == [[]] * 39


def test_stops_that_are_done_within_a_quarter_of_an_hour_come_in_one_message() -> None:
    line, done = Line(), [notice(name, topic="act:stop", severity=INFO) for name in "abc"]
    sent = {n: line.run(n * MINUTE, [*done[: 1 + (n >= 5) + (n >= 12)]]) for n in range(60)}
    subjects = {n: [one.subject for one in messages[0].notices] for n, messages in sent.items() if messages}
    assert subjects == {0: ["a"], 15: ["b", "c"]}


def test_a_warning_waits_for_no_other_message() -> None:
    line = Line()
    line.run(0 * MINUTE, [notice("a", severity=INFO)])
    assert line.reasons(MINUTE, [notice("a", severity=INFO), notice("b")]) == ["first"]


def test_an_end_that_people_are_not_told_is_sent_to_pagers_alone() -> None:
    """Its stop is announced, and that it was done is told under another topic; an event stays open, as nobody knows its end."""
    line = Line(AlertRoute(name="all", channels=("slack", "pager"), pagers=("pager",), group_by=()))
    due = notice(ahead=True, due=START + 15 * MINUTE)
    act = notice(topic="act:stop", severity=INFO, what="stopped")
    event = notice("aws/1111/us-east-1/i-2", topic="act:stop", severity=PAGE, what="STOP NOT CONFIRMED", once=True)
    line.run(0 * MINUTE, [due])
    line.run(16 * MINUTE, [act, event])
    ends = line.run(19 * MINUTE, [act]) + line.run(22 * MINUTE, [])
    assert [(one.channel, one.why_now, one.notices[0].topic, one.notices[0].is_over) for one in ends] == [
        ("pager", "resolved", "policy:idle-gpu", True)
    ]
    assert [one.notices[0].is_over for one in line.sent[:4]] == [False] * 4


def test_a_snooze_is_quiet_and_the_next_message_says_that_it_ended() -> None:
    line = Line()
    line.run(0 * MINUTE, [notice()])
    quiet = [snooze(key=KEY)]
    assert line.reasons(timedelta(hours=4), [notice(stage=1)], snoozes=quiet) == []
    assert line.reasons(timedelta(hours=5), [notice(stage=1)]) == ["snooze_ended"]
    assert line.reasons(timedelta(hours=5, minutes=1), [notice(stage=1)]) == []


def test_a_snooze_of_a_machine_does_not_quiet_a_page_and_one_of_the_policy_does() -> None:
    page = notice(severity=PAGE)
    assert Line().reasons(0 * MINUTE, [page], snoozes=[snooze(key=KEY)]) == ["first"]
    assert Line().reasons(0 * MINUTE, [page], snoozes=[snooze(key=KEY, subject="idle-gpu")]) == []


def test_a_snooze_of_nothing_quiets_nothing_and_one_of_another_machine_neither() -> None:
    other = snooze(key=KEY._replace(id="i-9"))
    assert Line().reasons(0 * MINUTE, [notice()], snoozes=[snooze(), other]) == ["first"]


def test_after_a_gap_warnings_are_sent_again_and_information_is_not() -> None:
    line = Line()
    both = [notice(), notice("b", severity=INFO, topic="x")]
    line.run(0 * MINUTE, both)
    assert line.reasons(30 * MINUTE, both, after_gap=True) == ["repeat_due"]


def test_a_route_gets_nothing_below_its_severity_but_the_end_of_what_it_was_told() -> None:
    line = Line(AlertRoute(name="pager", channels=("pd",), min_severity=PAGE))
    runs = [notice(), notice(severity=PAGE), notice(severity=INFO, stage=2)]
    sent = [(one.channel, one.why_now) for n, alert in enumerate(runs) for one in line.run(n * MINUTE, [alert])]
    assert [why for channel, why in sent if channel == "pd"] == ["first", "resolved"]
    assert sent[0] == ("console", "first"), "what no route takes is logged"


def test_routes_are_told_apart_and_each_of_their_channels_gets_a_message_of_its_own_id() -> None:
    line = Line(
        AlertRoute(name="ann", channels=("slack", "mail"), owners=("ann",)),
        AlertRoute(name="bob", channels=("slack",), owners=("bob",)),
        AlertRoute(name="nobody", channels=("slack",), owners=()),
        AlertRoute(name="idle", channels=("irc",), topics=("policy:idle*",)),
    )
    messages = line.run(0 * MINUTE, [notice()])
    assert [one.channel for one in messages] == ["slack", "mail", "irc"]
    assert len({one.id for one in messages}) == 3


def test_of_one_group_at_most_six_messages_go_an_hour_and_the_rest_comes_together() -> None:
    line = Line()
    machines = [notice(f"m{n}") for n in range(60)]
    for n in range(60):
        line.run(n * MINUTE, machines[: n + 1])
    assert len(line.sent) == NOTIFICATIONS_PER_HOUR_MAX
    [digest] = line.run(60 * MINUTE, machines)
    assert len(digest.notices) == 54


def test_no_limit_holds_back_the_news_of_an_act_that_comes_next() -> None:
    line = Line()
    machines = [replace(notice(f"m{n}"), ahead=n % 2 == 1) for n in range(20)]
    for n in range(20):
        line.run(n * MINUTE, machines[: n + 1])
    told = [one.subject for message in line.sent for one in message.notices]
    assert [name for name in told if machines[int(name[1:])].ahead] == [f"m{n}" for n in range(1, 20, 2)]
    assert len(told) < len(machines)
    assert len(told) == len(set(told))


def test_what_came_and_went_while_nothing_could_be_told_is_told_as_over() -> None:
    line = Line()
    for n in range(NOTIFICATIONS_PER_HOUR_MAX):
        line.run(n * MINUTE, [notice(f"m{m}") for m in range(n + 1)])
    kept = [notice(f"m{m}") for m in range(NOTIFICATIONS_PER_HOUR_MAX)]
    line.run(10 * MINUTE, [*kept, notice("brief")])
    for n in range(11, 60):
        line.run(n * MINUTE, kept)
    [digest] = line.run(60 * MINUTE, kept)
    assert [one.what for one in digest.notices] == ["resolved: brief is idle"]


@given(st.lists(st.sets(st.sampled_from(["a", "b", "c", "d", "e"])), max_size=150), st.sampled_from([WARNING, PAGE]))
def test_whatever_comes_and_goes_each_is_told_and_never_more_often_than_allowed(seen: list[set[str]], severity: str) -> None:
    line, found = Line(), set[str]()
    for n, names in enumerate(seen):
        line.run(n * MINUTE, [notice(name, severity=severity) for name in names])
        found |= names
    for n in range(len(seen), len(seen) + 180):
        line.run(n * MINUTE)
    assert {one.subject for message in line.sent for one in message.notices} == found
    keys = {message.notices[0].subject if severity == PAGE else "" for message in line.sent}
    for key in keys:
        at = [one.at for one in line.sent if key in {"", one.notices[0].subject}]
        assert all(sum(start <= one < start + timedelta(hours=1) for one in at) <= NOTIFICATIONS_PER_HOUR_MAX for start in at)
    assert len({one.id for one in line.sent}) == len(line.sent)
    assert all(told.over for told in line.states)


def test_an_event_is_told_once_and_neither_again_nor_as_over() -> None:
    line, event = Line(), notice(topic="denied:agent", once=True)
    assert line.reasons(0 * MINUTE, [event]) == ["first"]
    for hours in (1, 5, 25, 200):
        assert line.reasons(timedelta(hours=hours), [event]) == []
    assert line.reasons(timedelta(hours=201)) == []
    assert line.reasons(timedelta(hours=202)) == []
    assert line.reasons(timedelta(hours=203), [event]) == ["first"]


def test_what_is_for_the_owner_goes_where_owners_are_told_and_the_rest_everywhere() -> None:
    owners, admins = (
        AlertRoute(name="o", channels=("mail",), audience=("owner",)),
        AlertRoute(name="a", channels=("ops",), audience=("admin",)),
    )
    every = AlertRoute(name="e", channels=("log",))

    def channels(*routes: AlertRoute, to: tuple[str, ...]) -> list[str]:
        return [one.channel for one in Line(*routes).run(0 * MINUTE, [notice(to=to)])]

    assert channels(owners, admins, every, to=("owner",)) == ["mail", "log"]
    assert channels(owners, admins, every, to=("owner", "admin")) == ["mail", "ops", "log"]
    assert channels(owners, admins, to=()) == ["mail", "ops"]
    assert channels(admins, to=("owner",)) == ["ops"]  # nobody serves owners: better told to somebody than to nobody


def test_a_message_says_when_it_was_told_by_the_clocks_of_the_zone() -> None:
    zone = load_zone("Europe/Berlin", "zone")
    (message,), _ = dispatch_alerts([notice()], (), now=START, routes=[AlertRoute(name="all", channels=("slack",))], zone=zone)
    assert (message.told_at, message.at) == ("2026-11-20 19:50 CET", START)
