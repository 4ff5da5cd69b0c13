"""What stands near an agent in tests: a file system of its own, and small servers on loopback."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from costguard_agent.host import HostView

from tests.fakes.server import Answer, Asked, FakeCloud, serving


class Server(FakeCloud):
    """Answers by method and path; what it has no answer for is 404."""

    def __init__(self, answers: Mapping[str, Answer | Callable[[Asked], Answer]]) -> None:
        super().__init__()
        self.answers = dict(answers)

    def answer(self, asked: Asked) -> Answer:
        found = self.answers.get(f"{asked.method} {asked.path}", Answer(status=404))
        return found(asked) if callable(found) else found


@contextmanager
def answering(answers: Mapping[str, Answer | Callable[[Asked], Answer]]) -> Iterator[tuple[Server, int]]:
    """Such a server and its port."""
    server = Server(answers)
    with serving(server) as base:
        yield server, int(base.rpartition(":")[2])


class Machine:
    """A machine that is a folder: files, processes, commands, variables."""

    def __init__(self, root: Path, **env: str) -> None:
        self.root, self.env = root, {"PATH": str(root / "commands"), **env}
        (root / "proc" / "1").mkdir(parents=True)
        self.process(1, "systemd", parent=0)
        self.process(os.getpid(), "costguard-agent", parent=1)

    @property
    def around(self) -> HostView:
        """As the agent sees it."""
        return HostView(self.env, self.root)

    def file(self, path: str, text: str) -> Path:
        """A file below the root."""
        made = self.root / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text, "utf-8")
        return made

    def process(
        self, pid: int, name: str, *, parent: int = 1, session: int = 0, tty: int = 0, words: tuple[str, ...] = ()
    ) -> None:
        """A process as /proc shows it; `tty` is the device number of its terminal."""
        state = f"{pid} ({name}) S {parent} {session or pid} {session or pid} {tty} -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 100"
        self.file(f"proc/{pid}/stat", state + "\n")
        self.file(f"proc/{pid}/cmdline", "\0".join(words or (name,)) + "\0")

    def terminal(self, line: str, typed_at: float) -> None:
        """A terminal that was read from last at `typed_at` (Unix seconds)."""
        os.utime(self.file(f"dev/{line}", ""), (typed_at, typed_at + 5))

    def command(self, name: str, script: str) -> Path:
        """A program on the PATH, in sh. Only such are found: a test never turns off the machine that it runs on."""
        made = self.file(f"commands/{name}", f"#!/bin/sh\nexport PATH=/usr/bin:/bin\n{script}\n")
        made.chmod(made.stat().st_mode | stat.S_IXUSR)
        return made
