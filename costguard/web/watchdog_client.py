"""The web's side: what agents, people and launchers say is handed to the watchdog over HTTP on its Unix socket.

A message is answered after the commit. If the watchdog cannot be reached, its sender is refused and sends it again: the ledger
takes a message once.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from datetime import datetime
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import httpx2

from costguard.agents.messages import MALFORMED, NO_WATCHDOG, TOO_OFTEN, MessageRefusedError
from costguard.services.serving.door_messages import (
    BEATS_MOST,
    PATHS,
    BeatOffer,
    BeatReply,
    FromDoor,
    OfferError,
    Pulse,
    RunNote,
    decode_reply,
    encode_beats,
    encode_message,
)
from costguard.values.instant import from_micros

PULSE_S = 1.0
"""Seconds between two questions for the last run of the guard."""
CONNECT_S, REPLY_S = 10.0, 58.0
"""Seconds to connect, and for an answer: a stop that a person confirmed waits for its proof."""
CONNECTIONS_MOST, WAITING_MOST = 64, 2000
"""Messages under way at once, and those that may wait for a turn here: the pool's own queue takes time by its square."""
SENDERS_MOST = 8
"""Requests with beats under way at once; each has up to BEATS_MOST."""
OUT_OF_MEMORY_EXIT = 71
OK, BAD_REQUEST = 200, 400

_Reply = TypeVar("_Reply")


class WatchdogClient:
    """Asks the watchdog that listens at `path`; None: there is none. `is_child`: the watchdog started this process.

    `foreign`: returns the agents in whose name foreign messages came. `note_run`: called with a run that is not in the ledger.
    `is_outdated`: whether this process must start again.
    """

    def __init__(self, path: Path | None, *, is_child: bool = False) -> None:
        self._path, self._is_child = path, is_child
        self._http: httpx2.AsyncClient | None = None
        self._beats: deque[tuple[BeatOffer, asyncio.Future[BeatReply]]] = deque()
        self._senders = set[asyncio.Task[None]]()
        self._turns, self._waiting = asyncio.Semaphore(CONNECTIONS_MOST), 0
        self.foreign: Callable[[], list[tuple[str, int]]] = list
        self.note_run: Callable[[datetime], object] = lambda _: None
        self.is_outdated: Callable[[], bool] = lambda: False

    async def ask(self, offer: FromDoor, kind: type[_Reply]) -> _Reply:
        """Hand over `offer`, and return the reply. Raises MessageRefusedError if no watchdog takes it."""
        if isinstance(offer, BeatOffer):
            return cast("_Reply", await self._ask_together(offer))
        return await self._post(PATHS[type(offer)], _encode(offer), kind)

    async def _ask_together(self, offer: BeatOffer) -> BeatReply:
        """Hand over a beat with those that come while others are under way: a request for each would cost the web 1 ms more."""
        if len(self._beats) >= WAITING_MOST:
            raise MessageRefusedError(TOO_OFTEN, "too many messages wait to be written", wait_s=5)
        reply: asyncio.Future[BeatReply] = asyncio.get_running_loop().create_future()
        self._beats.append((offer, reply))
        if len(self._senders) < SENDERS_MOST:
            task = asyncio.create_task(self._send_beats())
            self._senders.add(task)
            task.add_done_callback(self._senders.discard)
        return await reply

    async def _send_beats(self) -> None:
        while self._beats:
            beats = [self._beats.popleft() for _ in range(min(BEATS_MOST, len(self._beats)))]
            try:
                replies = await self._post(PATHS[BeatOffer], encode_beats([offer for offer, _ in beats]), list[BeatReply])
            except MessageRefusedError as refused:
                for _, reply in beats:
                    if not reply.done():
                        reply.set_exception(refused)
                continue
            for (_, reply), beat_reply in zip(beats, chain(replies, repeat(BeatReply(NO_WATCHDOG, wait_s=5))), strict=False):
                if not reply.done():
                    reply.set_result(beat_reply)

    async def _post(self, path: str, body: bytes, kind: type[_Reply]) -> _Reply:
        if self._path is None:
            raise MessageRefusedError(NO_WATCHDOG, wait_s=5)
        if self._http is None:
            limits = httpx2.Limits(max_connections=CONNECTIONS_MOST, max_keepalive_connections=CONNECTIONS_MOST)
            self._http = httpx2.AsyncClient(
                transport=httpx2.AsyncHTTPTransport(uds=str(self._path), limits=limits),
                timeout=httpx2.Timeout(REPLY_S, connect=CONNECT_S),
                trust_env=False,
            )
        if self._waiting >= WAITING_MOST:
            raise MessageRefusedError(TOO_OFTEN, "too many messages wait to be written", wait_s=5)
        self._waiting += 1
        try:
            async with self._turns:
                response = await self._http.post(f"http://watchdog{path}", content=body)
        except httpx2.HTTPError:
            raise MessageRefusedError(NO_WATCHDOG, wait_s=5) from None
        finally:
            self._waiting -= 1
        if response.status_code == BAD_REQUEST:
            raise MessageRefusedError(MALFORMED, response.text)
        if response.status_code != OK:
            raise MessageRefusedError(TOO_OFTEN, "too many messages wait to be written", wait_s=5)
        try:
            return decode_reply(kind, response.content)
        except OfferError:
            raise MessageRefusedError(NO_WATCHDOG, wait_s=5) from None

    async def run(self, ended: Callable[[], object]) -> None:
        """Ask for the last run of the guard until cancelled. `ended`: called when the watchdog that started this is gone."""
        parent = os.getppid()
        while True:
            try:
                note = await self.ask(Pulse(self.foreign()), RunNote)
            except MessageRefusedError:
                note = RunNote()
            if note.at_us and not note.committed:
                self.note_run(from_micros(note.at_us))
            if self.is_outdated() or (self._is_child and os.getppid() != parent):
                ended()
                return
            await asyncio.sleep(PULSE_S)

    async def close(self) -> None:
        """Close its connections."""
        if self._http is not None:
            await self._http.aclose()


def _encode(offer: FromDoor) -> bytes:
    try:
        return encode_message(offer)
    except UnicodeEncodeError as odd:
        raise MessageRefusedError(MALFORMED, str(odd)) from None


def handle_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle an exception of the event loop: a process without memory ends, and is started anew."""
    if isinstance(context.get("exception"), MemoryError):
        end_without_memory()
    loop.default_exception_handler(context)


def end_without_memory() -> NoReturn:
    """End this process at once: after a MemoryError nobody knows what is half done."""
    os._exit(OUT_OF_MEMORY_EXIT)
