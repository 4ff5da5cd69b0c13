"""The shim that writes down, or fails, what a process does to the files below a folder; and what it wrote, read back."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from typing import NamedTuple

SOURCE = Path(__file__).with_name("shim.c")
ROOT = Path(__file__).parents[2]
HEAD = struct.Struct("<ciqI")
SHIM = "DISKS_SHIM"
"""The variable that names the shim to the process which runs under it."""


class Op(NamedTuple):
    """One operation. `kind`: see shim.c."""

    kind: str
    fd: int
    at: int
    data: bytes

    @property
    def text(self) -> str:
        """Its paths, or its note."""
        return self.data.decode()


def why_not() -> str:
    """Why the shim cannot be had here; "" where it can."""
    if os.uname().sysname != "Linux":
        return "the shim is for Linux's loader"
    return "" if shutil.which("cc") else "there is no C compiler (cc)"


@cache
def shim() -> Path:
    """The shim, compiled where it is not yet."""
    made = Path(gettempdir()) / f"costguard-disks-{os.getuid()}-{SOURCE.stat().st_mtime_ns}.so"
    if not made.exists():
        fresh = made.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", fresh, SOURCE], check=True)
        fresh.replace(made)
    return made


def environment(root: Path, trace: Path | None = None, **more: str) -> dict[str, str]:
    """Of a process that runs under the shim, which looks at `root`."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "providers")))
    ours = {"PYTHONPATH": path, "LD_PRELOAD": str(shim()), SHIM: str(shim()), "DISKS_ROOT": str(root)}
    return {**os.environ, **ours, **({"DISKS_TRACE": str(trace)} if trace else {}), **more}


def shimmed() -> ctypes.CDLL:
    """The shim's own functions, in a process that runs under it."""
    library = ctypes.CDLL(os.environ[SHIM])
    library.disks_arm.argtypes = [ctypes.c_long, ctypes.c_int]
    library.disks_count.restype = ctypes.c_long
    return library


def say(*lines: str) -> None:
    """Print them at once: who waits for a figure wants to see it come."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def read(path: Path) -> list[Op]:
    """What was written down, in order."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        kind, fd, place, length = HEAD.unpack_from(data, at)
        at += HEAD.size
        found.append(Op(kind.decode(), fd, place, data[at : at + length]))
        at += length
    return found
