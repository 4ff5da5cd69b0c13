"""What ends a command of the agent: said in one sentence, with what to do next.

Texts from elsewhere, as they may stand in a log, a message or a terminal.

Lines on stderr: one for each change, none for each beat; with the time, where no journal of systemd adds it.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable


class AgentError(Exception):
    """The message says what happened, to which thing, and what to do."""


def make_printable(text: str, most: int = 300) -> str:
    """One line of printable characters, at most so many."""
    return "".join(sign if sign.isprintable() else " " for sign in text[:most]).strip()


NUMBERS = re.compile(r"\d+(?:\.\d+)?")
KNOWN_MOST = 200


class AgentLog:
    """What was said already is not said again until it changed."""

    def __init__(self) -> None:
        self._dated = "JOURNAL_STREAM" not in os.environ
        self._state = ""
        self._troubles: set[str] = set()

    def say(self, text: str) -> None:
        """One line; a stderr that is gone or full ends nothing."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime()) if self._dated else ""
        try:
            sys.stderr.write(f"{stamp}costguard-agent: {text}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return

    def log_state(self, name: str, text: str) -> None:
        """The state of something, told when it is another than before."""
        if name != self._state:
            self._state = name
            self.say(text)

    def log_troubles(self, texts: Iterable[str]) -> None:
        """What cannot be done: each told when it begins, whatever numbers are in it, and when it is over."""
        found = {NUMBERS.sub("N", text): text for text in texts}
        for form, text in found.items():
            if form not in self._troubles:
                self.say(text)
        if self._troubles and not found:
            self.say("all is measured again")
        self._troubles = set(list(found)[:KNOWN_MOST])
