"""Have the kernel refuse a process all changes of files, except those that it names (Landlock, Linux 5.13 and later).

It holds for this process and all that it starts, cannot be undone, and needs no rights. Reading is not restricted. Moving files
counts from Linux 5.19 on, shortening them from 6.2 on, and signals to processes outside of it from 6.12 on.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from struct import pack

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System calls, the same on every architecture (linux/landlock.h)."""
VERSION_FLAG, PATH_BENEATH = 1, 1
PR_SET_NO_NEW_PRIVS = 38
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
"""Remove folders and files; make devices, folders, files, sockets, pipes and links."""
REFER = 1 << 13
SIGNALS = 1 << 1
"""Of `scoped`: no signal to a process that is not confined as well."""


def restrict_writes(allowed: Iterable[Path]) -> bool:
    """Refuse this process every change of files, except of the files and below the folders `allowed`; return whether it is so.

    Call it before there are other threads: they would not be confined. False where the kernel has no Landlock.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(CREATE_RULESET, None, 0, VERSION_FLAG) if sys.platform == "linux" else 0
    if version < 1:
        return False
    handled = WRITE_FILE | REMOVE_AND_MAKE | (REFER if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0)  # noqa: PLR2004 - of the ABI
    attributes = pack("=QQQ", handled, 0, SIGNALS if version >= 6 else 0)  # noqa: PLR2004
    ruleset = libc.syscall(CREATE_RULESET, attributes, len(attributes), 0)  # older kernels take zeros for what they lack
    if ruleset < 0:
        return False
    try:
        for path in allowed:
            _allow(libc, ruleset, path, handled)
        return {libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), libc.syscall(RESTRICT_SELF, ruleset, 0)} == {0}
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, handled: int) -> None:
    file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights = handled if path.is_dir() else handled & (WRITE_FILE | TRUNCATE)
        libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, pack("=Qi", rights, file), 0)
    finally:
        os.close(file)
