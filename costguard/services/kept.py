"""A cache of files in the platform's cache folder: for this user only, and never half a file."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from costguard.system.whole import write_file_atomically

CACHE_NAME_LENGTH_MAX = 60
CACHE_BYTES_MAX = 64 * 2**20
"""Bytes. A larger file is no price list, and is not read."""


class FileCache:
    """A `Cache` in `folder`, which is made when something is first kept. How old a file is, its own date tells."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str, youngest: datetime) -> bytes | None:
        """What was kept as `name` at or after `youngest`; None where there is no such thing or it cannot be read."""
        path = self.folder / _make_file_name(name)
        with suppress(OSError, OverflowError, ValueError):
            found = path.stat()
            if datetime.fromtimestamp(found.st_mtime, UTC) >= youngest and found.st_size <= CACHE_BYTES_MAX:
                return path.read_bytes()
        return None

    def put(self, name: str, data: bytes) -> None:
        """Keep `data`; that it cannot be kept is nobody's failure."""
        with suppress(OSError):
            write_file_atomically(self.folder / _make_file_name(name), data)


def _make_file_name(name: str) -> str:
    """A name that every file system takes, and that no other `name` gets."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:CACHE_NAME_LENGTH_MAX]
    return f"{plain}-{sha256(name.encode()).hexdigest()[:16]}"
