"""Files that are put in place whole: never half of one, for this user only, and on the disk before anybody is told so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp

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
