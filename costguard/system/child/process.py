"""Start the user's program with costguard's inherited state, and supervise it until it ends.

Its standard streams, other open files, umask, core limit, ignored signals and environment are those that costguard was started
with. With a terminal it shares costguard's process group, so that keys reach it as they would without costguard, and Ctrl-Z
stops both as one job of the shell; without a terminal it has its own group. If costguard is ended by a signal that cannot be
caught, the kernel sends the program SIGTERM, unless the program is meant to outlive costguard.

While it runs, signals are passed on as a shell user expects. A key on the terminal (Ctrl-C, Ctrl-Z) reaches the program
directly if it shares costguard's group: such a signal comes from the kernel (SI_KERNEL) and is not sent twice. A signal sent to
costguard by another process, and the hangup of a closed terminal, are passed on.

    Ctrl-C      the program receives it
    again       the program is asked to end (SIGTERM)
    again       the program and its child processes are killed (SIGKILL)
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from costguard.errors import CostguardError, shorten
from costguard.system import file_security

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""What a shell answers for a command that there is not, and for one that cannot be run."""
SIGNAL_EXIT_BASE = 128
PR_SET_PDEATHSIG = 1  # linux/prctl.h
RUN_ENV = "COSTGUARD_RUN"
"""In the environment of every process of an attempt: its id."""
LONGEST_SHOWN = 120


class CommandStartError(CostguardError):
    """The command cannot be run; `exit_code` is the one that a shell returns in that case."""

    def __init__(self, what: str, *, field: str, hint: str, exit_code: int) -> None:
        super().__init__(what, field=field, hint=hint)
        self.exit_code = exit_code


class ChildProcess:
    """The running program.

    `own_group`: whether it is alone in its process group.
    """

    def __init__(self, process: subprocess.Popen[bytes], *, own_group: bool, attempt: str = "") -> None:
        self._process, self.own_group, self._attempt = process, own_group, attempt

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def get_exit_code(self) -> int | None:
        """Return the exit code, or 128 plus the number of the signal that ended it; None while it runs."""
        code = self._process.poll()
        return None if code is None else code if code >= 0 else SIGNAL_EXIT_BASE - code

    def wait_until_ended(self) -> int:
        """Wait for the program to end, and return its exit code as `get_exit_code` does."""
        code = self._process.wait()
        return code if code >= 0 else SIGNAL_EXIT_BASE - code

    def send(self, number: int) -> None:
        """Send a signal to the program; to its whole process group if it has its own, as a terminal does."""
        with suppress(ProcessLookupError, PermissionError):
            if self.own_group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)

    def end_all(self) -> None:
        """Send SIGKILL to the program and all its descendants.

        They are stopped (SIGSTOP) first, so that none starts new processes.
        """
        tree = self._list_tree()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in tree:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            tree = list(dict.fromkeys((*tree, *self._list_tree())))

    def _list_tree(self) -> list[int]:
        """Return the pids of the program, its descendants, and orphans recognised by their environment only."""
        strays = list_attempt_processes(self._attempt) if self._attempt else []
        return list(dict.fromkeys((self.pid, *_list_descendants(self.pid), *strays)))


def start_child(
    command: Sequence[str], environment: Mapping[str, str], *, blocked: Collection[int] = (), outlives: bool = False
) -> ChildProcess:
    """Start `command`; call it in the main thread, before other threads exist.

    Raises CommandStartError if the command cannot be run. `blocked`: the signals that were blocked when costguard was started.
    `outlives`: whether the program goes on when costguard ends.
    """
    own_group = not has_terminal()
    shown = shorten(command[0], LONGEST_SHOWN)
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own command, and no shell
            list(command),
            env=dict(environment),
            close_fds=False,
            process_group=0 if own_group else None,
            preexec_fn=_build_preexec(blocked, outlives=outlives),  # noqa: PLW1509 - there is one thread
        )
    except (FileNotFoundError, NotADirectoryError):
        hint = "write it as the shell would find it: costguard run ... -- python train.py"
        raise CommandStartError("no such command", field=shown, hint=hint, exit_code=NOT_FOUND) from None
    except PermissionError:
        hint = f"chmod +x {shown}, or name the program that reads it: -- python {shown}"
        raise CommandStartError("cannot be executed", field=shown, hint=hint, exit_code=NOT_EXECUTABLE) from None
    except (OSError, ValueError) as wrong:
        number = wrong.errno if isinstance(wrong, OSError) else 0
        no_program = number == errno.ENOEXEC
        why = "is not a program: its first line names none (#!/bin/sh)" if no_program else f"cannot be run: {wrong}"
        raise CommandStartError(why, field=shown, hint="name the program that reads it", exit_code=NOT_EXECUTABLE) from None
    return ChildProcess(process, own_group=own_group, attempt=environment.get(RUN_ENV, ""))


def has_terminal() -> bool:
    """Return whether this process has a controlling terminal, in the foreground or not."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def list_attempt_processes(attempt: str) -> list[int]:
    """Return this user's running processes on this machine that belong to the attempt of this id.

    They are recognised by their environment.
    """
    return list_attempts().get(attempt, [])


def list_attempts() -> dict[str, list[int]]:
    """Return the visible running processes of every attempt on this machine, by its id; without this process."""
    mark, attempts = f"{RUN_ENV}=".encode(), dict[str, list[int]]()
    for pid in sorted(_list_pids()):
        with suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if pid != os.getpid() else []
            carried = next((one.removeprefix(mark) for one in variables if one.startswith(mark)), b"")
            if carried and _read_state(pid) not in ("Z", "X"):
                attempts.setdefault(os.fsdecode(carried), []).append(pid)
    return attempts


def list_ancestor_processes(pid: int) -> list[int]:
    """Return the parent of `pid`, the parent's parent, and so on."""
    ancestors: list[int] = []
    while (parent := _read_parent(pid)) and parent not in ancestors:
        ancestors.append(parent)
        pid = parent
    return ancestors


def _list_descendants(pid: int) -> list[int]:
    """Return the current descendants of `pid`."""
    children: dict[int, list[int]] = {}
    for one in _list_pids():
        parent = _read_parent(one)
        if parent is not None:
            children.setdefault(parent, []).append(one)
    descendants, pending = [], [pid]
    while pending:
        began = children.get(pending.pop(), [])
        descendants += began
        pending += began
    return descendants


def _build_preexec(blocked: Collection[int], *, outlives: bool) -> Callable[[], None]:
    """Return the function that the new process runs before it executes the program."""
    libc, own_pid, plain = ctypes.CDLL(None, use_errno=True), os.getpid(), build_state_restorer(blocked)

    def prepare() -> None:
        if not outlives:
            libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
            if os.getppid() != own_pid:  # it was over before the kernel knew
                os.kill(os.getpid(), signal.SIGTERM)
        plain()

    return prepare


def build_state_restorer(blocked: Collection[int]) -> Callable[[], None]:
    """Return a function that restores the umask, limits and blocked signals that costguard was started with."""

    def prepare() -> None:
        file_security.restore_process()
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    return prepare


HANDLED_SIGNALS = frozenset(
    (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGWINCH,
        signal.SIGTSTP,
        signal.SIGCONT,
        signal.SIGCHLD,
    )
)
"""Signals that costguard waits for while a program runs."""


def _list_pids() -> Iterator[int]:
    with suppress(OSError):
        yield from (int(one.name) for one in Path("/proc").iterdir() if one.name.isdecimal())


def _read_parent(pid: int) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        return int(_read_stat_fields(pid)[1])
    return None


def _read_state(pid: int) -> str:
    with suppress(OSError, IndexError):
        return _read_stat_fields(pid)[0]
    return "X"


def _read_stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain any character."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


SI_KERNEL = 128  # asm-generic/siginfo.h
TICK_S = 0.5
"""Seconds between two looks at all else."""
SETTLE_S = 0.4
"""A key that is held down repeats: within this many seconds it counts once."""
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
KEY_SIGNALS = frozenset((signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH))
"""What a terminal sends to every process of the job in front. That it closes it tells to the session's leader alone."""

Say = Callable[[str], None]
ASKED_TO_END_TEXT = "second time: SIGTERM was sent to the job. A third time kills it and its child processes."
ENDED_AT_ONCE_TEXT = "the job was ended (SIGKILL)"


class BlockedSignals(NamedTuple):
    """`numbers`: the signals that are now blocked and fetched explicitly.

    `before`: those that were blocked before.
    """

    numbers: frozenset[int]
    before: frozenset[int]


@contextmanager
def block_signals() -> Iterator[BlockedSignals]:
    """Block signals in this block, so that they are fetched explicitly; ignored signals stay ignored.

    At the end pending ones are dropped: a late Ctrl-C must not end what follows.
    """
    handled_signals = frozenset(int(number) for number in HANDLED_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN)
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, handled_signals)
    try:
        yield BlockedSignals(handled_signals, frozenset(int(number) for number in old_mask))
    finally:
        while signal.sigtimedwait(handled_signals, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)


def take_end_signal(blocked_signals: BlockedSignals) -> int | None:
    """Return the pending signal that asks costguard to end, received while no program ran; None if there is none."""
    end_signals = frozenset(int(number) for number in END_SIGNALS) & blocked_signals.numbers
    caught = signal.sigtimedwait(end_signals, 0) if end_signals else None
    return None if caught is None else caught.si_signo


@dataclass(slots=True)
class ChildSupervisor:
    """Waits for a program and passes signals on to it.

    `tick`: called twice a second. `say`: writes a message to the user. `ending`: called with every signal that asks the program
    to end.
    """

    child: ChildProcess
    heard: BlockedSignals
    tick: Callable[[], None]
    say: Say
    ending: Callable[[int], None] = lambda _number: None
    _presses: int = 0
    _pressed_at: float = field(default=-1e9)

    def wait_until_ended(self) -> int:
        """Wait until the program has ended, and return its exit code as a shell reports it."""
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
    """Stop this process, as Ctrl-Z does, until it is continued."""
    os.kill(os.getpid(), signal.SIGTSTP)
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTSTP,))  # here it stops
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def format_signal_name(status: int) -> str:
    """Return the signal's name for an exit status (`SIGTERM` for 143); "" if no signal caused it."""
    try:
        return signal.Signals(status - SIGNAL_EXIT_BASE).name if status > SIGNAL_EXIT_BASE else ""
    except ValueError:
        return ""
