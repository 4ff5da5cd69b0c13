"""Ending a machine on Lambda: one look, one request, and what each answer means."""

from __future__ import annotations

from pathlib import Path

import pytest
from costguard_sim.world import SECOND_US, to_us

from costguard.values.provider import ALREADY, MISSING, POSTPONED, REFUSED, UNCLEAR
from tests.fakes.server import START, Answer
from tests.providers.lambda_.open_fake import account, key
from tests.providers.lambda_.rig import LambdaRig, machine

HOUR_US = 3600 * SECOND_US


@pytest.fixture
def rig() -> LambdaRig:
    made = LambdaRig()
    made.fake.resources = [machine("i-1", start_us=to_us(START) - HOUR_US), machine("i-2", start_us=to_us(START) - HOUR_US)]
    return made


def acts(rig: LambdaRig) -> int:
    return rig.fake.calls(rig.terminates)


def test_a_booting_machine_is_refused_with_lambdas_reason_and_nothing_is_sent(rig: LambdaRig, tmp_path: Path) -> None:
    rig.fake.resources = [machine("i-3", start_us=to_us(START) + HOUR_US, boot_us=2 * HOUR_US)]
    with account(rig, tmp_path) as source:
        reception = source.terminate(key("i-3"))
    assert reception.said == REFUSED
    assert "vm-has-not-launched" in reception.why
    assert acts(rig) == 0


def test_a_second_request_finds_it_on_its_way_and_sends_nothing(rig: LambdaRig, tmp_path: Path) -> None:
    with account(rig, tmp_path) as source:
        source.terminate(key("i-1"))
        assert source.terminate(key("i-1")).said == ALREADY
    assert acts(rig) == 1


@pytest.mark.parametrize("status", [500, 409])
def test_a_repeated_request_that_lambda_does_not_understand_is_settled_by_looking(
    rig: LambdaRig, tmp_path: Path, status: int
) -> None:
    code = "global/unknown" if status == 500 else "global/conflict"
    body = f'{{"error":{{"code":"{code}","message":"x"}}}}'.encode()

    def somebody_was_quicker(_: Answer) -> Answer:
        return Answer(status=status, body=body)

    rig.fake.fault(rig.terminates, "edit", edit=somebody_was_quicker)
    with account(rig, tmp_path) as source:
        assert source.terminate(key("i-1")).said == ALREADY
    assert acts(rig) == 1


def test_a_conflict_with_a_machine_that_goes_on_is_a_no(rig: LambdaRig, tmp_path: Path) -> None:
    rig.fake.fault(rig.terminates, "status", status=409, body=b'{"error":{"code":"global/conflict","message":"x"}}')
    with account(rig, tmp_path) as source:
        assert source.terminate(key("i-1")).said == REFUSED
    assert (acts(rig), rig.state_of("i-1")) == (1, "running")


def test_an_unknown_error_with_a_machine_that_goes_on_is_unclear(rig: LambdaRig, tmp_path: Path) -> None:
    rig.fake.fault(rig.terminates, "status", status=500, body=b'{"error":{"code":"global/unknown","message":"x"}}')
    with account(rig, tmp_path) as source:
        assert source.terminate(key("i-1")).said == UNCLEAR


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (400, "global/invalid-parameters", REFUSED),
        (401, "global/invalid-api-key", REFUSED),
        (403, "global/account-inactive", REFUSED),
        (403, "global/forbidden", REFUSED),
        (404, "global/object-does-not-exist", MISSING),
        (404, "global/not-found", MISSING),
        (404, "global/invalid-api-key", REFUSED),
        (404, "auth_error", REFUSED),
        (404, "", UNCLEAR),
        (429, "", POSTPONED),
        (500, "global/internal-error", UNCLEAR),
        (400, "provider/internal-unavailable", UNCLEAR),
        (202, "", UNCLEAR),
    ],
)
def test_each_answer_has_one_meaning_and_is_sent_once(
    rig: LambdaRig, tmp_path: Path, status: int, code: str, said: str
) -> None:
    body = f'{{"error":{{"code":"{code}","message":"x"}}}}'.encode() if code else b""
    rig.fake.fault(rig.terminates, "status", status=status, body=body)
    with account(rig, tmp_path) as source:
        assert source.terminate(key("i-1")).said == said
    assert acts(rig) == 1


@pytest.mark.parametrize("body", [b"{}", b'{"data":{"terminated_instances":[]}}', b'{"data":null}', b"", b"[]"])
def test_a_yes_that_does_not_name_the_machine_is_unclear(rig: LambdaRig, tmp_path: Path, body: bytes) -> None:
    rig.fake.fault(rig.terminates, "body", body=body)
    with account(rig, tmp_path) as source:
        assert source.terminate(key("i-1")).said == UNCLEAR


@pytest.mark.parametrize("kind", ["status", "html", "reset", "truncated"])
def test_a_machine_that_cannot_be_looked_at_is_not_ended(rig: LambdaRig, tmp_path: Path, kind: str) -> None:
    rig.fake.fault(rig.one, kind)
    with account(rig, tmp_path) as source:
        reception = source.terminate(key("i-1"))
    assert (reception.said, acts(rig)) == (POSTPONED, 0)
    assert "nothing was sent" in reception.why
