"""The attacks of `bench.abuse`: each yields what it cost, and whether others were answered."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from select import select
from threading import Event, Thread
from urllib.parse import quote

from bench.abuse_site import ATTACKER, OTHERS, Site, connect, list_processes, serve_behind_nginx
from bench.measured import Measured

UNSIGNED_MS, VIEWER_MS = 50.0, 500.0
CONNECTIONS, FLOOD_S, RECOVER_S = 500, 30.0, 10.0
MEMORY_MB = 300.0
STREAMS, BACKTESTS = 320, 10
GET_HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
JSON_HEAD = b"POST /v1/agents/join HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED, CHUNK, END = b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n", b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
COSTLY = {
    "3,200 headers": [GET_HEAD + b"a:b\r\n" * 3200 + b"\r\n"],
    "16,000 bytes of a head, each by itself": [GET_HEAD + b"a: ", *[b"b"] * 16_000, b"\r\n\r\n"],
    "64 KiB of a body, each byte by itself": [JSON_HEAD + b"Content-Length: 60000\r\n\r\n", *[b" "] * 60_000],
    "64 KiB of a body in chunks of a byte": [JSON_HEAD + CHUNKED + CHUNK * 65_000 + b"0\r\n\r\n"],
    "the same to GET": [GET_HEAD + CHUNKED + CHUNK * 65_000 + b"0\r\n\r\n"],
    "64 KiB of JSON escapes": [JSON_HEAD + b"Content-Length: 65536\r\n\r\n" + b'"' + b"\\" * 65_535],
    "15 KB of cookies": [b"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: " + b"a=b;" * 3_900 + b"\r\n\r\n"],
    "15 KB of query": [b"GET /v1/agents/hello?" + b"a=b&" * 3_900 + END],
    "a login link": [b"GET /login/" + b"a" * 40 + END],
    "a question's link": [b"GET /ask/" + b"a" * 40 + END],
    "the agent's program": [b"GET /costguard-agent.pyz" + END],
    "openapi.json": [b"GET /openapi.json" + END],
}
"""What a stranger may send in one request: the segments."""


def send_costly_requests(site: Site) -> Iterator[Measured]:
    """CPU of the web process for one request that nobody signed, the lowest of three."""
    for name, segments in COSTLY.items():
        spent = min(_measure_segments(site, segments) for _ in range(3))
        yield _measure(f"CPU for {name}, ms", spent * 1e3, UNSIGNED_MS)


def _measure_segments(site: Site, segments: list[bytes]) -> float:
    began = site.read_cpu()
    with suppress(OSError), connect(site) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for one in segments:
            wire.sendall(one)
        wire.settimeout(3)
        while wire.recv(1 << 16):
            wire.settimeout(0.3)
    return site.read_cpu() - began


def send_viewer_requests(site: Site) -> Iterator[Measured]:
    """CPU of the web process for one request of a viewer: the lowest of three."""
    headers, machine = site.log_in("eve"), "aws/lab/region-0/i-00000000"
    long_condition = " && ".join(['gpu_util.mean("2h") < 0.3'] * 90)
    year = "from=2026-01-01&to=2026-12-31"
    paths = {
        "Now": "/",
        "a search of Now": "/?q=run-1&page=1",
        "budgets": "/budgets",
        "accounts": "/accounts",
        "the log": "/log?since=3650d",
        "a machine": f"/machine?id={quote(machine)}",
        "its 14 days": f"/machine?id={quote(machine)}&length=14d",
        "a report of the month": "/report",
        "a report of a year by resource": f"/report?{year}&by=resource",
        "a report of ten years": "/report?from=2017-01-01&to=2026-12-31",
        "its export": f"/report/export?format=csv&{year}&by=resource",
        "a quote": "/quote?model=llama-3.1-8b&method=qlora&tokens=50e6",
        "a large quote": "/quote?model=llama-3.1-405b&method=full&tokens=15e12",
        "policies": "/policies?policy=idle",
        "a back-test of 90 days": _build_backtest_path(DRAFT),
        "a back-test of a long condition": _build_backtest_path(DRAFT.replace('gpu_util.mean("1h") < 0.4', long_condition)),
    }
    for name, path in paths.items():
        spent = list[tuple[float, float, int, int]]()
        for _ in range(1 if "back-test" in name else 3):
            began, clock = site.read_cpu(), time.monotonic()
            status, body = site.ask(path, headers=headers, wait_s=120)
            spent.append((site.read_cpu() - began, time.monotonic() - clock, status, len(body)))
        cpu_s, wall_s, status, size = min(spent)
        first = f", first {spent[0][0] * 1e3:.0f}" if len(spent) > 1 else ""
        yield _measure(f"CPU for {name}, ms ({status}, {size} bytes, {wall_s:.2f} s{first})", cpu_s * 1e3, VIEWER_MS)


DRAFT = """[[policy]]
name = "idle"
when = 'gpu_util.mean("1h") < 0.4'
for = "45m"
then = [{ do = "notify" }, { after = "10m", do = "stop" }]"""


def _build_backtest_path(text: str) -> str:
    return f"/policies?policy=idle&since=90d&text={quote(text)}"


def take_every_stream(site: Site) -> Iterator[Measured]:
    """One viewer opens every stream, and leaves."""
    cookie = site.log_in("eve")["Cookie"]
    wires = [connect(site) for _ in range(STREAMS)]
    for wire in wires:
        wire.sendall(f"GET /live HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
    time.sleep(3)
    held = [wire for wire in wires if b"200 OK" in _peek(wire) and not _is_ended(wire)]
    yield Measured(what="streams that one viewer holds", reached=str(len(held)), target="<= 20", met=len(held) <= 20)
    other = connect(site)
    other.sendall(f"GET /live HTTP/1.1\r\nHost: localhost\r\nCookie: {site.log_in('other')['Cookie']}\r\n\r\n".encode())
    time.sleep(1)
    opened = b"200 OK" in _peek(other)
    yield Measured(what="another viewer's stream beside them", reached=str(opened), target="True", met=opened)
    yield from _count_others(site, "beside them")
    _, page = site.ask("/", headers={"Cookie": cookie})
    token = page.partition(b'name="token" value="')[2].partition(b'"')[0].decode()
    head = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
    status, _ = site.ask("/logout", headers=head, body=f"token={token}".encode())
    time.sleep(20)
    left = sum(not _is_ended(wire) for wire in held)
    yield Measured(what=f"streams 20 s after the logout ({status})", reached=str(left), target="0", met=left == 0)
    for wire in (*wires, other):
        wire.close()
    yield _measure_memory(site)


def _peek(wire: socket.socket) -> bytes:
    wire.settimeout(0.2)
    with suppress(OSError):
        return wire.recv(4096, socket.MSG_PEEK)
    return b""


def _is_ended(wire: socket.socket) -> bool:
    """Return whether the stream has ended: read what came of it."""
    wire.settimeout(0.05)
    part = b""
    with suppress(TimeoutError, ConnectionError):
        while part := wire.recv(1 << 16):
            if part.endswith(b"0\r\n\r\n"):
                return True
        return True
    return False


def start_backtests(site: Site) -> Iterator[Measured]:
    """Ten viewers start a back-test of 90 days each."""
    path = _build_backtest_path(DRAFT)
    people = [site.log_in(f"viewer-{n}") for n in range(BACKTESTS)]
    cpu = site.read_cpu()
    with ThreadPoolExecutor(BACKTESTS) as pool:
        clock = time.monotonic()
        running = [pool.submit(site.ask, path, headers=one, wait_s=150) for one in people]
        time.sleep(3)
        yield from _count_others(site, "beside 10 back-tests")
        answers = [one.result() for one in running]
    took = time.monotonic() - clock
    late = sum(b"was not done" in body or b"takes more than" in body for _, body in answers)
    answered = sum(status == HTTPStatus.OK for status, _ in answers)
    what = f"back-tests answered in {took:.0f} s, {late} of them with the reason why not"
    yield Measured(what=what, reached=str(answered), target=str(BACKTESTS), met=answered == BACKTESTS)
    yield _measure("CPU of the web process for a back-test, ms", (site.read_cpu() - cpu) * 1e3 / BACKTESTS, VIEWER_MS)
    gone = connect(site)
    gone.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {people[0]['Cookie']}\r\n\r\n".encode())
    time.sleep(2)
    gone.close()
    time.sleep(2)
    left = sum(kind == "child" for _, kind in list_processes(site.process.pid))
    yield Measured(what="children 2 s after its reader left", reached=str(left), target="0", met=left == 0)
    yield _measure_memory(site)


def read_slowly(site: Site) -> Iterator[Measured]:
    """Many ask for the agent's program, and read nothing."""
    wires = list[socket.socket]()
    for _ in range(2 * CONNECTIONS):
        wire = socket.socket()
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.bind((ATTACKER, 0))
        wire.settimeout(10)
        with suppress(OSError):
            wire.connect(("127.0.0.1", site.port))
            wire.sendall(b"GET /costguard-agent.pyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wires.append(wire)
    time.sleep(5)
    yield from _count_others(site, "beside slow readers")
    for wire in wires:
        wire.close()
    yield _measure_memory(site)


UNFINISHED = (
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\na: " + b"b" * 15_000,
    JSON_HEAD + b"Content-Length: 65536\r\n\r\n" + b" " * 65_000,
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n" + b" " * 300_000,
)


def leave_requests_unfinished(site: Site) -> Iterator[Measured]:
    """500 connections of one address, each with a request that is never finished, opened anew as they end, for 30 s."""
    yield from _flood(site, UNFINISHED)


def leave_chunks_unfinished(site: Site) -> Iterator[Measured]:
    """The same with bodies in chunks of one byte."""
    yield from _flood(site, (JSON_HEAD + CHUNKED + CHUNK * 60_000,))


def _flood(site: Site, requests: tuple[bytes, ...]) -> Iterator[Measured]:
    web = site.find_web()
    flood = Flood(requests, lambda: connect(site))
    answered = run_flood(flood, site.count_answered)
    ended = time.monotonic()
    while site.count_answered(wait_s=5) < OTHERS and time.monotonic() - ended < 60:
        time.sleep(0.5)
    took = time.monotonic() - ended
    yield Measured(what=f"others answered beside {flood.sent} requests", reached=str(answered))
    yield Measured(
        what="seconds until others are answered again", reached=f"{took:.1f}", target=f"<= {RECOVER_S:g}", met=took <= RECOVER_S
    )
    alive = site.find_web() == web
    yield Measured(what="the web process lived on", reached=str(alive), target="True", met=alive)
    yield _measure_memory(site)


class Flood(Thread):
    """Keeps CONNECTIONS unfinished `requests` open until `ending`; `sent`: how many were begun."""

    def __init__(self, requests: tuple[bytes, ...], open_wire: Callable[[], socket.socket]) -> None:
        super().__init__(daemon=True)
        self._requests, self._open_wire = requests, open_wire
        self._left = dict[socket.socket, memoryview]()
        self.sent, self.ending = 0, Event()

    def run(self) -> None:
        """Send until the end."""
        while not self.ending.is_set():
            while len(self._left) < CONNECTIONS:
                self._open()
            writing = [wire for wire, left in self._left.items() if left]
            readable, writable, _ = select(list(self._left), writing, [], 0.1)
            for wire in writable:
                self._send(wire)
            for wire in readable:
                self._read(wire)
        for wire in self._left:
            wire.close()

    def _open(self) -> None:
        with suppress(OSError):
            wire = self._open_wire()
            wire.settimeout(0)
            self._left[wire] = memoryview(self._requests[self.sent % len(self._requests)])
            self.sent += 1

    def _send(self, wire: socket.socket) -> None:
        try:
            self._left[wire] = self._left[wire][wire.send(self._left[wire]) :]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self._close(wire)

    def _read(self, wire: socket.socket) -> None:
        try:
            ended = wire in self._left and not wire.recv(1 << 16)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:
            ended = True
        if ended:
            self._close(wire)

    def _close(self, wire: socket.socket) -> None:
        self._left.pop(wire, None)
        wire.close()


def run_flood(flood: Flood, ask: Callable[[], int]) -> int:
    """Let `flood` run for FLOOD_S, and return how many of others were answered meanwhile."""
    flood.start()
    time.sleep(FLOOD_S / 3)
    answered = ask()
    time.sleep(FLOOD_S * 2 / 3)
    flood.ending.set()
    flood.join()
    return answered


def flood_through_proxy(site: Site) -> Iterator[Measured]:
    """The same 500 through nginx with the shipped configuration."""
    web = site.find_web()
    with serve_behind_nginx(site) as front:
        flood = Flood(UNFINISHED, lambda: front.connect(ATTACKER))
        answered = run_flood(flood, site.count_answered)
        yield Measured(
            what=f"others answered beside {flood.sent} requests",
            reached=f"{answered} of {OTHERS}",
            target=str(OTHERS),
            met=answered == OTHERS,
        )
    alive = site.find_web() == web
    yield Measured(what="the web process lived on", reached=str(alive), target="True", met=alive)
    yield _measure_memory(site)


def _count_others(site: Site, when: str) -> Iterator[Measured]:
    count = site.count_answered()
    yield Measured(what=f"others answered {when}", reached=f"{count} of {OTHERS}", target=str(OTHERS), met=count == OTHERS)


def _measure_memory(site: Site) -> Measured:
    site.processes.look()
    peak = site.processes.peaks.get("web", 0.0)
    return _measure("memory of the web process, MB", peak, MEMORY_MB)


def _measure(what: str, reached: float, most: float) -> Measured:
    return Measured(what=what, reached=f"{reached:.0f}", target=f"<= {most:g}", met=reached <= most)
