"""The contract of acts: sent once, for one machine, and never believed without an answer that says so."""

from __future__ import annotations

from typing import NoReturn

import pytest
from httpcore2 import ConnectError, HTTPConnection
from httpcore2._backends.sync import SyncBackend

from costguard.guard.action_intents import READY, VERIFYING
from costguard.metering.observation import Observation, identify_incarnation
from costguard.services.guarding.act.send_action import ActionResult, find_action_ports, send_action
from costguard.services.poll.configured_providers import SystemClock
from costguard.values.provider import ACCEPTED, ALREADY, MISSING, POSTPONED, REFUSED, UNCLEAR
from costguard.values.resource import ResourceKey
from tests.contract.case import Case, ids, instances
from tests.fakes.server import Answer
from tests.services.deeds import Memory, intent

VERBS = ("stop", "terminate")
pytestmark = pytest.mark.parametrize("verb", VERBS)


def _machine(case: Case, verb: str) -> tuple[Observation, str]:
    """One running machine and the line of the act's requests."""
    line = case.line(verb)
    return case.machine(), line


def _still_there(case: Case, seen: Observation) -> bool:
    return any(item.key == seen.key and item.state == "running" for item in instances(case.poll()))


def test_an_act_is_accepted_and_then_to_be_seen(case: Case, verb: str) -> None:
    seen, line = _machine(case, verb)
    assert case.act(verb, seen).said == ACCEPTED
    assert case.rig.fake.calls(line) == 1
    assert case.rig.state_of(seen.key.id) != "running"
    assert not _still_there(case, seen)


def test_an_act_touches_one_machine(case: Case, verb: str) -> None:
    case.line(verb)
    there = case.rig.put(3)
    seen = next(item for item in instances(case.poll()) if item.key.id == there[1])
    case.act(verb, seen)
    assert [case.rig.state_of(id_) for id_ in (there[0], there[2])] == ["running", "running"]


def test_a_missing_machine_is_missing(case: Case, verb: str) -> None:
    case.line(verb)
    id_ = case.rig.missing()
    (there,) = instances(case.poll())
    key = there.key._replace(id=id_)
    reception = case.stop(key, frozenset(there.handling.stop_loses)) if verb == "stop" else case.terminate(key)
    assert reception.said == MISSING, reception
    assert case.rig.state_of(there.key.id) == "running"


def test_a_machine_that_is_there_no_more_is_missing_or_already_ended(case: Case, verb: str) -> None:
    seen, _ = _machine(case, verb)
    case.rig.let(seen.key.id, "ended")
    reception = case.act(verb, seen)
    assert reception.said in (MISSING, ALREADY, REFUSED), reception
    assert reception.said != REFUSED or reception.why


def test_a_machine_of_another_account_is_not_asked_for(case: Case, verb: str) -> None:
    seen, line = _machine(case, verb)
    for key in (seen.key._replace(account="somebody-else"), seen.key._replace(provider="elsewhere")):
        reception = case.stop(key, frozenset(seen.handling.stop_loses)) if verb == "stop" else case.terminate(key)
        assert reception.said == REFUSED, reception
        assert reception.why
    assert case.rig.fake.calls(line) == 0


@pytest.mark.sampled(6)
@pytest.mark.parametrize("id_", ["", "*", ".", "..", "a/b", "../../x", "a?b=c", "a b", "a\nb", "%2e%2e", "a" * 5000])
def test_an_odd_id_reaches_nothing(case: Case, verb: str, id_: str) -> None:
    seen, _ = _machine(case, verb)
    key = ResourceKey(*seen.key[:3], id_)
    reception = case.stop(key, frozenset(seen.handling.stop_loses)) if verb == "stop" else case.terminate(key)
    assert reception.said in (MISSING, REFUSED, UNCLEAR), reception
    assert case.rig.state_of(seen.key.id) == "running"


def test_an_act_that_says_yes_and_does_nothing_is_accepted_and_seen_through(case: Case, verb: str) -> None:
    seen, _ = _machine(case, verb)
    case.rig.fake.deaf = True
    assert case.act(verb, seen).said == ACCEPTED
    assert _still_there(case, seen)


def test_an_act_that_works_and_breaks_off_is_unclear_and_the_next_listing_knows(case: Case, verb: str) -> None:
    seen, line = _machine(case, verb)
    case.rig.fake.fault(line, "did")
    assert case.act(verb, seen).said == UNCLEAR
    assert case.rig.fake.calls(line) == 1
    assert not _still_there(case, seen)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_an_act_that_works_and_says_error_is_unclear_and_the_next_listing_knows(case: Case, verb: str, status: int) -> None:
    seen, line = _machine(case, verb)
    case.rig.fake.fault(line, "edit", edit=lambda _: Answer(status=status))
    assert case.act(verb, seen).said == UNCLEAR
    assert case.rig.fake.calls(line) == 1
    assert not _still_there(case, seen)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", ["reset", "html", "truncated", "short", "bomb", "deep"])
def test_an_answer_that_cannot_be_read_is_unclear(case: Case, verb: str, kind: str) -> None:
    seen, line = _machine(case, verb)
    if kind in ("truncated", "short"):
        before = len(case.rig.fake.asked)
        case.rig.fake.fault(line, kind)
        reception = case.act(verb, seen)
        assert len(case.rig.fake.asked) > before
        assert reception.said in (UNCLEAR, ACCEPTED), reception
        return
    case.rig.fake.fault(line, kind, status=200)
    assert case.act(verb, seen).said == UNCLEAR
    assert case.rig.fake.calls(line) == 1


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "status", [301, 302, 307, 400, 401, 402, 403, 404, 405, 409, 410, 418, 422, 429, 500, 502, 503, 504, 520]
)
def test_an_act_is_sent_once_and_a_bare_error_is_never_a_yes(case: Case, verb: str, status: int) -> None:
    seen, line = _machine(case, verb)
    case.rig.fake.fault(line, "status", status=status)
    reception = case.act(verb, seen)
    assert reception.said != ACCEPTED
    assert reception.why
    assert case.rig.fake.calls(line) == 1
    assert case.rig.state_of(seen.key.id) == "running"
    if status in (500, 502, 503, 504):
        assert reception.said == UNCLEAR
    if status in (401, 403):
        assert reception.said == REFUSED


@pytest.mark.sampled(6)
@pytest.mark.parametrize("after", ["0", "1", "86400", "Fri, 31 Dec 2027 23:59:59 GMT", "soon"])
def test_a_throttled_act_is_sent_once_and_postponed(case: Case, verb: str, after: str) -> None:
    seen, line = _machine(case, verb)
    case.rig.fake.fault(line, "status", status=429, headers={"Retry-After": after}, times=1)
    assert case.act(verb, seen).said == POSTPONED
    assert case.rig.fake.calls(line) == 1
    assert case.rig.state_of(seen.key.id) == "running"


def _send(case: Case, verb: str, seen: Observation, ledger: Memory) -> ActionResult:
    loses = seen.handling.stop_loses if verb == "stop" else seen.handling.terminate_loses
    due = intent(life=identify_incarnation(seen), act=verb, lose=loses, irreversible=True)
    due = ledger.rows.setdefault("one", due)
    return send_action(due, find_action_ports(case.source), ledger, SystemClock(), lambda _: "")


@pytest.mark.parametrize("trouble", ["429", "no connection", "503 before it"])
def test_an_act_that_was_not_taken_is_ready_again_and_sent_later(
    case: Case, verb: str, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (seen, line), ledger = _machine(case, verb), Memory()
    with monkeypatch.context() as while_it_lasts:
        if trouble == "429":
            case.rig.fake.fault(line, "status", status=429, headers={"Retry-After": "0"}, times=1)
        else:
            _break_act(case, verb, while_it_lasts, connects=trouble != "no connection")
        held = _send(case, verb, seen, ledger)
    if held.sent and trouble == "503 before it":
        return  # this adapter needs no look of its own, and has sent it
    assert (held.intent.state, held.intent.sends, held.sent) == (READY, 0, False), held
    assert held.held
    assert case.rig.state_of(seen.key.id) == "running"
    case.rig.fake.faults.clear()
    done = _send(case, verb, seen, ledger)
    assert (done.intent.state, done.intent.sends, done.sent) == (VERIFYING, 1, True), done
    assert case.rig.state_of(seen.key.id) != "running"


def _break_act(case: Case, verb: str, while_it_lasts: pytest.MonkeyPatch, *, connects: bool) -> None:
    """From the adapter's own part of the act on its cloud answers looks with 503, or takes no connection."""
    name = "stop" if verb == "stop" else "terminate"
    usual = getattr(case.source, name)

    def refuse(*_: object, **__: object) -> NoReturn:
        raise ConnectError("refused")

    def act(*args: object, **named: object) -> object:
        if connects:
            case.rig.fake.fault(case.rig.one, "status", status=503)
        else:
            while_it_lasts.setattr(SyncBackend, "connect_tcp", refuse)
            while_it_lasts.setattr(HTTPConnection, "is_available", lambda _self: False)
        return usual(*args, **named)

    while_it_lasts.setattr(case.source, name, act)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("body", [b"[]", b'"no"', b"0", b"false", b'{"success": false}', b'{"error": "no"}', b"<html>"])
def test_a_yes_in_other_words_is_not_believed(case: Case, verb: str, body: bytes) -> None:
    seen, line = _machine(case, verb)
    case.rig.fake.fault(line, "body", body=body)
    assert case.act(verb, seen).said in (UNCLEAR, REFUSED)
    assert case.rig.fake.calls(line) == 1


def test_an_act_after_an_act_is_already_or_refused_with_a_reason(case: Case, verb: str) -> None:
    seen, _ = _machine(case, verb)
    case.rig.let(seen.key.id, "stopped" if verb == "stop" else "ended")
    reception = case.act(verb, seen)
    assert reception.said in (ALREADY, REFUSED, MISSING), reception
    assert reception.said == ALREADY or reception.why
    assert verb == "terminate" or reception.said != MISSING


def test_what_a_stop_would_lose_must_be_said_first(case: Case, verb: str) -> None:
    seen, line = _machine(case, verb)
    if verb != "stop" or not seen.handling.stop_loses:
        pytest.skip("nothing is lost here")
    reception = case.stop(seen.key)
    assert reception.said == REFUSED
    assert reception.why
    assert case.rig.fake.calls(line) == 0
    assert case.rig.state_of(seen.key.id) == "running"


def test_a_stopped_machine_is_listed_as_stopped_and_an_ended_one_is_gone(case: Case, verb: str) -> None:
    seen, _ = _machine(case, verb)
    case.rig.let(seen.key.id, "stopped" if verb == "stop" else "ended")
    if verb == "terminate":
        assert seen.key.id not in ids(case.poll())
        return
    (now,) = instances(case.poll())
    assert now.key == seen.key
    assert now.state in ("stopping", "stopped"), now


def test_a_wrong_key_is_refused_and_never_missing(case: Case, verb: str) -> None:
    seen, _ = _machine(case, verb)
    wrong = case.rig.wrong_environ()
    if wrong == case.rig.environ():
        pytest.skip("its key lies in no variable")
    source = case.open(environ=wrong)
    lose = frozenset(seen.handling.stop_loses)
    reception = case.keep(source.stop(seen.key, lose=lose) if verb == "stop" else source.terminate(seen.key))
    assert reception.said in (REFUSED, UNCLEAR), reception
    assert case.rig.state_of(seen.key.id) == "running"
