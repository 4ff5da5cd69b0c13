"""Cores used by the processes that hold a GPU and all their descendants, including short-lived ones, and by busy others.

A tokeniser with one thread, on a machine with 128 cores, holds no GPU and is 0.8 % of the processors, which looks like rest. So
processes without a GPU count where those of one session (a shell, a service, and what it started) use more than half a core.

The kernel adds the time of an ended child to its parent once the parent waits for it, so the time of a tree is computed from
differences: what each member used since the last reading, plus what was added to a parent, less the part of that which was
already counted while the child lived. Example: a worker that was counted with 3 s ends after 5 s; its parent's children time
goes up by 5 s; 2 s are new.

A process first seen with 40 h of time starts at zero: the first reading gives no rate. A process that once belonged to a tree
belongs to it until it ends, also if its parent ended first and init adopted it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from costguard_agent.clock import CpuThrottle

PROC = Path("/proc")
INITIAL_NAMESPACE = "pid:[4026531836]"
"""What /proc/self/ns/pid is where no container stands between us and the machine (PROC_PID_INIT_INO of the kernel)."""
SHARE, HOLDERS_EVERY_S, KEPT_S = 0.001, 30.0, 120.0
"""Of a core, at most, for each of two ways through all processes; how long a value stands where one costs more than that."""
DEVICE, CONTROL = "/dev/nvidia", ("/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-caps")
SESSION_CORES_MIN = 0.5
"""Of processes without a GPU: what is less may be daemons, of which a machine at rest has dozens."""
KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of the kernel (include/linux/sched.h, 6.12), in the flags of /proc/PID/stat."""
DAEMONS = frozenset((
    "costguard-agent", "cron", "dbus-daemon", "dcgm-exporter", "nv-hostengine", "nvidia-persiste", "rsyslogd", "sshd",
    "supervisord", "systemd", "systemd-journal", "systemd-logind", "tini", "dumb-init",
))  # fmt: skip
"""Who runs beside every job and does not count for it (the kernel cuts names to 15 characters)."""


class ProcessTimes(NamedTuple):
    """One process: seconds of its own (`own_s`) and of its ended children (`children_s`); `began`: ticks since boot.

    `session`: 0 if it began outside this container.
    """

    pid: int
    parent: int
    began: int
    own_s: float
    children_s: float
    name: str = ""
    session: int = 0


Table = Mapping[int, ProcessTimes]


def compute_used_s(old_table: Table, new_table: Table, *, since_ticks: float) -> dict[int, float]:
    """Return the processor seconds of each process of `new_table` since `old_table`, read at `since_ticks`; pure.

    Those of an ended process count for its nearest living ancestor.
    """
    used, added = {}, {}
    for pid, now in new_table.items():
        then = old_table.get(pid)
        if then is not None and then.began == now.began:
            used[pid] = max(0.0, now.own_s - then.own_s)
            added[pid] = max(0.0, now.children_s - then.children_s)
        elif now.began >= since_ticks:
            used[pid], added[pid] = now.own_s, now.children_s
    for process in old_table.values():
        if not _is_same_process(process, new_table.get(process.pid)):
            heir = _find_heir(process, old_table, new_table)
            if heir in added:
                added[heir] -= process.own_s + process.children_s
    return {pid: seconds + max(0.0, added[pid]) for pid, seconds in used.items()}


def find_descendants(table: Table, roots: Iterable[int]) -> set[int]:
    """Return `roots` and all their descendants, by current parents; pure."""
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    pids: set[int] = set()
    left = [pid for pid in roots if pid in table]
    while left:
        pid = left.pop()
        if pid not in pids:
            pids.add(pid)
            left.extend(children.get(pid, ()))
    return pids


def select_busy_sessions(table: Table, used: Mapping[int, float], over_s: float) -> set[int]:
    """Return the processes of those sessions that took more than SESSION_CORES_MIN of `over_s` seconds; pure.

    `used`: processor seconds by pid.
    """
    by_session: dict[int, float] = {}
    job_pids = {pid for pid in used if table[pid].name not in DAEMONS}
    for pid in job_pids:
        by_session[table[pid].session] = by_session.get(table[pid].session, 0.0) + used[pid]
    return {pid for pid in job_pids if by_session[table[pid].session] > SESSION_CORES_MIN * over_s}


class GpuProcessTrees:
    """The trees of the processes that hold a GPU, and the sessions of those that hold none, measured repeatedly."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._tick = os.sysconf("SC_CLK_TCK")
        self.contained = _read_link(proc / "self" / "ns" / "pid") != INITIAL_NAMESPACE
        self._pace, self._finding = CpuThrottle(0.0, SHARE), CpuThrottle(HOLDERS_EVERY_S, SHARE)
        self._before: dict[int, ProcessTimes] = {}
        self._before_s = -1.0
        self._cores: float | None = None
        self._counted: dict[int, float] = {}
        self._members: dict[int, int] = {}
        self._found: frozenset[int] | None = None
        self.troubles: tuple[str, ...] = ()

    def look(self, at_s: float, pids: frozenset[int] | None, *, gpus: bool) -> float | None:
        """Return the cores that jobs use since the last call, `at_s` seconds after boot; None if unknown or without a GPU.

        `pids`: holders by NVML, which uses the machine's pids; inside a container they are not usable.
        """
        if not (gpus or pids):
            return None
        if self._pace.is_due(at_s):
            self._pace.run_measured(at_s, lambda: self._measure(at_s, None if self.contained else pids))
        return self._cores if at_s - self._before_s <= KEPT_S else None

    def forget(self) -> None:
        """Discard the last reading after a gap; the next one is a first one."""
        self._before, self._before_s, self._cores, self._counted = {}, -1.0, None, {}

    def sum_cores(self, roots: Iterable[int]) -> float:
        """Return the part of the cores counted last that `roots` and their descendants use."""
        return sum(self._counted.get(pid, 0.0) for pid in find_descendants(self._before, roots))

    @property
    def members(self) -> tuple[int, ...]:
        """The pids counted last."""
        return tuple(self._members)

    def _measure(self, at_s: float, pids: frozenset[int] | None) -> None:
        table = read_processes(self._proc, self._tick)
        if not table:
            self.forget()
            return
        inside = find_descendants(table, pids if pids is not None else self._find_holders(at_s, table))
        inside |= {pid for pid, began in self._members.items() if pid in table and table[pid].began == began}
        inside = find_descendants(table, inside) - {os.getpid()}
        over_s = at_s - self._before_s
        if self._before_s >= 0 and over_s > 0:
            used = compute_used_s(self._before, table, since_ticks=self._before_s * self._tick)
            others = select_busy_sessions(table, {pid: used[pid] for pid in used.keys() - inside - {os.getpid()}}, over_s)
            self._counted = {pid: used[pid] / over_s for pid in used.keys() & (inside | others)}
            self._cores = sum(self._counted.values())
        self._members = {pid: table[pid].began for pid in inside}
        self._before, self._before_s = table, at_s

    def _find_holders(self, now_s: float, table: Table) -> frozenset[int]:
        """Return the pids that have a GPU device open.

        Processes that may not be inspected count as well, except known system daemons.
        """
        if self._found is None or self._finding.is_due(now_s):
            self._found = self._finding.run_measured(now_s, lambda: self._find_open_devices(table))
        return self._found

    def _find_open_devices(self, table: Table) -> frozenset[int]:
        holders, hidden = set(), set()
        for pid, process in table.items():
            holds = is_holding_gpu(self._proc / str(pid) / "fd")
            if holds:
                holders.add(pid)
            elif holds is None and process.name not in DAEMONS and process.began > 0:
                hidden.add(pid)
        text = f"the processes on the GPUs cannot be identified: {len(hidden)} processes of other users count as GPU processes"
        self.troubles = (text,) if hidden else ()
        return frozenset(holders | hidden)


def read_processes(proc: Path, tick: int) -> dict[int, ProcessTimes]:
    """Return all visible processes; none if there is no /proc."""
    try:
        names = os.listdir(proc)  # noqa: PTH208 - thousands of names: no objects for them
    except OSError:
        return {}
    processes = (_read_process(f"{proc}/{name}/stat", tick) for name in names if name.isdigit())
    return {process.pid: process for process in processes if process is not None}


def is_holding_gpu(folder: Path) -> bool | None:
    """Return whether a process has a GPU open; None if it may not be inspected."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - as above
    except PermissionError:
        return None
    except OSError:
        return False
    links = (_read_link(folder / name) for name in names)
    return any(link.startswith(DEVICE) and not link.startswith(CONTROL) for link in links)


def _read_process(path: str, tick: int) -> ProcessTimes | None:
    """Read /proc/PID/stat (proc(5)); a name may contain spaces and brackets, so the fields begin after the last one."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(handle, 2048)
    except OSError:
        return None
    finally:
        os.close(handle)
    return parse_stat(text, tick)


def parse_stat(text: bytes, tick: int) -> ProcessTimes | None:
    """Parse one line of /proc/PID/stat; None if it is malformed, or a thread of the kernel."""
    opened, closed = text.find(b"("), text.rfind(b")")
    fields = text[closed + 2 :].split(None, 21)
    if opened < 1 or len(fields) < 20:  # noqa: PLR2004 - up to starttime
        return None
    try:
        user, system, user_ended, system_ended = (int(field) for field in fields[11:15])
        name = text[opened + 1 : closed].decode("utf-8", "replace")
        own_s, children_s = (user + system) / tick, (user_ended + system_ended) / tick
        if int(fields[6]) & KERNEL_THREAD:
            return None
        return ProcessTimes(int(text[:opened]), int(fields[1]), int(fields[19]), own_s, children_s, name, int(fields[3]))
    except ValueError:
        return None


def _read_link(path: Path) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - may be "pid:[1]", which is no path
    except OSError:
        return ""


def _is_same_process(one: ProcessTimes, two: ProcessTimes | None) -> bool:
    return two is not None and one.began == two.began


def _find_heir(process: ProcessTimes, old_table: Table, new_table: Table) -> int:
    """Return the pid that received an ended process's time: its nearest living ancestor; 0 if there is none."""
    visited_pids: set[int] = set()
    pid = process.parent
    while pid in old_table and pid not in visited_pids:
        if _is_same_process(old_table[pid], new_table.get(pid)):
            return pid
        visited_pids.add(pid)
        pid = old_table[pid].parent
    return 0
