"""A TCP proxy that lets things go wrong as a plan says, in a thread of its own: between costguard and a fake, or PostgreSQL.

    with proxied(port, [Fault(kind="cut", mark="GET /v2/pods", part=BODY, at=40)], line=http(fake.line)) as proxy:
        ...                                   # proxy.port, and afterwards proxy.struck: what really happened

Without `line` it knows of bytes alone, and a request is whatever comes in one piece; with it requests are whole HTTP messages.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.networks.plan import BODY, CONNECT, DOWN, Fault

PIECE = 64 * 1024
NOISE = b"\x00\xff)<garbage>\r\n" * 4
BREAK = struct.pack("ii", 1, 0)
"""SO_LINGER for nought seconds: closing sends RST."""
FULL = 8
"""Connections that fill a backlog of none, and some more."""

Line = Callable[[str, str, Mapping[str, str], bytes], str]
"""(method, path, headers in lower case, body) -> what a request is called."""


@dataclass
class Proxy:
    """`struck`: (connection, request, fault) of all that happened. `opened`: connections so far; `up`, `down`: bytes."""

    to: int | str
    plan: Sequence[Fault]
    line: Line | None = None
    port: int = 0
    opened: int = 0
    up: int = 0
    down: int = 0
    struck: list[tuple[int, str, Fault]] = field(default_factory=list)
    _seen: dict[int, int] = field(default_factory=dict)
    _server: asyncio.Server | None = None
    _deaf: list[socket.socket] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def heal(self) -> None:
        """From now on all goes well; what hangs is let go of."""
        self.plan = ()
        self._do(self._listen())
        self._do(self._drop())

    def refuse(self) -> None:
        """Nobody listens any more: connections are refused."""
        self._do(self._unlisten())

    def fill(self) -> None:
        """The backlog is full and nobody takes from it: whoever connects hears nothing at all."""
        self.refuse()
        deaf = socket.create_server(("127.0.0.1", self.port), backlog=0)
        waiting = [socket.socket() for _ in range(FULL)]
        for one in waiting:
            one.settimeout(0)
            one.connect_ex(("127.0.0.1", self.port))
        self._deaf = [deaf, *waiting]

    def _do(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _listen(self) -> None:
        self._unfilled()
        if self._server is None:
            self._server = await asyncio.start_server(self._taken, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _unlisten(self) -> None:
        self._unfilled()
        if self._server is not None:
            self._server.close()
            self._server = None

    def _unfilled(self) -> None:
        while self._deaf:
            self._deaf.pop().close()

    async def _drop(self) -> None:
        """Let go of every connection."""
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        one = _Connection(self, self.opened, reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await one.carried()
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # whoever asked or answered is gone
        finally:
            one.let_go()
            self._tasks.discard(task)

    def strikes(self, number: int, name: str, *, connecting: bool) -> Fault | None:
        """What befalls this request, or the connection itself."""
        found = None
        for index, fault in enumerate(self.plan):
            fits = fault.connections is None or number in fault.connections
            if fits and (fault.side == CONNECT) == connecting and re.search(fault.mark, name):
                seen = self._seen[index] = self._seen.get(index, 0) + 1
                if found is None and fault.skip < seen and (fault.times is None or seen <= fault.skip + fault.times):
                    found = fault
        return found


class _Over(Exception):  # noqa: N818 - it is no error
    """The connection is done with."""


class _Connection:
    """One of them, with both its sides."""

    def __init__(self, proxy: Proxy, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.proxy, self.number, self.client = proxy, number, (reader, writer)
        self.server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.armed: tuple[str, Fault] | None = None
        self.answer = b""
        """What came of the answer since the fault was armed."""

    async def carried(self) -> None:
        """Until either side is done."""
        fault = self.proxy.strikes(self.number, "", connecting=True)
        with suppress(_Over):
            if fault is not None:
                await self._struck(fault, "connect", b"", 0, self.client[1])
            to = self.proxy.to
            opening = asyncio.open_unix_connection(to) if isinstance(to, str) else asyncio.open_connection("127.0.0.1", to)
            self.server = await opening
            ways = [asyncio.ensure_future(self._up()), asyncio.ensure_future(self._down())]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)

    def let_go(self) -> None:
        """Close what is still open."""
        for _, writer in (self.client, *((self.server,) if self.server else ())):
            with suppress(OSError, RuntimeError):
                writer.close()

    async def _up(self) -> None:
        assert self.server is not None
        reader, writer = self.client[0], self.server[1]
        while True:
            name, data = await (self._bytes(reader) if self.proxy.line is None else self._request(reader, self.proxy.line))
            self.proxy.up += len(data)
            fault = self.proxy.strikes(self.number, name, connecting=False)
            if fault is not None and fault.side == DOWN:
                self.armed, self.answer = (name, fault), b""
            elif fault is not None:
                start = data.find(b"\r\n\r\n") + 4 if fault.part == BODY else 0
                await self._struck(fault, name, data, min(start + fault.at, len(data)), writer)
                continue
            writer.write(data)
            await writer.drain()

    async def _down(self) -> None:
        assert self.server is not None
        reader, writer = self.server[0], self.client[1]
        while data := await reader.read(PIECE):
            self.proxy.down += len(data)
            before, start = len(self.answer), self._start(data)
            if self.armed is not None and 0 <= start - before < len(data):
                (name, fault), self.armed = self.armed, None
                await self._struck(fault, name, data, start - before, writer)
                continue
            writer.write(data)
            await writer.drain()

    def _start(self, data: bytes) -> int:
        """Where in the answer the armed fault strikes; -1: not yet known, or never."""
        if self.armed is None:
            return -1
        fault = self.armed[1]
        self.answer += data
        blank = self.answer.find(b"\r\n\r\n") if fault.part == BODY else -4
        return -1 if fault.part == BODY and blank < 0 else blank + 4 + fault.at

    @staticmethod
    async def _bytes(reader: asyncio.StreamReader) -> tuple[str, bytes]:
        data = await reader.read(PIECE)
        if not data:
            raise _Over
        return data.decode("latin-1"), data

    @staticmethod
    async def _request(reader: asyncio.StreamReader, line: Line) -> tuple[str, bytes]:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *rest = head.decode("latin-1").split("\r\n")
            headers = {k.lower(): v.strip() for k, _, v in (one.partition(":") for one in rest if one)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
        except asyncio.IncompleteReadError:
            raise _Over from None
        method, path, _ = first.split(" ")
        return line(method, path, headers, body), head + body

    async def _struck(self, fault: Fault, name: str, data: bytes, at: int, writer: asyncio.StreamWriter) -> None:
        """`data` on its way to `writer`, with what befalls it after the first `at` bytes."""
        self.proxy.struck.append((self.number, name, fault))
        rest = data[at:]
        if fault.kind == "garbage":
            rest = NOISE + rest
        elif fault.kind == "corrupt":
            rest = bytes(byte ^ 1 for byte in rest[: fault.length]) + rest[fault.length :]
        writer.write(data[:at])
        match fault.kind:
            case "drip":
                for byte in rest:
                    writer.write(bytes((byte,)))
                    await writer.drain()
                    await asyncio.sleep(fault.seconds)
                return
            case "delay":
                await writer.drain()
                await asyncio.sleep(fault.seconds)
            case "hole":
                await writer.drain()
                await asyncio.Event().wait()
            case "half":
                writer.write_eof()
                await asyncio.Event().wait()
            case "cut":
                raise _Over
            case "reset":
                self._broken()
                raise _Over
        writer.write(rest)
        await writer.drain()

    def _broken(self) -> None:
        """RST to both sides."""
        for _, writer in (self.client, *((self.server,) if self.server else ())):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, BREAK)
            writer.transport.abort()


@contextmanager
def proxied(to: int | str, plan: Sequence[Fault] = (), line: Line | None = None) -> Iterator[Proxy]:
    """A proxy before the port of this machine, or the Unix socket, that `to` names, while the block runs."""
    proxy = Proxy(to, plan, line)
    thread = threading.Thread(target=proxy._loop.run_forever, daemon=True)
    thread.start()
    try:
        proxy._do(proxy._listen())
        yield proxy
    finally:
        proxy.refuse()
        proxy._do(proxy._drop())
        proxy._loop.call_soon_threadsafe(proxy._loop.stop)
        thread.join()
        proxy._loop.close()


def port_of(base: str) -> int:
    """The port of an address such as http://127.0.0.1:8080."""
    return int(base.rpartition(":")[2])
