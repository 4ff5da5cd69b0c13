"""The door's end of the channel to the watchdog: questions with numbers, and a Pulse every second.

A question is answered after the commit. If the channel breaks, every open question is refused: its sender asks again, and the
ledger takes a message once.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, NoReturn, TypeVar

from costguard.agents.messages import MALFORMED, NO_WATCHDOG, TOO_OFTEN, MessageRefusedError
from costguard.services.door_messages import (
    LENGTH,
    AdmitOffer,
    AdmitReply,
    BeatOffer,
    BeatReply,
    FrameError,
    HoldEndOffer,
    HoldEndReply,
    JoinOffer,
    JoinReply,
    PersonOffer,
    PersonReply,
    Pulse,
    RunNote,
    decode_from_door,
    decode_from_watchdog,
    encode_frame,
    split_frames,
)
from costguard.system.logs import get_log
from costguard.values.instant import from_micros

PULSE_S, AGAIN_S = 1.0, 1.0
"""Seconds between two signs of life, and between two tries to connect."""
WAITING_MOST = 2000
"""Questions that may be open; bytes that may wait to be sent are bounded by them."""
WRITE_MOST = 8 * 2**20
FRAMES_AT_ONCE = 10_000
OUT_OF_MEMORY_EXIT = 71

Connect = Callable[[], socket.socket | None]
Question = BeatOffer | JoinOffer | PersonOffer | AdmitOffer | HoldEndOffer
_Reply = TypeVar("_Reply", BeatReply, JoinReply, PersonReply, AdmitReply, HoldEndReply)


class WatchdogLink:
    """The channel. `connect`: returns a connected socket; None: there is no watchdog. `is_child`: the watchdog started this.

    `foreign`: returns the agents in whose name foreign messages came. `note_run`: called with a run that is not in the ledger.
    """

    def __init__(self, connect: Connect, *, is_child: bool = False) -> None:
        self._connect, self._is_child = connect, is_child
        self.foreign: Callable[[], list[tuple[str, int]]] = list
        self.note_run: Callable[[datetime], object] = lambda _: None
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self.tried = asyncio.Event()
        """Set once the channel is open, or there was no watchdog at the first try."""

    async def ask(self, pack: Callable[[int], Question], kind: type[_Reply]) -> _Reply:
        """Send a question, and return its reply. Raises MessageRefusedError if no watchdog takes it."""
        writer = self._writer
        if writer is None:
            raise MessageRefusedError(NO_WATCHDOG, wait_s=5)
        if len(self._waiting) >= WAITING_MOST or writer.transport.get_write_buffer_size() > WRITE_MOST:
            raise MessageRefusedError(TOO_OFTEN, "too many messages wait to be written", wait_s=5)
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        frame = _encode_question(pack(number))
        self._waiting[number] = answer
        try:
            writer.write(frame)
            reply = await answer
        finally:
            self._waiting.pop(number, None)
        if not isinstance(reply, kind):
            raise MessageRefusedError(NO_WATCHDOG, wait_s=5)
        return reply

    async def run(self, ended: Callable[[], object]) -> None:
        """Keep the channel until it is cancelled. `ended`: called when the watchdog that started this process is gone."""
        while True:
            wire = self._connect()
            if wire is not None:
                await self._speak(wire)
            self.tried.set()
            if self._is_child:
                ended()
                return
            await asyncio.sleep(AGAIN_S)

    async def _speak(self, wire: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=wire)
        self._writer = writer
        self.tried.set()
        get_log().info("watchdog_connected")
        pulse = asyncio.create_task(self._send_pulses(writer))
        try:
            await self._read(reader)
        except (OSError, FrameError) as error:
            get_log().warning("watchdog_disconnected", why=str(error))
        finally:
            self._writer = None
            pulse.cancel()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(MessageRefusedError(NO_WATCHDOG, wait_s=5))
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        inbox = bytearray()
        while came := await reader.read(64 * 1024):
            inbox += came
            for body in split_frames(inbox, FRAMES_AT_ONCE):
                message = decode_from_watchdog(body)
                if isinstance(message, RunNote):
                    if not message.committed:
                        self.note_run(from_micros(message.at_us))
                    continue
                answer = self._waiting.get(message.number)
                if answer is not None and not answer.done():
                    answer.set_result(message)

    async def _send_pulses(self, writer: asyncio.StreamWriter) -> None:
        """Send signs of life from the event loop: one that hangs sends none, and is restarted."""
        with suppress(OSError):
            while True:
                writer.write(encode_frame(Pulse(self.foreign())))
                await asyncio.sleep(PULSE_S)


def handle_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle an exception of the event loop: a process without memory ends, and is started anew."""
    if isinstance(context.get("exception"), MemoryError):
        end_without_memory()
    loop.default_exception_handler(context)


def end_without_memory() -> NoReturn:
    """End this process at once: after a MemoryError nobody knows what is half done."""
    os._exit(OUT_OF_MEMORY_EXIT)


def _encode_question(question: Question) -> bytes:
    """Return the frame of a question. Raises MessageRefusedError for one that the watchdog would close the channel for.

    A beat is not decoded a second time: its parts were checked when it was verified, and there are many.
    """
    try:
        frame = encode_frame(question)
        if not isinstance(question, BeatOffer):
            decode_from_door(frame[LENGTH.size :])
    except (FrameError, UnicodeEncodeError) as odd:
        raise MessageRefusedError(MALFORMED, str(odd)) from None
    return frame
