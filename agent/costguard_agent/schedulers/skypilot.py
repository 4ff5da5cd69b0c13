"""SkyPilot: the job queue of this node, from the SQLite file that its daemon (skylet) keeps here.

`sky queue` runs on the laptop that created the node; on the node itself there is ~/.sky/jobs.db (sky/skylet/job_lib.py, 0.14.1:
table jobs, status INIT, PENDING, SETTING_UP and RUNNING are not final; below SKY_RUNTIME_DIR, else the home). Without skylet
the states are not updated: then an unfinished job is unknown.
"""

from __future__ import annotations

from pathlib import Path

from costguard_agent.host import HostView, list_command_lines, list_home_folders
from costguard_agent.http_client import UnansweredError

NAME = "SkyPilot"
FILE, DAEMON = (".sky", "jobs.db"), "sky.skylet.skylet"
ACTIVE = ("INIT", "PENDING", "SETTING_UP", "RUNNING")
BUSY_S = 1.0


def is_present(around: HostView) -> bool:
    """Return whether its queue is here or its daemon runs."""
    return bool(_list_queue_files(around)) or _is_daemon_running(around)


def count_jobs(around: HostView) -> int:
    """Return the number of jobs that are not final; raises UnansweredError."""
    files, served = _list_queue_files(around), _is_daemon_running(around)
    if not files:
        raise UnansweredError("skylet runs, and its queue cannot be read by this user")
    count = sum(_count_active_jobs(path) for path in files)
    if count and not served:
        raise UnansweredError(f"{count} jobs are unfinished, and skylet, which would end them in the queue, does not run")
    return count


def _is_daemon_running(around: HostView) -> bool:
    return any(DAEMON in words for _, words in list_command_lines(around))


def _list_queue_files(around: HostView) -> list[Path]:
    given = around.env.get("SKY_RUNTIME_DIR", "")
    folders = ([around.rebase_path(given)] if given.startswith("/") else []) + list_home_folders(around)
    found = (folder.joinpath(*FILE) for folder in folders)
    return list(dict.fromkeys(path for path in found if _is_file(path)))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _count_active_jobs(path: Path) -> int:
    import sqlite3
    from urllib.parse import quote

    try:
        ledger = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_S)
        try:
            marks = ",".join("?" * len(ACTIVE))
            row = ledger.execute(f"SELECT COUNT(*) FROM jobs WHERE status IN ({marks})", ACTIVE).fetchone()  # noqa: S608 - marks
        finally:
            ledger.close()
    except sqlite3.Error as error:
        raise UnansweredError(f"its queue cannot be read ({error})") from None
    return int(row[0])
