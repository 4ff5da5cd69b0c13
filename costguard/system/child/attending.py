"""Attending: signals passed on as a shell user expects them, until the program has ended.

A key on the terminal (Ctrl-C, Ctrl-Z) reaches the program by itself where it shares costguard's group: the kernel says that it
sent it (SI_KERNEL), and it is not sent twice. What somebody sent to costguard, and that the terminal has closed, is passed on.

    Ctrl-C      the program has it
    again       it is asked to end (SIGTERM)
    again       it is ended, with all that it began (SIGKILL)
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from costguard.system.child.process import HANDLED_SIGNALS, SIGNAL_EXIT_BASE, ChildProcess

SI_KERNEL = 128  # asm-generic/siginfo.h
TICK_S = 0.5
"""Seconds between two looks at all else."""
SETTLE_S = 0.4
"""A key that is held down repeats: within this many seconds it counts once."""
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
KEY_SIGNALS = frozenset((signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH))
"""What a terminal sends to every process of the job in front. That it closes it tells to the session's leader alone."""

Say = Callable[[str], None]
ASKED_TO_END_TEXT = "again: the job was asked to end (SIGTERM). Once more ends it at once, with all that it began."
ENDED_AT_ONCE_TEXT = "the job was ended (SIGKILL)"


class BlockedSignals(NamedTuple):
    """`numbers`: the signals that wait until they are asked for. `before`: those that were blocked before."""

    numbers: frozenset[int]
    before: frozenset[int]


@contextmanager
def block_signals() -> Iterator[BlockedSignals]:
    """Signals wait until they are asked for; those that were ignored when costguard began stay ignored.

    At the end those that still wait are dropped: a Ctrl-C that came too late must not end what comes after.
    """
    heard = frozenset(int(number) for number in HANDLED_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    try:
        yield BlockedSignals(heard, frozenset(int(number) for number in before))
    finally:
        while signal.sigtimedwait(heard, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def take_end_signal(heard: BlockedSignals) -> int | None:
    """The signal that asked costguard to end while nothing ran; None where none did."""
    asked = frozenset(int(number) for number in END_SIGNALS) & heard.numbers
    caught = signal.sigtimedwait(asked, 0) if asked else None
    return None if caught is None else caught.si_signo


@dataclass(slots=True)
class ChildSupervisor:
    """`tick`: called twice a second. `say`: tells a person. `ending`: told of the first signal that asks the program to end."""

    child: ChildProcess
    heard: BlockedSignals
    tick: Callable[[], None]
    say: Say
    ending: Callable[[int], None] = lambda _number: None
    _presses: int = 0
    _pressed_at: float = field(default=-1e9)

    def wait_until_ended(self) -> int:
        """Its exit code, as a shell has it."""
        due_s = monotonic() + TICK_S
        while (code := self.child.get_exit_code()) is None:
            caught = signal.sigtimedwait(self.heard.numbers, max(0.0, due_s - monotonic()))
            if caught is not None and caught.si_signo != signal.SIGCHLD:
                self._handle_signal(caught.si_signo, by_terminal=caught.si_code == SI_KERNEL)
            if monotonic() >= due_s:  # also where signals come faster than that
                self.tick()
                due_s = monotonic() + TICK_S
        return code

    def _handle_signal(self, number: int, *, by_terminal: bool) -> None:
        has_it = by_terminal and number in KEY_SIGNALS and not self.child.own_group
        if number == signal.SIGINT:
            self._handle_interrupt(has_it=has_it)
        elif not has_it:
            self.child.send(number)
        if number in END_SIGNALS:
            self.ending(number)
        if number == signal.SIGTSTP:
            _suspend()
            self.child.send(signal.SIGCONT)

    def _handle_interrupt(self, *, has_it: bool) -> None:
        now = monotonic()
        if not has_it:
            self.child.send(signal.SIGINT)
        if now - self._pressed_at < SETTLE_S:
            return
        self._presses, self._pressed_at = self._presses + 1, now
        if self._presses == 2:  # noqa: PLR2004 - the second one
            self.child.send(signal.SIGTERM)
            self.say(ASKED_TO_END_TEXT)
        elif self._presses > 2:  # noqa: PLR2004 - every later one
            self.child.end_all()
            self.say(ENDED_AT_ONCE_TEXT)


def _suspend() -> None:
    """Stop, as Ctrl-Z wants it, until somebody lets it go on."""
    os.kill(os.getpid(), signal.SIGTSTP)
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTSTP,))  # here it stops
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def format_signal_name(status: int) -> str:
    """`SIGTERM` of 143; "" of a status that no signal made."""
    try:
        return signal.Signals(status - SIGNAL_EXIT_BASE).name if status > SIGNAL_EXIT_BASE else ""
    except ValueError:
        return ""
