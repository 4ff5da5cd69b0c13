"""A key in a file of its own (0600), created when it is first needed: its first line is 32 random bytes as base64."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from pathlib import Path

from costguard.errors import InputError
from costguard.system.file_security import describe_exposure
from costguard.system.input_file import read_input_file

KEY_BYTES, KEY_FILE_BYTES_MAX = 32, 64 * 1024


def open_key(
    path: Path, field: str, lost_hint: str, list_notes: Callable[[], Sequence[str]] = tuple
) -> tuple[bytes, frozenset[str]]:
    """Return the key at `path` and the other lines of its file; it is created if it is missing, with the lines of `list_notes`.

    `field`: the name in errors. `lost_hint`: what to do if the file holds no key. Raises InputError if it holds none, cannot be
    read or created, or others can read it.
    """
    try:
        lines = _read_lines(path, field) or _create(path, field, list_notes)
    except OSError as error:
        what = f"cannot be read or created: {error.strerror or type(error).__name__}"
        hint = f"openssl rand -base64 32 > {path} && chmod 600 {path}"
        raise InputError(what, field=f"{field} {path}", hint=hint) from None
    try:
        key = b64decode(lines[0], validate=True)
    except (ValueError, IndexError):
        key = b""
    if len(key) != KEY_BYTES:
        raise InputError("holds no key", field=f"{field} {path}", hint=lost_hint)
    return key, frozenset(lines[1:])


def _read_lines(path: Path, field: str) -> list[str] | None:
    try:
        text = read_input_file(path, KEY_FILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    if who := describe_exposure(path):
        raise InputError(who, field=f"{field} {path}", hint=f"chmod 600 {path}")
    return text.decode("ascii", "replace").split() or [""]


def _create(path: Path, field: str, list_notes: Callable[[], Sequence[str]]) -> list[str]:
    """Create the file and return its lines; if another process created it first, return those of that one."""
    lines = [b64encode(os.urandom(KEY_BYTES)).decode(), *list_notes()]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write("\n".join([*lines, ""]))
            file.flush()
            os.fsync(file.fileno())
        os.link(unfinished, path)
    except FileExistsError:
        return _read_lines(path, field) or lines
    finally:
        unfinished.unlink(missing_ok=True)
    return lines
