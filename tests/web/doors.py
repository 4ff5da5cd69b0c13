"""A real `costguard watch` with the simulated cloud and its door, an agent that beats all the time, and ends of the door."""

from __future__ import annotations

import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from costguard_agent import ed25519
from costguard_agent.protocol import AT_HEADER, BEATS_PATH, SEQ_HEADER, SIGNATURE_HEADER, encode_base64

from costguard.ledger.agents.store import AgentStore
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.guard_state import load_last_runs
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.observation import identify_incarnation
from costguard.services.serving.agent_enrolment import hash_code
from costguard.values.agent import CODE_VALID_FOR, EnrollmentCode
from costguard.values.resource import RUNNING
from tests.web.desks import CODE, SECRET, beat, envelope, record

ROOT = Path(__file__).parents[2]
JSON = {"Content-Type": "application/json"}
KILLED, STOPPED, NO_MEMORY = "killed", "stopped", "no memory"
INTERVAL_S = 2.0
LATE = frozenset(("job_late", "job_overdue"))


@dataclass
class Watch:
    """A watchdog and its door. `acked`: numbers of beats that were answered; `lost`: of those not in the ledger by then."""

    process: subprocess.Popen[bytes]
    port: int
    url: str
    log: Path
    agent: str = ""
    acked: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def door(self) -> int:
        """The pid of the door; 0 while there is none."""
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                words = path.read_text().rpartition(")")[2].split()
                if int(words[1]) == self.process.pid and b"serve" in path.with_name("cmdline").read_bytes().split(b"\0"):
                    return int(path.parent.name)
        return 0

    def end_door(self, how: str) -> int:
        """End the door one way; return its pid."""
        pid = self.door()
        if how == NO_MEMORY:
            resource.prlimit(pid, resource.RLIMIT_AS, (1 << 20, 1 << 20))
        else:
            os.kill(pid, signal.SIGKILL if how == KILLED else signal.SIGSTOP)
        return pid

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """One request; status 0 if there was no answer."""
        wire = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            wire.request(method, path, body, headers or {})
            came = wire.getresponse()
            return came.status, came.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            wire.close()

    def until(self, ready: object, within_s: float = 300.0) -> None:
        """Wait until `ready()` of another process."""
        end = time.monotonic() + within_s
        while not ready():  # type: ignore[operator]  # a function
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.1)  # another process is waited for

    def answers(self) -> bool:
        """Whether a run is in the ledger and the door says so."""
        return self.ask("GET", "/healthz")[0] == 200

    def takes_beats(self) -> bool:
        """Whether one more beat is acknowledged than before the call."""
        before = len(self.acked)
        end = time.monotonic() + 2
        while time.monotonic() < end and len(self.acked) == before:
            time.sleep(0.02)  # another process is waited for
        return len(self.acked) > before

    def enrol(self) -> None:
        """An agent of the first machine that runs."""
        now = datetime.now(UTC)
        with SpendingReader(self.url, rules={}) as books:
            live = next(one.observation for one in books.load_live(now) if one.observation.state == RUNNING)
        made = EnrollmentCode(
            hash=hash_code(CODE),
            key=live.key,
            who="ada",
            at=now,
            expires_at=now + CODE_VALID_FOR,
            life=identify_incarnation(live),
        )
        with AgentStore(self.url) as book:
            book.add_code(made)
        said = {"code": CODE, "public_key": encode_base64(ed25519.derive_public_key(SECRET)), "version": "0.1.0"}
        status, body = self.ask("POST", "/v1/agents/join", json.dumps(said).encode(), JSON)
        assert status == 200, body
        self.agent = str(json.loads(body)["agent"])

    def beats(self) -> None:
        """Beat all the time, and look into the ledger after each answer."""
        seq = 0
        with AgentStore(self.url) as book:
            while not self._over.wait(0.8):
                seq += 1
                now = datetime.now(UTC)
                message = envelope(self.agent, seq, now, beat(record(now, 1.0, cpu_util=50.0)))
                headers = {SEQ_HEADER: message.seq, AT_HEADER: message.at, SIGNATURE_HEADER: message.signature, **JSON}
                if self.ask("POST", BEATS_PATH.format(self.agent), message.body, headers)[0] != 200:
                    continue
                found = book.load_agent(self.agent)
                self.acked.append(seq)
                if found is None or found.seq < seq:
                    self.lost.append(seq)

    def end_beats(self) -> None:
        """No more beats."""
        self._over.set()

    def list_late(self) -> list[str]:
        """What its log says of late duties."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [str(line) for line in lines if line["event"] in LATE]

    def longest_gap(self) -> timedelta:
        """The longest time between two runs of the guard."""
        with LedgerReader(self.url) as reader, reader.snapshot() as ask:
            runs = sorted(one.at for one in load_last_runs(ask, 10_000))
        return max((after - before for before, after in pairwise(runs)), default=timedelta(0))


@contextmanager
def watching(folder: Path, *, web: str = "", more: Mapping[str, str] = MappingProxyType({})) -> Iterator[Watch]:
    """A watchdog over a simulated cloud, with an agent that beats. `web`, `more`: more of [web], and variables."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port = int(made.getsockname()[1])
    url = f"sqlite:///{folder}/ledger.db"
    (folder / "costguard.toml").write_text(
        f'[ledger]\nurl = "{url}"\n[watch]\ninterval = "{INTERVAL_S:g}s"\n[web]\nlisten = "127.0.0.1:{port}"\n{web}\n'
        "[providers.sim]\nseed = 1\n"
    )
    path = f"{ROOT}:{ROOT / 'agent'}:{ROOT / 'providers'}"
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": path, **more}
    command = [sys.executable, "-m", "costguard", "--json-log", "watch"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environ, stderr=log, stdout=subprocess.DEVNULL)
    watch = Watch(process, port, url, folder / "log")
    beater = threading.Thread(target=watch.beats, daemon=True)
    try:
        watch.until(watch.answers)
        watch.enrol()
        beater.start()
        yield watch
    finally:
        watch.end_beats()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        if beater.is_alive():
            beater.join(40)
