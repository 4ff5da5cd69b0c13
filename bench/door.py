"""Held connections, half-sent requests and floods against the process that answers HTTP: `python -m bench.door [CONNECTIONS]`.

A real `costguard watch` over the simulated cloud, guarded every 2 s, with an agent that beats. All comes from one address. For
each attack: how many of 20 others are answered and how fast, what the process holds, and whether the guard was late.
"""

from __future__ import annotations

import resource
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.web.doors import Watch, watching

OTHERS = 20
MEMORY_MB = 300.0
HEAD = b"POST /v1/agents/join HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 65536\r\n\r\n"
ATTACKS: dict[str, bytes] = {
    "connections that say nothing": b"",
    "heads of 15 KB without an end": b"GET / HTTP/1.1\r\nHost: localhost\r\na: " + b"a" * 15_000,
    "bodies of 60 KB without an end": HEAD + b" " * 60_000,
    "kept connections after an answer": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "answers of 600 KB that nobody reads": b"GET /costguard-agent.pyz HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@contextmanager
def held(port: int, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """So many connections that were opened, and sent this."""
    wires = list[socket.socket]()
    try:
        for _ in range(count):
            wire = socket.socket()
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.settimeout(5)
            with suppress(OSError):
                wire.connect(("127.0.0.1", port))
                wire.sendall(sent)
            wires.append(wire)
        yield wires
    finally:
        for wire in wires:
            wire.close()


def memory_mb(pid: int) -> float:
    """The resident memory of a process."""
    words = Path(f"/proc/{pid}/statm").read_text().split()
    return int(words[1]) * resource.getpagesize() / 1e6


def timed(ask: Callable[[], int]) -> tuple[int, float]:
    """The status of one request, and its seconds."""
    began = time.monotonic()
    return ask(), time.monotonic() - began


def attack(watch: Watch, name: str, sent: bytes, count: int) -> bool:
    """Whether the others are answered during one attack, in little memory."""
    with held(watch.port, count, sent):
        answers = [timed(lambda: watch.ask("GET", "/healthz")[0]) for _ in range(OTHERS)]
        door = watch.door()
        held_mb = memory_mb(door) if door else 0.0
    good = sum(status == 200 for status, _ in answers)
    slowest = max(took for _, took in answers)
    print(f"{name:38} {good:2}/{OTHERS} others, slowest {1000 * slowest:5.0f} ms, {held_mb:4.0f} MB")
    return good == OTHERS and 0 < held_mb < MEMORY_MB


def main() -> int:
    """0 where everybody was answered and the guard was on time."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 500), hard))
    with tempfile.TemporaryDirectory(prefix="costguard-bench-") as name, watching(Path(name)) as watch:
        watch.until(watch.takes_beats)
        before, first = len(watch.acked), watch.door()
        good = [attack(watch, told, sent, count) for told, sent in ATTACKS.items()]
        for line in watch.log.read_text().splitlines():
            if "door_" in line:
                print("   ", line)
        late, gap = watch.list_late(), watch.longest_gap()
        print(f"{count} connections each; the process was {'the same' if watch.door() == first else 'started anew'}")
        print(f"guard: longest time between two runs {gap.total_seconds():.2f} s of 2 s, late duties {len(late)}")
        print(f"beats acknowledged meanwhile: {len(watch.acked) - before}, lost {len(watch.lost)}")
    return 0 if all(good) and not late and not watch.lost else 1


if __name__ == "__main__":
    sys.exit(main())
