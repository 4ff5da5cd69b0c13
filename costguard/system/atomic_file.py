"""File locks, and files that are replaced atomically.

The lock is on a file beside the ledger and admits one writer at a time, across processes and threads. SQLite lets one
connection write while another one moves the log into the file. In versions before 3.51.3 the two can collide in a way that
loses a committed transaction (sqlite.org/wal.html, "The WAL-Reset Bug", 2026-03), and Python ships older versions. So a writer
holds the lock until its commit, and the checkpoint that may follow it, are done. Closing the last connection checkpoints as
well, but only under SQLite's exclusive lock on the file, when no other connection exists. The lock belongs to an open file and
is released when its process ends, for whatever reason. The lock file itself stays.

A replaced file is never half written, is readable by this user only, and is on the disk before the function returns.
"""

from __future__ import annotations

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
    """Hold the lock on the file or folder `path`.

    Raises LedgerError if another process or thread holds it for longer than `patience_s` seconds.
    """
    kind = os.O_RDONLY | os.O_DIRECTORY if path.is_dir() else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    file = os.open(path, kind | os.O_CLOEXEC, 0o600)
    try:
        _wait_for_lock(file, path, time.monotonic() + patience_s)
        yield
    finally:
        os.close(file)


def _wait_for_lock(file: int, path: Path, until: float) -> None:
    import fcntl  # not on Windows, where quote, size and report only read

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
    """Return the prefix of the names of temporary files for `path`; eight random letters follow it."""
    return f".{path.name[:PREFIX_CHARS_MAX]}."


@contextmanager
def replace_file(path: Path, *, ending: str = "") -> Iterator[Path]:
    """Create an empty temporary file beside `path`, mode 0600, which replaces `path` when the block ends.

    Its name is random. `ending`: the suffix of that name, by which a file left behind by SIGKILL is recognised. If the block
    raises, `path` is unchanged. Missing folders are created. Raises OSError if the file cannot be written.
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
    """Write `data` to `path` atomically; raises OSError if that fails."""
    with replace_file(path) as unfinished:
        unfinished.write_bytes(data)


def remove_file(path: Path) -> None:
    """Remove the file at `path`, if there is one; raises OSError if that fails."""
    if path.is_symlink() or path.exists():
        path.unlink(missing_ok=True)
        sync_to_disk(path.parent)


def make_folder(folder: Path) -> None:
    """Create `folder` and its missing parents, accessible to this user only."""
    if folder.exists():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_to_disk(folder.parent)


def sync_to_disk(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk (fsync)."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
