"""Diagnostics: errors that end a command, printable forms of foreign text, and the agent's log.

The log writes lines to stderr: one for each change, none for each beat; with the time, unless systemd's journal adds it.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable


class AgentError(Exception):
    """An error that ends a command.

    The message says what happened, to which thing, and what to do.
    """


def make_printable(text: str, most: int = 300) -> str:
    """Return one line of printable characters, at most `most`."""
    return "".join(sign if sign.isprintable() else " " for sign in text[:most]).strip()


NUMBERS = re.compile(r"\d+(?:\.\d+)?")
KNOWN_MOST = 200


class AgentLog:
    """A log that repeats a message only after it changed."""

    def __init__(self) -> None:
        self._dated = "JOURNAL_STREAM" not in os.environ
        self._state = ""
        self._troubles: set[str] = set()

    def say(self, text: str) -> None:
        """Write one line; a closed or full stderr is ignored."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime()) if self._dated else ""
        try:
            sys.stderr.write(f"{stamp}costguard-agent: {text}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return

    def log_state(self, name: str, text: str) -> None:
        """Log a state if it differs from the last one."""
        if name != self._state:
            self._state = name
            self.say(text)

    def log_troubles(self, texts: Iterable[str]) -> None:
        """Log each trouble when it begins, ignoring changes of its numbers, and when all are over."""
        by_form = {NUMBERS.sub("N", text): text for text in texts}
        for form, text in by_form.items():
            if form not in self._troubles:
                self.say(text)
        if self._troubles and not by_form:
            self.say("all is measured again")
        self._troubles = set(list(by_form)[:KNOWN_MOST])
