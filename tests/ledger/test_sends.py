"""What holds a send back in the ledger, whoever asks: the turn, what people said, acts in doubt, and the rails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from typing import Any

import pytest

from costguard.errors import InputError
from costguard.guard.action_intents import CANCELLED, DONE, EXECUTING, READY, UNCONFIRMED, VERIFYING, Intent
from costguard.guard.overrides import FREEZE, LEASE, PROTECT
from costguard.guard.policy import CAP_RULE, PERSON_RULE, START, Rails
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.writer import LedgerWriter
from tests.ledger.acts import DAY, FLEET, HOUR, MINUTE, NOON, SECOND, WIDE, intent, life, planned, wish
from tests.ledger.fleet import CEILINGS, RULES, machine, poll

DEFAULTS = Rails(
    acts_per_run=1, acts_per_10m=3, fleet_share_10m=Fraction(10, 100), fleet_share_day=Fraction(20, 100), acts_least_day=1
)
LOOSE = replace(DEFAULTS, acts_per_run=10**6)


def book_of(url: str, rails: Rails) -> GuardStore:
    book = GuardStore(url, rails=rails)
    assert book.acquire_leader_lease("a", NOON - SECOND, 6 * HOUR) == 1
    return book


@pytest.fixture
def book(url: str) -> Iterator[GuardStore]:
    """One whose rails are wide."""
    with book_of(url, WIDE) as opened:
        yield opened


@pytest.fixture
def loose(url: str) -> Iterator[GuardStore]:
    """One with the default rails, but for those of a single run."""
    with book_of(url, LOOSE) as opened:
        yield opened


def send(book: GuardStore, one: Intent, at: datetime = NOON, fleet: int = FLEET, **more: Any) -> Intent | None:  # noqa: ANN401 - any field
    """Whether it is let go; the reason is the one that is told beforehand."""
    reason = book.explain_refusal(one, at, fleet=fleet, run=more.get("run", ""))
    moved = book.move_intent(one, EXECUTING, at, fleet=fleet, **more)
    assert (moved is None) == (reason is not None), reason
    if moved is None:
        assert one in book.load_open_intents()
    return moved


def refused(book: GuardStore, one: Intent, reason: str, at: datetime = NOON, fleet: int = FLEET) -> str:
    """What is told of why `one` is not let go."""
    assert send(book, one, at, fleet) is None
    found = book.explain_refusal(one, at, fleet=fleet)
    assert found
    assert found.reason == reason
    return found.told


def test_an_epoch_that_lost_its_turn_sends_nothing(book: GuardStore) -> None:
    one = planned(book)
    later = NOON + 6 * HOUR
    assert "epoch 1, until" in refused(book, one, "not_acting", later)
    assert book.acquire_leader_lease("b", later, MINUTE) == 2
    assert refused(book, one, "not_acting", later).endswith("b holds the lease, epoch 2, until 18:01:00, not epoch 1")
    sent = book.move_intent(one, EXECUTING, later, fleet=FLEET, epoch=2)
    assert sent
    assert sent.epoch == 2


def test_nobody_sends_where_the_turn_was_given_back_or_never_taken(url: str) -> None:
    with GuardStore(url, rails=WIDE) as book:
        assert not book.plan_intent(intent())
        reason = book.explain_refusal(intent(), NOON)
        assert reason
        assert "no watchdog holds the leader lease" in reason.told
        assert book.acquire_leader_lease("a", NOON, MINUTE) == 1
        one = planned(book)
        book.release_leader_lease(1)
        assert "nobody holds the lease" in refused(book, one, "not_acting")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"what": FREEZE, "key": None, "life": None, "until": None}, "frozen"),
        ({"what": PROTECT, "life": None, "until": None}, "protected"),
        ({"what": LEASE}, "leased"),
    ],
    ids=["freeze", "protect", "lease"],
)
def test_what_people_said_meanwhile_holds_it_back(book: GuardStore, said: dict[str, Any], reason: str) -> None:
    one = planned(book)
    book.add_override(wish(**said))
    assert refused(book, one, reason).endswith("ada, a run")
    book.lift_override("w1", who="ada", now=NOON)
    assert send(book, one)


@pytest.mark.parametrize(
    "said",
    [
        {"key": None, "life": life("i-2")},
        {"life": life(started_at=NOON - HOUR)},
        {"until": NOON},
        {"what": "snooze"},
    ],
    ids=["of another", "of another life", "run out", "a snooze"],
)
def test_what_people_said_of_something_else_does_not(book: GuardStore, said: dict[str, Any]) -> None:
    book.add_override(wish(at=NOON - MINUTE, **said))
    assert send(book, planned(book))


def test_a_lease_does_not_beat_a_hard_cap(book: GuardStore) -> None:
    book.add_override(wish())
    assert send(book, planned(book, rule="cap"))


@pytest.mark.parametrize("doubt", [EXECUTING, VERIFYING])
def test_an_act_in_doubt_holds_back_another_on_the_same_machine(book: GuardStore, doubt: str) -> None:
    first = send(book, planned(book))
    other = planned(book, id="end it", act="terminate")
    assert first
    if doubt == VERIFYING:
        first = book.move_intent(first, VERIFYING, NOON)
        assert first
    assert refused(book, other, "in_doubt").endswith(f"stop stop i-1 is {doubt}")
    assert book.move_intent(first, UNCONFIRMED, NOON)
    assert send(book, other)


def test_one_act_a_guard_run_resends_too(url: str) -> None:
    with book_of(url, DEFAULTS) as book:
        first, second = planned(book), planned(book, "i-2")
        sent = send(book, first)
        assert sent
        assert refused(book, second, "rate").endswith("1 sent in this run, of 1")
        assert send(book, second, run="another")
        back = book.move_intent(sent, READY, NOON)
        assert back
        assert refused(book, back, "rate").endswith("1 sent in this run, of 1")
        assert book.acquire_leader_lease("a", NOON + MINUTE, HOUR) == 1
        assert send(book, back, NOON + MINUTE)


def test_three_acts_in_ten_minutes(loose: GuardStore) -> None:
    for number in range(3):
        assert send(loose, planned(loose, f"i-{number}"), NOON + number * MINUTE)
    fourth = planned(loose, "i-3")
    late = NOON + 10 * MINUTE - SECOND
    assert refused(loose, fourth, "rate", late).endswith("3 acts in 10 minutes, of 3")
    assert send(loose, fourth, NOON + 10 * MINUTE)


def test_a_tenth_of_the_fleet_in_ten_minutes_and_a_fifth_a_day_at_least_one(loose: GuardStore) -> None:
    assert send(loose, planned(loose, "i-0"), fleet=0)
    second = planned(loose, "i-1")
    assert refused(loose, second, "rate", NOON + MINUTE, fleet=19).endswith("1 of 19 machines in 10 minutes, of 1")
    assert send(loose, second, NOON + MINUTE, fleet=20)
    third = planned(loose, "i-2")
    assert refused(loose, third, "rate", NOON + HOUR, fleet=14).endswith("2 of 14 machines in a day, of 2")
    assert send(loose, third, NOON + HOUR, fleet=15)


def test_the_fleet_is_what_runs_by_the_ledger_where_nobody_says(url: str, loose: GuardStore) -> None:
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(0, *(machine(f"i-{n}") for n in range(18)), machine("i-off", "stopped"))])
    assert loose.move_intent(planned(loose, "i-0"), EXECUTING, NOON)  # it is one of the fleet, whether it runs or not
    second = planned(loose, "i-1")
    reason = loose.explain_refusal(second, NOON)
    assert reason
    assert reason.told.endswith("1 of 19 machines in 10 minutes, of 1")
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(1, *(machine(f"i-{n}") for n in range(19)))])
    assert loose.move_intent(second, EXECUTING, NOON)


def test_one_act_an_hour_loses_data(loose: GuardStore) -> None:
    assert send(loose, planned(loose, "i-0", act="terminate"))
    lossy = planned(loose, "i-1", irreversible=True)
    assert refused(loose, lossy, "rate", NOON + HOUR - SECOND).endswith("1 acts in an hour that lose data, of 1")
    assert send(loose, planned(loose, "i-2"), NOON + HOUR - SECOND)
    assert send(loose, lossy, NOON + HOUR)


def test_sending_the_same_once_more_takes_no_further_room(loose: GuardStore) -> None:
    one = planned(loose, "i-0", act="terminate", irreversible=True)
    for minutes in (0, 1, 3, 7):
        sent = send(loose, one, NOON + minutes * MINUTE, fleet=1)
        assert sent
        taken = loose.move_intent(sent, VERIFYING, NOON + minutes * MINUTE)
        assert taken
        one = taken
    assert one.sends == 4
    assert refused(loose, planned(loose, "i-1"), "rate", NOON + 8 * MINUTE, fleet=1)


def test_what_was_let_go_counts_whatever_came_of_it(loose: GuardStore) -> None:
    sent = send(loose, planned(loose, "i-0"), fleet=1)
    assert sent
    assert loose.move_intent(sent, CANCELLED, NOON, outcome="it works again")
    assert refused(loose, planned(loose, "i-1"), "rate", fleet=1)


def test_what_sent_nothing_takes_no_room_and_comes_back_as_it_was(url: str) -> None:
    with book_of(url, replace(DEFAULTS, irreversible_per_h=1)) as book:
        one = planned(book, "i-0", irreversible=True)
        sending = send(book, one, NOON)
        assert sending
        back = book.move_intent(sending, READY, NOON + SECOND, unsent=one, outcome="it cannot be looked up")
        assert back
        assert (back.sends, back.sent_at, back.outcome) == (0, None, "it cannot be looked up")
        assert book.load_sends_since(NOON - DAY) == []
        assert book.load_open_intents() == [back]
        assert [(move.new, move.run) for move in book.load_intent_history(one.id)][1:] == [(EXECUTING, "1.1"), (READY, "1.1")]
        assert send(book, planned(book, "i-1", irreversible=True), NOON + 2 * SECOND), "neither the run nor the hour has one"
        assert refused(book, back, "rate", NOON + 3 * SECOND)


def test_a_send_before_it_stays_counted_where_another_one_is_taken_back(loose: GuardStore) -> None:
    first = send(loose, planned(loose, "i-0"), NOON)
    assert first
    waiting = loose.move_intent(first, VERIFYING, NOON + SECOND)
    assert waiting
    again = send(loose, waiting, NOON + MINUTE)
    assert again
    back = loose.move_intent(again, VERIFYING, NOON + MINUTE + SECOND, unsent=waiting, outcome="503")
    assert back
    assert (back.sends, back.sent_at) == (1, NOON)
    with pytest.raises(InputError, match="no send to take back"):
        loose.move_intent(back, DONE, NOON + HOUR, unsent=waiting)


def test_an_accepted_cap_has_limits_of_its_own_and_another_shares_those_of_all(url: str) -> None:
    with book_of(url, replace(LOOSE, acts_per_10m=15, caps=replace(Rails.unlimited(), acts_per_10m=4))) as book:
        book.set_accepted_caps(frozenset({"budget:ours"}))
        for number in range(4):
            assert send(book, planned(book, f"i-{number}", policy="budget:ours", rule=CAP_RULE, irreversible=True))
        fifth = planned(book, "i-4", policy="budget:ours", rule=CAP_RULE)
        assert refused(book, fifth, "rate", NOON + MINUTE).endswith("4 acts in 10 minutes, of 4")
        assert send(book, planned(book, "i-5"), NOON + MINUTE, run="2"), "others do not count what caps did"
        new = planned(book, "i-6", policy="budget:new", rule=CAP_RULE)
        assert refused(book, new, "rate", NOON + MINUTE).endswith("5 acts in 10 minutes, of 3")


def test_a_clock_that_went_back_makes_no_room(loose: GuardStore) -> None:
    assert send(loose, planned(loose, "i-0"), NOON + HOUR, fleet=1)
    assert refused(loose, planned(loose, "i-1"), "rate", NOON, fleet=1)


def test_the_rails_outlive_the_process_and_the_turn(url: str) -> None:
    with book_of(url, LOOSE) as book:
        sent = send(book, planned(book, "i-0"), fleet=1)
        assert sent
        assert book.move_intent(sent, DONE, NOON)
    with GuardStore(url, rails=LOOSE) as book:
        later = NOON + 6 * HOUR
        assert book.acquire_leader_lease("b", later, HOUR) == 2
        assert refused(book, planned(book, "i-1", epoch=2, moved_at=later), "rate", later, fleet=1)
        assert send(book, planned(book, "i-2", epoch=2, moved_at=later), NOON + DAY, fleet=1) is None
        assert book.acquire_leader_lease("b", NOON + DAY, HOUR) == 2
        assert send(book, planned(book, "i-3", epoch=2, moved_at=NOON + DAY), NOON + DAY, fleet=1)


def test_starts_have_limits_of_their_own_and_use_up_no_stop(loose: GuardStore) -> None:
    starts = [planned(loose, id=f"s{n}", life=life(f"i-{n}"), act=START, rule="schedule") for n in range(3)]
    assert send(loose, starts[0], run="r") is not None
    assert send(loose, starts[1], run="r") is not None
    assert send(loose, starts[2], run="r") is None, "two starts a run"
    assert send(loose, starts[2], run="r2") is not None
    stop = planned(loose, id="stop", life=life("i-9"))
    assert send(loose, stop, fleet=10, run="r2") is not None, "10 % of ten machines: one stop, whatever was started"


def test_a_lease_holds_a_scheduled_start_and_not_one_by_a_person(book: GuardStore) -> None:
    for name, rule, goes in (("a", "schedule", False), ("b", PERSON_RULE, True)):
        one = planned(book, id=name, life=life(f"i-{name}"), act=START, rule=rule)
        book.add_override(wish(id=f"w{name}", what=LEASE, key=one.life.key, life=one.life))
        assert (send(book, one) is not None) == goes
