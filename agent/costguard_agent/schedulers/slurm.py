"""Slurm: the jobs that run on this node, and those that wait for a partition it belongs to.

It is queried in text (`squeue --format`), which is the same since Slurm 2; `--json` needs a plug-in and changed its format in
21.08, 22.05 and 23.02 (job_state became a list). A held job, or one whose dependency can never be met, waits for a person and
not for this machine, so it does not count. Without `--Node`, sinfo also lists partitions that have no such node (seen with
22.05.8, with which all of this was tested). Sources: squeue(1), sinfo(1), Slurm 24.05.
"""

from __future__ import annotations

import re
import socket

from costguard_agent import host
from costguard_agent.host import HostView
from costguard_agent.http_client import UnansweredError

NAME = "Slurm"
HERE, WAITING = "R,CF,S", "PD"
FOR_A_PERSON = ("JobHeldUser", "JobHeldAdmin", "DependencyNeverSatisfied")
NODE = re.compile(r"[A-Za-z0-9._-]{1,255}")
WITHIN_S = 10.0


def is_present(around: HostView) -> bool:
    """Return whether its command is installed."""
    return host.find_command("squeue", around) is not None


def count_jobs(around: HostView) -> int:
    """Return the number of jobs running here or waiting for a partition of this node; raises UnansweredError."""
    squeue, sinfo = (host.find_command(name, around) for name in ("squeue", "sinfo"))
    if squeue is None or sinfo is None:
        raise UnansweredError("squeue is installed, but sinfo is not")
    node = _find_node_name(around)
    rows = [squeue, "--noheader", "--format=%T|%r"]
    words = [sinfo, "--noheader", "--Node", f"--nodes={node}", "--format=%R"]
    partitions = host.read_output(words, around, within_s=WITHIN_S).split()
    if not partitions:
        raise UnansweredError(f"{node} is not a node of this cluster; set SLURMD_NODENAME to its name")
    node_jobs = host.read_output([*rows, f"--nodelist={node}", f"--states={HERE}"], around, within_s=WITHIN_S)
    queued = [*rows, f"--partition={','.join(dict.fromkeys(partitions))}", f"--states={WAITING}"]
    waiting = host.read_output(queued, around, within_s=WITHIN_S)
    return len(node_jobs.splitlines()) + sum(_waits_for_us(row) for row in waiting.splitlines())


def _find_node_name(around: HostView) -> str:
    name = around.env.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    if not NODE.fullmatch(name):
        raise UnansweredError("the name of this node contains invalid characters")
    return name


def _waits_for_us(row: str) -> bool:
    return bool(row.strip()) and row.partition("|")[2].strip() not in FOR_A_PERSON
