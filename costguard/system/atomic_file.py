"""One writer at a time, over processes and threads: a lock on a file beside the ledger.

SQLite lets one connection write while another one moves the log into the file. In versions before 3.51.3 the two can meet in
a way that loses a committed transaction (sqlite.org/wal.html, "The WAL-Reset Bug", 2026-03), and Python ships older ones. So
whoever writes holds this lock until its commit, and the checkpoint that may follow it, are done. Closing the last connection
checkpoints as well, but only under SQLite's exclusive lock on the file, when no other connection exists.

The lock belongs to an open file and ends with its process, however that ends. The file itself stays.

Files that are put in place whole: never half of one, for this user only, and on the disk before anybody is told so.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp

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


PREFIX_CHARS_MAX = 40
"""Characters of a file's name that its unfinished form begins with: a name may be as long as a folder allows."""


def format_temporary_prefix(path: Path) -> str:
    """What the names of unfinished forms of `path` begin with; eight letters that nobody can foresee follow."""
    return f".{path.name[:PREFIX_CHARS_MAX]}."


@contextmanager
def replace_file(path: Path, *, ending: str = "") -> Iterator[Path]:
    """A new file beside `path`, empty, 0600, of a name that nobody can foresee: it becomes `path` when the block ends.

    `ending`: what its name ends with until then, so that one that was left behind by SIGKILL is known again.
    Where the block raises, `path` stays as it was. Missing folders are made. OSError where it cannot be written.
    """
    make_folder(path.parent)
    file, name = mkstemp(dir=path.parent, prefix=format_temporary_prefix(path), suffix=ending)
    os.close(file)
    unfinished = Path(name)
    try:
        yield unfinished
        sync_to_disk(unfinished)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_to_disk(path.parent)


def write_file_atomically(path: Path, data: bytes) -> None:
    """Put `data` in place as `path` in one step. OSError where that cannot be."""
    with replace_file(path) as unfinished:
        unfinished.write_bytes(data)


def remove_file(path: Path) -> None:
    """Have no file at `path`. OSError where that cannot be."""
    if path.is_symlink() or path.exists():
        path.unlink(missing_ok=True)
        sync_to_disk(path.parent)


def make_folder(folder: Path) -> None:
    """Make the missing folders, for this user only."""
    if folder.exists():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_to_disk(folder.parent)


def sync_to_disk(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk before going on."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
