"""Acting: whatever changes at whatever moment before the request, it is not sent; and what was sent is proven by looking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from costguard.errors import LedgerError, UnreachableError
from costguard.guard.action_intents import CANCELLED, DONE, EXECUTING, FAILED, READY, UNCONFIRMED, VERIFYING, Intent
from costguard.guard.policy import TERMINATE
from costguard.metering.observation import Handling, Observation
from costguard.services.guarding.act.send_action import (
    ActionPorts,
    ActionResult,
    send_action,
)
from costguard.system.clock import is_too_late_to_send
from costguard.values.provider import REFUSED, UNCLEAR, ActionResponse
from costguard.values.resource import STOPPED
from tests.services.deeds import KEY, MIN, START, Memory, S, World, intent, machine

Change = Callable[[World], None]


def test_a_stop_that_is_due_is_sent_once_and_done_when_the_listing_says_so() -> None:
    world = World()
    acted = world.act()
    assert acted == ActionResult(intent=world.ledger.rows["one"], sent=True)
    assert acted.intent.state == VERIFYING
    assert (acted.intent.sends, acted.intent.sent_at, acted.intent.expires_at) == (1, START, None)
    assert world.points == [
        "look", "looked", "still", "before executing", "after executing", "look", "looked", "still",
        "before verifying", "after verifying",
    ]  # fmt: skip
    assert world.asked == [("stop", KEY, frozenset())]
    world.goes_by(MIN)
    done = world.confirm()
    assert (done.intent.state, done.intent.outcome) == (DONE, "it is stopped")
    assert len(world.asked) == 1


def see(**changes: object) -> Change:
    def change(world: World) -> None:
        assert world.seen is not None
        world.seen = replace(world.seen, **changes)  # type: ignore[arg-type] # fields of an observation

    return change


def wish(why: str) -> Change:
    def change(world: World) -> None:
        world.wish = why

    return change


CHANGES: dict[str, Change] = {
    "a protecting tag": see(labels=(("costguard", "never"),)),
    "another tag": see(labels=(("team", "vision"),)),
    "the provider's protection": see(handling=Handling(stops=True, protected=("stop",))),
    "a controller": see(handling=Handling(stops=True, controller="auto-scaling group train")),
    "a lease": wish("it has a lease"),
    "a lower arming": wish("its policy is armed to notify"),
    "a freeze": wish("all acts are frozen"),
    "a job": wish("its GPU works"),
    "a restart": lambda world: world.restart(),
    "a stop by hand": see(state=STOPPED),
    "its end": see(state="ended"),
    "a vanishing": lambda world: setattr(world, "seen", None),
    "an odd state": see(state="repairing"),
    "nobody answers": lambda world: setattr(world, "answers_look", unreachable),
    "full rails": lambda world: setattr(world.ledger, "closed", True),
    "a full disk": lambda world: setattr(world.ledger, "full", 0),
}
ONLY_WISHES = ("a lease", "a lower arming", "a freeze", "a job")
BEFORE_COMMIT = ("look 1", "looked 1", "still 1", "before executing 1")
AFTER_COMMIT = ("after executing 1", "look 2")


def unreachable(_world: World) -> Observation | None:
    raise UnreachableError("no answer in 10 s", provider="aws")


LATE = [(what, moment) for what in CHANGES for moment in AFTER_COMMIT if what not in {"full rails", "a full disk"}]
"""The rails were asked by then; the disk has tests of its own. What holds from the first look on, `still` judges alone."""
EARLY = [(what, moment) for what in CHANGES for moment in BEFORE_COMMIT if (what, moment) != ("another tag", "look 1")]


@pytest.mark.parametrize(("what", "moment"), [*EARLY, *LATE])
def test_no_change_at_any_moment_before_the_last_look_lets_it_be_sent(what: str, moment: str) -> None:
    world = World(at={moment: CHANGES[what]})
    acted = world.act()
    assert world.asked == []
    assert not acted.sent
    assert acted.intent == world.ledger.rows["one"]
    assert acted.intent.state in {READY, CANCELLED}
    assert (acted.intent.sends, acted.intent.sent_at) == (0, None), "what sent nothing is no send"
    assert acted.held or acted.broken or acted.intent.outcome
    assert bool(acted.broken) == (what == "a full disk")
    goes_on = {"a vanishing", "nobody answers", "full rails", "a full disk"}
    assert (acted.intent.state == READY) == (what in goes_on)


@pytest.mark.parametrize("what", ONLY_WISHES)
@pytest.mark.parametrize("moment", ["looked 2", "still 2"])
def test_a_wish_counts_up_to_the_moment_after_the_last_look(what: str, moment: str) -> None:
    world = World(at={moment: CHANGES[what]})
    acted = world.act()
    assert (world.asked, acted.intent.state, acted.intent.outcome) == ([], CANCELLED, world.wish)


def later(by: timedelta) -> Change:
    return lambda world: world.goes_by(by)


@pytest.mark.parametrize("moment", ["look 2", "looked 2", "still 2"])
@pytest.mark.parametrize("pause", [6 * S, 31 * S, timedelta(hours=3)], ids=["6 s", "31 s", "3 h"])
def test_a_process_that_was_suspended_between_check_and_send_sends_nothing(moment: str, pause: timedelta) -> None:
    world = World(at={moment: later(pause)})
    acted = world.act()
    assert world.asked == []
    assert (acted.intent.state, acted.intent.expires_at) == (READY, None)
    assert "late" in acted.held
    del world.at[moment]
    assert world.act(acted.intent).sent


def test_an_adapter_that_takes_long_before_its_request_is_told_that_it_is_late() -> None:
    late = list[bool]()

    def slow(world: World) -> ActionResponse:
        late.append(is_too_late_to_send())
        world.goes_by(timedelta(seconds=9.9))
        late.append(is_too_late_to_send())
        world.goes_by(timedelta(seconds=0.1))
        late.append(is_too_late_to_send())
        return ActionResponse(said=UNCLEAR)

    World(obeys=slow).act()
    assert (late, is_too_late_to_send()) == ([False, False, True], False)


def test_it_expires_thirty_seconds_after_its_commit_and_carries_the_epoch_of_who_acts() -> None:
    seen: list[Intent] = []
    world = World(at={"after executing": lambda world: seen.append(world.ledger.rows["one"])})
    world.act(intent(epoch=1))
    assert (seen[0].expires_at, seen[0].epoch) == (START + 30 * S, 1)
    world = World(ledger=Memory(rows={"one": intent(epoch=1)}))
    assert (
        send_action(intent(epoch=1), world.hands, world.ledger, world, world.still, epoch=7, seconds=world.seconds).intent.epoch
        == 7
    )


@pytest.mark.parametrize("moment", ["before executing", "after executing"])
def test_a_commit_that_took_longer_than_the_intent_lives_is_sent_by_nobody(moment: str) -> None:
    world = World(at={moment: later(30 * S)})
    assert (world.act().intent.state, world.asked) == (READY, [])


def test_a_wall_clock_that_was_set_back_does_not_make_a_late_send_timely() -> None:
    def suspended_and_set_back(world: World) -> None:
        world.up_s += 3600
        world.now_ -= timedelta(hours=1)

    world = World(at={"still 2": suspended_and_set_back})
    assert (world.act().intent.state, world.asked) == (READY, [])


def test_a_look_is_as_old_as_its_question() -> None:
    world = World(at={"look 1": later(20 * S), "look 2": later(5.5 * S)})
    assert (world.act().intent.state, world.asked) == (READY, [])


def test_an_adapter_that_breaks_after_sending_leaves_it_in_doubt() -> None:
    def breaks(world: World) -> ActionResponse:
        world.stop_it()
        raise KeyError("status")

    world = World(obeys=breaks)
    assert "KeyError" in world.act().intent.outcome
    assert [one.intent.state for one in world.run()] == [DONE]
    assert len(world.asked) == 1


def test_a_refused_second_request_is_no_failure_since_the_first_may_have_worked() -> None:
    world = World(obeys=lambda _: ActionResponse(said=REFUSED))
    one = intent(state=VERIFYING, sends=1, sent_at=START - MIN)
    assert world.act(one).intent.state == VERIFYING


def test_a_stop_loses_only_what_was_allowed_and_never_becomes_a_terminate() -> None:
    local = Handling(stops=True, stop_loses=("1900 GB of local disk",))
    world = World(machine(handling=local))
    assert world.act().intent.outcome == "it would lose 1900 GB of local disk, and that was not allowed"
    world = World(machine(handling=local))
    assert world.act(intent(lose=local.stop_loses)).sent
    assert world.asked == [("stop", KEY, frozenset(local.stop_loses))]
    world = World()
    acted = world.act(hands=ActionPorts(inspector=world, terminator=world))
    assert (acted.intent.state, world.asked) == (CANCELLED, [])
    assert "cannot stop it" in acted.intent.outcome


def test_a_terminate_is_sent_only_where_that_was_allowed() -> None:
    world = World(obeys=World.end_it)
    assert world.act(intent(act=TERMINATE)).intent.outcome == "it would be deleted permanently, and that was not allowed"
    world = World(obeys=World.end_it)
    assert world.act(intent(act=TERMINATE, irreversible=True)).sent
    assert world.asked == [("terminate", KEY, frozenset())]
    assert [one.intent.state for one in world.run()] == [DONE]


@pytest.mark.parametrize("lacks", [{"terminator": None}, {"inspector": None}])
def test_an_account_without_the_port_is_asked_for_nothing(lacks: dict[str, Any]) -> None:
    world = World()
    acted = world.act(intent(act=TERMINATE, irreversible=True), replace(world.hands, **lacks))
    assert (acted.intent.state, world.asked, world.points[0]) == (CANCELLED, [], "before cancelled")


@pytest.mark.parametrize("answer", [KeyError("x"), None, machine(key=KEY._replace(id="i-other"))], ids=["bug", "none", "other"])
def test_a_look_that_says_nothing_of_it_sends_nothing(answer: Exception | Observation | None) -> None:
    def look(_world: World) -> Observation | None:
        if isinstance(answer, Exception):
            raise answer
        return answer

    world = World(answers_look=look)
    acted = world.act()
    assert (acted.intent.state, acted.sent, world.asked) == (READY, False, [])
    assert acted.held


@pytest.mark.parametrize("number", [0, 1])
def test_a_ledger_that_cannot_be_written_means_that_nothing_is_done_afterwards(number: int) -> None:
    world = World(ledger=Memory(full=number))
    acted = world.act()
    assert "the disk is full" in acted.broken
    assert (len(world.asked), acted.sent) == (number, bool(number))
    assert acted.intent.state == (EXECUTING if number else READY)


@pytest.mark.parametrize("moment", ["still 1", "still 2"])
def test_wishes_that_cannot_be_read_are_no_consent(moment: str) -> None:
    def fails(_world: World) -> None:
        raise LedgerError("cannot be read")

    world = World(at={moment: fails})
    acted = world.act()
    assert (acted.broken, acted.sent, world.asked) == ("cannot be read", False, [])


def test_a_pause_over_which_somebody_else_moved_it_changes_nothing_of_theirs() -> None:
    def taken_over(world: World) -> None:
        world.goes_by(MIN)
        world.ledger.rows["one"] = replace(world.ledger.rows["one"], state=CANCELLED)

    world = World(at={"still 2": taken_over})
    assert not world.act().sent
    assert (world.asked, world.ledger.rows["one"].state) == ([], CANCELLED)
    world = World(at={"before verifying": taken_over})
    assert world.act().held == "another process changed it in the meantime"


def test_200_and_it_runs_on_is_sent_at_0_1_3_and_7_minutes_and_paged_at_10() -> None:
    world = World(obeys=lambda _: ActionResponse(said="accepted"))
    world.act()
    sent = [world.now_ - START]
    for _ in range(15):
        world.goes_by(MIN)
        acted = world.confirm()
        if acted.again:
            assert world.act(acted.intent).sent
            sent.append(world.now_ - START)
        assert world.ledger.rows["one"].state == (VERIFYING if world.now_ < START + 10 * MIN else UNCONFIRMED)
    assert sent == [timedelta(), MIN, 3 * MIN, 7 * MIN]
    world.stop_it()
    assert world.confirm().intent.state == DONE


def test_500_after_really_stopping_ends_done_with_one_act() -> None:
    def really(world: World) -> ActionResponse:
        world.stop_it()
        return ActionResponse(said=UNCLEAR, why="500")

    world = World(obeys=really)
    assert world.act().intent.state == VERIFYING
    assert [one.intent.state for one in world.run()] == [DONE]
    assert len(world.asked) == 1


def test_a_restart_after_the_act_is_never_stopped_by_it() -> None:
    world = World()
    world.act()
    world.goes_by(MIN)
    world.restart()
    done = world.confirm()
    assert (done.intent.state, done.intent.outcome) == (
        DONE,
        "the machine was restarted since: the act was for its earlier run",
    )
    assert len(world.asked) == 1


@pytest.mark.parametrize("what", [name for name in CHANGES if name != "a full disk"])
def test_what_changes_after_a_first_request_holds_back_the_second_and_it_stays_looked_at(what: str) -> None:
    one = intent(state=VERIFYING, sends=1, sent_at=START - MIN)
    for moment in {"full rails": ["look 1"], "another tag": ["look 2"]}.get(what, ["look 1", "look 2"]):
        world = World(at={moment: CHANGES[what]})
        if what == "full rails" and moment == "look 2":
            continue
        acted = world.act(one)
        assert world.asked == []
        assert acted.intent.state == VERIFYING
        assert acted.held


@pytest.mark.parametrize("state", ["planned", "grace", EXECUTING, VERIFYING, UNCONFIRMED, DONE, CANCELLED, FAILED])
def test_what_is_not_due_is_not_even_looked_at(state: str) -> None:
    world = World()
    acted = world.act(intent(state=state, sends=1, sent_at=START - 59 * S))
    assert (acted.held, world.points) == (f"it is {state}, and not due", [])


# --- after a crash


def crashed(**changes: object) -> World:
    """The last process committed that it would send, and nobody knows what came then."""
    one = intent(state=EXECUTING, sends=1, sent_at=START, expires_at=START + 30 * S)
    return World(ledger=Memory(rows={"one": replace(one, **changes)}))  # type: ignore[arg-type] # fields of an intent


def test_a_crash_after_the_request_ends_done_with_one_act() -> None:
    world = crashed()
    world.stop_it()
    world.goes_by(MIN)
    assert (world.settle().intent.state, world.asked) == (DONE, [])


def test_a_crash_before_the_request_is_ready_anew_when_it_cannot_be_sent_any_more_and_still_holds() -> None:
    world = crashed()
    world.goes_by(29 * S)
    assert world.settle().held == "it may be sent at any moment"
    world.goes_by(2 * S)
    assert world.settle().intent.state == EXECUTING
    world.goes_by(MIN)
    acted = world.settle()
    assert (acted.intent.state, acted.again) == (READY, True)
    assert world.act(acted.intent).intent.state == VERIFYING
    assert len(world.asked) == 1


def test_a_crash_before_the_request_is_cancelled_where_it_holds_no_more() -> None:
    world = crashed()
    world.wish = "it has a lease"
    world.goes_by(2 * MIN)
    acted = world.settle()
    assert (acted.intent.state, acted.intent.outcome) == (CANCELLED, "it is still running, and it has a lease")


def test_a_request_that_never_arrived_whole_is_sent_again() -> None:
    answers = iter([ActionResponse(said=UNCLEAR, why="cut off")])
    world = World(obeys=lambda world: next(answers, None) or world.stop_it())
    world.act()
    assert world.run()[-1].intent.state == DONE
    assert len(world.asked) == 2
