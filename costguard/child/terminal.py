"""The terminal beside a running program: a title, a question, a countdown; all on standard error, nothing on its output.

A title is written with OSC 2 in one piece, and only while costguard's job is in front, so that it can neither stop the job nor
stand in another one's window.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import ceil
from time import monotonic

from costguard.child.attending import Heard
from costguard.errors import printable, shortened

SAVE, RESTORE = "\x1b[22;2t", "\x1b[23;2t"
"""The title is put aside and taken back where the terminal can (XTWINOPS); the others ignore it."""
LONGEST_TITLE = 120
LONGEST_ANSWER = 1024
STDIN, STDERR = 0, 2
YES = frozenset(("y", "yes"))


def say(text: str) -> None:
    """Tell people a line or several, marked as ours. A terminal that has gone is no reason to stop."""
    lines = "".join(f"costguard: {line}\n" for line in printable(text).splitlines())
    with suppress(OSError, ValueError):
        sys.stderr.flush()
        os.write(STDERR, lines.encode(sys.stderr.encoding or "utf-8", errors="replace"))


def can_ask() -> bool:
    """Whether a person can be asked: they see standard error and type into standard input."""
    return _is_terminal(STDIN) and _is_terminal(STDERR)


def ask(question: str) -> bool:
    """Whether the answer is yes. A line is read, and no byte of what follows it: that is the program's."""
    with suppress(OSError):
        os.write(STDERR, f"costguard: {printable(question)} [y/N] ".encode(errors="replace"))
    answer = os.read(STDIN, LONGEST_ANSWER)
    return answer.decode(errors="replace").strip().lower() in YES


class Title:
    """The title of the terminal's window, where standard error is one that can show it."""

    def __init__(self) -> None:
        self._shows = _is_terminal(STDERR) and os.environ.get("TERM", "dumb") not in ("dumb", "")
        self._last = ""

    @property
    def shows(self) -> bool:
        """Whether anybody sees it."""
        return self._shows

    def show(self, text: str) -> None:
        """Have `text` as the title."""
        line = shortened(printable(text).replace("\n", " "), LONGEST_TITLE)
        if not self._shows or line == self._last or not in_front():
            return
        self._put(f"{'' if self._last else SAVE}\x1b]2;{line}\x07")
        self._last = line

    def end(self) -> None:
        """Have the title that was there before."""
        if self._last and in_front():
            self._put(RESTORE)
            self._last = ""

    def _put(self, text: str) -> None:
        try:
            os.write(STDERR, text.encode(errors="replace"))
        except OSError:
            self._shows = False


def in_front() -> bool:
    """Whether this job may write to the terminal and read from it: others are in the background."""
    try:
        return os.tcgetpgrp(STDERR) == os.getpgrp()
    except OSError:
        return False


def countdown(seconds: int, text: str, heard: Heard) -> bool:
    """Whether nobody kept it: any key, Ctrl-C, or a signal that ends costguard does. Without a terminal only the latter can."""
    ends = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)) & heard.numbers
    sees = _is_terminal(STDERR)
    until, shown = monotonic() + seconds, -1
    with _keys() as keys:
        while (left := until - monotonic()) > 0:
            if sees and ceil(left) != shown:
                shown = ceil(left)
                with suppress(OSError):
                    os.write(STDERR, f"\r\x1b[Kcostguard: {printable(text)} in {shown} s; any key keeps it ".encode())
            if ends and signal.sigtimedwait(ends, 0) is not None:
                return _told(kept=True, sees=sees)
            if keys and select.select([STDIN], [], [], min(left, 0.2))[0]:
                termios.tcflush(STDIN, termios.TCIFLUSH)
                return _told(kept=True, sees=sees)
            if not keys and ends:
                caught = signal.sigtimedwait(ends, min(left, 0.2))
                if caught is not None:
                    return _told(kept=True, sees=sees)
    return _told(kept=False, sees=sees)


def _told(*, kept: bool, sees: bool) -> bool:
    if sees:
        with suppress(OSError):
            os.write(STDERR, b"\n")
    return not kept


@contextmanager
def _keys() -> Iterator[bool]:
    """Whether single keys can be heard; they can within, where a terminal is in front."""
    if not (_is_terminal(STDIN) and in_front()):
        yield False
        return
    before = termios.tcgetattr(STDIN)
    tty.setcbreak(STDIN)
    try:
        termios.tcflush(STDIN, termios.TCIFLUSH)
        yield True
    finally:
        with suppress(termios.error):
            termios.tcsetattr(STDIN, termios.TCSANOW, before)


def _is_terminal(number: int) -> bool:
    try:
        return os.isatty(number)
    except OSError:
        return False
