"""Where the processes of these tests work, and what they find around them."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SHM = Path("/dev/shm")  # noqa: S108 - a folder of this test's own is made there
MEMORY = _SHM if _SHM.is_dir() and os.access(_SHM, os.W_OK) else Path(tempfile.gettempdir())
"""Files here outlive a process that is killed, as all files do; that they do not outlive the machine is tests/disks' matter."""


def cpu_s() -> float:
    """CPU seconds of this process and of all that it has started and that they have, those that ended too."""
    ours, known = {os.getpid()}, dict[int, tuple[int, int]]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            known[int(stat.parent.name)] = int(words[1]), sum(map(int, words[11:15]))
    while more := {pid for pid, (parent, _) in known.items() if parent in ours} - ours:
        ours |= more
    return sum(known[pid][1] for pid in ours if pid in known) / os.sysconf("SC_CLK_TCK")


def environment() -> dict[str, str]:
    """Of a process that imports the tests."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "providers")))
    return {**os.environ, "PYTHONPATH": path}
