"""Identify the file system of a path, and what it lacks for a SQLite ledger.

SQLite's log (WAL) needs memory that is shared by the processes of one machine. On a file system that other machines mount,
two writers do not see each other, and lose transactions (sqlite.org/wal.html: "WAL does not work over a network filesystem").
SHARED: such a file system, as NFS; FLEETING: lost with the container, as overlay; UNSURE: one machine's perhaps, as 9p.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import NamedTuple

LOCAL, SHARED, UNSURE, FLEETING = "local", "shared", "unsure", "fleeting"


class FileSystem(NamedTuple):
    """The name of a file system, such as NFS or fuse.sshfs, and its class: LOCAL, SHARED, UNSURE or FLEETING."""

    name: str
    risk: str


FUSE = 0x65735546
_TYPES = {
    SHARED: "6969 NFS, 517b SMB, fe534d42 SMB, ff534d42 CIFS, 564c NCP, 5346414f AFS, 6b414653 AFS, 73757245 Coda, "
    "c36400 CephFS, bd00bd0 Lustre, 47504653 GPFS, 19830326 BeeGFS, 20030528 OrangeFS, aad7aaea PanFS, 13111a8 IBRIX, "
    "beefdead StorNext, 61636673 ACFS, 1161970 GFS2, 7461636f OCFS2",
    UNSURE: "1021997 9p, 786f4256 vboxsf, bacbacbc vmhgfs, 7c7c6673 prl_fs",
    FLEETING: "794c7630 overlay, 1021994 tmpfs, 858458f6 ramfs",
}
"""`f_type` of statfs(2): linux/magic.h 6.12 and src/stat.c of coreutils 9.5, which lists more than the kernel (2026-11-30)."""
_LOCAL_FUSE = ("fuseblk", "bindfs", "cryfs", "encfs", "gocryptfs", "lxcfs", "mergerfs", "ntfs-3g", "unionfs", "zfs")
_UNNAMED_FUSE = ["fuse", "portal", "grpcfuse", "osxfs"]
"""Types of FUSE that do not name the program behind them."""


def identify_file_system(path: Path) -> FileSystem:
    """Return the file system of `path`, or of the nearest folder above it that exists; an unknown one counts as LOCAL."""
    place = next((one for one in (path, *path.parents) if one.exists()), Path("/"))
    buffer, library = ctypes.create_string_buffer(4096), ctypes.CDLL(None)  # `struct statfs` has 2,168 bytes on macOS
    statfs = getattr(library, "statfs$INODE64", getattr(library, "statfs", None))  # the first one: macOS on x86-64
    if statfs is None or statfs(os.fsencode(place), buffer):
        return FileSystem("", LOCAL)
    if sys.platform == "darwin":
        return _read_darwin(buffer.raw)
    number = ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF
    if number == FUSE:
        return _identify_fuse(place)
    types = ((one.split(), risk) for risk, text in _TYPES.items() for one in text.split(", "))
    return next((FileSystem(name, risk) for (magic, name), risk in types if int(magic, 16) == number), FileSystem("", LOCAL))


def _read_darwin(raw: bytes) -> FileSystem:
    """Return the file system in macOS's `struct statfs` of 64-bit inodes (sys/mount.h): flags at 64, the name at 72."""
    is_local = int.from_bytes(raw[64:68], sys.byteorder) & 0x1000  # MNT_LOCAL
    return FileSystem(raw[72:88].partition(b"\0")[0].decode(), LOCAL if is_local else SHARED)


def _identify_fuse(place: Path) -> FileSystem:
    """Return the file system by its type in /proc: one that names a program is SHARED unless it is known to be local."""
    device, mounts = place.stat().st_dev, Path("/proc/self/mountinfo")
    lines = mounts.read_text(errors="replace").splitlines() if mounts.exists() else []
    mount = next((one for one in reversed(lines) if f" {os.major(device)}:{os.minor(device)} " in one), "")
    kind = mount.rpartition(" - ")[2].partition(" ")[0]
    program = kind.removeprefix("fuse.")
    if program in _UNNAMED_FUSE or not kind.startswith("fuse"):
        return FileSystem("FUSE", UNSURE)
    return FileSystem(kind, FLEETING if program == "fuse-overlayfs" else LOCAL if program in _LOCAL_FUSE else SHARED)
