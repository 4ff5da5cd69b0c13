"""The site that `bench.abuse` attacks: a watchdog with its web process, logins, a token, and the others who want answers."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from threading import Event, Thread

from bench import fleet
from bench.ledger_polls import ledger
from bench.ledger_samples import _add_hours as add_hours
from costguard.ledger.agents.logins import LoginStore
from costguard.ledger.agents.store import AgentStore
from costguard.services.guarding.overrides import get_now
from costguard.services.serving.agent_gateway import hash_token
from costguard.services.serving.login_key import open_login_key
from costguard.services.serving.web_logins import make_invite
from costguard.values.agent import VIEWER, WebToken
from tests.web.proxies import Proxy, proxy

ROOT = Path(__file__).parents[1]
HOST, OTHER, ATTACKER = "127.0.0.1", "127.0.0.2", "127.0.0.3"
"""The server's address, and those of others and of the attack: a proxy counts each by itself."""
MACHINES = 40
TOKEN = "cg_bench"  # noqa: S105 - of the benchmark's own server
OTHERS = 20
ANSWER_S = 10.0
POLICY = """
[[policy]]
name = "idle"
when = 'gpu_util.mean("2h") < 0.3'
for = "45m"
then = [{ do = "notify" }, { after = "10m", do = "stop" }]
"""


@dataclass(slots=True)
class Processes:
    """CPU and memory of a watchdog and of all that it started, looked at until the end."""

    roots: list[int]
    peaks: dict[str, float] = field(default_factory=dict)
    cpu: dict[tuple[int, str], float] = field(default_factory=dict)
    ending: Event = field(default_factory=Event)

    def watch(self) -> None:
        """Look every 0.2 s."""
        while not self.ending.wait(0.2):
            self.look()

    def look(self) -> None:
        """Note each process' CPU seconds and resident MB."""
        for pid, name in list_processes(*self.roots):
            with suppress(OSError, IndexError, ValueError):
                words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self.cpu[pid, name] = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
                resident = int(words[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6
                self.peaks[name] = max(self.peaks.get(name, 0.0), resident)

    def describe(self) -> str:
        """Return a part of a sentence for each kind of process."""
        names = sorted({name for _, name in self.cpu})
        return "; ".join(
            f"{name}: {sum(s for (_, of), s in self.cpu.items() if of == name):.1f} s of CPU, peak {self.peaks[name]:.0f} MB"
            + (f", {count} processes" if (count := sum(of == name for _, of in self.cpu)) > 1 else "")
            for name in names
        )


def list_processes(*roots: int) -> Iterator[tuple[int, str]]:
    """Yield the id and the kind of `roots` and of all below them."""
    below = dict[int, list[int]]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            below.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    todo = list(roots)
    while todo:
        pid = todo.pop()
        todo += below.get(pid, [])
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            kinds = {"watchdog": b"watch" in words, "web": b"serve" in words, "nginx": b"nginx" in words[0]}
            kinds["child"] = any(b"spawn_main" in word for word in words)
            yield pid, next((kind for kind, fits in kinds.items() if fits), "other")


@dataclass
class Site:
    """`port`: of the server; `secrets`: session cookies by name of the person."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    processes: Processes
    cookies: dict[str, str] = field(default_factory=dict)
    open_connection: Callable[[float], http.client.HTTPConnection] = field(init=False)

    def __post_init__(self) -> None:
        """Ask the server itself, until a proxy stands in front."""
        self.open_connection = lambda wait_s: http.client.HTTPConnection(
            HOST, self.port, timeout=wait_s, source_address=(OTHER, 0)
        )

    @property
    def url(self) -> str:
        """The ledger's address."""
        return f"sqlite:///{self.folder}/bench.db"

    def find_web(self) -> int:
        """Return the id of the web process; 0 while there is none."""
        return next((pid for pid, kind in list_processes(self.process.pid) if kind == "web"), 0)

    def ask(
        self, path: str, *, headers: dict[str, str] | None = None, wait_s: float = ANSWER_S, body: bytes | None = None
    ) -> tuple[int, bytes]:
        """Return the status and the body of one request of somebody else; status 0 without an answer in time."""
        wire = self.open_connection(wait_s)
        try:
            wire.request("GET" if body is None else "POST", path, body, headers or {})
            answer = wire.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            wire.close()

    def count_answered(self, wait_s: float = ANSWER_S) -> int:
        """Return how many of OTHERS requests are answered: health, a status with a token and a page, in turn."""
        token = {"Authorization": f"Bearer {TOKEN}"}
        requests: tuple[tuple[str, dict[str, str]], ...] = (
            ("/healthz", {}),
            ("/v1/status", token),
            ("/budgets", self.log_in("other")),
        )

        def ask(number: int) -> bool:
            path, headers = requests[number % len(requests)]
            return self.ask(path, headers=headers, wait_s=wait_s)[0] == HTTPStatus.OK

        with ThreadPoolExecutor(OTHERS) as pool:
            return sum(pool.map(ask, range(OTHERS)))

    def log_in(self, name: str) -> dict[str, str]:
        """Return the headers of a viewer's session."""
        if name not in self.cookies:
            with LoginStore(self.url) as book:
                path, _ = make_invite(book, name, VIEWER, who="bench", now=get_now(), key=open_login_key(self.url))
            wire = http.client.HTTPConnection(HOST, self.port, timeout=ANSWER_S)
            wire.request("POST", path, b"", {"Content-Type": "application/x-www-form-urlencoded"})
            answer = wire.getresponse()
            self.cookies[name] = (answer.getheader("set-cookie") or "").partition(";")[0]
            wire.close()
        return {"Cookie": self.cookies[name]}

    def read_cpu(self) -> float:
        """Return the CPU seconds of the web process, of all its threads that run."""
        pid, total = self.find_web(), 0
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(path.read_text().split()[0])
        return total / 1e9

    def describe_processes(self) -> str:
        """Return CPU and memory of each."""
        self.processes.look()
        return self.processes.describe()


def connect(site: Site, port: int = 0) -> socket.socket:
    """Return a connection of the attack."""
    return socket.create_connection((HOST, port or site.port), 10, (ATTACKER, 0))


@contextmanager
def open_site(folder: Path, days: int) -> Iterator[Site]:
    """A site with a history of so many days that answers, until the block ends."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = int(probe.getsockname()[1])
    write_history(folder, days)
    (folder / "costguard.toml").write_text(
        f'[ledger]\nurl = "sqlite:///{folder}/bench.db"\n[watch]\ninterval = "60s"\n'
        f'[web]\nlisten = "{HOST}:{port}"\nbehind_proxy = "{HOST}"\n[providers.sim]\nseed = 1\n{POLICY}'
    )
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": f"{ROOT}:{ROOT / 'agent'}:{ROOT / 'providers'}"}
    with (folder / "log").open("wb") as log:
        words = [sys.executable, "-m", "costguard", "--json-log", "watch"]
        process = subprocess.Popen(words, cwd=folder, env=environ, stderr=log, stdout=subprocess.DEVNULL)
    site = Site(folder, port, process, Processes([process.pid]))
    looker = Thread(target=site.processes.watch, daemon=True)
    try:
        ends = time.monotonic() + 120
        while site.ask("/healthz")[0] != 200:
            if process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError((folder / "log").read_text()[-2000:])
            time.sleep(0.2)
        now = get_now()
        with AgentStore(site.url) as book:
            ends_at = now + timedelta(days=1)
            book.add_token(WebToken(hash=hash_token(TOKEN), name="bench", role=VIEWER, who="bench", at=now, expires_at=ends_at))
        site.ask("/", headers=site.log_in("other"), wait_s=60)
        looker.start()
        yield site
    finally:
        site.processes.ending.set()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def write_history(folder: Path, days: int) -> None:
    """Write so many days of MACHINES with agents: a poll an hour, and an hour's samples each."""
    now = int((datetime.now(UTC) - fleet.START).total_seconds() // 60)
    named = fleet.scopes(5)
    fleets = [(scope, [one.seen() for one in fleet.machines(scope, MACHINES // len(named))]) for scope in named]
    first = now // 60 - days * 24
    with ledger(folder, "bench") as book, closing(sqlite3.connect(folder / "bench.db", isolation_level=None)) as raw:
        raw.execute("PRAGMA synchronous = OFF")
        for day in range(days):
            begin = (first + day * 24) * 60
            book.record_polls([fleet.polled(scope, begin + at, items) for at in range(0, 1440, 60) for scope, items in fleets])
            for hour in range(24):
                add_hours(raw, first + day * 24 + hour, MACHINES)


@contextmanager
def serve_behind_nginx(site: Site) -> Iterator[Proxy]:
    """Serve `site` behind nginx with the shipped configuration while the block runs, and let others ask there."""
    direct = site.open_connection
    with proxy(site.folder, site.port) as front:
        site.processes.roots.append(front.pid)
        site.open_connection = lambda wait_s: http.client.HTTPSConnection(
            "localhost", front.port, timeout=wait_s, source_address=(OTHER, 0), context=front.context
        )
        try:
            yield front
        finally:
            site.open_connection = direct
