"""SQLite files of other users, read without trusting what is in them.

Opening such a file in place would follow its links, wait for its locks and pipes, and create files beside it as this user. So
the file and its log (-wal) are read as bytes, if they are regular files of at most FILE_BYTES_MAX, and copied to a new folder
that nobody else can enter. A copy that was made while somebody wrote is not used. The copy is queried with a deadline, and from
a plain table only: a view can be endless (WITH RECURSIVE), and a generated column can allocate gigabytes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from costguard_agent import state_dir
from costguard_agent.host import read_regular_file
from costguard_agent.http_client import UnansweredError

if TYPE_CHECKING:
    import sqlite3

FILE_BYTES_MAX = 16 * 2**20
"""Bytes of a file; its log may have as many."""
COPIES_MAX, COPY_WAIT_S = 3, 0.05
STEPS = 1000
"""Instructions of SQLite's machine between two looks at the clock: well under a millisecond."""
Mark = Optional[tuple[int, int, int]]


@contextlib.contextmanager
def open_snapshot(path: Path, until: float) -> Iterator[sqlite3.Connection]:
    """Open a copy of the database at `path`, whose queries end at `until` of the monotonic clock.

    Raises UnansweredError if it cannot be copied; what is wrong inside raises sqlite3.Error.
    """
    import sqlite3
    import tempfile

    data, log = _copy_files(path, until)
    own = state_dir.find_state_dir()
    scratch = own if os.access(own, os.W_OK) else None
    try:
        with tempfile.TemporaryDirectory(prefix="queue-", dir=scratch) as folder:
            copied = Path(folder, "copy.db")
            copied.write_bytes(data)
            if log:
                copied.with_name("copy.db-wal").write_bytes(log)
            ledger = sqlite3.connect(str(copied))
            try:
                ledger.set_progress_handler(lambda: time.monotonic() > until, STEPS)
                ledger.execute("PRAGMA trusted_schema=OFF")
                yield ledger
            finally:
                ledger.close()
    except OSError as error:
        raise UnansweredError(f"it cannot be copied: {error.strerror}") from None


def require_plain_column(ledger: sqlite3.Connection, table: str, column: str) -> None:
    """Raise UnansweredError unless `table` is a table, not a view or virtual, and `column` a stored column of it."""
    row = ledger.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    if row is None or row[0] != "table" or not str(row[1]).upper().startswith("CREATE TABLE"):
        raise UnansweredError(f"{table} is not a table")
    hidden = {name: state for _, name, _, _, _, _, state in ledger.execute(f"PRAGMA table_xinfo({table})")}
    if hidden.get(column) != 0:
        raise UnansweredError(f"{column} is not a column that {table} stores")


def _copy_files(path: Path, until: float) -> tuple[bytes, bytes]:
    """Return the bytes of a database and its log, read while nobody wrote."""
    log, journal = (path.with_name(f"{path.name}-{name}") for name in ("wal", "journal"))
    for number in range(COPIES_MAX):
        if number:
            time.sleep(COPY_WAIT_S)
        marks = [_read_mark(one) for one in (path, log, journal)]
        data = read_regular_file(path, FILE_BYTES_MAX)
        logged = b"" if marks[1] is None else read_regular_file(log, FILE_BYTES_MAX)
        if marks == [_read_mark(one) for one in (path, log, journal)] and not (marks[2] and marks[2][1]):
            return data, logged
        if time.monotonic() > until:
            break
    raise UnansweredError("it is being written")


def _read_mark(path: Path) -> Mark:
    """Return what changes when a file is written; None if there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
