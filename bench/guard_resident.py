"""A watchdog that stays: memory, and its share of a core. Part of `bench.guard`.

It watches EC2 of `bench.guard_replay` at the interval that it is asked about, for six minutes: CloudWatch has a new value every
five, so that rounds that ask for one and rounds that do not are counted as they come. The start is left out.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.guard_custodian import HISTORY, SETTINGS, prepared, served
from bench.interleaved import compiled, costguard
from bench.measured import Measured

INSTANCES, WARM_S, ROUNDS = 1000, 30, 5
INTERVAL_S = 60
"""WARM_S is half of it, so that no round is cut; ROUNDS times it are one bucket of CloudWatch."""
MOST_MB, MOST_SHARE = 100.0, 0.006
MB_OF_KIB = 1024 / 1e6


def resident(
    *, instances: int = INSTANCES, rounds: int = ROUNDS, interval_s: int = INTERVAL_S, warm_s: int = WARM_S
) -> Iterator[Measured]:
    """Memory and CPU of `costguard watch`, once it has run for a while."""
    compiled()
    with TemporaryDirectory() as name, served(instances, 0) as (aws, _):
        folder, environ = Path(name), {**aws, "HOME": name}
        settings = folder / "costguard.toml"
        settings.write_text(SETTINGS.format(ledger=prepared(folder, environ, HISTORY)), encoding="utf-8")
        command = [*costguard(), "--config", str(settings), "watch", "--interval", f"{interval_s}s"]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ)
        try:
            time.sleep(warm_s)
            before = _cpu_s(child.pid)
            time.sleep(rounds * interval_s)
            spent, now_mb, most_mb = _cpu_s(child.pid) - before, *_memory_mb(child.pid)
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait()
    a_round = spent / rounds
    share = a_round / interval_s
    each = f"watchdog over {instances:,} EC2 instances"
    yield Measured(
        what=f"{each}: memory, MB (most: {most_mb:.0f})", target="< 100", reached=f"{now_mb:.0f}", met=most_mb < MOST_MB
    )
    yield Measured(
        what=f"{each}: share of a core at {interval_s} s ({a_round:.2f} s a round)",
        target="<= 0.6 %",
        reached=f"{share:.2%}",
        met=share <= MOST_SHARE,
    )


def _cpu_s(pid: int) -> float:
    """User and system seconds of a process so far, of Linux."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> tuple[float, float]:
    """What a process holds now, and the most that it held."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    said = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return int(said["VmRSS"]) * MB_OF_KIB, int(said["VmHWM"]) * MB_OF_KIB
