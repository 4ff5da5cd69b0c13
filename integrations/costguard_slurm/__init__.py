"""Slurm's controller asks costguard before a job with GPUs starts, and ends its hold when it ends (docs/SLURM.md).

    PrologSlurmctld -> `python3 -m costguard_slurm prolog`: GPUs, time limit, account -> POST /v1/admit
        held: the job starts    refused: it is requeued and held, with the reason as its comment
    EpilogSlurmctld -> `python3 -m costguard_slurm epilog` -> POST /v1/admit/end

What the job has is read from `scontrol show job`. The hold's id is slurm-JOBID; a job that is requeued holds anew. Where the
job, a setting or costguard cannot be read the job starts, and its admin comment says so (COSTGUARD_FAIL=closed holds it back).
An epilog that cannot read the job ends nothing.

scontrol writes KEY=VALUE with blanks between, and what users type as it is: `--job-name="x TimeLimit=00:01:00"` states two time
limits. A job that states a field that counts twice, with two values, is refused. (`scontrol --json` is newer than 22.05, and
has another form in each version.) Python 3.9, no dependency.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Optional

from costguard_admission import HELD, REFUSED, AdmissionClient, Answer, give_up, read_fail_policy

SCONTROL = "scontrol"
WITHIN_S = 10
GPUS = re.compile(r"^gres[:/]gpu(?::(?P<name>[A-Za-z][A-Za-z0-9._-]*))?(?:[:=](?P<count>\d{1,6}))?$")
HOURS_MAX = 8784.0
TIME = re.compile(r"^(?:(?P<d>\d{1,5})-)?(?P<h>\d{1,2}):(?P<m>\d{2}):(?P<s>\d{2})$")
COMMENT_CHARS_MAX = 500
PROLOG, EPILOG = "prolog", "epilog"
ALWAYS_SHOWN = ("JobId", "UserId", "Account", "Restarts", "TimeLimit", "NumNodes")
"""Fields that scontrol writes of each job."""
REQUESTED, REQUESTED_BEFORE = "ReqTRES", "TRES"
"""The resources that a job asked for, in one of two fields: the second up to Slurm 22.05."""
FIELDS = frozenset((*ALWAYS_SHOWN, REQUESTED, REQUESTED_BEFORE, "AllocTRES", "TresPerJob", "TresPerNode"))
RECORD = re.compile(r"^(?=JobId=\d+\s)", re.MULTILINE)


class JobUnreadError(ValueError):
    """The job, or a setting of this program, cannot be read: COSTGUARD_FAIL decides."""


class JobRefusedError(Exception):
    """The job states a field twice, so that what it has is not known: refused whatever COSTGUARD_FAIL says."""


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
        return AdmissionClient.from_environment(environ).admit(body) if body else None
    except JobRefusedError as error:
        return Answer(REFUSED, may_launch=False, says=str(error))
    except ValueError as error:
        return give_up(str(error), read_fail_policy(environ))


def write_comment(says: str) -> str:
    """Return the admin comment. It has no `=`: scontrol writes it beside the job's fields, where it must state none."""
    plain = "".join(letter if letter.isprintable() else " " for letter in says).replace("=", ":")
    return f"costguard: {plain}"[:COMMENT_CHARS_MAX]


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

    Raises JobUnreadError if neither the job nor a setting says which GPU, or hours are none; JobRefusedError as find_gpus.
    """
    node_text = fields.get("NumNodes", "").partition("-")[0]
    nodes = int(node_text) if node_text.isdecimal() and node_text != "0" else 1
    name, count = find_gpus(fields, nodes)
    if count == 0:
        return None
    gpu = name or environ.get("COSTGUARD_GPU", "")
    if not gpu:
        raise JobUnreadError("the kind of its GPUs is not known: ask for one such as --gres=gpu:h100:8, or set COSTGUARD_GPU")
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
    text = environ.get("COSTGUARD_HOURS", "24")
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours < HOURS_MAX:
        raise JobUnreadError(f"COSTGUARD_HOURS must be hours such as 24, not {text[:40]!r}")
    return hours


def find_gpus(fields: Mapping[str, str], nodes: int) -> tuple[str, int]:
    """Return the kind and number of a job's GPUs: of its trackable resources, else of what it asked for, a node or in all.

    Slurm tracks GPUs only where AccountingStorageTRES names them. ReqTRES=cpu=96,gres/gpu=8,gres/gpu:h100=8 is (h100, 8);
    TresPerNode=gres:gpu:t4:4 (22.05; gres/gpu:t4:4 since 23.11) on two nodes is (t4, 8). AllocTRES comes with ReqTRES alone.

    Raises JobRefusedError where TresPerJob and TresPerNode state two kinds: users type one of them into a comment.
    """
    for key in (REQUESTED, "AllocTRES") if REQUESTED in fields else (REQUESTED_BEFORE,):
        name, count = parse_gpus(fields.get(key, ""))
        if count:
            return name, count
    (name, count), (name_a_node, count_a_node) = (parse_gpus(fields.get(key, "")) for key in ("TresPerJob", "TresPerNode"))
    if name and name_a_node and name != name_a_node:
        raise JobRefusedError(f"the job states two kinds of GPUs: {name[:40]} and {name_a_node[:40]}; name one")
    return name or name_a_node, max(count, count_a_node * nodes)


def parse_gpus(tres: str) -> tuple[str, int]:
    """Return the kind and number of GPUs in a list of resources; ("", 0) if it has none."""
    name, count = "", 0
    for part in tres.split(","):
        match = GPUS.match(part.strip())
        if match:
            name, count = match["name"] or name, max(count, int(match["count"] or 1))
    return name, count


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
    return parse_job(job, _call(["show", "job", "--oneliner", job]))


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
