"""Protect files and this process's memory from other users, and check the permissions of files that are trusted.

A secret that others can read is refused, as ssh refuses a key: if this user owns the file and so can correct its mode, and if
others can reach it at all, which they cannot below a folder that is closed to them. The superuser can read everything and does
not count as an other user.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

ROOT = 0
MOST_LINKS = 40
"""Links that are followed on the way to a file, as Linux does."""


_process_limits: dict[str, int] = {}
"""What this process was given and `begin` changed: its umask, its limit of cores."""


def restrict_process() -> None:
    """Restrict new files to this user and disable core dumps; for the start of a process."""
    old_umask = os.umask(0o077)
    _process_limits.setdefault("umask", old_umask)
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, most = resource.getrlimit(resource.RLIMIT_CORE)
        _process_limits.setdefault("core", soft)
        resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def restore_process() -> None:
    """Undo `restrict_process`; for a process that becomes the user's program."""
    if "umask" in _process_limits:
        os.umask(_process_limits["umask"])
    with suppress(ImportError, OSError, ValueError, KeyError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (_process_limits["core"], most))


def disable_memory_dumps() -> None:
    """Disable core dumps, and reading of memory and environment by this user's other programs (Linux).

    It is for processes that hold keys. A program that it starts, such as a hook, is such an other program: it cannot read in
    /proc what it was not given.
    """
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        set_dumpable = 4  # PR_SET_DUMPABLE of linux/prctl.h
        ctypes.CDLL(None).prctl(set_dumpable, 0, 0, 0, 0)


def describe_exposure(path: Path) -> str:
    """Return a text that describes which others can read the secret in the file at `path`.

    "" if none can, or if this user does not own the file and so cannot correct it.
    """
    try:
        place = path.resolve()
        status = place.stat()
        if not stat.S_ISREG(status.st_mode) or os.geteuid() not in (status.st_uid, ROOT):
            return ""
        mode = f"its mode is {stat.S_IMODE(status.st_mode):04o}"
        if status.st_mode & stat.S_IROTH and _can_reach(place, None):
            return f"can be read by everybody on this machine ({mode})"
        if status.st_mode & stat.S_IRGRP and status.st_gid != ROOT and _can_reach(place, status.st_gid):
            return f"can be read by the whole group {_get_group_name(status.st_gid)} ({mode})"
    except OSError:  # whoever reads it says why it cannot be read
        return ""
    return ""


def describe_foreign_writers(path: Path) -> str:
    """Return a text that describes how other users can have written `path`; "" if only its owner and the superuser can."""
    status, folder = path.stat(), path.parent.stat()
    if status.st_mode & stat.S_IWOTH:
        return f"it is world-writable (its mode is {stat.S_IMODE(status.st_mode):04o})"
    if not folder.st_mode & stat.S_IWOTH:
        return ""
    if not folder.st_mode & stat.S_ISVTX:
        return f"everybody may replace it (its folder's mode is {stat.S_IMODE(folder.st_mode):04o})"
    return f"it is in a world-writable folder, and {describe_foreign_owner(path)}" if describe_foreign_owner(path) else ""


def describe_foreign_owner(path: Path) -> str:
    """Return a text that names the owner of `path`; "" if it is this user or the superuser."""
    owner = path.stat().st_uid
    return "" if owner in (os.geteuid(), ROOT) else f"it belongs to another user ({_get_user_name(owner)})"


def find_planted_link(path: Path) -> Path | None:
    """Return the first link to `path` that another user made in a world-writable folder; None if there is none.

    The kernel does not follow such links (`fs.protected_symlinks`), but code that resolves a path by itself must check for
    them.
    """
    try:
        return _walk_links(path.absolute())
    except OSError:  # a name too long, a folder that may not be entered: whoever opens it says so
        return None


def _walk_links(path: Path) -> Path | None:
    own_uids, left = (os.geteuid(), ROOT), [*reversed(path.parts)]
    walked, followed = Path(left.pop()), 0
    while left and followed < MOST_LINKS:
        part = left.pop()
        if part == "..":
            walked = walked.parent
            continue
        step = walked / part
        if not step.is_symlink():
            walked = step
            continue
        if walked.stat().st_mode & stat.S_IWOTH and step.lstat().st_uid not in (*own_uids, walked.stat().st_uid):
            return step
        target, followed = step.readlink(), followed + 1
        left += reversed(target.parts)
        if target.is_absolute():
            walked = Path(left.pop())
    return None


def _can_reach(path: Path, group: int | None) -> bool:
    """Return whether the members of `group` (None: everybody) may pass through every folder to `path`."""
    for folder in path.parents:
        status = folder.stat()
        if not status.st_mode & (stat.S_IXGRP if status.st_gid == group else stat.S_IXOTH):
            return False
    return True


def _get_group_name(number: int) -> str:
    with suppress(ImportError, KeyError):
        import grp

        return grp.getgrgid(number).gr_name
    return str(number)


def _get_user_name(number: int) -> str:
    with suppress(ImportError, KeyError):
        import pwd

        return pwd.getpwuid(number).pw_name
    return str(number)
