"""Limits on what a computation may take: it runs in a child process, which the kernel ends at its limits.

Two use it: `review` quotes each file of a stranger in one, and the web's reports and back-tests run in one, so that the process
that answers agents computes neither. Example: a file that computes for a minute is ended after 4 s of processor time.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Generic, TypeVar

from costguard.system.file_security import disable_memory_dumps

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLimits:
    """Seconds of the processor, seconds by the clock, and bytes beside what the process has when it begins.

    `nice`: how far it steps back behind other processes, 0 to 19.
    """

    cpu_s: int
    wall_s: float
    memory_bytes: int
    nice: int = 0


class LimitedChild(Generic[Result]):
    """A child process that computes `compute()`. Call `run` once; `end` may be called at any time, from another thread.

    `is_fresh`: a new interpreter, to which `compute` is pickled, as a process with threads needs; False: a fork of this one.
    """

    def __init__(self, compute: Callable[[], Result], limits: ChildLimits, *, is_fresh: bool = False) -> None:
        context = multiprocessing.get_context("spawn") if is_fresh else multiprocessing.get_context("fork")
        self._wall_s, self._is_ended = limits.wall_s, False
        self._receiver, self._sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_send_result, args=(compute, self._sender, limits), daemon=True)

    def run(self) -> Result | None:
        """Return what was computed; None if a limit or `end` ended it."""
        try:
            if self._is_ended:
                return None
            self._process.start()
            self._sender.close()
            if self._is_ended:  # while it started
                self.end()
            return self._receiver.recv() if self._receiver.poll(self._wall_s) else None
        except EOFError:
            return None
        finally:
            self.end()
            if self._process.pid is not None:
                self._process.join()
            self._sender.close()
            self._receiver.close()

    def end(self) -> None:
        """End it at once, or have it not start."""
        self._is_ended = True
        if self._process.pid is not None:
            self._process.kill()


def run_limited(compute: Callable[[], Result], limits: ChildLimits) -> Result | None:
    """Return what `compute` returns in a fork of this process; None if it was ended by a limit."""
    return LimitedChild(compute, limits).run()


def _send_result(compute: Callable[[], object], sender: Connection, limits: ChildLimits) -> None:
    disable_memory_dumps()
    with suppress(OSError, ValueError, IndexError):  # a system without /proc, or with lower limits
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + limits.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 1))
    signal.alarm(math.ceil(limits.wall_s) + 1)  # where nobody waits any more
    os.nice(limits.nice)
    with suppress(MemoryError):
        sender.send(compute())
