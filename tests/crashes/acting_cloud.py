"""A cloud over HTTP, in the process of the judge, whose people start, stop and keep machines while the guard acts and dies.

What arrived stands in `arrivals`, in order, with the life that it hit: nothing takes it out again. Between an answer to GET and
the next POST nobody touches anything: that window no guard can close (flows/acting.py), so it is not held against it.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from typing import Any, NamedTuple
from urllib.request import urlopen

MACHINES = 8


class Arrival(NamedTuple):
    """A whole request to stop, and what it met. `did`: what came of it: "obeyed", "deaf" or "lost" (done, and no answer)."""

    id: str
    run: int
    state: str
    kept: bool
    did: str


@dataclass
class Box:
    """A machine in its `run`-th run."""

    run: int
    state: str = "running"
    kept: bool = False


@dataclass
class Cloud:
    """All of it. `restless`: people are about, and the provider has its moods."""

    chance: random.Random
    boxes: dict[str, Box] = field(default_factory=lambda: {f"i-{n}": Box(run=n) for n in range(MACHINES)})
    arrivals: list[Arrival] = field(default_factory=list)
    short: int = 0
    restless: bool = True
    runs: int = MACHINES
    busy: int = 0
    quiet: threading.Condition = field(default_factory=threading.Condition)

    def people(self) -> None:
        """Somebody does something to one of them, or nothing."""
        if not self.restless or self.chance.random() < 0.5:
            return
        box, what = self.chance.choice(list(self.boxes.values())), self.chance.random()
        if box.state == "stopped":
            self.runs += 1
            box.run, box.state, box.kept = self.runs, "running", what < 0.25
        elif what < (0.5 if box.kept else 0.1):
            box.state = "stopped"
        elif what < 0.2:
            box.kept = True

    def stop(self, name: str) -> bool:
        """As the provider does; whether it answers."""
        box, mood = self.boxes[name], self.chance.random() if self.restless else 1
        did = "deaf" if mood < 0.1 else "lost" if mood < 0.2 else "obeyed"
        self.arrivals.append(Arrival(name, box.run, box.state, box.kept, did))
        if did != "deaf":
            box.state = "stopped"
        return did != "lost"

    def by_hand(self, name: str, run: int) -> None:
        """Whoever was paged stops that run of it."""
        with self.quiet:
            if self.boxes[name].run == run:
                self.boxes[name].state = "stopped"

    def told(self, name: str) -> dict[str, Any]:
        """One machine as the API shows it."""
        box = self.boxes[name]
        return {"id": name, "run": box.run, "state": box.state, "kept": box.kept}


class _Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 64
    cloud: Cloud

    def process_request(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        with self.cloud.quiet:
            self.cloud.busy += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        try:
            with suppress(OSError):
                super().process_request_thread(request, client_address)
        finally:
            with self.cloud.quiet:
                self.cloud.busy -= 1
                self.cloud.quiet.notify_all()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        """Who asked may be dead by now."""


class _Door(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        cloud, name = self.server.cloud, self.path.removeprefix("/machines").strip("/")
        with cloud.quiet:
            if name != "barrier":
                cloud.people()
            said = [] if name == "barrier" else cloud.told(name) if name else [cloud.told(one) for one in cloud.boxes]
        self._say(said)

    def do_POST(self) -> None:
        cloud, length = self.server.cloud, int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        with cloud.quiet:
            if len(body) < length:
                cloud.short += 1
                return
            answers = cloud.stop(json.loads(body)["id"])
        if answers:
            self._say({})

    def _say(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Nobody reads it."""


@contextmanager
def served(cloud: Cloud) -> Iterator[int]:
    """The port on which `cloud` is served."""
    with _Server(("127.0.0.1", 0), _Door) as server:
        server.cloud = cloud
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def drained(cloud: Cloud, port: int) -> None:
    """Wait until all that the dead have sent was heard: connections are taken in the order in which they came."""
    with urlopen(f"http://127.0.0.1:{port}/machines/barrier", timeout=30) as answer:
        answer.read()
    with cloud.quiet:
        assert cloud.quiet.wait_for(lambda: cloud.busy == 0, timeout=30)
