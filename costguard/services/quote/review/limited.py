"""Limits on what one file of a stranger may take: it is quoted in a child process, which the kernel ends at its limits.

The readers are linear and bounded (`formats/loading.py`); this is for what nobody thought of. Example: a file that computes
for a minute is ended after 4 s of processor time, is named in the comment as not quoted, and the other files are quoted.
"""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from costguard.system.file_security import disable_memory_dumps

Result = TypeVar("Result")
CPU_S, WALL_S = 4, 20.0
"""Seconds of both sides of a file together; a usual one takes 0.2 s of either."""
MEMORY_BYTES = 400 * 2**20
"""What a child may take beside what the command has before."""


def run_limited(compute: Callable[[], Result]) -> Result | None:
    """Return what `compute` returns in a child process; None if it was ended by a limit."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send_result, args=(compute, sender), daemon=True)
    child.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(WALL_S) else None
    except EOFError:
        return None
    finally:
        child.kill()
        child.join()
        receiver.close()


def _send_result(compute: Callable[[], object], sender: Connection) -> None:
    disable_memory_dumps()
    with suppress(OSError, ValueError, IndexError):  # a system without /proc, or with lower limits
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
    with suppress(MemoryError):
        sender.send(compute())
