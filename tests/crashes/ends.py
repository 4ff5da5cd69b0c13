"""What befalls a life at a point: SIGKILL, SIGSTOP, too little memory, or its server's processes taken away."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tests.crashes.points import die_after

KILLED, FROZEN, CUT_OFF, NO_SERVER = "killed", "frozen", "cut off", "no server"
STARVED, NO_ALLOCATION, NO_HEAP = "starved", "no allocation", "no heap"


def killed(amount: int, _url: str) -> None:
    """By the kernel's timer, `amount` microseconds from now."""
    die_after(amount)


def frozen(_amount: int, _url: str) -> None:
    """Until somebody lets it go on."""
    os.kill(os.getpid(), signal.SIGSTOP)


def starved(amount: int, _url: str) -> None:
    """Nothing of what the process holds is free, and it gets `amount` KiB more of the system."""
    size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size, hard))
    _HOARD.extend(_hoarded())
    resource.setrlimit(resource.RLIMIT_AS, (size + 1024 * amount, hard))


def _hoarded() -> list[bytes]:
    """All that there is to have, in small pieces."""
    found: list[bytes] = []
    for size in (65536, 4096, 480, 64):
        try:
            while len(found) < 10**6:
                found.append(bytes(size))
        except MemoryError:
            continue
    return found


_HOARD: list[bytes] = []


def no_allocation(amount: int, _url: str) -> None:
    """The `amount`-th allocation of Python from now on fails, and the next few, as CPython's own tests have it."""
    import _testcapi  # type: ignore[import-not-found,unused-ignore]  # CPython's own, of its tests

    _testcapi.set_nomemory(amount, amount + 1 + amount % 5)


def no_heap(amount: int, _url: str) -> None:
    """SQLite gets `amount` KiB more than it holds now, in all of the process."""
    library = ctypes.CDLL("libsqlite3.so.0")
    library.sqlite3_memory_used.restype = ctypes.c_int64
    library.sqlite3_hard_heap_limit64(ctypes.c_int64(library.sqlite3_memory_used() + 1024 * amount))


def cut_off(_amount: int, url: str) -> None:
    """The server ends the processes of every connection to this database."""
    import psycopg

    parts = urlsplit(url.replace("+psycopg", ""))
    with psycopg.connect(urlunsplit(parts._replace(path="/postgres")), autocommit=True) as other:
        sql = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s"
        other.execute(sql, [parts.path[1:]]).fetchall()


def no_server(amount: int, _url: str) -> None:
    """The postmaster, whose process is `amount`, is killed, and then all of its children."""
    children = family(amount)
    for pid in (amount, *children):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def family(pid: int) -> list[int]:
    """The children of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


ENDS: dict[str, Callable[[int, str], object]] = {
    KILLED: killed,
    FROZEN: frozen,
    STARVED: starved,
    NO_ALLOCATION: no_allocation,
    NO_HEAP: no_heap,
    CUT_OFF: cut_off,
    NO_SERVER: no_server,
}
