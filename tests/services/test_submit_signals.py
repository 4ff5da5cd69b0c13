"""A signal that comes while the launcher is being started reaches it."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from costguard.services.run_jobs import submit


class Child:
    """A child that notes what it is sent."""

    def __init__(self) -> None:
        self.got = list[int]()

    def send(self, number: int) -> None:
        self.got.append(number)

    def wait_until_ended(self) -> int:
        return 128 + self.got[0] if self.got else 0


def test_a_signal_before_the_child_is_known_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any, **__: Any) -> Child:  # noqa: ANN401 - as the real one
        os.kill(os.getpid(), signal.SIGTERM)
        return Child()

    monkeypatch.setattr(submit, "start_child", start)
    assert submit._run_launcher(["x"], "hold-1") == 128 + signal.SIGTERM
