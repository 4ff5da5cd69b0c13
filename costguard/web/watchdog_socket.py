"""The Unix socket at which a watchdog takes what the web hands over: in a folder of this user alone, beside the ledger."""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from costguard.errors import InputError
from costguard.ledger.db.address import parse_ledger_address
from costguard.settings import Settings, get_data_path, resolve_ledger_url

SOCKET_NAME, HEALTH_NAME = "socket", "health"
PATH_BYTES_MAX = 100
"""Of a Unix socket's path: Linux takes 108, macOS 104, each with a NUL."""
BACKLOG, CONNECT_S = 1024, 1.0


def find_watchdog_socket(settings: Settings) -> Path:
    """Return the path: beside the ledger, or for a server's ledger in the data folder; a shorter one where that is too long."""
    where = parse_ledger_address(resolve_ledger_url(settings))
    if where.path is not None:
        folder = where.make_sibling_path(".door")
    else:
        folder = Path(get_data_path(f"door-{sha256(where.shown.encode()).hexdigest()[:16]}"))
    if len(os.fsencode(folder / f"{SOCKET_NAME}-{os.getpid()}")) <= PATH_BYTES_MAX:
        return folder / SOCKET_NAME
    name = f"costguard-{os.geteuid()}-{sha256(os.fsencode(folder)).hexdigest()[:16]}"
    return Path(tempfile.gettempdir()) / name / SOCKET_NAME


def bind_watchdog_socket(path: Path) -> tuple[Path, socket.socket]:
    """Return a socket that listens at `path`, and where: beside it if another watchdog listens there. A stale one is replaced.

    Raises InputError if others can enter its folder, or if it cannot be made.
    """
    if _is_answered(path):
        path = path.with_name(f"{path.name}-{os.getpid()}")
    return path, bind_private_socket(path)


def bind_private_socket(path: Path) -> socket.socket:
    """Return a socket that listens at `path` for this user alone, in place of what is there. Raises InputError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_own_folder(path.parent):
        raise InputError("can be accessed by other users", field=str(path.parent), hint="chmod 700 it, or remove it")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(f"cannot be made: {error.strerror}", field=str(path), hint="check the folder's permissions") from None
    return listener


def is_own_folder(folder: Path) -> bool:
    """Return whether `folder` is a real folder that this user alone can enter."""
    status = folder.lstat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077 and folder.is_dir() and not folder.is_symlink()


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, suppress(OSError):
        connection.settimeout(CONNECT_S)
        connection.connect(str(path))
        return True
    return False
