"""Opens a file with size limits: unpacks its bytes, counts the lines of its text, and names the line in each error.

A file has a name separate from its content, because an object in a bucket has no path.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from costguard.errors import InputError, shorten, to_one_line
from costguard.system.input_file import InputFileError, open_input_file

LONGEST_LINE = 4 * 2**20
"""Characters: a row of an export has some thousand, with all its tags."""
LARGEST_UNPACKED = 64 * 2**30
"""Bytes that a packed file may unpack to: a small file can hold a huge one."""

MOST_BLANK = 10_000
"""Blank lines before the first one with something on it."""

GZIP, PARQUET, ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
BYTE_ORDER_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
"""What a file may begin with, and how it is written then."""


@contextmanager
def open_file(path: Path) -> Iterator[io.BufferedReader]:
    """Yield the bytes of a regular file; raise InputError that names it if it cannot be opened or read."""
    try:
        with open_input_file(path) as raw:
            yield raw
    except FileNotFoundError:
        raise InputError("no such file", field=str(path), hint="name an existing file") from None
    except IsADirectoryError:
        raise InputError("is a folder, not a file", field=str(path), hint="name one file of it") from None
    except InputFileError as refused:
        raise InputError(refused.why, field=str(path), hint="write it to a file first") from None
    except OSError as wrong:
        raise InputError(f"cannot be read: {wrong.strerror or wrong}", field=str(path), hint="check its permissions") from None


def is_parquet(raw: io.BufferedReader) -> bool:
    """Return whether the opened file is Parquet."""
    return raw.peek(4)[:4] == PARQUET


class LineReader:
    """The lines of a text file, unpacked if gzipped, counted, and limited in length.

    `name`: the name in messages.
    """

    def __init__(self, name: str, raw: io.BufferedReader) -> None:
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if raw.peek(2)[:2] == GZIP else raw
        self.name, self.number, self._raw = name, 0, io.BufferedReader(_BoundedStream(stream, name))
        self._text: io.TextIOWrapper | None = None

    def begin(self) -> str:
        """Return the first line that is not blank; raise InputError if the file is not text."""
        with self._told():
            head = self._raw.peek(4096)[:4096]
        if not head:
            raise InputError("is empty", field=self.name, hint="export it again")
        encoding = next((name for mark, name in BYTE_ORDER_MARKS if head.startswith(mark)), "utf-8")
        if head.startswith(ZIP):
            raise InputError("is a zip archive", field=self.name, hint="unpack it, and name the file or folder in it")
        if b"\0" in head and encoding != "utf-16":
            hint = "a CSV, JSON or Parquet file is required; UTF-16 without a byte order mark cannot be read: save it as UTF-8"
            raise InputError("is not text", field=self.name, hint=hint)
        self._text = io.TextIOWrapper(self._raw, encoding, newline="")
        for line in self:
            if line.strip():
                return line
            if self.number > MOST_BLANK:
                raise InputError(f"begins with {self.number} blank lines", field=self.name, hint="check that it is a bill")
        raise InputError("contains only blank lines", field=self.name, hint="export it again")

    def __iter__(self) -> Iterator[str]:
        assert self._text is not None  # noqa: S101 - for the type checker: begun before
        with self._told():
            while line := self._text.readline(LONGEST_LINE):
                self.number += 1
                if len(line) >= LONGEST_LINE:
                    what = f"is longer than {LONGEST_LINE >> 20} million characters"
                    raise InputError(what, field=self.here, hint="check that it is a bill")
                if "\0" in line:
                    raise InputError("contains a zero byte, so it is not text", field=self.here, hint="export it again")
                yield line

    @property
    def here(self) -> str:
        """Return the current position: `bill.csv, line 7`."""
        return f"{self.name}, line {self.number}"

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Convert errors in the bytes to InputError that names the line after which they were found."""
        try:
            yield
        except UnicodeDecodeError as odd:
            file, byte = shorten(Path(self.name).name, 60), odd.object[odd.start]
            hint = f"byte 0x{byte:02x}: save it as UTF-8, e.g. iconv -f latin1 -t utf-8 {file}"
            position = f"{self.name}, after line {self.number}"
            raise InputError(f"is not {odd.encoding.upper()}", field=position, hint=hint) from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as broken:
            what = "is cut short" if isinstance(broken, EOFError) else f"is damaged ({to_one_line(str(broken))})"
            hint = "copy or download it again"
            raise InputError(what, field=f"{self.name}, after line {self.number}", hint=hint) from None


class _BoundedStream(io.RawIOBase):
    """A stream that raises InputError after LARGEST_UNPACKED bytes."""

    def __init__(self, inner: IO[bytes], name: str) -> None:
        self._inner, self._name, self._left = inner, name, LARGEST_UNPACKED

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the base takes any buffer
        data = self._inner.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise InputError(f"unpacks to more than {LARGEST_UNPACKED >> 30} GiB", field=self._name)
        buffer[: len(data)] = data
        return len(data)
