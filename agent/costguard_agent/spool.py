"""Records that the watchdog has not acknowledged, and unique sequence numbers for messages.

Records are lines of JSON in one file: appended when they are made, removed when they are acknowledged. After a crash or a lost
answer a record may be sent twice; it then has the same time, by which the watchdog recognises it. The file is limited in size
and age; the oldest records are dropped first and counted. On a full disk records are kept in memory only, which is reported.

Numbers rise with the clock in milliseconds and never fall, so that even a machine restored from an old disk image continues
above those it used; an hour of numbers is reserved on disk before any of them is used.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from pathlib import Path
from typing import Any

from costguard_agent.protocol import SEQ_MOST, WINDOW_MS
from costguard_agent.state_dir import PRIVATE_FILE, SEQ, SPOOL, write_file

BYTES_MOST = 2 * 2**20
"""Of records: more than a day of 15 s."""
AGE_MOST_MS = 24 * 3600 * 1000
LINE_MOST = 4096
AHEAD = 3_600_000
"""Numbers set aside at once: an hour, in milliseconds."""


class RecordSpool:
    """The records still to be sent, in the order in which they were made.

    Thread-safe.
    """

    def __init__(self, folder: Path, now_ms: int) -> None:
        self._path = folder / SPOOL
        self._lock = threading.Lock()
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._whole = False
        """Whether the file holds memory contents, and at its head at most what was told already."""
        self._told = 0
        self._earlier = 0
        """Of the lines, the first so many are of an earlier process, which may have dated them by another clock."""
        self.dropped = 0
        self.trouble = ""
        self._load(now_ms)

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, record: dict[str, Any], now_ms: int) -> None:
        """Add a record.

        It never raises: a record that cannot be written is kept in memory.
        """
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            self._keep(line)
            self._bound(now_ms)
            self._write(line)

    def read_head(self, most: int, bytes_most: int) -> list[bytes]:
        """Return the oldest records as JSON: at most `most`, and at most `bytes_most` bytes including separators."""
        with self._lock:
            records: list[bytes] = []
            size = 0
            for line in self._lines:
                size += len(line)
                if len(records) == most or size > bytes_most:
                    break
                records.append(line[:-1])
            return records

    def acknowledge(self, records: list[bytes], dropped: int) -> None:
        """Remove acknowledged records, and subtract the acknowledged number of dropped ones."""
        with self._lock:
            for record in records:
                if self._lines and self._lines[0][:-1] == record:
                    self._let_go()
            self.dropped -= min(dropped, self.dropped)
            self._write(None)

    def drop(self, records: list[bytes]) -> None:
        """Remove records that the watchdog will never accept, and count them as lost."""
        old_count = len(self._lines)
        self.acknowledge(records, 0)
        self.dropped += old_count - len(self._lines)

    def shift_times(self, by_ms: int) -> None:
        """Shift the time of all records, because our clock was set or found wrong by `by_ms`.

        Records of an earlier process were dated by an unknown clock: for a large shift they are dropped, and are missing.
        """
        with self._lock:
            while self._earlier and abs(by_ms) > WINDOW_MS:
                self._let_go()
                self.dropped += 1
            lines = []
            for line in self._lines:
                record = json.loads(line)
                record["at"] += by_ms
                lines.append(json.dumps(record, separators=(",", ":")).encode() + b"\n")
            self._lines, self._bytes, self._whole = deque(lines), sum(map(len, lines)), False
            self._write(None)

    def _load(self, now_ms: int) -> None:
        try:
            data = self._path.read_bytes()[-2 * BYTES_MOST :]
        except OSError:
            return
        for line in data.splitlines(keepends=True):
            if line.endswith(b"\n") and len(line) <= LINE_MOST and _parse_record_ms(line) >= 0:
                self._keep(line)
        self._earlier = len(self._lines)
        self._bound(now_ms)

    def _keep(self, line: bytes) -> None:
        self._lines.append(line)
        self._bytes += len(line)

    def _let_go(self) -> None:
        self._bytes -= len(self._lines.popleft())
        self._told += 1
        self._earlier = max(0, self._earlier - 1)

    def _bound(self, now_ms: int) -> None:
        while self._lines and (self._bytes > BYTES_MOST or _parse_record_ms(self._lines[0]) < now_ms - AGE_MOST_MS):
            self._let_go()
            self.dropped += 1

    def _write(self, line: bytes | None) -> None:
        """Update the file from memory: by appending if that is enough, else by rewriting it."""
        try:
            if self._whole and not self._told:
                if line is not None:
                    self._append(line)
            else:
                self._rewrite()
            self.trouble = ""
        except OSError as error:
            self._whole = False
            self.trouble = f"records are kept only in memory: {self._path.parent} cannot be written ({error.strerror})"

    def _append(self, line: bytes) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
        try:
            if os.write(handle, line) != len(line):
                raise OSError(28, "no space left")
        finally:
            os.close(handle)

    def _rewrite(self) -> None:
        if self._lines:
            write_file(self._path, b"".join(self._lines))
        else:
            os.truncate(self._path, 0) if self._path.exists() else write_file(self._path, b"")
        self._whole, self._told = True, 0


class SequenceNumbers:
    """Numbers of messages that always increase, also across a crash."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SEQ
        self._last = self._until = _read_number(self._path)
        self.trouble = ""

    def take_next(self, now_ms: int) -> int:
        """Return a number above all that were used before."""
        self._last = min(max(self._last + 1, now_ms), SEQ_MOST)
        if self._last > self._until:
            self._set_aside(self._last + AHEAD)
        return self._last

    def leap(self, hours: int) -> None:
        """Continue far above: the watchdog has seen larger numbers that are no longer recorded here."""
        self._last = min(self._last + hours * AHEAD, SEQ_MOST)

    def _set_aside(self, until: int) -> None:
        try:
            write_file(self._path, f"{until}\n".encode(), sure=True)
        except OSError as error:
            self.trouble = (
                f"the numbers of messages cannot be written ({error.strerror}): after a restart the clock is used instead"
            )
            return
        self._until, self.trouble = until, ""


def _read_number(path: Path) -> int:
    try:
        number = int(path.read_bytes()[:20])
    except (OSError, ValueError):
        return 0
    return number if 0 <= number <= SEQ_MOST - AHEAD else 0


def _parse_record_ms(line: bytes) -> int:
    """Return when a record ended, Unix milliseconds; -1 if the line is no valid record."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return -1
    at = record.get("at") if isinstance(record, dict) and isinstance(record.get("signals"), dict) else None
    return at if isinstance(at, int) else -1
