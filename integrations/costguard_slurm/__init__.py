"""Slurm's controller asks costguard before a job with GPUs starts, and ends its hold when it ends (docs/SLURM.md).

    PrologSlurmctld -> `python3 -m costguard_slurm prolog`: GPUs, time limit, account -> POST /v1/admit
        held: the job starts    refused: it is requeued and held, with the reason as its comment
    EpilogSlurmctld -> `python3 -m costguard_slurm epilog` -> POST /v1/admit/end

What the job has is read from `scontrol show job`. The hold's id is slurm-JOBID; a job that is requeued holds anew. Where
costguard cannot be asked the job starts, and its admin comment says so (COSTGUARD_FAIL=closed holds it back). Python 3.9, no
dependency.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Optional

from costguard_admission import HELD, AdmissionClient

SCONTROL = "scontrol"
WITHIN_S = 10
GPUS = re.compile(r"^gres[:/]gpu(?::(?P<name>[A-Za-z][A-Za-z0-9._-]*))?(?:[:=](?P<count>\d{1,6}))?$")
TIME = re.compile(r"^(?:(?P<d>\d{1,5})-)?(?P<h>\d{1,2}):(?P<m>\d{2}):(?P<s>\d{2})$")
COMMENT_CHARS_MAX = 500
PROLOG, EPILOG = "prolog", "epilog"


def main(words: list[str]) -> int:
    """Do what `words` says, for the job of the environment; return the exit code: 0: it may start."""
    if words not in ([PROLOG], [EPILOG]):
        sys.stderr.write("costguard_slurm: write prolog or epilog\n")
        return 2
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job.isdecimal():
        sys.stderr.write("costguard_slurm: SLURM_JOB_ID is not set: this is for PrologSlurmctld and EpilogSlurmctld\n")
        return 2
    try:
        client = AdmissionClient.from_environment()
    except ValueError as error:
        sys.stderr.write(f"costguard_slurm: {error}: the job is not checked (fails open)\n")
        return 0
    return end_job(job, client) if words == [EPILOG] else start_job(job, client, os.environ)


def start_job(job: str, client: AdmissionClient, environ: Mapping[str, str]) -> int:
    """Ask for the hold of a job. One that is refused is requeued and held, with the reason as its comment."""
    body = build_request(job, read_job(job), environ)
    if body is None:
        return 0
    answer = client.admit(body)
    sys.stderr.write(f"costguard_slurm: job {job}: {answer.says}\n")
    if answer.outcome != HELD:
        comment = "".join(letter if letter.isprintable() else " " for letter in answer.says)[:COMMENT_CHARS_MAX]
        _call(["update", f"JobId={job}", f"AdminComment=costguard: {comment}"])
    if answer.may_launch:
        return 0
    _call(["requeuehold", job])
    return 1


def end_job(job: str, client: AdmissionClient) -> int:
    """End the hold of a job; one that has none changes nothing."""
    client.end(find_hold_id(job, read_job(job)), started=True)
    return 0


def build_request(job: str, fields: Mapping[str, str], environ: Mapping[str, str]) -> Optional[dict[str, object]]:  # noqa: UP045 - Python 3.9
    """Return the body of POST /v1/admit for a job; None if it has no GPU."""
    stated = fields.get("NumNodes", "").partition("-")[0]
    nodes = int(stated) if stated.isdecimal() and stated != "0" else 1
    name, count = find_gpus(fields, nodes)
    if count == 0:
        return None
    even = count % nodes == 0
    body: dict[str, object] = {
        "gpu": name or environ.get("COSTGUARD_GPU", ""),
        "count": count // nodes if even else 1,
        "machines": nodes if even else count,
        "hours": parse_time_limit(fields.get("TimeLimit", "")) or float(environ.get("COSTGUARD_HOURS", "24")),
        "owner": fields.get("UserId", "").partition("(")[0],
        "labels": {"project": fields["Account"]} if fields.get("Account") not in (None, "", "(null)") else {},
        "provider": environ.get("COSTGUARD_PROVIDER", ""),
        "id": find_hold_id(job, fields),
    }
    return {key: value for key, value in body.items() if value}


def find_gpus(fields: Mapping[str, str], nodes: int) -> tuple[str, int]:
    """Return the kind and number of a job's GPUs: of its trackable resources, else of what it asked for, a node or in all.

    Slurm tracks GPUs only where AccountingStorageTRES names them. ReqTRES=cpu=96,gres/gpu=8,gres/gpu:h100=8 is (h100, 8);
    TresPerNode=gres:gpu:t4:4 (22.05; gres/gpu:t4:4 since 23.11) on two nodes is (t4, 8).
    """
    for key, times in (("ReqTRES", 1), ("TRES", 1), ("AllocTRES", 1), ("TresPerJob", 1), ("TresPerNode", nodes)):
        name, count = parse_gpus(fields.get(key, ""))
        if count:
            return name, count * times
    return "", 0


def parse_gpus(tres: str) -> tuple[str, int]:
    """Return the kind and number of GPUs in a list of resources; ("", 0) if it has none."""
    name, count = "", 0
    for part in tres.split(","):
        found = GPUS.match(part.strip())
        if found:
            name, count = found["name"] or name, max(count, int(found["count"] or 1))
    return name, count


def parse_time_limit(text: str) -> float:
    """Return the hours of Slurm's DAYS-HH:MM:SS; 0.0 for UNLIMITED, and for what is none."""
    found = TIME.match(text.strip())
    if not found:
        return 0.0
    return int(found["d"] or 0) * 24 + int(found["h"]) + int(found["m"]) / 60 + int(found["s"]) / 3600


def find_hold_id(job: str, fields: Mapping[str, str]) -> str:
    """Return the id of a job's hold: each start of a job that is requeued has its own."""
    restarts = fields.get("Restarts", "")
    return f"slurm-{job}" + (f"-{restarts}" if restarts.isdecimal() and restarts != "0" else "")


def read_job(job: str) -> dict[str, str]:
    """Return what `scontrol show job` says of a job; empty if it cannot be asked."""
    text = _call(["show", "job", "--oneliner", job])
    return dict(part.split("=", 1) for part in text.split() if "=" in part)


def _call(words: list[str]) -> str:
    """Return what scontrol prints; "" if it fails."""
    try:
        came = subprocess.run([SCONTROL, *words], capture_output=True, text=True, check=False, timeout=WITHIN_S)  # noqa: S603 - Slurm's own program
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"costguard_slurm: scontrol {words[0]}: {type(error).__name__}\n")
        return ""
    if came.returncode:
        sys.stderr.write(f"costguard_slurm: scontrol {words[0]}: {came.stderr.strip()[:200]}\n")
    return came.stdout if came.returncode == 0 else ""
