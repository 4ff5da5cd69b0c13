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

from costguard.errors import replace_unprintable, shorten
from costguard.system.child.process import BlockedSignals

SAVE, RESTORE = "\x1b[22;2t", "\x1b[23;2t"
"""The title is put aside and taken back where the terminal can (XTWINOPS); the others ignore it."""
LONGEST_TITLE = 120
LONGEST_ANSWER = 1024
STDIN, STDERR = 0, 2
YES = frozenset(("y", "yes"))
KEEP_SIGNALS = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP))
"""What keeps a machine that is counted down."""
STEP_S = 0.2
WRITABLE_WITHIN_S = 1.0
"""How long a terminal, or whoever reads what we say, is waited for: a job is not attended to meanwhile."""


def write_message(text: str) -> None:
    """Tell people a line or several, marked as ours. A terminal that has gone is no reason to stop."""
    lines = "".join(f"costguard: {line}\n" for line in replace_unprintable(text).splitlines())
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    write_stderr(lines)


def write_stderr(text: str) -> bool:
    """Write it on standard error, unless nobody takes it there: what is said is not worth a job that nobody attends to."""
    data = text.encode(sys.stderr.encoding or "utf-8", errors="replace")
    with suppress(OSError, ValueError):
        waits = select.poll()
        waits.register(STDERR, select.POLLOUT)
        while data and waits.poll(WRITABLE_WITHIN_S * 1000):
            data = data[os.write(STDERR, data[: select.PIPE_BUF]) :]
    return not data


def can_ask() -> bool:
    """Whether a person can be asked: they see standard error and type into standard input."""
    return _is_terminal(STDIN) and _is_terminal(STDERR)


def can_keep() -> bool:
    """Whether a person sees a countdown, and a key that they press now reaches us."""
    return can_ask() and _is_in_foreground()


def ask_yes_no(question: str) -> bool:
    """Whether the answer is yes. A line is read, and no byte of what follows it: that is the program's."""
    write_stderr(f"costguard: {replace_unprintable(question)} [y/N] ")
    answer = os.read(STDIN, LONGEST_ANSWER)
    return answer.decode(errors="replace").strip().lower() in YES


class TerminalTitle:
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
        line = shorten(replace_unprintable(text).replace("\n", " "), LONGEST_TITLE)
        if not self._shows or line == self._last or not _is_in_foreground():
            return
        if write_stderr(f"{'' if self._last else SAVE}\x1b]2;{line}\x07"):
            self._last = line

    def end(self) -> None:
        """Have the title that was there before."""
        if self._last and _is_in_foreground():
            write_stderr(RESTORE)
            self._last = ""


def _is_in_foreground() -> bool:
    """Whether this job may write to the terminal and read from it: others are in the background."""
    try:
        return os.tcgetpgrp(STDERR) == os.getpgrp()
    except OSError:
        return False


def run_countdown(seconds: int, text: str, heard: BlockedSignals) -> bool:
    """Whether nobody kept it: any key, Ctrl-C, Ctrl-Z, or a signal that ends costguard does; the latter without a terminal.

    Only the time that passes here counts: while costguard was stopped, or the terminal took nothing, nobody saw it.
    """
    ends = KEEP_SIGNALS & heard.numbers
    sees = _is_terminal(STDERR)
    left, shown, looked = float(seconds), -1, monotonic()
    with _open_keys() as keys:
        while not _wait_for_keep(keys=keys, ends=ends, within_s=min(max(left, 0.0), STEP_S)):
            if left <= 0:
                return _finish_line(kept=False, sees=sees)
            now = monotonic()
            left, looked = left - min(now - looked, 2 * STEP_S), now
            if sees and ceil(left) != shown:
                shown = max(0, ceil(left))
                write_stderr(f"\r\x1b[Kcostguard: {replace_unprintable(text)} in {shown} s; any key keeps it ")
    return _finish_line(kept=True, sees=sees)


def _wait_for_keep(*, keys: bool, ends: frozenset[int], within_s: float) -> bool:
    """Whether it has a lease within so many seconds."""
    if keys and select.select([STDIN], [], [], within_s)[0]:
        termios.tcflush(STDIN, termios.TCIFLUSH)
        return True
    return bool(ends) and signal.sigtimedwait(ends, 0 if keys else within_s) is not None


def _finish_line(*, kept: bool, sees: bool) -> bool:
    if sees:
        write_stderr("\n")
    return not kept


@contextmanager
def _open_keys() -> Iterator[bool]:
    """Whether single keys can be heard; they can within, where a terminal is in front."""
    if not (_is_terminal(STDIN) and _is_in_foreground()):
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
