"""User sessions: the age of the latest keyboard input, and the number of sessions.

A terminal's atime is when it was last read from, which is when somebody typed. Its first process shows what it is used for: one
below tmux or screen is a pane that may be unattended, and a waiting login prompt has no user. A user of a pane types into a
terminal of their own. Editors and shells over SSH are open sessions; an open session is not input.

Linux only: elsewhere both are missing. If the processes of others are hidden (hidepid), logins are read from /run/utmp.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from costguard_agent.host import FIRST_PID, HostView, read_text
from costguard_agent.signals import CONNECTIONS, INPUT_AGE, ProbeResult

MULTIPLEXERS = ("tmux", "screen", "SCREEN", "zellij", "dtach", "abduco", "tmate")
PROMPTS = frozenset(("agetty", "getty", "mingetty", "login", "sulogin"))
SSH = ("sshd", "sshd-session")
PTS, CONSOLE, SERIALS = 136, 4, {204: "ttyAMA", 229: "hvc"}
"""Major numbers of devices (Documentation/admin-guide/devices.txt); of 4, minors from 64 on are ttyS."""
FIRST_SERIAL = 64
USER_PROCESS = 7
PANES = re.compile(r"tmux\(|:.*:S\.")
"""How tmux and screen write themselves into utmp as a host."""
UTMP_32, UTMP_64 = struct.Struct("=hxxi32s4s32s256shhiii4i20s"), struct.Struct("=hxxi32s4s32s256shhqqq4i20s4x")
"""utmp(5): 384 bytes, and 400 on machines that never had 32 bits (glibc's bits/utmp.h)."""
WITHOUT_32 = ("aarch64", "arm64", "riscv64", "loongarch64")
UTMP_MOST = 2**20


class TerminalProcess(NamedTuple):
    """A process as in /proc/PID/stat; `line`: its terminal below /dev, "" if it has none."""

    pid: int
    name: str
    parent: int
    session: int
    line: str


class Login(NamedTuple):
    """A login in utmp."""

    pid: int
    line: str
    host: str


class SessionProbe:
    """Reads sessions, and keeps the latest input of terminals that are closed by now."""

    def __init__(self, around: HostView) -> None:
        self._around = around
        self._latest: float | None = None

    def look(self, now: float) -> ProbeResult:
        """Return the age of the latest input and the open sessions, at `now` (Unix seconds).

        Until a terminal was seen, the age counts from the first call, because a user may have left just before it.
        """
        processes = list_terminal_processes(self._around)
        if not processes:
            return ProbeResult({}, (INPUT_AGE, CONNECTIONS), ("processes cannot be seen here: user sessions are not measured",))
        persons = [one for one in processes.values() if is_person(one, processes)]
        terminals = {one.line: one.pid for one in persons}
        if int(FIRST_PID) not in processes:
            panes = {one.line for one in processes.values() if one.line} - terminals.keys()
            logins = (one for one in list_logins(self._around) if one.line not in panes and not PANES.match(one.host))
            terminals.update({one.line: one.pid for one in logins if one.line not in terminals})
        typed = [at for line, pid in terminals.items() for at in self._find_last_input(line, pid)]
        sessions = {
            self._name_session(one, processes) for one in persons if one.pid != int(FIRST_PID)
        } | self._list_ssh_sessions(processes)
        sessions |= terminals.keys() - {one.line for one in persons}
        if self._latest is None and not typed:
            self._latest = now
        self._latest = max([*typed, *([] if self._latest is None else [self._latest])])
        return ProbeResult({INPUT_AGE: max(0.0, now - self._latest), CONNECTIONS: float(len(sessions))})

    def _find_last_input(self, line: str, pid: int) -> Iterable[float]:
        """Yield when a terminal was last read from.

        A container has its own terminals with the same names.
        """
        for path in (self._around.build_path("proc", str(pid), "root", "dev", line), self._around.build_path("dev", line)):
            with contextlib.suppress(OSError):
                yield path.stat().st_atime
                return

    def _name_session(self, one: TerminalProcess, processes: Mapping[int, TerminalProcess]) -> int | str:
        """Return one id for all terminals of an SSH connection; any other terminal is a session by itself."""
        over = [above.pid for above in list_ancestors(one, processes) if above.name in SSH]
        return next((pid for pid in over if self._is_connection(pid)), one.pid)

    def _list_ssh_sessions(self, processes: Mapping[int, TerminalProcess]) -> set[int | str]:
        return {one.pid for one in processes.values() if one.name in SSH and self._is_connection(one.pid)}

    def _is_connection(self, pid: int) -> bool:
        """Return whether an SSH server process serves a user: "sshd: anna@pts/0", "sshd: anna@notty".

        Others wait or monitor.
        """
        title = read_text(self._around.build_path("proc", str(pid), "cmdline")) or ""
        return "@" in title and title.partition(":")[0] in SSH


def write_to_terminals(around: HostView, text: str) -> int:
    """Write one line to every terminal that may have a user, and return how many took it."""
    processes = list_terminal_processes(around)
    terminals = {one.line for one in processes.values() if one.line and one.pid == one.session and one.name not in PROMPTS}
    return sum(_write_terminal(around.build_path("dev", name), f"\r\n{text}\r\n".encode()) for name in terminals)


def _write_terminal(path: Path, data: bytes) -> bool:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.write(handle, data) > 0
    except OSError:
        return False
    finally:
        os.close(handle)


def is_person(one: TerminalProcess, processes: Mapping[int, TerminalProcess]) -> bool:
    """Return whether this is the first process of a terminal that may have a user."""
    if not one.line or one.pid != one.session or one.name in PROMPTS:
        return False
    return not any(above.name.startswith(MULTIPLEXERS) for above in list_ancestors(one, processes))


def list_ancestors(one: TerminalProcess, processes: Mapping[int, TerminalProcess]) -> list[TerminalProcess]:
    """Return all ancestors of `one`, nearest first."""
    above: list[TerminalProcess] = []
    while one.parent in processes and len(above) < len(processes):
        one = processes[one.parent]
        above.append(one)
    return above


def list_terminal_processes(around: HostView) -> dict[int, TerminalProcess]:
    """Return all visible processes by pid; none if there is no /proc."""
    try:
        numbers = [name for name in os.listdir(around.build_path("proc")) if name.isdigit()]  # noqa: PTH208 - names of thousands
    except OSError:
        return {}
    read = (_parse_stat(int(name), read_text(around.build_path("proc", name, "stat"))) for name in numbers)
    return {one.pid: one for one in read if one is not None}


def _parse_stat(pid: int, stat: str | None) -> TerminalProcess | None:
    head, _, rest = (stat or "").rpartition(")")
    fields = rest.split()
    try:
        parent, session, device = int(fields[1]), int(fields[3]), int(fields[4])
    except (IndexError, ValueError):
        return None
    return TerminalProcess(pid, head.partition("(")[2], parent, session, format_terminal(device))


def format_terminal(device: int) -> str:
    """Return a terminal's name below /dev for its number in /proc/PID/stat (proc(5), tty_nr); "" if none or unknown."""
    major, minor = device >> 8 & 0xFFF, device & 0xFF | device >> 12 & 0xFFF00
    if major == PTS:
        return f"pts/{minor}"
    if major == CONSOLE and 0 < minor < FIRST_SERIAL:
        return f"tty{minor}"
    if major == CONSOLE and minor >= FIRST_SERIAL:
        return f"ttyS{minor - FIRST_SERIAL}"
    first = FIRST_SERIAL if major == 204 else 0  # noqa: PLR2004 - ttyAMA begin at 64, as ttyS do
    return f"{SERIALS[major]}{minor - first}" if major in SERIALS and minor >= first else ""


def list_logins(around: HostView) -> list[Login]:
    """Return the logins in utmp, if it exists: newer systems have none."""
    for path in (around.build_path("run", "utmp"), around.build_path("var", "run", "utmp")):
        with contextlib.suppress(OSError), path.open("rb") as file:
            return parse_utmp(file.read(UTMP_MOST), platform.machine())
    return []


def parse_utmp(data: bytes, machine: str) -> list[Login]:
    """Parse the user entries of a utmp file; a truncated one at its end is left out.

    Host and line are untrusted text.
    """
    shape = UTMP_64 if machine in WITHOUT_32 else UTMP_32
    entries = (shape.unpack_from(data, at) for at in range(0, len(data) - shape.size + 1, shape.size))
    logins = [
        Login(entry[1], _decode_field(entry[2]), _decode_field(entry[5])) for entry in entries if entry[0] == USER_PROCESS
    ]
    return [one for one in logins if re.fullmatch(r"(pts/|tty[A-Z]*|hvc)\d{1,6}", one.line)]


def _decode_field(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")
