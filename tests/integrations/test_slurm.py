"""The controller's prolog and epilog of Slurm, as processes, with a `scontrol` of their own and a real watchdog."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from costguard_admission import AdmissionClient
from costguard_slurm import JobRefusedError, JobUnreadError, build_request, find_gpus, parse_job, parse_time_limit

from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.holds import load_open_holds
from tests.web.stations import Station, station

ROOT = Path(__file__).parents[2]
BUDGET = '[[budget]]\nname = "vision"\ncap = "100 USD"\nmatch = { labels = { project = ["vision"] } }\n'
JOB = (
    "JobId=7 JobName=train UserId=ada(1000) Account=vision Restarts={restarts} TimeLimit={limit} NumNodes=2 "
    "ReqTRES=cpu=8,mem=64G,node=2,billing=8,gres/gpu=4,gres/gpu:t4=4 AllocTRES=(null) Command=/home/ada/a=b.sh"
)
SCONTROL = '#!/bin/sh\necho "$@" >> "$CALLED"\n[ "$1" = show ] && cat "$SHOWN"\nexit "${BROKEN:-0}"\n'
RECORDED = (
    "JobId=1 JobName={name} UserId=root(0) GroupId=root(0) Account={account} Requeue=1 Restarts=0 RunTime=00:00:00 "
    "TimeLimit=20:00:00 TimeMin=N/A ReqNodeList=(null) NumNodes=1 NumCPUs=1 TRES=cpu=1,mem=1M,node=1,billing=1 "
    "Command=/tmp/j.sh{words} WorkDir=/tmp Comment={comment}  StdErr=/dev/null Power= TresPerNode=gres:gpu:h100:8 \n"
)
"""Shortened from what Slurm 22.05.8 printed: a name keeps its blanks and line ends, an account is put in small letters."""
PLAIN = {"name": "train", "account": "nlp", "comment": "x", "words": ""}


@pytest.fixture(scope="module")
def watchdog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with station(tmp_path_factory.mktemp("slurm"), more=BUDGET) as made:
        made.room.run_guard()
        made.token("cg_slurm", name="slurm", role="operator")
        yield made


def call(watchdog: Station, folder: Path, word: str, **more: Any) -> int:  # noqa: ANN401 - of run
    """The exit code of the prolog or epilog of job 7."""
    return run(watchdog, folder, word, **more).returncode


def run(
    watchdog: Station, folder: Path, word: str, *, restarts: int = 0, limit: str = "0-03:00:00", shown: str = JOB, **more: str
) -> subprocess.CompletedProcess[str]:
    """What became of the prolog or epilog of job 7, of which scontrol shows `shown`."""
    (folder / "scontrol").write_text(SCONTROL)
    (folder / "scontrol").chmod(0o755)
    (folder / "shown").write_text(shown.format(restarts=restarts, limit=limit))
    environ = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "integrations"),
        "CALLED": str(folder / "called"),
        "SHOWN": str(folder / "shown"),
        "SLURM_JOB_ID": "7",
        "COSTGUARD_URL": f"http://{watchdog.at.host}:{watchdog.at.port}",
        "COSTGUARD_TOKEN": "cg_slurm",
        **more,
    }
    words = [sys.executable, "-m", "costguard_slurm", word]
    return subprocess.run(words, env=environ, check=False, timeout=300, capture_output=True, text=True)


def open_ids(watchdog: Station) -> list[str]:
    with LedgerReader(watchdog.url) as reader, reader.snapshot() as query:
        return [hold.id for hold in load_open_holds(query, datetime.now(UTC))]


def test_a_job_starts_when_it_is_held_and_its_end_ends_the_hold(watchdog: Station, tmp_path: Path) -> None:
    assert call(watchdog, tmp_path, "prolog") == 0
    assert open_ids(watchdog) == ["slurm-7"]
    assert call(watchdog, tmp_path, "epilog") == 0
    assert open_ids(watchdog) == []
    assert call(watchdog, tmp_path, "prolog", restarts=1) == 0
    assert open_ids(watchdog) == ["slurm-7-1"]
    assert call(watchdog, tmp_path, "epilog", restarts=1) == 0


def test_a_job_over_the_budget_is_requeued_and_held_with_the_reason(watchdog: Station, tmp_path: Path) -> None:
    assert call(watchdog, tmp_path, "prolog", limit="30-00:00:00") == 1
    called = (tmp_path / "called").read_text().splitlines()
    assert called[1].startswith("update JobId=7 AdminComment=costguard: budget vision: $100.00 of $100.00 left")
    assert called[2] == "requeuehold 7"
    assert open_ids(watchdog) == []


def test_where_costguard_cannot_be_asked_the_policy_decides(watchdog: Station, tmp_path: Path) -> None:
    gone = "http://127.0.0.1:9"
    assert call(watchdog, tmp_path, "prolog", COSTGUARD_URL=gone) == 0
    assert "fails open" in (tmp_path / "called").read_text().splitlines()[1]
    assert call(watchdog, tmp_path, "prolog", COSTGUARD_URL=gone, COSTGUARD_FAIL="closed") == 1
    assert call(watchdog, tmp_path, "prolog", COSTGUARD_URL="") == 0
    assert call(watchdog, tmp_path, "start") == 2


@pytest.mark.parametrize(("fails", "code"), [("open", 0), ("closed", 1)])
@pytest.mark.parametrize(
    "wrong",
    [
        {"BROKEN": "1"}, {"shown": ""}, {"COSTGUARD_TOKEN": "", "COSTGUARD_TOKEN_FILE": "/none"}, {"COSTGUARD_URL": "guard"},
        {"COSTGUARD_HOURS": "soon", "limit": "UNLIMITED"},
    ],
    ids=["scontrol-fails", "no-job", "token", "address", "hours"],
)  # fmt: skip
def test_where_the_job_or_a_setting_cannot_be_read_the_policy_decides(
    watchdog: Station, tmp_path: Path, wrong: dict[str, Any], fails: str, code: int
) -> None:
    assert call(watchdog, tmp_path, "prolog", COSTGUARD_FAIL=fails, **wrong) == code
    called = (tmp_path / "called").read_text().splitlines()
    assert f"fails {fails}" in called[1]
    assert called[2:] == ["requeuehold 7"][:code]
    assert open_ids(watchdog) == []


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (JOB.replace(":t4", ""), "kind of its GPUs is not known"),
        (JOB.replace("t4", "gaudi"), "no price"),
        (JOB.replace("gpu:t4=4", "gpu:t4=1,gres/gpu:h100=3"), "two kinds"),
        (JOB.replace("t4=4", "t4=x"), "cannot be read"),
    ],
)
def test_gpus_that_cannot_be_held_are_held_back_though_costguard_fails_open(
    watchdog: Station, tmp_path: Path, shown: str, reason: str
) -> None:
    assert call(watchdog, tmp_path, "prolog", shown=shown) == 1
    called = (tmp_path / "called").read_text().splitlines()
    assert reason in called[1]
    assert called[2] == "requeuehold 7"


def test_a_policy_that_is_misspelt_counts_as_closed(watchdog: Station, tmp_path: Path) -> None:
    assert call(watchdog, tmp_path, "prolog", COSTGUARD_FAIL="Closed") == 1


def test_a_job_without_gpus_starts_whatever_the_settings_are(watchdog: Station, tmp_path: Path) -> None:
    plain = JOB.replace(",gres/gpu=4,gres/gpu:t4=4", "")
    assert call(watchdog, tmp_path, "prolog", shown=plain, COSTGUARD_URL="", COSTGUARD_FAIL="closed") == 0


@pytest.mark.parametrize(
    "wrong",
    [{"BROKEN": "1"}, {"shown": ""}, {"shown": JOB + " Restarts=5"}, {"COSTGUARD_TOKEN": ""}],
    ids=["scontrol-fails", "no-job", "forged", "token"],
)
def test_an_epilog_that_cannot_read_the_job_ends_nothing_and_says_so(
    watchdog: Station, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    assert call(watchdog, tmp_path, "prolog", restarts=2) == 0
    held = open_ids(watchdog)
    came = run(watchdog, tmp_path, "epilog", restarts=2, **wrong)
    assert (came.returncode, "no hold was ended" in came.stderr) == (0, True)
    assert open_ids(watchdog) == held
    client = AdmissionClient(url=f"http://{watchdog.at.host}:{watchdog.at.port}", token="cg_slurm")  # noqa: S106 - a test's
    assert [client.end(one, started=True) for one in held] == [True]


@pytest.mark.parametrize(
    "typed",
    [
        {"name": "x TimeLimit=00:01:00"},
        {"name": "x UserId=bob(7) Account=other TimeLimit=00:01:00 NumNodes=1 TRES=cpu=1 Command=j Comment=y"},
        {"name": "x\nJobId=1 JobName=y UserId=bob(7) Account=a Restarts=0 TimeLimit=00:01:00 NumNodes=1 TRES=cpu=1"},
        {"name": "x\nJobId=9 y"}, {"account": "other TimeLimit=00:01:00"},
        {"comment": "x TimeLimit=00:01:00 Account=other ReqTRES=0"}, {"comment": "x ReqTRES=gres/gpu:t4=1"},
        {"comment": "x TresPerNode=gres:gpu:t4:1"}, {"comment": "x TresPerJob=gres:gpu:t4:1"}, {"words": " NumNodes=2"},
    ],
    ids=str,
)  # fmt: skip
def test_a_job_that_forges_what_it_is_held_for_is_refused(typed: dict[str, str]) -> None:
    with pytest.raises(JobRefusedError):
        build_request("1", parse_job("1", RECORDED.format(**{**PLAIN, **typed})), {})


def test_a_forged_job_is_held_back_though_costguard_fails_open_and_its_comment_forges_nothing(
    watchdog: Station, tmp_path: Path
) -> None:
    forged = JOB.replace("JobName=train", "JobName=x TimeLimit=00:01:00")
    assert call(watchdog, tmp_path, "prolog", shown=forged) == 1
    called = (tmp_path / "called").read_text().splitlines()
    assert "TimeLimit" in called[1]
    assert "=" not in called[1].partition("AdminComment=")[2]
    assert called[2] == "requeuehold 7"
    assert open_ids(watchdog) == []


def test_of_the_records_of_an_array_the_jobs_own_is_read() -> None:
    text = RECORDED.format(**PLAIN) + RECORDED.format(**PLAIN).replace("JobId=1", "JobId=2").replace("NumNodes=1", "NumNodes=3")
    assert [parse_job(job, text)["NumNodes"] for job in ("1", "2")] == ["1", "3"]
    assert find_gpus(parse_job("1", text), 1) == ("h100", 8)
    with pytest.raises(JobUnreadError):
        parse_job("3", text)


def test_gpus_time_limits_and_jobs_without_gpus_are_read_as_slurm_writes_them() -> None:
    assert find_gpus({"ReqTRES": "cpu=96,mem=1T,gres/gpu=8,gres/gpu:h100=8", "TresPerNode": "gres:gpu:4"}, 2) == ("h100", 8)
    untracked = {"ReqTRES": "cpu=1,mem=500M,node=2,billing=1"}
    for stated in ("gres:gpu:t4:4", "gres/gpu:t4:4", "gres/gpu:t4=4"):
        assert find_gpus({**untracked, "TresPerNode": stated}, 2) == ("t4", 8)
    assert find_gpus({"TresPerJob": "gres:gpu:2"}, 2) == ("", 2)
    assert find_gpus({"TresPerNode": "gres:gpu"}, 1) == ("", 1)
    assert find_gpus({"TresPerJob": "gres:gpu:8", "TresPerNode": "gres:gpu:h100:4"}, 2) == ("h100", 8)
    assert find_gpus({"ReqTRES": "cpu=1", "AllocTRES": "gres/gpu:a100=8"}, 1) == ("a100", 8)
    assert find_gpus({"TRES": "cpu=1", "AllocTRES": "gres/gpu:a100=8"}, 1) == ("", 0)
    assert find_gpus({"TRES": "cpu=4,gres/gpumem=80G,license/gpu=3"}, 1) == ("", 0)
    assert [parse_time_limit(text) for text in ("12:00:00", "1-06:30:00", "UNLIMITED", "x")] == [12.0, 30.5, 0.0, 0.0]
    assert build_request("7", {"ReqTRES": "cpu=4", "NumNodes": "1"}, {}) is None
    odd = build_request("7", {"ReqTRES": "gres/gpu=3", "NumNodes": "2", "TimeLimit": "UNLIMITED"}, {"COSTGUARD_GPU": "T4"})
    assert odd == {"gpu": "T4", "count": 1, "machines": 3, "hours": 24.0, "id": "slurm-7"}


SHOWN = "NumTasks=3 CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=3,node=2,billing=3 Socks/Node={socks} NtasksPerN:B:S:C={each}:0:*:*"


@pytest.mark.parametrize(
    ("shown", "nodes", "gpus"),
    [
        ("TresPerTask=gres:gpu:t4:2 JOB_GRES=gpu:t4:6", 2, ("t4", 6)),
        ("TresPerTask=gres:gpu:t4:2", 2, ("t4", 6)),
        ("TresPerTask=cpu=1,gres/gpu=2 each=4", 2, ("", 16)),
        ("TresPerSocket=gres:gpu:1 JOB_GRES=gpu:t4:3 socks=2", 2, ("t4", 3)),
        ("TresPerSocket=gres:gpu:1 socks=2", 2, ("", 4)),
        ("TresPerNode=gres:shard:3 JOB_GRES=shard:6", 2, ("", 6)),
        ("TresPerNode=gres:shard:t4:3", 2, ("t4", 6)),
        ("TresPerNode=gres:mps:150", 1, ("", 2)),
        ("TresPerNode=gres:gpu:1 JOB_GRES=gpu:t4:4", 1, ("t4", 4)),
        ("TresPerJob=gres:gpu:h100:8", 2, ("h100", 8)),
        ("TresPerNode=gres:gpu:a100_1g.5gb:2", 1, ("a100", 2)),
        ("TresPerNode=gres:gpu:1g.10gb:2", 1, ("", 2)),
        ("TresPerNode=gres:gpu:t4:1,gres:gpu:t4:2", 1, ("t4", 3)),
        ("TresPerNode=gres/tpu:4", 1, ("", 4)),
        ("JOB_GRES=gpu:t4:2(IDX:0-1)", 1, ("t4", 2)),
    ],
    ids=str,
)  # fmt: skip
def test_gpus_are_counted_however_a_job_asks_and_where_slurm_tracks_none(shown: str, nodes: int, gpus: tuple[str, int]) -> None:
    """The fields as 22.05.8 printed them on 2026-11-30, without gres in AccountingStorageTRES."""
    fields = dict(part.partition("=")[::2] for part in shown.split())
    line = SHOWN.format(socks=fields.pop("socks", "*"), each=fields.pop("each", "0"))
    assert find_gpus({**dict(part.partition("=")[::2] for part in line.split()), **fields}, nodes) == gpus


@pytest.mark.parametrize(
    "field", ["TresPerTask=gres:gpu:2", "TresPerSocket=gres:gpu:2", "TresPerJob=gres:gpu:t4:1,gres:gpu:h100:7"]
)
def test_gpus_of_which_the_number_is_not_shown_are_refused(field: str) -> None:
    with pytest.raises(JobRefusedError):
        find_gpus(dict([field.partition("=")[::2]]), 2)


def test_a_component_of_a_heterogeneous_job_and_a_task_of_an_array_have_their_own_record() -> None:
    plain = RECORDED.format(**PLAIN).removeprefix("JobId=1 ")
    text = (
        f"JobId=10 HetJobId=10 HetJobOffset=0 {plain}JobId=11 HetJobId=10 HetJobOffset=1 {plain}JobId=12 ArrayJobId=10 {plain}"
    )
    bodies = [build_request(job, parse_job(job, text), {}) or {} for job in ("10", "11", "12")]
    assert [one["id"] for one in bodies] == ["slurm-10", "slurm-11", "slurm-12"]
