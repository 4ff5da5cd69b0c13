"""One writer at a time, over processes and threads: a lock on a file beside the ledger.

SQLite lets one connection write while another one moves the log into the file. In versions before 3.51.3 the two can meet in
a way that loses a committed transaction (sqlite.org/wal.html, "The WAL-Reset Bug", 2026-03), and Python ships older ones. So
whoever writes holds this lock until its commit, and the checkpoint that may follow it, are done. Closing the last connection
checkpoints as well, but only under SQLite's exclusive lock on the file, when no other connection exists.

The lock belongs to an open file and ends with its process, however that ends. The file itself stays.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from costguard.errors import LedgerError

PAUSE_S_MIN = 0.001
PAUSE_S_MAX = 0.05


@contextmanager
def hold_file_lock(path: Path, *, patience_s: float) -> Iterator[None]:
    """Hold the lock on the file or folder `path`; LedgerError where another process or thread keeps it for `patience_s`."""
    kind = os.O_RDONLY | os.O_DIRECTORY if path.is_dir() else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    file = os.open(path, kind | os.O_CLOEXEC, 0o600)
    try:
        _wait_for_lock(file, path, time.monotonic() + patience_s)
        yield
    finally:
        os.close(file)


def _wait_for_lock(file: int, path: Path, until: float) -> None:
    pause = PAUSE_S_MIN
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() + pause > until:
                hint = "wait for it to end, then try again; nothing was written"
                raise LedgerError("another costguard is writing to the ledger", field=str(path), hint=hint) from None
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_S_MAX)
        else:
            return
