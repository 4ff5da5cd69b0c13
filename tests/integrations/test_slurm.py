"""The controller's prolog and epilog of Slurm, as processes, with a `scontrol` of their own and a real watchdog."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from costguard_slurm import build_request, find_gpus, parse_time_limit

from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.holds import load_open_holds
from tests.web.stations import Station, station

ROOT = Path(__file__).parents[2]
BUDGET = '[[budget]]\nname = "vision"\ncap = "100 USD"\nmatch = { labels = { project = ["vision"] } }\n'
JOB = (
    "JobId=7 JobName=train UserId=ada(1000) Account=vision Restarts={restarts} TimeLimit={limit} NumNodes=2 "
    "ReqTRES=cpu=8,mem=64G,node=2,billing=8,gres/gpu=4,gres/gpu:t4=4 AllocTRES=(null) Command=/home/ada/a=b.sh"
)
SCONTROL = '#!/bin/sh\necho "$@" >> "$CALLED"\n[ "$1" = show ] && cat "$SHOWN"\nexit 0\n'


@pytest.fixture(scope="module")
def watchdog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with station(tmp_path_factory.mktemp("slurm"), more=BUDGET) as made:
        made.room.run_guard()
        made.token("cg_slurm", name="slurm", role="operator")
        yield made


def call(watchdog: Station, folder: Path, word: str, *, restarts: int = 0, limit: str = "0-03:00:00", **more: str) -> int:
    """The exit code of the prolog or epilog of job 7."""
    (folder / "scontrol").write_text(SCONTROL)
    (folder / "scontrol").chmod(0o755)
    (folder / "shown").write_text(JOB.format(restarts=restarts, limit=limit))
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
    return subprocess.run([sys.executable, "-m", "costguard_slurm", word], env=environ, check=False, timeout=30).returncode


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


def test_gpus_time_limits_and_jobs_without_gpus_are_read_as_slurm_writes_them() -> None:
    assert find_gpus({"ReqTRES": "cpu=96,mem=1T,gres/gpu=8,gres/gpu:h100=8", "TresPerNode": "gres:gpu:4"}, 2) == ("h100", 8)
    untracked = {"ReqTRES": "cpu=1,mem=500M,node=2,billing=1"}
    for stated in ("gres:gpu:t4:4", "gres/gpu:t4:4", "gres/gpu:t4=4"):
        assert find_gpus({**untracked, "TresPerNode": stated}, 2) == ("t4", 8)
    assert find_gpus({"TresPerJob": "gres:gpu:2"}, 2) == ("", 2)
    assert find_gpus({"TresPerNode": "gres:gpu"}, 1) == ("", 1)
    assert find_gpus({"TRES": "cpu=4,gres/gpumem=80G,gres/shard=3"}, 1) == ("", 0)
    assert [parse_time_limit(text) for text in ("12:00:00", "1-06:30:00", "UNLIMITED", "x")] == [12.0, 30.5, 0.0, 0.0]
    assert build_request("7", {"ReqTRES": "cpu=4", "NumNodes": "1"}, {}) is None
    odd = build_request("7", {"ReqTRES": "gres/gpu=3", "NumNodes": "2", "TimeLimit": "UNLIMITED"}, {"COSTGUARD_GPU": "T4"})
    assert odd == {"gpu": "T4", "count": 1, "machines": 3, "hours": 24.0, "id": "slurm-7"}
