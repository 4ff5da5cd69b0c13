"""SkyPilot: the job queue of this node, from the SQLite file that its daemon (skylet) keeps here.

`sky queue` runs on the laptop that created the node; on the node itself there is ~/.sky/jobs.db (sky/skylet/job_lib.py, 0.14.1:
table jobs, status INIT, PENDING, SETTING_UP and RUNNING are not final; below SKY_RUNTIME_DIR, else the home). Without skylet
the states are not updated: then an unfinished job is unknown.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from costguard_agent.host import HostView, list_command_lines, list_home_folders
from costguard_agent.http_client import UnansweredError

NAME = "SkyPilot"
FILE, DAEMON = (".sky", "jobs.db"), "sky.skylet.skylet"
ACTIVE = ("INIT", "PENDING", "SETTING_UP", "RUNNING")
TABLE, COLUMN = "jobs", "status"
WITHIN_S = 2.0
"""Seconds for all queues together; a real one takes milliseconds."""


def is_present(around: HostView) -> bool:
    """Return whether its queue is here or its daemon runs."""
    return bool(_list_queue_files(around)) or _is_daemon_running(around)


def count_jobs(around: HostView) -> int:
    """Return the number of jobs that are not final; raises UnansweredError."""
    files, served = _list_queue_files(around), _is_daemon_running(around)
    if not files:
        raise UnansweredError("skylet runs, and its queue cannot be read by this user")
    until = time.monotonic() + WITHIN_S
    count = sum(_count_active_jobs(path, until) for path in files)
    if count and not served:
        raise UnansweredError(f"{count} jobs are unfinished, and skylet, which would end them in the queue, does not run")
    return count


def _is_daemon_running(around: HostView) -> bool:
    return any(DAEMON in words for _, words in list_command_lines(around))


def _list_queue_files(around: HostView) -> list[Path]:
    runtime_dir = around.env.get("SKY_RUNTIME_DIR", "")
    folders = ([around.rebase_path(runtime_dir)] if runtime_dir.startswith("/") else []) + list_home_folders(around)
    paths = (folder.joinpath(*FILE) for folder in folders)
    return list(dict.fromkeys(path for path in paths if _exists(path)))


def _exists(path: Path) -> bool:
    """Return whether something has this name: what is no regular file makes the count unknown, and not zero."""
    try:
        os.lstat(path)
    except (OSError, ValueError):
        return False
    return True


def _count_active_jobs(path: Path, until: float) -> int:
    """Return the number of unfinished jobs in a user's file, which is not trusted; raises UnansweredError."""
    import sqlite3

    from costguard_agent.sqlite_snapshot import open_snapshot, require_plain_column

    marks = ",".join("?" * len(ACTIVE))
    # without its indexes: those may hold expressions
    count = f"SELECT COUNT(*) FROM {TABLE} NOT INDEXED WHERE {COLUMN} IN ({marks})"  # noqa: S608 - constants and marks
    try:
        with open_snapshot(path, until) as ledger:
            require_plain_column(ledger, TABLE, COLUMN)
            row = ledger.execute(count, ACTIVE).fetchone()
    except sqlite3.Error as error:
        why = "it did not end in time" if time.monotonic() > until else str(error)
        raise UnansweredError(f"its queue cannot be read ({why})") from None
    except UnansweredError as error:
        raise UnansweredError(f"its queue cannot be read ({error})") from None
    return int(row[0])
