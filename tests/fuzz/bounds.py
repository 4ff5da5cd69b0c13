"""The bounds of one input: no exception but a refusal, at most 5 s of CPU time, and at most 500 MB beside the reader itself.

An input that costs more than the kernel's limits ends the process: it stands in a file, for the process that started this one.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

CPU_S_MAX, MEMORY_BYTES_MAX = 5.0, 500 * 10**6
CPU_S_KILLED_AFTER = 12
PAGE, KIB = resource.getpagesize(), 1024
Reader = Callable[[bytes], None]


class BoundError(Exception):
    """An input passed a bound."""


class Meter:
    """Gives inputs to `read`, and raises BoundError with the reason for one that passes a bound.

    `current`: the file in which the input stands meanwhile. `refusals`: exceptions by which the reader refuses inputs.
    """

    def __init__(self, read: Reader, refusals: tuple[type[Exception], ...], current: Path) -> None:
        self._read, self._refusals, self._current = read, refusals, current
        self.count, self.refused, self.cpu_s, self.memory_bytes = 0, 0, 0.0, 0

    def take(self, data: bytes, *, limited: bool = True) -> None:
        """Read one input. `limited`: False for the first ones, which load modules."""
        self._current.write_bytes(data)
        before, rss = count_cpu_s(), read_rss()
        try:
            with limit_process() if limited else nullcontext():
                self._read(data)
        except self._refusals:
            self.refused += 1
        except MemoryError:
            raise BoundError(f"takes more than {MEMORY_BYTES_MAX / 1e6:.0f} MB") from None
        except Exception as error:
            raise BoundError(f"{type(error).__name__}: {str(error)[:200]}") from error
        if not limited:
            return
        spent, grown = count_cpu_s() - before, read_rss() - rss
        self.count, self.cpu_s, self.memory_bytes = self.count + 1, max(self.cpu_s, spent), max(self.memory_bytes, grown)
        if spent > CPU_S_MAX:
            raise BoundError(f"takes {spent:.1f} s of CPU, more than {CPU_S_MAX:g}")
        if grown > MEMORY_BYTES_MAX:
            raise BoundError(f"takes {grown / 1e6:.0f} MB, more than {MEMORY_BYTES_MAX / 1e6:.0f}")


@contextmanager
def limit_process() -> Iterator[None]:
    """Have the kernel limit what this process takes beside what it has."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    most = size + MEMORY_BYTES_MAX + 2**27  # addresses beside the memory: of threads, of files
    limits = {resource.RLIMIT_AS: most, resource.RLIMIT_CPU: int(time.process_time()) + CPU_S_KILLED_AFTER}
    before = {kind: resource.getrlimit(kind) for kind in limits}
    for kind, soft in limits.items():
        resource.setrlimit(kind, (soft, before[kind][1]))
    try:
        yield
    finally:
        for kind, pair in before.items():
            resource.setrlimit(kind, pair)


def count_cpu_s() -> float:
    """The CPU time of this process and of the children that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def read_rss() -> int:
    """The most memory that this process ever had: an input that takes less than one before is not seen."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


def shrink(data: bytes, fails: Callable[[bytes], bool], tries: int = 400) -> bytes:
    """Return a smaller input that fails too: ever smaller pieces are left out, `tries` times at most."""
    size = len(data) // 2
    while size and tries > 0:
        at = 0
        while at < len(data) and tries > 0:
            tries -= 1
            smaller = data[:at] + data[at + size :]
            if fails(smaller):
                data = smaller
            else:
                at += size
        size //= 2
    return data
