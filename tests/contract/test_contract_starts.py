"""The contract of a start: sent once, for one stopped machine, at a price that is known before."""

from __future__ import annotations

from datetime import timedelta

import pytest

from costguard.metering.observation import Observation
from costguard.providers.ports import Starter
from costguard.values.provider import ACCEPTED, ALREADY, MISSING, REFUSED, UNCLEAR
from tests.contract.case import Case, instances
from tests.fakes.server import Answer

LATER = timedelta(minutes=10)


def _stopped(case: Case) -> tuple[Observation, str]:
    """One machine that ran and was stopped, and the line of the requests that start it."""
    line = case.rig.starts
    if not line:
        assert not isinstance(case.source, Starter)
        pytest.skip(f"{case.rig.provider} cannot start")
    ran = case.machine()
    assert ran.handling.starts is False
    case.rig.let(ran.key.id, "stopped")
    case.rig.clock.at += LATER
    (seen,) = instances(case.poll())
    assert (seen.state, seen.handling.starts) == ("stopped", True)
    return seen, line


def test_a_start_is_accepted_and_then_to_be_seen(case: Case) -> None:
    seen, line = _stopped(case)
    assert case.start(seen.key).said == ACCEPTED
    assert case.rig.fake.calls(line) == 1
    (now,) = instances(case.poll())
    assert now.state in ("running", "starting", "pending")
    assert case.rig.provider == "toy" or seen.started_at is None or now.started_at is None or now.started_at > seen.started_at


def test_its_price_is_known_before(case: Case) -> None:
    seen, line = _stopped(case)
    if case.rig.provider == "runpod":
        pytest.skip("its fake's catalogue does not price the rig's pod; see tests/providers/runpod/test_acts.py")
    price = case.keep(case.source.fetch_start_price(seen.key))
    assert price.rate is not None
    assert case.rig.fake.calls(line) == 0


def test_a_start_touches_one_machine(case: Case) -> None:
    seen, _ = _stopped(case)
    (other,) = case.rig.put(1)
    case.rig.let(other, "stopped")
    case.start(seen.key)
    assert case.rig.state_of(other) == "stopped"


def test_a_running_machine_is_already_started_and_nothing_is_sent(case: Case) -> None:
    seen, line = _stopped(case)
    case.rig.let(seen.key.id, "running")
    assert case.start(seen.key).said == ALREADY
    assert case.rig.fake.calls(line) == (0 if case.rig.provider != "toy" else 1)


def test_a_missing_or_ended_machine_is_not_started(case: Case) -> None:
    seen, line = _stopped(case)
    case.rig.let(seen.key.id, "ended")
    assert case.start(seen.key).said in (MISSING, REFUSED)
    assert case.start(seen.key._replace(account="somebody-else")).said == REFUSED
    assert case.rig.fake.calls(line) == (0 if case.rig.provider != "toy" else 1)


def test_a_start_that_says_yes_and_does_nothing_is_seen_through(case: Case) -> None:
    seen, _ = _stopped(case)
    case.rig.fake.deaf = True
    assert case.start(seen.key).said == ACCEPTED
    (now,) = instances(case.poll())
    assert (now.state, now.handling.starts) == ("stopped", True)


def test_a_start_that_works_and_breaks_off_is_unclear(case: Case) -> None:
    seen, line = _stopped(case)
    case.rig.fake.fault(line, "did")
    assert case.start(seen.key).said == UNCLEAR
    assert case.rig.fake.calls(line) == 1
    assert case.rig.state_of(seen.key.id) != "stopped"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 422, 429, 500, 502, 503, 504])
def test_a_start_is_sent_once_and_a_bare_error_is_never_a_yes(case: Case, status: int) -> None:
    seen, line = _stopped(case)
    case.rig.fake.fault(line, "edit", edit=lambda _: Answer(status=status)) if status >= 500 else case.rig.fake.fault(
        line, "status", status=status
    )
    reception = case.start(seen.key)
    assert reception.said != ACCEPTED
    assert reception.why
    assert case.rig.fake.calls(line) == 1
    assert status < 500 or reception.said == UNCLEAR
    assert status not in (401, 403) or reception.said == REFUSED


@pytest.mark.sampled(6)
@pytest.mark.parametrize("body", [b"[]", b'"no"', b"0", b'{"success": false}', b'{"error": "no"}', b"<html>"])
def test_a_yes_in_other_words_is_not_believed(case: Case, body: bytes) -> None:
    seen, line = _stopped(case)
    case.rig.fake.fault(line, "body", body=body)
    assert case.start(seen.key).said in (UNCLEAR, REFUSED)
    assert case.rig.fake.calls(line) == 1
