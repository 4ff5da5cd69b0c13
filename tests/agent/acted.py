"""A machine that acts a labelled trace: files of /proc, /dev and SkyPilot, NVML's answers and a job's hints, as a trace says.

A trace has a value of each signal a minute. Minute m of it is what happens in the 60 seconds that end at m, so that the record
of an agent that ends there measures the same. Counters go on by the integral of their rates, in the kernel's own units.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from costguard.values.sample import (
    CONNECTIONS,
    CPU_CORES,
    DISK,
    GPU_BUSY_COUNT,
    GPU_MEMORY_USED,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_UTIL,
    HEARTBEAT,
    INPUT_AGE,
    NETWORK,
    PCIE,
    QUEUE_JOBS,
    STEP,
)

MINUTE_S = 60.0
GPUS, CORES = 8, 96
"""A p4d.24xlarge, whose A100s the traces are of."""
SECTOR, TICKS = 512, os.sysconf("SC_CLK_TCK")
JOB, FIRST_SHELL, SKYLET = 77, 200, 900
PTS = 136 << 8
LONG_AGO_S = 3 * 86400.0
NOT_NOW = 999
"""NVML_ERROR_UNKNOWN: this time the driver does not tell."""
FIRST_PID_SPACE = "pid:[4026531836]"


class Acted:
    """One machine. `minutes`: the trace; `began_s`: Unix seconds of its minute 0; `hints`: the socket of the agent."""

    def __init__(self, root: Path, nvml: Path, hints: Path, minutes: list[dict[str, float]], began_s: float) -> None:
        self._root, self._nvml, self._hints = root, nvml, str(hints)
        self._minutes, self._began_s = minutes, began_s
        self._at_s, self._minute = -MINUTE_S, -1
        self._counted = dict.fromkeys((CPU_CORES, NETWORK, DISK), 0.0)
        self._shells = 0
        self._last: Mapping[str, float] = {}
        (root / "proc/self/ns").mkdir(parents=True)
        (root / "proc/self/ns/pid").symlink_to(FIRST_PID_SPACE)
        (root / "sys/block/nvme0n1").mkdir(parents=True)
        (root / "sys/class/net/eth0/device").mkdir(parents=True)
        self._file("proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 700000 kB\n")
        self._process(1, "systemd", parent=0)
        self._process(JOB, "python")
        self._begin(0)
        self._counters()

    def to(self, at_s: float) -> None:
        """Go on to `at_s` seconds after the trace's minute 0."""
        while self._at_s < at_s:
            ends = self._minute * MINUTE_S
            until = min(at_s, ends) if ends > self._at_s else at_s
            if ends <= self._at_s and self._minute + 1 < len(self._minutes):
                self._begin(self._minute + 1)
                continue
            for name in self._counted:
                self._counted[name] += self._now.get(name, 0.0) * (until - self._at_s)
            self._at_s = until
        self._counters()

    @property
    def over(self) -> bool:
        """Whether all of the trace was acted."""
        return self._at_s > (len(self._minutes) - 1) * MINUTE_S

    def _begin(self, minute: int) -> None:
        self._minute, self._now = minute, self._minutes[minute]
        self._gpus()
        self._people()
        self._hint()
        if self._now.get(QUEUE_JOBS) != self._last.get(QUEUE_JOBS):
            self._queue(round(self._now.get(QUEUE_JOBS, 0)))
        self._last = self._now

    def _gpus(self) -> None:
        now = self._now
        busy = round(now.get(GPU_BUSY_COUNT, GPUS))
        common = {
            "limit": now[GPU_POWER_LIMIT], "used": now.get(GPU_MEMORY_USED, 30.0), "total": 100, "heat": 40,
            "pcie": now.get(PCIE, 0.0) / (2 * GPUS) / 1e3, "pids": [JOB],
        }  # fmt: skip
        told = [
            {**common, "util": round(now.get(GPU_UTIL, 0.0)) if n < busy else 0, "power": now[GPU_POWER_BUSIEST] - n * 0.1}
            for n in range(GPUS)
        ]
        if GPU_UTIL not in now:
            told = [{**one, "errors": {"nvmlDeviceGetUtilizationRates": NOT_NOW}} for one in told]
        fresh = self._nvml.with_suffix(".new")
        fresh.write_text(json.dumps({"gpus": told}))
        moment = round((self._began_s + self._minute * MINUTE_S) * 1e9)
        os.utime(fresh, ns=(moment, moment))
        fresh.replace(self._nvml)

    def _people(self) -> None:
        """Shells at terminals; the first was typed into as the trace says, the others long ago."""
        shells = round(self._now.get(CONNECTIONS, 0))
        for number in range(max(shells, self._shells)):
            pid, terminal = FIRST_SHELL + number, f"dev/pts/{number}"
            if number >= shells:
                shutil.rmtree(self._root / f"proc/{pid}")
                (self._root / terminal).unlink()
                continue
            if number >= self._shells:
                self._process(pid, "bash", tty=PTS | number)
                self._file(terminal, "")
            age_s = self._now.get(INPUT_AGE, LONG_AGO_S) if number == 0 else LONG_AGO_S
            typed_s = self._began_s + self._minute * MINUTE_S - age_s
            os.utime(self._root / terminal, (typed_s, typed_s))
        self._shells = shells

    def _hint(self) -> None:
        """A job tells the agent of a step when it made one, and that it lives."""
        if STEP in self._now and self._now[STEP] != self._last.get(STEP):
            self._say({"hint": "progress", "step": self._now[STEP]})
        if HEARTBEAT in self._now and self._now[HEARTBEAT] != self._last.get(HEARTBEAT):
            self._say({"hint": "beat"})

    def _say(self, hint: Mapping[str, object]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours, suppress(FileNotFoundError):
            ours.sendto(json.dumps(hint).encode(), self._hints)

    def _queue(self, running: int) -> None:
        path = self._file("home/ubuntu/.sky/jobs.db", "")
        path.unlink()
        with sqlite3.connect(path) as table:
            table.execute("CREATE TABLE jobs (job_id INTEGER PRIMARY KEY, status TEXT)")
            table.executemany("INSERT INTO jobs (status) VALUES (?)", [("RUNNING",)] * running)
        table.close()
        self._process(SKYLET, "python", words=("python", "-m", "sky.skylet.skylet"))

    def _counters(self) -> None:
        seconds, received, disk = (math.floor(self._counted[name]) for name in (CPU_CORES, NETWORK, DISK))
        ticks = math.floor(self._counted[CPU_CORES] * TICKS)
        self._file("proc/stat", f"cpu  {ticks} 0 0 {CORES * TICKS + seconds} 5 0 0 0 0 0\n")
        self._file(f"proc/{JOB}/stat", _stat(JOB, "python", ticks=ticks))
        self._file("proc/self/net/dev", f"Inter-|\n face |\n  eth0: {received} 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\n")
        self._file("proc/diskstats", f" 8 0 nvme0n1 1 0 0 1 1 0 {disk // SECTOR} 1 0 0 0\n")

    def _process(self, pid: int, name: str, *, parent: int = 1, tty: int = 0, words: tuple[str, ...] = ()) -> None:
        self._file(f"proc/{pid}/stat", _stat(pid, name, parent=parent, tty=tty))
        self._file(f"proc/{pid}/cmdline", "\0".join(words or (name,)) + "\0")

    def _file(self, path: str, text: str) -> Path:
        made = self._root / path
        try:
            made.write_text(text)
        except FileNotFoundError:
            made.parent.mkdir(parents=True)
            made.write_text(text)
        return made


def _stat(pid: int, name: str, *, parent: int = 1, tty: int = 0, ticks: int = 0) -> str:
    """A line of /proc/PID/stat (proc(5)) of a process that leads its session."""
    return f"{pid} ({name}) S {parent} {pid} {pid} {tty} -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 100 0\n"
