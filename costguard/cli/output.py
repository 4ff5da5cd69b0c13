"""`--output FILE`: write an answer to a file atomically, and replace an existing file only with `--force`.

It is written to a temporary file with a random name beside the target; until it is complete the old file is unchanged, even if
the process ends. A file name that ends in .gz is compressed. The next command that writes the same file removes temporary files
left behind by SIGKILL: a running writer holds a lock on its own. (On Windows they stay.)
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from glob import escape
from pathlib import Path
from time import time

from costguard.errors import CostguardError, InputError
from costguard.providers.plugins import PACKED_ENDING
from costguard.settings import expand_path
from costguard.system.atomic_file import format_temporary_prefix, replace_file

OUTPUT_FLAG = "--output"
PRINT_HINT = f"omit {OUTPUT_FLAG} to print it"
UNFINISHED = ".unfinished-costguard"
YOUNG_S = 60
"""A file that was touched since is left alone: whoever writes it may not hold it yet, or not any more."""
GZIP = 16 + zlib.MAX_WBITS
"""How zlib is told to write gzip's header."""


def resolve_target(text: str, *, force: bool) -> Path:
    """Return the path to write to; raises InputError, before any work is done, if that is not possible."""
    if text == "-":
        raise InputError("names no file", field=OUTPUT_FLAG, hint=f"{PRINT_HINT}, or write {OUTPUT_FLAG} ./-")
    target = expand_path(text)
    try:
        if target.is_dir() or text.endswith(("/", os.sep)):
            raise InputError(
                "is a folder, not a file", field=str(target), hint=f"name a file in it: {OUTPUT_FLAG} {target}/report"
            )
        if not target.parent.is_dir():
            raise InputError(f"no such folder: {target.parent}", field=OUTPUT_FLAG, hint="create it, or name another file")
        if target.is_symlink() or target.exists():
            _check_replaceable(target, force=force)
    except OSError as wrong:
        raise InputError(_describe_error(wrong), field=str(target), hint=f"name another place with {OUTPUT_FLAG}") from None
    return target


def write_target(pieces: Iterable[str] | Iterable[bytes], target: Path, *, force: bool) -> None:
    """Write `pieces` in order to `target`, atomically; raises InputError or CostguardError if that fails."""
    data = (piece.encode() if isinstance(piece, str) else piece for piece in pieces)
    try:
        _remove_unfinished(target)
        with replace_file(target, ending=UNFINISHED) as unfinished:
            with unfinished.open("wb") as file:
                with suppress(OSError):  # a disk that knows no locks: then nobody else gets one either
                    _lock_file(file.fileno())
                file.writelines(_compress_pieces(data) if target.suffix.lower() == PACKED_ENDING else data)
            if target.is_symlink() or target.exists():  # it may have come meanwhile
                _check_replaceable(target, force=force)
    except OSError as wrong:
        raise CostguardError(
            _describe_error(wrong), field=str(target), hint=f"free disk space, or name another place with {OUTPUT_FLAG}"
        ) from None


def _lock_file(file: int) -> None:
    """Lock an open file until it is closed; raises OSError if another process holds the lock."""
    if os.name != "posix":
        return
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_unfinished(target: Path) -> None:
    """Remove temporary files of `target` that no process writes any more; files modified in the last 60 s are left."""
    if os.name != "posix":
        return
    for left in target.parent.glob(f"{escape(format_temporary_prefix(target))}????????{UNFINISHED}"):
        with suppress(OSError):
            file = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                status = os.fstat(file)
                is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
                if is_ours and time() - status.st_mtime > YOUNG_S:
                    _lock_file(file)
                    left.unlink()
            finally:
                os.close(file)


def _compress_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Compress `pieces` as gzip without a timestamp, so that the same answer gives the same file."""
    packer = zlib.compressobj(wbits=GZIP)
    yield from map(packer.compress, pieces)
    yield packer.flush()


def _check_replaceable(target: Path, *, force: bool) -> None:
    if target.is_symlink():  # its place would be taken, and what it leads to stay as it was: /dev/stdout is one
        hint = f"write to the link's target, {target.readlink()}, or {PRINT_HINT}"
        raise InputError("already exists and is a link to another file", field=str(target), hint=hint)
    if not target.is_file():  # a device, a pipe: what is put in its place would not be it
        raise InputError(
            "already exists and is not a file", field=str(target), hint=f"omit {OUTPUT_FLAG} and write: > {target}"
        )
    if not force:
        raise InputError("already exists", field=str(target), hint="--force replaces it; --output names another")


def _describe_error(wrong: OSError) -> str:
    return f"cannot be written: {wrong.strerror or type(wrong).__name__}"
