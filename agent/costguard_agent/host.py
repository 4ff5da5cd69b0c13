"""Access to the host: environment, files, processes and other commands.

Tests pass a folder as the file system's root. Nothing here requires Linux: without /proc, processes cannot be seen, which is
reported and not treated as "none". A command is limited in time and output, and while several hang no more are started.
"""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import json
import os
import selectors
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from costguard_agent.http_client import UnansweredError

FILE_MOST = 64 * 1024
"""Bytes of a file of somebody else's that are read."""
READ_BYTES = 2**20
HOMES_MOST, ENTRIES_MOST = 200, 2000
NO_LOGIN = ("nologin", "false", "sync", "halt", "shutdown")
FIRST_PID = "1"
"""The process that the kernel or the container started first. It has variables that a login shell or a service may lack."""


class HostView(NamedTuple):
    """The variables of this process, and the root of the file system."""

    env: Mapping[str, str]
    root: Path = Path("/")

    @classmethod
    def real(cls) -> HostView:
        """Return the view of this machine."""
        return cls(os.environ)

    def build_path(self, *parts: str) -> Path:
        """Return a path below the root: `build_path("proc", "1")`."""
        return self.root.joinpath(*parts)

    def rebase_path(self, path: str) -> Path:
        """Return an absolute path moved below the root."""
        return self.root / path.lstrip("/")


def read_text(path: Path, most: int = FILE_MOST) -> str | None:
    """Return up to `most` bytes of a regular file as text; None if it cannot be read, or is a pipe or a device."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return os.read(handle, most).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(handle)


def read_regular_file(path: Path, most: int = FILE_MOST) -> bytes:
    """Return a whole file from another user's folder.

    Raises UnansweredError if it is missing, larger than `most` bytes, or no regular file: a link, pipe, device or folder.
    """
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):  # before it is opened: opening some devices does something
            raise UnansweredError(f"{path.name} is not a regular file")
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(handle, "rb", buffering=0) as file:  # noqa: PTH123 - a handle, opened with flags
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise UnansweredError(f"{path.name} is not a regular file")
            if status.st_size > most:
                raise UnansweredError(f"{path.name} has {status.st_size} bytes, more than {most}")
            pieces, left = [], most
            while left > 0 and (piece := file.read(min(left, READ_BYTES))):
                pieces.append(piece)
                left -= len(piece)
            return b"".join(pieces)
    except (OSError, ValueError) as error:
        raise UnansweredError(f"{path.name} cannot be read: {getattr(error, 'strerror', None) or 'bad name'}") from None


def list_files(folder: Path, *patterns: str) -> list[Path]:
    """Return the files of another user's folder that match a pattern, sorted, of its first ENTRIES_MOST entries."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names = [one.name for one in itertools.islice(entries, ENTRIES_MOST)]
        return [folder / name for name in sorted(names) if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    return []


def read_json_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file from another user's folder; None if it contains none."""
    try:
        value = json.loads(read_regular_file(path).decode("utf-8", "replace"))
    except (ValueError, RecursionError, UnansweredError):
        return None
    return value if isinstance(value, dict) else None


def list_command_lines(around: HostView) -> Iterator[tuple[int, list[str]]]:
    """Yield pid and command line of each visible process.

    Kernel threads have an empty command line.
    """
    try:
        numbers = [int(name) for name in os.listdir(around.build_path("proc")) if name.isdigit()]  # noqa: PTH208 - names of thousands
    except OSError:
        return
    for number in numbers:
        line = read_text(around.build_path("proc", str(number), "cmdline"))
        if line is not None:
            yield number, line.rstrip("\0").split("\0")


def is_alive(around: HostView, pid: int) -> bool | None:
    """Return whether the process exists; None if processes cannot be seen at all."""
    if not around.build_path("proc", FIRST_PID).exists():
        return None
    return around.build_path("proc", str(pid)).exists()


def list_home_folders(around: HostView) -> list[Path]:
    """Return at most 200 home folders: this process's, those of /etc/passwd with a login shell, and all of /home."""
    folders: dict[Path, None] = {}
    own = around.env.get("HOME", "")
    if own.startswith("/"):
        folders[around.rebase_path(own)] = None
    for line in (read_text(around.build_path("etc", "passwd"), most=2**20) or "").splitlines():
        fields = line.split(":")
        if len(fields) == 7 and fields[5].startswith("/") and not fields[6].endswith(NO_LOGIN):  # noqa: PLR2004 - passwd(5)
            folders[around.rebase_path(fields[5])] = None
    with contextlib.suppress(OSError):
        folders.update(dict.fromkeys(sorted(around.build_path("home").iterdir())))
    return list(folders)[:HOMES_MOST]


def find_variables(around: HostView, *names: str) -> dict[str, str]:
    """Return these variables of this process, the first process, or /etc/environment; "" if none of them has one.

    Rented containers often set them in the latter two only.
    """
    places = (around.env, read_process_variables(around, int(FIRST_PID)), _read_etc_environment(around))
    return {name: next((place[name] for place in places if place.get(name)), "") for name in names}


def read_process_variables(around: HostView, pid: int) -> dict[str, str]:
    """Return another process's environment at its start; empty if it may not be read."""
    text = read_text(around.build_path("proc", str(pid), "environ"), most=2**20) or ""
    return dict(one.split("=", 1) for one in text.split("\0") if "=" in one)


def _read_etc_environment(around: HostView) -> dict[str, str]:
    lines = (read_text(around.build_path("etc", "environment")) or "").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, value in pairs}


WITHIN_S, MOST = 10.0, 2**20
HANGING_MOST = 2
"""Processes that did not end when they were told to (a network disk that is gone): no more are started beside them."""
EXTRA_FOLDERS = (
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/sbin",
    "/sbin",
    "/opt/slurm/bin",
    "/usr/local/slurm/bin",
    "/opt/bin",
)
"""Where else commands are looked for: a service has a short PATH."""
_hanging: list[subprocess.Popen[bytes]] = []


class CommandResult(NamedTuple):
    """A command's exit code, its output, and the last line of its standard error."""

    code: int
    out: str
    complaint: str


def find_command(name: str, around: HostView) -> str | None:
    """Return the path of a command; None if it is not found."""
    path = os.pathsep.join(
        [*around.env.get("PATH", "").split(os.pathsep), *(str(around.rebase_path(one)) for one in EXTRA_FOLDERS)]
    )
    return shutil.which(name, path=path)


def run_command(argv: Sequence[str], around: HostView, *, within_s: float = WITHIN_S, most: int = MOST) -> CommandResult:
    """Run `argv` and return its result; raises UnansweredError if it hangs, prints too much or cannot be started."""
    name = Path(argv[0]).name
    _hanging[:] = [one for one in _hanging if one.poll() is None]
    if len(_hanging) >= HANGING_MOST:
        raise UnansweredError(f"{name} is not started: {HANGING_MOST} commands before it still hang")
    try:
        process = subprocess.Popen(  # noqa: S603 - a list of words, no shell
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**around.env, "LC_ALL": "C", "COLUMNS": "400"},
        )
    except (OSError, ValueError) as error:
        raise UnansweredError(f"{name} cannot be started: {getattr(error, 'strerror', None) or 'bad words'}") from None
    try:
        out, complaint = _read_pipes(process, time.monotonic() + within_s, most, name)
        lines = complaint.decode("utf-8", "replace").strip().splitlines() or [""]
        return CommandResult(process.wait(timeout=1), out.decode("utf-8", "replace"), lines[-1][:160])
    except subprocess.TimeoutExpired:
        raise UnansweredError(f"{name} closed its output and did not exit", sent=True) from None
    finally:
        _end_session(process)


def read_output(argv: Sequence[str], around: HostView, **bounds: float) -> str:
    """Return the output of a command; raises UnansweredError, with its last error line, if it fails."""
    one = run_command(argv, around, within_s=bounds.get("within_s", WITHIN_S))
    if one.code != 0:
        raise UnansweredError(f"{Path(argv[0]).name} ended with {one.code}: {one.complaint or 'it did not say why'}")
    return one.out


def _read_pipes(process: subprocess.Popen[bytes], until: float, most: int, name: str) -> tuple[bytes, bytes]:
    pieces: dict[str, list[bytes]] = {"out": [], "err": []}
    size = 0
    with selectors.DefaultSelector() as both:
        for pipe, which in ((process.stdout, "out"), (process.stderr, "err")):
            if pipe is not None:
                both.register(pipe, selectors.EVENT_READ, which)
        while both.get_map():
            left = until - time.monotonic()
            ready = both.select(left) if left > 0 else []
            if not ready:
                raise UnansweredError(f"{name} did not end in time", sent=True)
            for key, _ in ready:
                piece = os.read(key.fd, 65536)
                if not piece:
                    both.unregister(key.fileobj)
                size += len(piece)
                pieces[key.data].append(piece)
            if size > most:
                raise UnansweredError(f"{name} printed more than {most} bytes", sent=True)
    return b"".join(pieces["out"]), b"".join(pieces["err"])


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its session if it has not ended; one that still does not end is remembered."""
    if process.returncode is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    pipes: tuple[IO[bytes] | None, ...] = (process.stdout, process.stderr)
    for pipe in pipes:
        if pipe is not None:
            pipe.close()
    try:
        process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        _hanging.append(process)
