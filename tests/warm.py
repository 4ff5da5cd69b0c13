"""`costguard` in a process of its own that need not import it: one server a test process imports all of it once and forks.

The child has its own environment, folder, streams and end, an interpreter's whole way out included. What a cold start alone can
show (imports, signals, a terminal) is tried with cold ones: at least one of each test that uses these.

    python -m tests.warm        a line on stdin: {"commands": [{"words", "cwd", "environ", "at", "out", "err"}, ...],
                                "limit_s"}, all of them at once; on stdout the exit codes, as JSON
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import time_machine

ROOT = Path(__file__).parents[1]
PACKAGES = ("costguard", *sorted(path.name for path in (ROOT / "providers").glob("costguard_*")))
OTHERS = ("alembic.command", "apprise", "boto3", "google.auth.transport.requests", "google.cloud.compute_v1", "psycopg")
"""What they import late."""
LEFT_OUT = "__main__"
Ended = subprocess.CompletedProcess[bytes]


def run(
    *commands: Sequence[str],
    cwd: Path,
    environs: Sequence[Mapping[str, str]],
    at: datetime | None = None,
    limit_s: int = 300,
) -> list[Ended]:
    """What came of `costguard` with each of `commands`, all at the same time; whoever takes longer than `limit_s` is ended.

    `at`: what their clocks show when they begin; None: what the machine's shows.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with TemporaryDirectory(prefix="costguard-warm-") as folder:
        files = [(Path(folder, f"{number}.out"), Path(folder, f"{number}.err")) for number in range(len(commands))]
        both = {"cwd": str(cwd), "at": at and at.isoformat()}
        asked = [
            {**both, "words": list(words), "environ": dict(environ), "out": str(out), "err": str(err)}
            for words, environ, (out, err) in zip(commands, environs, files, strict=True)
        ]
        server.stdin.write(json.dumps({"commands": asked, "limit_s": limit_s}) + "\n")
        server.stdin.flush()
        codes: list[int] = json.loads(server.stdout.readline())
        return [
            Ended(list(words), code, out.read_bytes(), err.read_bytes())
            for words, code, (out, err) in zip(commands, codes, files, strict=True)
        ]


@cache
def _server() -> subprocess.Popen[str]:
    path = os.pathsep.join(str(ROOT / room) for room in (".", "agent", "providers"))
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.warm"],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": path, "NO_GCE_CHECK": "true"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(_close, server)
    return server


def _close(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.communicate()


def _serve() -> dict[str, Any] | None:
    """Fork a child for each command of each line. Returns, in a child, what it is to be; None where there are no more lines."""
    for name in PACKAGES:
        for found in pkgutil.walk_packages(import_module(name).__path__, f"{name}."):
            if not found.name.endswith(LEFT_OUT) and ".migrations" not in found.name:
                with suppress(ImportError):  # an extra that nobody needs here
                    import_module(found.name)
    for name in OTHERS:
        import_module(name)
    assert threading.active_count() == 1
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        children = []
        for command in asked["commands"]:
            child = os.fork()
            if not child:
                signal.alarm(asked["limit_s"])
                return dict(command)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        sys.stdout.write(f"{json.dumps(codes)}\n")
        sys.stdout.flush()
    return None


def _become(command: dict[str, Any]) -> None:
    """Be that command from here on."""
    os.setsid()
    for number, name in ((0, os.devnull), (1, command["out"]), (2, command["err"])):
        opened = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["environ"])
    sys.path[:0] = [one for one in command["environ"].get("PYTHONPATH", "").split(os.pathsep) if one]
    sys.argv = ["costguard", *command["words"]]
    if command["at"]:
        time_machine.travel(datetime.fromisoformat(command["at"])).start()
    runpy.run_module("costguard", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if (command := _serve()) is not None:
        _become(command)
