"""`--output FILE`: an answer as a file, whole or not at all, and never over another one unless `--force` says so.

It is written under a name that nobody can foresee, beside the file that it becomes; what was there before stays as it was until
then, whatever ends the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from costguard.errors import CostguardError, InputError
from costguard.ledger.whole import whole
from costguard.settings import path_of

FIELD = "--output"
PRINT = f"leave {FIELD} out to have it printed"


def free(stated: str, *, force: bool) -> Path:
    """Where to write; InputError where that cannot be, before any work is done."""
    if stated == "-":
        raise InputError("names no file", field=FIELD, hint=f"{PRINT}, or write {FIELD} ./-")
    target = path_of(stated)
    try:
        if target.is_dir() or stated.endswith(("/", os.sep)):
            raise InputError("is a folder, not a file", field=str(target), hint=f"name a file in it: {FIELD} {target}/report")
        if not target.parent.is_dir():
            raise InputError(f"there is no folder {target.parent}", field=FIELD, hint="make it first, or name another file")
        if target.is_symlink() or target.exists():
            _replaceable(target, force=force)
    except OSError as wrong:
        raise InputError(_what(wrong), field=str(target), hint=f"name another place with {FIELD}") from None
    return target


def put(pieces: Iterable[str] | Iterable[bytes], target: Path, *, force: bool) -> None:
    """Put `pieces`, one after the other, in place as `target`. InputError or CostguardError where that cannot be."""
    try:
        with whole(target) as unfinished:
            with unfinished.open("wb") as file:
                file.writelines(piece.encode() if isinstance(piece, str) else piece for piece in pieces)
            if target.is_symlink() or target.exists():  # it may have come meanwhile
                _replaceable(target, force=force)
    except OSError as wrong:
        raise CostguardError(_what(wrong), field=str(target), hint=f"make room, or name another place with {FIELD}") from None


def _replaceable(target: Path, *, force: bool) -> None:
    if target.is_symlink():  # its place would be taken, and what it leads to stay as it was: /dev/stdout is one
        hint = f"name the file that it leads to, {target.readlink()}, or {PRINT}"
        raise InputError("is there already: a link to another file", field=str(target), hint=hint)
    if not target.is_file():  # a device, a pipe: what is put in its place would not be it
        raise InputError("is there already, and is no file", field=str(target), hint=f"leave {FIELD} out and write: > {target}")
    if not force:
        raise InputError("is there already", field=str(target), hint="--force replaces it; --output names another")


def _what(wrong: OSError) -> str:
    return f"cannot be written: {wrong.strerror or type(wrong).__name__}"
