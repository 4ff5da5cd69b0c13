"""A hundred launchers that ask for holds of one budget at the same time, over HTTP, against a real watchdog and its door.

`python -m bench.admit [CALLERS] [ROUNDS]`: each caller has a connection of its own and asks once a round, all released by one
barrier; the budget has room for three quarters of all that is asked for. Printed: how long an answer took, how many were held,
and what the ledger holds afterwards beside the cap. Clients, door and watchdog share this machine's cores.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from costguard.ledger.agents.store import AgentStore
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.holds import load_open_holds
from costguard.services.serving.agent_gateway import hash_token
from costguard.values.agent import OPERATOR, WebToken
from costguard.values.text_format import format_exact

CALLERS, ROUNDS = 100, 5
CAP_SHARE = 0.75
READY_WITHIN_S = 120.0
TOKEN = "cg_bench"  # noqa: S105 - of a ledger that this program makes and removes
JOB = {"model": "llama-3.1-8b", "method": "qlora", "tokens": 50_000_000}
Body = Callable[[int], dict[str, object]]
KINDS: dict[str, Body] = {
    "a stated cost": lambda _: {"usd": "1"},
    "one rental, quoted": lambda _: {"gpu": "H100", "count": 8, "hours": 2},
    "one job, quoted": lambda _: {"job": JOB, "on": "H100:8"},
    "each another rental": lambda number: {"gpu": "H100", "count": 1, "hours": 1 + number / 100},
}
"""What is asked for -> the request of the caller of that number."""


@dataclass
class Tally:
    """What came back. `took_s`: of each answer."""

    took_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, took_s: float, status: int) -> None:
        """Count one answer."""
        with self.lock:
            self.took_s.append(took_s)
            self.statuses[status] += 1

    def show(self) -> str:
        """Return the figures as one line."""
        sorted_s = sorted(self.took_s)
        p50, p99 = (sorted_s[min(len(sorted_s) - 1, int(len(sorted_s) * share))] * 1000 for share in (0.5, 0.99))
        return f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, most {sorted_s[-1] * 1000:.0f} ms; {dict(self.statuses)}"


def main() -> None:
    """Run each kind of request, and print a line for it."""
    callers, rounds = (int(word) for word in (sys.argv[1:] + [str(CALLERS), str(ROUNDS)][len(sys.argv) - 1 :])[:2])
    print(f"{callers} callers at once, {rounds} rounds each, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for kind, body in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            print(f"{kind}: {measure(Path(folder), callers, rounds, body)}", flush=True)


def measure(folder: Path, callers: int, rounds: int, body: Body) -> str:
    """Return the figures of one kind of request, against a new ledger."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port = int(made.getsockname()[1])
    url = f"sqlite:///{folder}/ledger.db"
    write_settings(folder, url, port, "1000000")
    add_token(url)
    process = start_watchdog(folder, port)
    try:
        one = ask(http.client.HTTPConnection("127.0.0.1", port, timeout=60), body(0), "first")
        each = float(one[1]["usd"])
    finally:
        end_watchdog(process)
    cap = f"{each * (1 + CAP_SHARE * callers * rounds):.2f}"
    write_settings(folder, url, port, cap)
    process = start_watchdog(folder, port)
    try:
        tally = run_callers(port, callers, rounds, body)
    finally:
        end_watchdog(process)
    with LedgerReader(url) as reader, reader.snapshot() as query:
        held = [hold.money for hold in load_open_holds(query, datetime.now(UTC))]
    total = sum(money.nano for money in held) / 1e9
    kept = "never over the cap" if total <= float(cap) else "OVER THE CAP"
    return f"{tally.show()}; {len(held)} holds, {total:.2f} of {cap} USD: {kept} (last {format_exact(held[-1])})"


def write_settings(folder: Path, url: str, port: int, cap: str) -> None:
    """Write the settings of a watchdog with one budget."""
    (folder / "costguard.toml").write_text(
        f'[ledger]\nurl = "{url}"\n[watch]\ninterval = "10s"\n[web]\nlisten = "127.0.0.1:{port}"\n'
        f'[providers.sim]\nseed = 1\n[[budget]]\nname = "lab"\ncap = "{cap} USD"\nmatch = {{ owners = ["bench"] }}\n'
    )


def add_token(url: str) -> None:
    """Let the bench admit runs."""
    now = datetime.now(UTC)
    token = WebToken(
        hash=hash_token(TOKEN), name="bench", role=OPERATOR, who="bench", at=now, expires_at=now + timedelta(hours=1)
    )
    with AgentStore(url) as book:
        book.add_token(token)


def start_watchdog(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """Start `costguard watch`, and wait until its door answers."""
    root = Path(__file__).parents[1]
    path = f"{root}:{root / 'agent'}:{root / 'providers'}"
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": path}
    command = [sys.executable, "-m", "costguard", "watch"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.DEVNULL, stderr=log)
    end = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < end:
        try:
            wire = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            wire.request("GET", "/healthz")
            if wire.getresponse().status == http.HTTPStatus.OK:
                return process
        except OSError:
            pass
        if process.poll() is not None:
            raise SystemExit((folder / "log").read_text())
        time.sleep(0.2)  # another process is waited for
    raise SystemExit("the watchdog did not answer in time")


def end_watchdog(process: subprocess.Popen[bytes]) -> None:
    """End it, and wait."""
    process.send_signal(signal.SIGTERM)
    process.wait(60)


def run_callers(port: int, callers: int, rounds: int, body: Body) -> Tally:
    """Let all callers ask at the same time, round after round."""
    tally, gate = Tally(), threading.Barrier(callers)

    def call(number: int) -> None:
        wire = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        wire.connect()
        for turn in range(rounds):
            gate.wait()
            began = time.perf_counter()
            status, _ = ask(wire, body(number), f"{number}-{turn}")
            tally.add(time.perf_counter() - began, status)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tally


def ask(wire: http.client.HTTPConnection, body: dict[str, object], hold: str) -> tuple[int, dict[str, str]]:
    """Ask once, on an open connection."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    wire.request("POST", "/v1/admit", json.dumps({**body, "id": hold, "owner": "bench"}), headers)
    came = wire.getresponse()
    return came.status, json.loads(came.read())


if __name__ == "__main__":
    main()
