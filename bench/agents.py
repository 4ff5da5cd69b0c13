"""A thousand agents and fifty readers against one watchdog: `python -m bench.agents [AGENTS] [READERS] [SECONDS] [PAGES]`.

A real `costguard watch` polls a fake cloud of as many machines (Lambda's wire), guards them every minute and answers agents
that beat every 15 s. Agents, readers and the fake run in this process, on the same cores: what they take the watchdog lacks.
Agents are enrolled in the ledger beforehand; each keeps its connection, as the real one does. Half of the readers know marks.
A page is what a browser with *Now* open does: it listens for runs, and reads the page anew after each.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from costguard_agent.protocol import BEATS_PATH, build_signed_request, encode_base64
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from costguard.ledger.agents.logins import LoginStore
from costguard.ledger.agents.store import AgentStore
from costguard.ledger.spans.books import SpendingReader
from costguard.services.serving.agent_enrolment import hash_code
from costguard.services.serving.agent_gateway import hash_token
from costguard.services.serving.login_key import open_login_key
from costguard.services.serving.web_logins import LoginDesk
from costguard.values.agent import Agent, EnrollmentCode, WebToken
from costguard.values.resource import ResourceKey
from tests.fakes.server import serving
from tests.providers.lambda_.rig import LambdaRig

ROOT = Path(__file__).parents[1]
EVERY_S, READS_EVERY_S, PORT = 15.0, 5.0, 8479
BEATS_TARGET_S, TARGET_S = 0.1, 0.25
TOKEN = "cg_bench"  # noqa: S105 - a benchmark's
POLICY = """
[[policy]]
name = "idle-gpu"
arm = "notify"
match = { gpu = true }
when = 'state == "idle" && confidence >= 0.9'
for = "45m"
then = [{ do = "notify" }]
"""


@dataclass
class Times:
    """Seconds that answers took, and what else came."""

    beats: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    pages: list[float] = field(default_factory=list)
    events: int = 0
    other: dict[str, int] = field(default_factory=dict)
    bytes_read: int = 0

    def refused(self, status: str) -> None:
        """Something else than a 200."""
        self.other[status] = self.other.get(status, 0) + 1


@dataclass
class Wire:
    """One connection that is kept."""

    times: Times
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None

    async def ask(self, head: str, body: bytes = b"") -> tuple[str, Mapping[str, str], bytes]:
        """Status, headers and body of one answer."""
        if self.writer is None or self.reader is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", PORT)
        self.writer.write(f"{head}Host: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
        return lines[0].split()[1], headers, await self.reader.readexactly(int(headers.get("content-length", "0")))


async def agent(name: str, secret: bytes, times: Times, until: float) -> None:
    """One agent: a beat every 15 s, each with one record."""
    key, wire, seq = Ed25519PrivateKey.from_private_bytes(secret), Wire(times), int(time.time() * 1000)
    path = BEATS_PATH.format(name)
    await asyncio.sleep(random.uniform(0, EVERY_S))
    while time.monotonic() < until:
        due, seq, at_ms = time.monotonic() + EVERY_S, seq + 1, int(time.time() * 1000)
        signals = {"gpu_util": 93.0, "gpu_power_w": 310.5, "gpu_memory_used": 61.0, "cpu_cores": 3.2, "cpu_util": 11.0}
        signals |= {"network_bytes_s": 1.2e6, "disk_bytes_s": 3e5, "step": float(seq), "input_age_s": 900.0, "agent_alive": 1.0}
        said = {
            "agent": {"version": "0.1.0", "python": "3.10", "boot_id": "b"},
            "records": [{"at": at_ms, "over_s": 15.0, "signals": signals}],
            "troubles": [],
        }
        body = json.dumps(said).encode()
        signature = encode_base64(key.sign(build_signed_request("POST", path, agent=name, seq=seq, at_ms=at_ms, body=body)))
        head = f"POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nCostguard-Seq: {seq}\r\nCostguard-At: {at_ms}\r\n"
        began = time.perf_counter()
        await told(wire, f"{head}Costguard-Signature: {signature}\r\n", body, times.beats, began)
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def reader(times: Times, until: float, *, marks: bool) -> None:
    """One reader of status, every 5 s; `marks`: says what it has already."""
    wire, mark = Wire(times), ""
    await asyncio.sleep(random.uniform(0, READS_EVERY_S))
    while time.monotonic() < until:
        due, began = time.monotonic() + READS_EVERY_S, time.perf_counter()
        known = f"If-None-Match: {mark}\r\n" if marks and mark else ""
        head = f"GET /v1/status HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n{known}"
        mark = await told(wire, head, b"", times.reads, began)
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def page(cookie: str, times: Times, until: float) -> None:
    """One open page *Now*: read once, and again after each run that it is told of."""
    wire, head = Wire(times), f"Cookie: costguard={cookie}\r\n"
    await asyncio.sleep(random.uniform(0, EVERY_S))
    await told(wire, f"GET / HTTP/1.1\r\n{head}", b"", times.pages, time.perf_counter())
    events, asking = await asyncio.open_connection("127.0.0.1", PORT)
    asking.write(f"GET /live HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout_at(asyncio.get_running_loop().time() + until - time.monotonic()):
            while line := await events.readline():
                if line.startswith(b"event: run"):
                    times.events += 1
                    await told(wire, f"GET / HTTP/1.1\r\n{head}", b"", times.pages, time.perf_counter())
            times.refused("a page's stream ended")
    asking.close()


async def told(wire: Wire, head: str, body: bytes, into: list[float], began: float) -> str:
    """One question, its time kept; the mark of what came."""
    try:
        status, headers, data = await wire.ask(head, body)
    except (OSError, asyncio.IncompleteReadError) as error:
        wire.times.refused(type(error).__name__)
        wire.writer = None
        return ""
    if status in ("200", "304"):
        into.append(time.perf_counter() - began)
        wire.times.bytes_read += len(data)
        return headers.get("etag", "")
    wire.times.refused(f"{status} {data[:80].decode('utf-8', 'replace')}")
    return ""


async def load(agents: Mapping[str, bytes], readers: int, seconds: float, cookies: list[str]) -> Times:
    """All of them together, for so long."""
    times, until = Times(), time.monotonic() + seconds
    tasks = [agent(name, secret, times, until) for name, secret in agents.items()]
    tasks += [reader(times, until, marks=number % 2 == 0) for number in range(readers)]
    tasks += [page(cookie, times, until) for cookie in cookies]
    await asyncio.gather(*tasks)
    return times


def enrolled(url: str, keys: list[ResourceKey]) -> dict[str, bytes]:
    """An agent for each machine, by its id: its secret key."""
    found, now = dict[str, bytes](), datetime.now(UTC)
    with AgentStore(url) as book:
        for number, key in enumerate(keys):
            secret = number.to_bytes(32, "big")
            public = encode_base64(Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw())
            hashed = hash_code(f"CODE{number}")
            book.add_code(EnrollmentCode(hash=hashed, key=key, who="bench", at=now, expires_at=now + timedelta(minutes=10)))
            made = Agent(id=f"{number:016x}", key=key, public_key=public, joined_at=now)
            if not isinstance(book.join(hashed, made), Agent):
                sys.exit("an agent could not join")
            found[made.id] = secret
        kept = WebToken(
            hash=hash_token(TOKEN), name="bench", role="viewer", who="b", at=now, expires_at=now + timedelta(days=1)
        )
        book.add_token(kept)
    return found


def logged_in(url: str, pages: int) -> list[str]:
    """A cookie for each page; ten pages are one person's."""
    with LoginStore(url) as book:
        desk = LoginDesk(book=book, key=open_login_key(url))
        people = [desk.open_session(f"person-{number}", "viewer", "bench") for number in range(-(-pages // 10))]
    return [people[number // 10] for number in range(pages)]


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quantiles(name: str, values: list[float], target_s: float = TARGET_S) -> bool:
    """A line of figures; whether p99 meets the target."""
    if not values:
        print(f"{name}: none")
        return False
    ordered = sorted(values)

    def at(share: float) -> float:
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    print(
        f"{name}: {len(values)} answers, p50 {at(0.5):.0f} ms, p90 {at(0.9):.0f} ms, p99 {at(0.99):.0f} ms, most {at(1):.0f} ms"
    )
    return at(0.99) < 1000 * target_s


def lateness(log: Path) -> None:
    """How late jobs were, by the watchdog's own log."""
    lines = []
    for line in log.read_text().splitlines():
        with suppress(ValueError):
            lines.append(json.loads(line))
    late = [one for one in lines if one.get("event") in ("job_late", "job_missed", "job_overdue")]
    broke = [one for one in lines if one.get("level") == "error" or str(one.get("event", "")).endswith("_broke")]
    print(f"jobs late, missed or overdue: {len(late)}; errors: {len(broke)}")
    for one in (*late[:5], *broke[:5]):
        print("   ", {key: value for key, value in one.items() if key != "timestamp"})


def main() -> int:
    """0 where both targets are met."""
    usual = ("1000", "50", "180", "0")
    machines, readers, seconds, pages = (int(word) for word in (*sys.argv[1:], *usual[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory(prefix="costguard-bench-") as name, ExitStack() as stack:
        folder, rig = Path(name), LambdaRig()
        rig.clock.at = datetime.now(UTC)
        rig.put(machines)
        base = stack.enter_context(serving(rig.fake))
        url = f"sqlite:///{folder}/ledger.db"
        table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in rig.table(base).items())
        (folder / "costguard.toml").write_text(
            f'[ledger]\nurl = "{url}"\n[web]\nlisten = "127.0.0.1:{PORT}"\n{POLICY}[providers.lambda]\n{table}'
        )
        environ = {**os.environ, **rig.environ(), "PYTHONPATH": f"{ROOT}:{ROOT / 'agent'}:{ROOT / 'providers'}", "HOME": name}
        log = folder / "watch.log"
        with log.open("w") as out, (folder / "out").open("w") as shown:
            command = [sys.executable, "-m", "costguard", "--json-log", "--config", str(folder / "costguard.toml"), "watch"]
            watch = subprocess.Popen(command, cwd=folder, env=environ, stderr=out, stdout=shown)
            stack.callback(watch.wait)
            stack.callback(watch.terminate)
            agents = enrolled(url, waited(url, machines, watch))
            listening(watch)
            before, first, polls = cpu_s(watch.pid), time.monotonic(), len(rig.fake.asked)
            times = asyncio.run(load(agents, readers, seconds, logged_in(url, pages)))
            took = time.monotonic() - first
            used = (cpu_s(watch.pid) - before) / took
            load_now = f"load {os.getloadavg()[0]:.1f}"
            print(f"{machines} agents, {readers} readers, {pages} open pages, {took:.0f} s, {os.cpu_count()} cores, {load_now}")
            good = [quantiles("beats", times.beats, BEATS_TARGET_S), quantiles("status", times.reads)]
            if pages:
                print(f"runs that pages were told of: {times.events}")
                good.append(quantiles("pages", times.pages))
            print(
                f"watchdog: {memory_mb(watch.pid):.0f} MB, {100 * used:.0f} % of a core; {times.bytes_read / 1e6:.0f} MB sent"
            )
            print(f"polls of the cloud meanwhile: {len(rig.fake.asked) - polls} requests; refused: {times.other or 'none'}")
        lateness(log)
    return 0 if all(good) else 1


def waited(url: str, machines: int, watch: subprocess.Popen[bytes]) -> list[ResourceKey]:
    """The machines, once the watchdog has listed them."""
    for _ in range(240):
        with suppress(Exception), SpendingReader(url, rules={}) as books:
            found = [one.observation.key for one in books.load_live(datetime.now(UTC))]
            if len(found) >= machines:
                return found
        if watch.poll() is not None:
            break
        time.sleep(0.5)
    sys.exit("the watchdog listed no machines: its log lies beside the ledger")


def listening(watch: subprocess.Popen[bytes]) -> None:
    """Return once it answers."""
    import http.client

    for _ in range(240):
        with suppress(OSError):
            wire = http.client.HTTPConnection("127.0.0.1", PORT, timeout=5)
            wire.request("GET", "/healthz")
            if wire.getresponse().status == http.client.OK:
                return
        if watch.poll() is not None:
            break
        time.sleep(0.5)
    sys.exit("the watchdog does not answer")


if __name__ == "__main__":
    sys.exit(main())
