"""A cloud over HTTP, in a process of its own, whose people start, stop and keep machines while the guard acts and dies.

    python -m tests.crashes.acting_cloud          says its port, and serves until its stdin ends

    /CLOUD/new/FOLDER/SEED       a new cloud of that name, whose log is FOLDER/cloud.jsonl
    /CLOUD/life/N                the N-th life begins; somebody has started machines again
    /CLOUD/calm                  nobody does anything any more, and the provider has no moods
    /CLOUD/by-hand/NAME/RUN      whoever was paged stops that run of it
    /CLOUD/machines, /CLOUD/machines/NAME, POST /CLOUD/machines      the API
    /barrier                     answered once all was heard that the dead have sent

A line of the log stands before its answer goes out, and nothing takes it away again. Between an answer to the
GET of a machine and the next POST for it nobody touches it: that window no guard can close, so it is not held against it.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

MACHINES, AWAKE = 8, 3
"""How many there are, and how many run that nobody keeps when a life begins, if there are so many."""
ROOT = Path(__file__).parents[2]


@dataclass
class Box:
    """A machine in its `run`-th run."""

    run: int
    state: str = "running"
    kept: bool = False


@dataclass
class Cloud:
    """All of it. `restless`: people are about, and the provider has its moods. `log`: a file's number, -1 for none."""

    chance: random.Random
    log: int
    boxes: dict[str, Box] = field(default_factory=lambda: {f"i-{n}": Box(run=n) for n in range(MACHINES)})
    restless: bool = True
    runs: int = MACHINES
    life: int = 0
    watched: set[str] = field(default_factory=set)
    """Machines that somebody was just told of, who may be about to stop them."""

    def begin(self, life: int) -> None:
        """Somebody needs machines, whoever watches."""
        self.life = life
        self.watched.clear()
        asleep = [box for box in self.boxes.values() if box.state == "stopped"]
        awake = sum(box.state == "running" and not box.kept for box in self.boxes.values())
        for box in self.chance.sample(asleep, min(len(asleep), max(0, AWAKE - awake))) if self.restless else ():
            self._start(box)

    def people(self) -> None:
        """Somebody does something to one of them, or nothing."""
        if not self.restless or self.chance.random() < 0.5:
            return
        free = [box for name, box in self.boxes.items() if name not in self.watched]
        if not free:
            return
        box, what = self.chance.choice(free), self.chance.random()
        if box.state == "stopped":
            self._start(box, kept=what < 0.25)
        elif what < (0.5 if box.kept else 0.1):
            box.state = "stopped"
        elif what < 0.2:
            box.kept = True

    def _start(self, box: Box, *, kept: bool = False) -> None:
        self.runs += 1
        box.run, box.state, box.kept = self.runs, "running", kept

    def stop(self, name: str) -> bool:
        """As the provider does; whether it answers. `did`: "obeyed", "deaf" or "lost" (done, and no answer)."""
        self.watched.discard(name)
        box, mood = self.boxes[name], self.chance.random() if self.restless else 1
        did = "deaf" if mood < 0.1 else "lost" if mood < 0.2 else "obeyed"
        self.write({"what": "stop", "name": name, "run": box.run, "state": box.state, "kept": box.kept, "did": did})
        if did != "deaf":
            box.state = "stopped"
        return did != "lost"

    def by_hand(self, name: str, run: int) -> None:
        """Stop that run of it, if it still goes on."""
        if self.boxes[name].run == run:
            self.boxes[name].state = "stopped"

    def write(self, line: dict[str, Any]) -> None:
        """A line of the log."""
        os.write(self.log, f"{json.dumps({'life': self.life, 'at_s': time.monotonic(), **line})}\n".encode())

    def told(self, name: str) -> dict[str, Any]:
        """One machine as the API shows it."""
        box = self.boxes[name]
        return {"id": name, "run": box.run, "state": box.state, "kept": box.kept}


@dataclass
class Line:
    """A connection, and what came over it so far."""

    socket: socket.socket
    came: bytes = b""


class Server:
    """One thread, one request a connection."""

    def __init__(self) -> None:
        self.clouds: dict[str, Cloud] = {}
        self.ear = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self.ear.getsockname()[1]
        self.ready = selectors.DefaultSelector()
        self.ready.register(self.ear, selectors.EVENT_READ)
        self.ready.register(0, selectors.EVENT_READ)
        self.open: set[int] = set()
        self.waiting: list[Line] = []

    def serve(self) -> None:
        """Until stdin ends."""
        while True:
            for key, _ in self.ready.select():
                if key.fileobj == 0:
                    return
                if key.fileobj is self.ear:
                    heard, _ = self.ear.accept()
                    self.ready.register(heard, selectors.EVENT_READ, Line(heard))
                    self.open.add(heard.fileno())
                else:
                    self._hear(key.data)
            while self.waiting and len(self.open) == len(self.waiting):
                self._say(self.waiting.pop(), [])

    def _hear(self, line: Line) -> None:
        try:
            more = line.socket.recv(65536)
        except OSError:
            more = b""
        line.came += more
        head, whole, body = line.came.partition(b"\r\n\r\n")
        words = head.decode().split()
        length = next((int(size) for name, size in pairwise(words) if name == "Content-Length:"), 0)
        if whole and len(body) >= length:
            self._asked(line, words[0], words[1], body[:length])
        elif not more:
            if len(words) > 1:
                self.clouds[words[1].split("/")[1]].write({"what": "cut short"})
            self._close(line)

    def _asked(self, line: Line, method: str, path: str, body: bytes) -> None:
        self.ready.unregister(line.socket)
        if path == "/barrier":
            self.waiting.append(line)
            return
        name, *rest = path.strip("/").split("/")
        if rest[0] == "new":
            log = os.open(Path("/", *rest[1:-1]) / "cloud.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            if name in self.clouds:
                os.close(self.clouds[name].log)
            self.clouds[name] = Cloud(random.Random(rest[-1]), log)  # noqa: S311 - moods are drawn, not secret
        answers, said = _answer(self.clouds[name], method, rest, body)
        if answers:
            self._say(line, said)
        else:
            self._close(line)

    def _say(self, line: Line, value: object) -> None:
        data = json.dumps(value).encode()
        with suppress(OSError):  # who asked may be dead by now
            line.socket.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data))
        self._close(line)

    def _close(self, line: Line) -> None:
        with suppress(KeyError):
            self.ready.unregister(line.socket)
        self.open.discard(line.socket.fileno())
        line.socket.close()


def _answer(cloud: Cloud, method: str, words: list[str], body: bytes) -> tuple[bool, object]:
    """Whether it answers, and what."""
    match words:
        case ["machines"] if method == "POST":
            return cloud.stop(json.loads(body)["id"]), {}
        case ["machines", *name]:
            cloud.watched -= set(name or cloud.boxes)
            cloud.people()
            cloud.watched |= set(name)
            return True, cloud.told(name[0]) if name else [cloud.told(one) for one in cloud.boxes]
        case ["life", number]:
            cloud.begin(int(number))
        case ["calm"]:
            cloud.restless = False
        case ["by-hand", name, run]:
            cloud.by_hand(name, int(run))
    return True, {name: cloud.told(name) for name in cloud.boxes}


def ask(port: int, path: str, body: bytes = b"", *, timeout_s: float = 30) -> Any:  # noqa: ANN401 - whatever it says
    """GET; OSError where nobody answers."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=timeout_s)) as line:
        line.sendall(b"GET %b HTTP/1.0\r\n\r\n%b" % (path.encode(), body))
        pieces = []
        while more := line.recv(65536):
            pieces.append(more)
    said = b"".join(pieces).partition(b"\r\n\r\n")[2]
    if not said:
        raise ConnectionError("it closed the connection without an answer")
    return json.loads(said)


@contextmanager
def served() -> Iterator[int]:
    """The port of a process that serves."""
    command = [sys.executable, "-m", "tests.crashes.acting_cloud"]
    with Popen(command, stdin=PIPE, stdout=PIPE, cwd=ROOT, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
            process.stdin.close()
        except BaseException:
            process.kill()
            raise


if __name__ == "__main__":
    one = Server()
    sys.stdout.write(f"{one.port}\n")
    sys.stdout.flush()
    one.serve()
