"""Terminal output beside a running program: title, question, countdown; always on standard error.

A title is written with OSC 2 in one write, and only while costguard's job is in the foreground, so that it can neither stop the
job nor appear in the window of another one.
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
    """Write one or several lines to the user, prefixed with `costguard: `; a closed terminal is no error."""
    lines = "".join(f"costguard: {line}\n" for line in replace_unprintable(text).splitlines())
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    write_stderr(lines)


def write_stderr(text: str) -> bool:
    """Write `text` to standard error and return whether all was written.

    It gives up if the terminal accepts nothing within a second, so that the job stays supervised.
    """
    data = text.encode(sys.stderr.encoding or "utf-8", errors="replace")
    with suppress(OSError, ValueError):
        waits = select.poll()
        waits.register(STDERR, select.POLLOUT)
        while data and waits.poll(WRITABLE_WITHIN_S * 1000):
            data = data[os.write(STDERR, data[: select.PIPE_BUF]) :]
    return not data


def can_ask() -> bool:
    """Return whether standard error and standard input are terminals, so that a person can answer."""
    return _is_terminal(STDIN) and _is_terminal(STDERR)


def can_keep() -> bool:
    """Return whether a person can see a countdown and stop it with a key: `can_ask`, and in the foreground."""
    return can_ask() and _is_in_foreground()


def ask_yes_no(question: str) -> bool:
    """Ask a question and return whether the answer is yes.

    It reads one line and no byte after it, because the rest of the input is the program's.
    """
    write_stderr(f"costguard: {replace_unprintable(question)} [y/N] ")
    answer = os.read(STDIN, LONGEST_ANSWER)
    return answer.decode(errors="replace").strip().lower() in YES


class TerminalTitle:
    """The title of the terminal's window, if standard error is a terminal that can show it."""

    def __init__(self) -> None:
        self._shows = _is_terminal(STDERR) and os.environ.get("TERM", "dumb") not in ("dumb", "")
        self._last = ""

    @property
    def shows(self) -> bool:
        """Whether a title can be shown."""
        return self._shows

    def show(self, text: str) -> None:
        """Set the title to `text`."""
        line = shorten(replace_unprintable(text).replace("\n", " "), LONGEST_TITLE)
        if not self._shows or line == self._last or not _is_in_foreground():
            return
        if write_stderr(f"{'' if self._last else SAVE}\x1b]2;{line}\x07"):
            self._last = line

    def end(self) -> None:
        """Restore the previous title."""
        if self._last and _is_in_foreground():
            write_stderr(RESTORE)
            self._last = ""


def _is_in_foreground() -> bool:
    """Return whether this job is the terminal's foreground job, which may write to it and read from it."""
    try:
        return os.tcgetpgrp(STDERR) == os.getpgrp()
    except OSError:
        return False


def run_countdown(seconds: int, text: str, blocked_signals: BlockedSignals) -> bool:
    """Run a countdown and return whether it reached zero without being interrupted.

    Any key, Ctrl-C, Ctrl-Z, or a signal that ends costguard interrupts it; without a terminal only the signals do. Only time
    during which the countdown was visible counts: not while costguard was stopped or the terminal accepted no output.
    """
    ends = KEEP_SIGNALS & blocked_signals.numbers
    sees = _is_terminal(STDERR)
    left, shown, looked = float(seconds), -1, monotonic()
    with _open_keys() as keys:
        while not _wait_for_keep(keys=keys, ends=ends, within_s=min(max(left, 0.0), STEP_S)):
            if left <= 0:
                return _finish_line(is_kept=False, sees=sees)
            now = monotonic()
            left, looked = left - min(now - looked, 2 * STEP_S), now
            if sees and ceil(left) != shown:
                shown = max(0, ceil(left))
                write_stderr(f"\r\x1b[Kcostguard: {replace_unprintable(text)} in {shown} s; any key keeps it ")
    return _finish_line(is_kept=True, sees=sees)


def _wait_for_keep(*, keys: bool, ends: frozenset[int], within_s: float) -> bool:
    """Wait up to `within_s` seconds and return whether a key or a signal of `ends` arrived."""
    if keys and select.select([STDIN], [], [], within_s)[0]:
        termios.tcflush(STDIN, termios.TCIFLUSH)
        return True
    return bool(ends) and signal.sigtimedwait(ends, 0 if keys else within_s) is not None


def _finish_line(*, is_kept: bool, sees: bool) -> bool:
    if sees:
        write_stderr("\n")
    return not is_kept


@contextmanager
def _open_keys() -> Iterator[bool]:
    """Enable reading single keys in this block; yields False if no terminal is in the foreground."""
    if not (_is_terminal(STDIN) and _is_in_foreground()):
        yield False
        return
    old_attributes = termios.tcgetattr(STDIN)
    tty.setcbreak(STDIN)
    try:
        termios.tcflush(STDIN, termios.TCIFLUSH)
        yield True
    finally:
        with suppress(termios.error):
            termios.tcsetattr(STDIN, termios.TCSANOW, old_attributes)


def _is_terminal(number: int) -> bool:
    try:
        return os.isatty(number)
    except OSError:
        return False
