"""An act whose time is over sends nothing, wherever in its adapter it was when that happened (RELIABILITY H22)."""

from __future__ import annotations

import re

import pytest

from costguard.system.clock import is_too_late_to_send, limit_sending
from costguard.values.provider import ACCEPTED, ALREADY
from tests.contract.case import Case

pytestmark = pytest.mark.parametrize("verb", ["stop", "terminate"])


def _acted(case: Case, verb: str, after: int) -> tuple[list[str], str]:
    """Let the time be over once the adapter has sent `after` requests; those that it sent, and what was said."""
    seen, fake = case.machine(), case.rig.fake
    asked = len(fake.asked)
    with limit_sending(1.0, lambda: float(len(fake.asked) - asked >= after)):
        said = case.act(verb, seen).said
    assert not is_too_late_to_send()
    return [one.line for one in fake.asked[asked:]], said


def test_an_act_that_is_late_from_the_start_sends_nothing(case: Case, verb: str) -> None:
    case.line(verb)
    sent, said = _acted(case, verb, after=0)
    assert sent == []
    assert said not in (ACCEPTED, ALREADY)


def test_an_act_that_became_late_in_a_look_of_its_adapter_sends_nothing_more(case: Case, verb: str) -> None:
    line = case.line(verb)
    sent, said = _acted(case, verb, after=1)
    assert len(sent) == 1
    if not re.search(line, sent[0]):  # an adapter may look for itself first, or send the act at once
        assert case.rig.fake.calls(line) == 0
        assert said not in (ACCEPTED, ALREADY)
