"""Process services: garbage collector, memory, imports, installed plug-ins, and the process's state for systemd.

The state is sent as a datagram to the socket that systemd names (sd_notify(3)); if it names none, nothing is sent.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:  # its import is 10 ms, which `--help` need not pay
    from importlib.metadata import EntryPoints

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


@contextmanager
def pause_gc() -> Iterator[None]:
    """Pause the cyclic garbage collector in this block, for all threads of the process.

    A poll in which everything changed creates a hundred thousand values; looking for cycles among them took a fifth of the
    ledger's time, and half of the time of reading 5,000 EC2 instances (2026-11). The block that found the collector enabled
    enables it again, so that overlapping blocks in several threads never leave it disabled.
    """
    looking = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looking:
            gc.enable()


@contextmanager
def hide_module(name: str) -> Iterator[None]:
    """Let imports in this block find that the package `name` is not installed, unless it is imported already.

    For a library that imports an optional one which costguard does not use with it.
    """
    hides = name not in sys.modules
    if hides:
        sys.modules[name] = None  # type: ignore[assignment]  # how Python itself marks what cannot be imported
    try:
        yield
    finally:
        if hides:
            del sys.modules[name]


PLAIN_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SYSTEMROOT"),
)
"""Variables that every program may need, none of which holds a secret."""


def build_child_environment(
    environ: Mapping[str, str], *, names: Sequence[str] = (), prefixes: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the environment of a child process: PLAIN_VARIABLES, and what else it needs of `environ`, by name or beginning.

    Every program that costguard starts for itself gets this one: none finds a key of a cloud. What `costguard run` starts is
    the user's own command, and keeps the environment that it would have without costguard.
    """
    passed_names = {*PLAIN_VARIABLES, *names}
    return {name: value for name, value in environ.items() if name in passed_names or name.startswith(prefixes)}


ARENAS_MAX, MMAP_BYTES_MIN = 2, 128 * 1024
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Of mallopt(3), from glibc's malloc.h."""


def limit_malloc() -> bool:
    """Have glibc return freed memory to the system; returns whether the process runs on glibc.

    By default each thread may get an arena of its own, and a block of up to 32 MB that was freed once raises the size from
    which blocks are returned. A watchdog reads an answer of several MB in a thread per account each minute: 9 MB of its memory
    were such leftovers (2026-11-28).
    """
    import ctypes  # what does not stay does not pay for it

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl, macOS
        return False
    settings = ((M_ARENA_MAX, ARENAS_MAX), (M_MMAP_THRESHOLD, MMAP_BYTES_MIN), (M_TRIM_THRESHOLD, MMAP_BYTES_MIN))
    return {mallopt(option, value) for option, value in settings} == {1}


def is_on_terminal() -> bool:
    """Return whether standard input or output is a terminal: then a person began this, and the end of the terminal ends it."""
    for number in (0, 1):
        with suppress(OSError):
            if os.isatty(number):
                return True
    return False


def notify_systemd(*facts: str) -> bool:
    """Send `facts` ("READY=1", "STATUS=..."), one a line, and return whether they were sent; raises nothing."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return False
    import socket  # what only pauses the collector does not pay for it

    lines = (fact.replace("\n", " ") for fact in facts)  # a name in a status cannot forge a READY=1 of its own
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
            line.settimeout(1)
            line.connect(f"\0{place[1:]}" if place.startswith("@") else place)
            line.send("\n".join(lines).encode(errors="replace"))
    except OSError:
        return False
    return True


def build_reload_facts() -> tuple[str, str]:
    """Return the facts to send when a reload begins; READY ends it.

    systemd requires the time by the monotonic clock, in microseconds.
    """
    return "RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


def list_entry_points(group: str) -> EntryPoints:
    """Return the installed plug-ins of `group`; what is installed is read once for each search path."""
    return _read_entry_points(tuple(sys.path)).select(group=group)


@cache
def _read_entry_points(path: tuple[str, ...]) -> EntryPoints:  # noqa: ARG001 - what it depends on
    from importlib.metadata import entry_points

    return cast("EntryPoints", entry_points())  # in 3.11 a dict of old, which selects as well
