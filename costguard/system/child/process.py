"""The program itself: begun with all that costguard was given, and nothing that costguard made of itself.

Its standard streams, other open files, umask, core limit, ignored signals and environment are those that costguard was started
with. With a terminal it shares costguard's process group, so that keys reach it as they would without costguard, and Ctrl-Z
stops both as one job of the shell; without one it has a group of its own. Where costguard is ended by a signal that nobody can
catch, the kernel asks the program to end (SIGTERM), unless it was to outlive costguard.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

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
    """The command cannot be run; `exit_code` is what a shell answers."""

    def __init__(self, what: str, *, field: str, hint: str, exit_code: int) -> None:
        super().__init__(what, field=field, hint=hint)
        self.exit_code = exit_code


class ChildProcess:
    """The program while it runs. `own_group`: whether it is alone in its process group."""

    def __init__(self, process: subprocess.Popen[bytes], *, own_group: bool, attempt: str = "") -> None:
        self._process, self.own_group, self._attempt = process, own_group, attempt

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def get_exit_code(self) -> int | None:
        """How it ended: its exit code, 128 and the number of the signal that ended it; None while it runs."""
        code = self._process.poll()
        return None if code is None else code if code >= 0 else SIGNAL_EXIT_BASE - code

    def send(self, number: int) -> None:
        """Pass a signal on: to its whole group where that is its own, as a terminal would."""
        with suppress(ProcessLookupError, PermissionError):
            if self.own_group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)

    def end_all(self) -> None:
        """SIGKILL to it and to all that it has begun, the youngest last: what is stopped begins nothing new."""
        tree = self._list_tree()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in tree:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            tree = list(dict.fromkeys((*tree, *self._list_tree())))

    def _list_tree(self) -> list[int]:
        """It, those that descend from it, and those that only its environment tells: their parents have ended before."""
        strays = list_attempt_processes(self._attempt) if self._attempt else []
        return list(dict.fromkeys((self.pid, *_list_descendants(self.pid), *strays)))


def start_child(
    command: Sequence[str], environment: Mapping[str, str], *, blocked: Collection[int] = (), outlives: bool = False
) -> ChildProcess:
    """Begin `command`. CannotBeginError where there is none such. Call it in the main thread, before there are others.

    `blocked`: the signals that costguard was started with blocked.
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
        why = "is no program: its first line names none (#!/bin/sh)" if no_program else f"cannot be run: {wrong}"
        raise CommandStartError(why, field=shown, hint="name the program that reads it", exit_code=NOT_EXECUTABLE) from None
    return ChildProcess(process, own_group=own_group, attempt=environment.get(RUN_ENV, ""))


def has_terminal() -> bool:
    """Whether there is a terminal whose keys reach this process, now or when its job is brought to the front."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def list_attempt_processes(attempt: str) -> list[int]:
    """The processes of the attempt of this id that still run, of this user on this machine: they carry it about."""
    return list_attempts().get(attempt, [])


def list_attempts() -> dict[str, list[int]]:
    """The processes of every attempt that run here and can be seen, by its id; without this one."""
    mark, found = f"{RUN_ENV}=".encode(), dict[str, list[int]]()
    for pid in sorted(_list_pids()):
        with suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if pid != os.getpid() else []
            carried = next((one.removeprefix(mark) for one in variables if one.startswith(mark)), b"")
            if carried and _read_state(pid) not in ("Z", "X"):
                found.setdefault(os.fsdecode(carried), []).append(pid)
    return found


def list_ancestor_processes(pid: int) -> list[int]:
    """Its parent, that one's parent, and so on."""
    found: list[int] = []
    while (parent := _read_parent(pid)) and parent not in found:
        found.append(parent)
        pid = parent
    return found


def _list_descendants(pid: int) -> list[int]:
    """The processes that `pid` began, and those that they began, as they are now."""
    children: dict[int, list[int]] = {}
    for one in _list_pids():
        parent = _read_parent(one)
        if parent is not None:
            children.setdefault(parent, []).append(one)
    found, wanted = [], [pid]
    while wanted:
        began = children.get(wanted.pop(), [])
        found += began
        wanted += began
    return found


def _build_preexec(blocked: Collection[int], *, outlives: bool) -> Callable[[], None]:
    """What the new process does before it becomes the program."""
    libc, ours, plain = ctypes.CDLL(None, use_errno=True), os.getpid(), build_state_restorer(blocked)

    def prepare() -> None:
        if not outlives:
            libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
            if os.getppid() != ours:  # it was over before the kernel knew
                os.kill(os.getpid(), signal.SIGTERM)
        plain()

    return prepare


def build_state_restorer(blocked: Collection[int]) -> Callable[[], None]:
    """What a new process does to have the umask, the limits and the blocked signals that costguard was started with."""

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
    """The fields of its stat after its name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
