"""What starting costguard touches (H50), as Python's own audit hooks tell it: no network, no program, no file elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import shop

SCRIPT = """
import json, os, sys
seen = []
NETWORK = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "http.client")
PROGRAMS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn")
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.ch", "shutil")
def heard(event, args):
    if event == "open":
        path, mode, flags = args
        writes = any(letter in (mode or "") for letter in "wax+") or (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and isinstance(path, (str, bytes)):
            seen.append(["writes", os.fsdecode(path)])
    elif event == "sqlite3.connect":
        seen.append(["sqlite", str(args[0])])
    elif event.startswith(NETWORK):
        seen.append(["network", event])
    elif event.startswith(PROGRAMS):
        seen.append(["program", event])
    elif event.startswith(CHANGES):
        seen.append(["changes", f"{event} {args[0]}"])
sys.addaudithook(heard)
code = 0
exec(os.environ["TO_DO"])
sys.stderr.write("\\n" + json.dumps(seen))
"""
RUN = "from costguard.cli import run_cli; code = run_cli({!r})"


def touched(do: str, folder: Path) -> list[tuple[str, str]]:
    """What this statement does that the outside can see: (kind, what)."""
    environ = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    environ |= {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "CACHE")}
    root = Path(__file__).parents[2]
    environ |= {"HOME": str(folder), "PYTHONPATH": f"{root}{os.pathsep}{root / 'providers'}", "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=folder,
        env={**environ, "TO_DO": do},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    found: list[Any] = json.loads(ran.stderr.splitlines()[-1])
    return [(kind, what) for kind, what in found]


EVERY_MODULE = """
import importlib, pkgutil, costguard
names = [one.name for one in pkgutil.walk_packages(costguard.__path__, "costguard.") if "__main__" not in one.name]
for name in names:
    if not name.startswith(("costguard.services.quote.exact_step", "costguard.integrations.", "costguard.ledger.migrations",
                            "costguard.services.poll.poll_jobs")):  # psycopg asks ldconfig for its library
        importlib.import_module(name)
assert len(names) > 200
for name in ("aws", "coreweave", "gcp", "lambda", "local", "runpod", "sim", "vast"):
    importlib.import_module(f"costguard_{name}")
"""


def test_importing_all_of_costguard_touches_nothing(tmp_path: Path) -> None:
    assert touched(EVERY_MODULE, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), ("quote", "--help"), ("watch", "--help"), ("providers",)], ids=" ".join
)
def test_asking_for_help_touches_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert touched(RUN.format(list(words)), tmp_path) == []
    assert list(tmp_path.iterdir()) == []


ASKED = (("quote", *shop.STATED), ("offers", "--top", "1"), ("size", "--model", "llama-2-7b"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("words", ASKED, ids=lambda words: words[0])
def test_a_quote_asks_nobody_and_writes_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    found = touched(RUN.format(list(words)), tmp_path)
    assert [one for one in found if one[0] != "sqlite"] == []
    assert all("mode=ro" in what or "immutable=1" in what for _, what in found), found
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_that_is_made_is_made_where_it_belongs(tmp_path: Path) -> None:
    found = touched(RUN.format(["db", "upgrade"]), tmp_path)
    assert not [one for one in found if one[0] in ("network", "program")]
    assert found
    elsewhere = [what for kind, what in found if kind in ("writes", "changes") and str(tmp_path / "data/costguard") not in what]
    assert elsewhere == [f"os.mkdir {tmp_path / 'data'}"]


@pytest.mark.parametrize(
    ("do", "kind"),
    [
        ("import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', 9))", "network"),
        ("import subprocess; subprocess.run(['true'])", "program"),
        ("open('x', 'w')", "writes"),
        ("import os; os.open('x', os.O_CREAT | os.O_WRONLY)", "writes"),
        ("import os; os.mkdir('x')", "changes"),
        ("import sqlite3; sqlite3.connect('x').execute('CREATE TABLE t (a)')", "sqlite"),
    ],
)
def test_what_should_be_seen_is_seen(tmp_path: Path, do: str, kind: str) -> None:
    """Controls."""
    assert kind in [one for one, _ in touched(do, tmp_path)]
