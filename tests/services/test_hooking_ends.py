"""A hook that goes on for longer than it may is ended, so that the act behind it comes; one that has time left is not."""

from __future__ import annotations

from costguard.guard.escalation import SUCCEEDED, TIMED_OUT
from tests.services.test_hooking import python

LATE_S = 12
"""Longer than a hook may take here, and short enough for a test to see that nobody ended it."""


def test_a_hook_that_sleeps_past_its_time_is_ended() -> None:
    end = python(f"import time; time.sleep({LATE_S}); print('slept')", within_s=0.5)
    assert (end.state, end.why, end.output) == (TIMED_OUT, "it was killed after 0.5 s", "")


def test_a_hook_within_its_time_is_let_be() -> None:
    assert python("import time; time.sleep(0.2)").state == SUCCEEDED
