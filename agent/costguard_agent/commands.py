"""Another program, asked: bounded in time and in what it may print, and never more than a few that hang."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from costguard_agent.host import HostView
from costguard_agent.http_client import UnansweredError

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
    """How a command ended, what it printed, and the last line of its complaint."""

    code: int
    out: str
    complaint: str


def find_command(name: str, around: HostView) -> str | None:
    """The file of a command; None where there is none."""
    path = os.pathsep.join(
        [*around.env.get("PATH", "").split(os.pathsep), *(str(around.rebase_path(one)) for one in EXTRA_FOLDERS)]
    )
    return shutil.which(name, path=path)


def run_command(argv: Sequence[str], around: HostView, *, within_s: float = WITHIN_S, most: int = MOST) -> CommandResult:
    """What `argv` printed, once it ended; raises UnansweredError where it hangs, prints too much or cannot be started."""
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
        raise UnansweredError(f"{name} printed all and did not end", sent=True) from None
    finally:
        _end_session(process)


def read_output(argv: Sequence[str], around: HostView, **bounds: float) -> str:
    """What a command printed that ended well; raises UnansweredError, with its last complaint, else."""
    one = run_command(argv, around, within_s=bounds.get("within_s", WITHIN_S))
    if one.code != 0:
        raise UnansweredError(f"{Path(argv[0]).name} ended with {one.code}: {one.complaint or 'it did not say why'}")
    return one.out


def _read_pipes(process: subprocess.Popen[bytes], until: float, most: int, name: str) -> tuple[bytes, bytes]:
    kept: dict[str, list[bytes]] = {"out": [], "err": []}
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
                kept[key.data].append(piece)
            if size > most:
                raise UnansweredError(f"{name} printed more than {most} bytes", sent=True)
    return b"".join(kept["out"]), b"".join(kept["err"])


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """The process and its session, where it did not end by itself; one that does not end even so is remembered."""
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
