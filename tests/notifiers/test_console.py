from __future__ import annotations

import io
import sys

import pytest

from costguard.notifiers import Channel
from costguard.notifiers.console import notify
from tests.fakes.server import Hands
from tests.notifiers.hostile import message_of

CONSOLE = Channel(name="console", clock=Hands())


class Full(io.StringIO):
    def write(self, text: str) -> int:  # noqa: ARG002 - the signature is a file's
        raise OSError(28, "No space left on device")


def test_it_writes_the_title_and_the_text_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert notify(message_of("m1"), CONSOLE).sent
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(
        "costguard: m1 is idle\n    owner: m1\n    to keep it: costguard keep aws/1/us/m1 --for 4h\n    why: m1\n"
    )


def test_a_full_disk_behind_stderr_is_said_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    delivery = notify(message_of("m1"), CONSOLE)
    assert (delivery.sent, delivery.why) == (False, "stderr cannot be written (OSError)")
