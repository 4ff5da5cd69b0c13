"""What a life of a story just passed, in memory that outlives it; and how it meets its end there.

An end is named: "at POINT for the NTH time, and so many microseconds later". The kernel's own timer sends the SIGKILL, so that
a life dies in the middle of what SQLite does, at an instant that nothing in the process can foresee.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

POINTS = (
    "born", "opened", "polling", "listed", "planned", "settled", "before a look", "looked", "before commit", "committing",
    "committed", "before send", "checked", "half sent", "sent", "answered", "before record", "recorded", "between",
    "working it out", "writing rows",
)  # fmt: skip
"""Each is the last thing that a life says before it dies. "checked": it has just looked whether it is too late to send."""

LET_GO, SENT = 1, 2
"""How far the act under way is."""
WRITING, COMMITTING = 1, 2
"""How far the transaction under way is."""

OPENING, POLL, TRANSACTION, COMMIT, CHECKPOINT = "opening", "in a poll", "in a transaction", "in a commit", "in a checkpoint"
BEFORE, HALF, AFTER, ELSE = "between intent and call", "half sent", "between call and outcome", "between all of these"
SEVERAL = "with several acts under way"
WINDOWS = (OPENING, POLL, TRANSACTION, COMMIT, CHECKPOINT, BEFORE, HALF, AFTER, SEVERAL, ELSE)
"""Where a death may fall. One in the commit of an outcome lies in two of them; of several acts the last that moved counts."""


@dataclass(slots=True)
class Page:
    """The last point that was passed, how far its act and its transaction are: shared between a process and its children.

    `under_way`: the acts of this process, whose number stands in the memory.
    """

    memory: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, mmap.PAGESIZE))
    under_way: set[str] = field(default_factory=set)

    def clear(self) -> None:
        """A new life."""
        self.memory[:9] = bytes(9)

    @contextmanager
    def acting(self, name: str) -> Iterator[None]:
        """Within this block the act of that name is under way."""
        self.under_way.add(name)
        self.memory[8] = len(self.under_way)
        yield
        self.under_way.discard(name)
        self.memory[8] = len(self.under_way)

    def befallen(self) -> None:
        """Remember this moment, at which something befalls a life that may go on for a while."""
        self.memory[3:7] = self.memory[:3] + b"\1"

    @property
    def point(self) -> str:
        return POINTS[self.memory[0]]

    @property
    def act(self) -> int:
        return self.memory[1]

    @act.setter
    def act(self, far: int) -> None:
        self.memory[1] = far

    @property
    def transaction(self) -> int:
        return self.memory[2]

    @transaction.setter
    def transaction(self, far: int) -> None:
        self.memory[2] = far

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Within this block a transaction writes."""
        self.transaction = WRITING
        yield
        self.transaction = 0

    def windows(self, ledger: Path | None) -> list[str]:
        """Where a death fell that happened now, or what befell a life before."""
        if self.memory[6]:
            self.memory[:7] = self.memory[3:6] + bytes(4)
        found = [OPENING] if self.point == "born" else [POLL] if self.point == "polling" else []
        found += [HALF] if self.point == "half sent" else []
        found += [BEFORE] if self.act == LET_GO and self.point != "half sent" else [AFTER] if self.act == SENT else []
        found += {WRITING: [TRANSACTION], COMMITTING: [COMMIT]}.get(self.transaction, [])
        found += [SEVERAL] if self.memory[8] > 1 else []
        found += [CHECKPOINT] if ledger is not None and checkpointing(ledger) else []
        return found or [ELSE]


@dataclass(slots=True)
class Marker:
    """Told what is passed. At `point`, for the `nth` time, it does `end`."""

    page: Page
    point: str = ""
    nth: int = 1
    end: Callable[[], object] = lambda: None

    def __call__(self, passed: str) -> None:
        self.page.memory[0] = POINTS.index(passed)
        if passed == self.point:
            self.nth -= 1
            if self.nth == 0:
                self.end()


def die_after(delay_us: int) -> None:
    """Be killed so many microseconds from now; 0: at once."""
    if not delay_us:
        os.kill(os.getpid(), signal.SIGKILL)
    timer, event = ctypes.c_void_p(), _Event(None, signal.SIGKILL, 0, b"")
    when = _When(0, 0, delay_us // 10**6, delay_us % 10**6 * 1000)
    assert _LIBC.timer_create(_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) == 0
    assert _LIBC.timer_settime(timer, 0, ctypes.byref(when), None) == 0


class _Event(ctypes.Structure):
    """sigevent(7)."""

    _fields_ = (("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int), ("rest", ctypes.c_char * 48))


class _When(ctypes.Structure):
    """itimerspec: every, from then on; once, in so long."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "in_s", "in_ns"))


_LIBC = ctypes.CDLL(None, use_errno=True)
_MONOTONIC = 1


def checkpointing(ledger: Path) -> bool:
    """Whether its log was just being moved into the file: SQLite says up to where it is about to, and then how far it came.

    See sqlite.org/walformat.html, WalCkptInfo: nBackfill at byte 96 of the -shm file, nBackfillAttempted at 128.
    """
    try:
        with ledger.with_name(f"{ledger.name}-shm").open("rb") as file:
            head = file.read(136)
    except FileNotFoundError:
        return False
    done, tried = (int.from_bytes(head[at : at + 4], "little") for at in (96, 128))
    return tried > done
