"""Slurm's controller asks costguard before a job with GPUs starts, and ends its hold when it ends (docs/SLURM.md).

    PrologSlurmctld -> `python3 -m costguard_slurm prolog`: GPUs, time limit, account -> POST /v1/admit
        held: the job starts    refused: it is requeued and held, with the reason as its comment
    EpilogSlurmctld -> `python3 -m costguard_slurm epilog` -> POST /v1/admit/end

What the job has is read from `scontrol show job --details`. The hold's id is slurm-JOBID; a job that is requeued holds anew,
and each task of an array and component of a heterogeneous job has an id of its own (Slurm 22.05). Where scontrol, a setting
or costguard fails the job starts, and its admin comment says so (COSTGUARD_FAIL=closed holds it back). GPUs of which the kind,
number or price is not known are refused in any case. An epilog that cannot read the job ends nothing.

scontrol writes KEY=VALUE with blanks between, and what users type as it is: `--job-name="x TimeLimit=00:01:00"` states two time
limits. A job that states a field that counts twice, with two values, is refused. (`scontrol --json` is newer than 22.05, and
has another form in each version.) Python 3.9, no dependency.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Optional

from costguard_admission import HELD, REFUSED, AdmissionClient, Answer, clean_text, give_up, parse_hours, read_fail_policy

SCONTROL = "scontrol"
WITHIN_S = 10
DEVICE = r"(?:gres[:/])?(?P<plugin>gpu|shard|mps|tpu|npu|hpu|xpu|neuron|gaudi)"
DEVICE_LIKE = re.compile(rf"^{DEVICE}(?:[:=(]|$)")
DEVICES = re.compile(rf"^{DEVICE}(?::(?P<name>(?!\d+(?:\(|$))[A-Za-z0-9._+-]{{1,80}}))?(?:[:=](?P<count>\d{{1,6}}))?(?:\(.*)?$")
"""`gpu`, `shard` and `mps` are Slurm's own plug-ins; the others are names that sites give to devices without one."""
MIG_SUFFIX = re.compile(r"[._-]?\d+g\.\d+gb.*$")
"""Of the kind that Slurm gives a MIG device: a100_1g.5gb."""
MPS_SHARES = 100
"""Of one GPU. A shard counts as a whole one: how many of them share a GPU is not shown."""
TIME = re.compile(r"^(?:(?P<d>\d{1,5})-)?(?P<h>\d{1,2}):(?P<m>\d{2}):(?P<s>\d{2})$")
COMMENT_CHARS_MAX = 500
PROLOG, EPILOG = "prolog", "epilog"
ALWAYS_SHOWN = ("JobId", "UserId", "Account", "Restarts", "TimeLimit", "NumNodes")
"""Fields that scontrol writes of each job."""
REQUESTED, REQUESTED_BEFORE = "ReqTRES", "TRES"
"""The resources that a job asked for, in one of two fields: the second up to Slurm 22.05."""
ALLOCATED = "JOB_GRES"
"""All devices of the job, with their kinds, whatever it asked by: shown by --details, also where nothing is tracked (22.05)."""
TASKS_A_NODE = "NtasksPerN:B:S:C"
FIELDS = frozenset(
    (
        *(*ALWAYS_SHOWN, REQUESTED, REQUESTED_BEFORE, ALLOCATED, "AllocTRES", "NumTasks", "Socks/Node", TASKS_A_NODE),
        *("TresPerJob", "TresPerNode", "TresPerTask", "TresPerSocket"),
    )
)
RECORD = re.compile(r"^(?=JobId=\d+\s)", re.MULTILINE)


class JobUnreadError(ValueError):
    """The job, or a setting of this program, cannot be read: COSTGUARD_FAIL decides."""


class JobRefusedError(Exception):
    """What the job has is not known from what it states: refused whatever COSTGUARD_FAIL says."""


def main(words: list[str]) -> int:
    """Do what `words` says, for the job of the environment; return the exit code: 0: it may start."""
    if words not in ([PROLOG], [EPILOG]):
        sys.stderr.write("costguard_slurm: write prolog or epilog\n")
        return 2
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job.isdecimal():
        sys.stderr.write("costguard_slurm: SLURM_JOB_ID is not set: this is for PrologSlurmctld and EpilogSlurmctld\n")
        return 2
    return end_job(job, os.environ) if words == [EPILOG] else start_job(job, os.environ)


def start_job(job: str, environ: Mapping[str, str]) -> int:
    """Ask for the hold of a job. One that is refused is requeued and held, with the reason as its comment."""
    answer = admit_job(job, environ)
    if answer is None:
        return 0
    sys.stderr.write(f"costguard_slurm: job {job}: {answer.says}\n")
    if answer.outcome != HELD:
        _call(["update", f"JobId={job}", f"AdminComment={write_comment(answer.says)}"])
    if answer.may_launch:
        return 0
    _call(["requeuehold", job])
    return 1


def admit_job(job: str, environ: Mapping[str, str]) -> Optional[Answer]:  # noqa: UP045 - Python 3.9
    """Return what costguard says of a job, or the policy where it cannot be asked; None if the job has no GPU."""
    try:
        body = build_request(job, read_job(job), environ)
        return AdmissionClient.from_environment(environ).admit_rental(body) if body else None
    except JobRefusedError as error:
        return Answer(REFUSED, may_launch=False, says=str(error))
    except ValueError as error:
        return give_up(str(error), read_fail_policy(environ))


def write_comment(says: str) -> str:
    """Return the admin comment. It has no `=`: scontrol writes it beside the job's fields, where it must state none."""
    return f"costguard: {clean_text(says).replace('=', ':')}"[:COMMENT_CHARS_MAX]


def end_job(job: str, environ: Mapping[str, str]) -> int:
    """End the hold of a job; one that has none changes nothing. Without the job's fields its hold's id is not known."""
    try:
        client, hold = AdmissionClient.from_environment(environ), find_hold_id(job, read_job(job))
    except (JobRefusedError, ValueError) as error:
        sys.stderr.write(f"costguard_slurm: job {job}: {error}: no hold was ended, it counts until it expires\n")
        return 0
    client.end(hold, started=True)
    return 0


def build_request(job: str, fields: Mapping[str, str], environ: Mapping[str, str]) -> Optional[dict[str, object]]:  # noqa: UP045 - Python 3.9
    """Return the body of POST /v1/admit for a job; None if it has no GPU.

    Raises JobUnreadError if hours are none; JobRefusedError as find_gpus, or if nothing says which GPU.
    """
    nodes = parse_count(fields.get("NumNodes", "")) or 1
    name, count = find_gpus(fields, nodes)
    if count == 0:
        return None
    gpu = name or environ.get("COSTGUARD_GPU", "")
    if not gpu:
        raise JobRefusedError("the kind of its GPUs is not known: ask for one such as --gres=gpu:h100:8, or set COSTGUARD_GPU")
    even = count % nodes == 0
    body: dict[str, object] = {
        "gpu": gpu,
        "count": count // nodes if even else 1,
        "machines": nodes if even else count,
        "hours": parse_time_limit(fields.get("TimeLimit", "")) or find_hours(environ),
        "owner": fields.get("UserId", "").partition("(")[0],
        "labels": {"project": fields["Account"]} if fields.get("Account") not in (None, "", "(null)") else {},
        "provider": environ.get("COSTGUARD_PROVIDER", ""),
        "id": find_hold_id(job, fields),
    }
    return {key: value for key, value in body.items() if value}


def find_hours(environ: Mapping[str, str]) -> float:
    """Return the hours of a job without a time limit. Raises JobUnreadError if COSTGUARD_HOURS states none."""
    try:
        return parse_hours(environ.get("COSTGUARD_HOURS", "24"))
    except ValueError as error:
        raise JobUnreadError(f"COSTGUARD_HOURS {error}") from None


def find_gpus(fields: Mapping[str, str], nodes: int) -> tuple[str, int]:
    """Return the kind and number of a job's GPUs: the most that one of its fields states.

    JOB_GRES=gpu:h100:16, ReqTRES=cpu=96,gres/gpu=16,gres/gpu:h100=16, TresPerNode=gres:gpu:h100:8 on two nodes (gres/gpu:h100:8
    since 23.11) and TresPerTask=gres:gpu:h100:1 with 16 tasks are (h100, 16). An exclusive job has more than it asked for
    (AllocTRES, which comes with ReqTRES alone, and JOB_GRES).

    Raises JobRefusedError for two kinds, and for GPUs a task or socket of which the number is not shown.
    """
    tracked = ("AllocTRES", REQUESTED) if REQUESTED in fields else (REQUESTED_BEFORE,)
    tasks = max(parse_count(fields.get("NumTasks", "")), nodes * parse_count(fields.get(TASKS_A_NODE, "").partition(":")[0]))
    factors = {ALLOCATED: 1, **dict.fromkeys(tracked, 1), "TresPerJob": 1, "TresPerNode": nodes, "TresPerTask": tasks}
    factors["TresPerSocket"] = nodes * parse_count(fields.get("Socks/Node", ""))
    kinds, most = set[str](), 0
    for key, factor in factors.items():
        stated_kinds, count = parse_gpus(fields.get(key, ""))
        kinds |= stated_kinds
        if not count or (key == "TresPerSocket" and most):
            continue  # a socket of which the job has no core gives it no GPU
        if not factor and not most:
            raise JobRefusedError(f"{key} states GPUs, and scontrol not how many of them: ask by --gpus or --gres")
        most = max(most, count * factor)
    if len(kinds) > 1:
        raise JobRefusedError(f"the job states two kinds of GPUs: {' and '.join(sorted(kinds))[:100]}; name one")
    return "".join(kinds), most


def parse_gpus(tres: str) -> tuple[set[str], int]:
    """Return the kinds and the number of GPUs in a list of resources. Raises JobRefusedError for one that cannot be read.

    A number with a kind is part of the one without: gres/gpu=8,gres/gpu:h100=8 are 8.
    """
    counts = dict[tuple[str, bool], int]()
    kinds = set[str]()
    for part in map(str.strip, tres.split(",")):
        match = DEVICES.match(part)
        if not match:
            if DEVICE_LIKE.match(part):
                raise JobRefusedError(f"its GPUs cannot be read: {part[:60]}")
            continue
        place, count = (match["plugin"], match["name"] is None), int(match["count"] or 1)
        counts[place] = counts.get(place, 0) + math.ceil(count / (MPS_SHARES if match["plugin"] == "mps" else 1))
        kinds |= {MIG_SUFFIX.sub("", match["name"])} - {""} if match["name"] and count else set()
    plugins = {plugin for plugin, _ in counts}
    return kinds, sum(max(counts.get((plugin, True), 0), counts.get((plugin, False), 0)) for plugin in plugins)


def parse_count(text: str) -> int:
    """Return the number that a field begins with, as in NumNodes=2-2; 0 for `*`, `N/A` and what is none."""
    digits = text.partition("-")[0]
    return int(digits) if digits.isdecimal() else 0


def parse_time_limit(text: str) -> float:
    """Return the hours of Slurm's DAYS-HH:MM:SS; 0.0 for UNLIMITED, and for what is none."""
    match = TIME.match(text.strip())
    if not match:
        return 0.0
    return int(match["d"] or 0) * 24 + int(match["h"]) + int(match["m"]) / 60 + int(match["s"]) / 3600


def find_hold_id(job: str, fields: Mapping[str, str]) -> str:
    """Return the id of a job's hold: each start of a job that is requeued has its own."""
    restarts = fields.get("Restarts", "")
    return f"slurm-{job}" + (f"-{restarts}" if restarts.isdecimal() and restarts != "0" else "")


def read_job(job: str) -> dict[str, str]:
    """Return the fields of a job. Raises JobUnreadError if scontrol does not show it, JobRefusedError as parse_job."""
    return parse_job(job, _call(["show", "job", "--oneliner", "--details", job]))


def parse_job(job: str, text: str) -> dict[str, str]:
    """Return the fields that count of one of the jobs that scontrol shows: of an array it shows each task.

    Raises JobUnreadError if the job is not among them, JobRefusedError if it states a field twice, or lacks one.
    """
    records = [record for record in RECORD.split(text) if record.split(None, 1)[:1] == [f"JobId={job}"]]
    if not records:
        raise JobUnreadError(f"scontrol does not show job {job}")
    fields: dict[str, str] = {}
    for part in " ".join(records).split():
        key, separator, value = part.partition("=")
        if separator and key in FIELDS and fields.setdefault(key, value) != value:
            raise JobRefusedError(f"the job states {key} twice: take it out of its name, account, comment or arguments")
    if len(records) > 1 or (REQUESTED in fields) == (REQUESTED_BEFORE in fields) or not fields.keys() >= set(ALWAYS_SHOWN):
        raise JobRefusedError("the job states fields of scontrol in its name, account, comment or arguments: take them out")
    return fields


def _call(words: list[str]) -> str:
    """Return what scontrol prints; "" if it fails."""
    try:
        process = subprocess.run(  # noqa: S603 - Slurm's own program
            [SCONTROL, *words], capture_output=True, text=True, errors="replace", check=False, timeout=WITHIN_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"costguard_slurm: scontrol {words[0]}: {type(error).__name__}\n")
        return ""
    if process.returncode:
        sys.stderr.write(f"costguard_slurm: scontrol {words[0]}: {process.stderr.strip()[:200]}\n")
    return process.stdout if process.returncode == 0 else ""
