"""Open files that a person names: regular files, without waiting, bounded in size and time.

A name such as /dev/zero, /dev/ptmx or a FIFO would be read for ever, or opened for ever. So a file is opened with O_NONBLOCK,
and its kind is checked on the open descriptor. One kind of pipe is read, the one that the person's own shell opened:
`gen | costguard size /dev/stdin` and `costguard size <(gen)`.

Every failure is an OSError whose `strerror` can be shown: callers name the file.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from io import BufferedReader
from pathlib import Path

READ_S = 60.0
"""Seconds for the whole file; a pipe may have to wait for the program that writes it."""
PIECE = 1 << 20
DESCRIPTOR_FOLDERS = ("/dev/fd/", "/proc/self/fd/")
NOT_REGULAR, TOO_LARGE, TOO_SLOW = "is not a plain file", "is too large", f"did not arrive within {READ_S:g} s"


class InputFileError(OSError):
    """A file that is not read: it is no regular file, too large or too slow. `why`: to be shown after its name."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(number, why)
        self.why = why


def open_input_file(path: Path) -> BufferedReader:
    """Return the regular file at `path`, opened for reading. Raises OSError."""
    descriptor = _open_descriptor(path, pipe=False)
    return os.fdopen(descriptor, "rb")


def require_input_file(path: Path) -> None:
    """Raise OSError unless `path` is a regular file that can be opened: for libraries that open it themselves."""
    os.close(_open_descriptor(path, pipe=False))


def read_input_file(path: Path, most: int) -> bytes:
    """Return what the file at `path` holds, at most `most` bytes. Raises OSError; InputFileError with EFBIG if it is larger."""
    descriptor = _open_descriptor(path, pipe=True)
    try:
        return _read_descriptor(descriptor, most)
    finally:
        os.close(descriptor)


def _open_descriptor(path: Path, *, pipe: bool) -> int:
    """Open a regular file; with `pipe` also a pipe that is a descriptor of this process already."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or (pipe and stat.S_ISFIFO(mode) and _is_descriptor(path)):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise InputFileError(errno.EINVAL, NOT_REGULAR)


def _is_descriptor(path: Path) -> bool:
    return str(path) == "/dev/stdin" or str(path).startswith(DESCRIPTOR_FOLDERS)


def _read_descriptor(descriptor: int, most: int) -> bytes:
    content, ends = bytearray(), time.monotonic() + READ_S
    waiter = select.poll()  # not select(), which takes no descriptor above 1,023
    waiter.register(descriptor, select.POLLIN)
    while True:
        left_s = ends - time.monotonic()
        if left_s <= 0:
            raise InputFileError(errno.ETIMEDOUT, TOO_SLOW)
        try:
            piece = os.read(descriptor, min(PIECE, most + 1 - len(content)))
        except BlockingIOError:  # a pipe whose writer has not written yet
            waiter.poll(left_s * 1000)
            continue
        content += piece
        if len(content) > most:
            raise InputFileError(errno.EFBIG, TOO_LARGE)
        if not piece:
            return bytes(content)
