"""The watchdog's side: HTTP on a Unix socket, answered by a thread whose work has a budget, so that no duty waits for the web.

    web: POST /beats {"agent": ...} -> bounds of each field -> desk (its own threads write) -> reply after the commit

At most IN_FLIGHT_MOST requests are open (uvicorn's `limit_concurrency`), a body has BODY_MOST bytes, and this thread uses
CPU_SHARE of a core: what does not fit waits in the web. What comes is checked again by its bounds, and by the desk.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

import uvicorn

from costguard.agents.messages import MALFORMED
from costguard.services.serving.door_messages import (
    BODY_MOST,
    PATHS,
    AdmitOffer,
    AdmitReply,
    BeatOffer,
    BeatReply,
    FromDoor,
    FromWatchdog,
    HoldEndOffer,
    HoldEndReply,
    JoinOffer,
    JoinReply,
    OfferError,
    PersonOffer,
    PersonReply,
    Pulse,
    RunNote,
    decode_offer,
    encode_message,
    encode_replies,
    split_beats,
)
from costguard.system.logs import get_log
from costguard.web.watchdog_socket import BACKLOG

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

IN_FLIGHT_MOST = 900
"""Requests that wait for an answer; the writer's queue holds a few more."""
CPU_SHARE, CPU_BURST_S = 0.25, 0.5
"""Of one core, what this thread may use; and how many seconds of it at once."""
PAUSE_S, REPLY_S = 0.02, 60.0
IDLE_S, END_WAIT_S = 75, 5.0
_Reply = TypeVar("_Reply")
KINDS = {path: kind for kind, path in PATHS.items()}


class WatchdogDesk(Protocol):
    """Who takes what the web hands over; none of these waits. `answer` is called once, from any thread."""

    def take_pulse(self, pulse: Pulse) -> RunNote:
        """Take a sign of life, and return the last run of the guard."""

    def take_beat(self, offer: BeatOffer, answer: Callable[[BeatReply], object]) -> None:
        """Take a beat."""

    def take_join(self, offer: JoinOffer, answer: Callable[[JoinReply], object]) -> None:
        """Take a request to join."""

    def take_act(self, offer: PersonOffer, answer: Callable[[PersonReply], object]) -> None:
        """Take a login, an act or an answer of a person."""

    def take_admission(self, offer: AdmitOffer | HoldEndOffer, answer: Callable[[AdmitReply | HoldEndReply], object]) -> None:
        """Take a run that wants a hold, or the end of one."""


class WatchdogApp:
    """The ASGI application: a POST for each kind of message."""

    def __init__(self, desk: WatchdogDesk) -> None:
        self._desk = desk
        self._cpu_s, self._used_s, self._filled_at = CPU_BURST_S, 0.0, time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: 200 with a reply, 400 for what no verified message can be, 404 for another path."""
        kind = KINDS.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        await self._wait_for_budget()
        status, body = 404, b""
        if kind is not None:
            try:
                status, body = 200, await self._reply(kind, await _read_body(receive))
            except OfferError as odd:
                get_log().warning("web_message_refused", why=str(odd))
                status, body = 400, str(odd).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _reply(self, kind: type[FromDoor], body: bytes) -> bytes:
        if kind is not BeatOffer:
            return encode_message(await self._take(decode_offer(kind, body)))
        return encode_replies(await asyncio.gather(*(self._take_beat(one) for one in split_beats(body))))

    async def _take_beat(self, body: bytes) -> BeatReply:
        """Have one of several beats committed: what is wrong with it refuses none of the others."""
        try:
            offer = decode_offer(BeatOffer, body)
        except OfferError as odd:
            return BeatReply(MALFORMED, str(odd))
        assert isinstance(offer, BeatOffer)  # noqa: S101 - for the type checker: it was decoded as one
        return await _wait_for_answer(lambda answer: self._desk.take_beat(offer, answer))

    async def _take(self, offer: FromDoor) -> FromWatchdog:
        if isinstance(offer, Pulse):
            return self._desk.take_pulse(offer)
        if isinstance(offer, JoinOffer):
            return await _wait_for_answer(lambda answer: self._desk.take_join(offer, answer))
        if isinstance(offer, AdmitOffer | HoldEndOffer):
            return await _wait_for_answer(lambda answer: self._desk.take_admission(offer, answer))
        assert isinstance(offer, PersonOffer)  # noqa: S101 - beats are taken by several
        return await _wait_for_answer(lambda answer: self._desk.take_act(offer, answer))

    async def _wait_for_budget(self) -> None:
        """Wait until this thread may work: it has used less than its share of a core."""
        while True:
            now, used = time.monotonic(), time.thread_time()
            self._cpu_s = min(CPU_BURST_S, self._cpu_s + (now - self._filled_at) * CPU_SHARE - (used - self._used_s))
            self._filled_at, self._used_s = now, used
            if self._cpu_s > 0:
                return
            await asyncio.sleep(PAUSE_S)


async def _wait_for_answer(take: Callable[[Callable[[_Reply], object]], None]) -> _Reply:
    """Return what `take` has answered, from any thread."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[_Reply] = loop.create_future()

    def settle(reply: _Reply) -> None:
        if not answered.done():
            answered.set_result(reply)

    def answer(reply: _Reply) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(settle, reply)

    take(answer)
    return await asyncio.wait_for(answered, REPLY_S)


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > BODY_MOST:
            raise OfferError(f"a body of more than {BODY_MOST} bytes")
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return bytes(body)


@contextmanager
def serve_desk(desk: WatchdogDesk, bound: socket.socket) -> Iterator[None]:
    """Have a thread take what comes at the socket `bound` while the block runs."""
    config = uvicorn.Config(
        WatchdogApp(desk),
        http="h11",
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="critical",  # what is cut off at the end is refused by the web, and sent again
        access_log=False,
        server_header=False,
        limit_concurrency=IN_FLIGHT_MOST,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: server.run([bound]), name="web-desk", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(END_WAIT_S)
        bound.close()
