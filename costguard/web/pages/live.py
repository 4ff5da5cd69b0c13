"""Server-sent events: one watcher a process looks for a new guard run, and every open page is told of it.

A stream ends with the login that opened it, within BEAT_EVERY_S.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from costguard.errors import CostguardError
from costguard.values.web_login import WebSession
from costguard.web.pages.room import HEADERS, PageReader, PageRoom

STREAMS_MAX, STREAMS_A_PERSON = 300, 20
"""Open pages at once."""
LOOK_EVERY_S, BEAT_EVERY_S = 5.0, 15.0
TOLD_A_SECOND = 20
"""Pages that are told of a run in one second: each reads itself anew at once (3 ms), and agents' beats come meanwhile."""


class LiveRuns:
    """The id of the last guard run, read once for all open pages; nobody looks while no page is open."""

    def __init__(self, room: PageRoom, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self._room, self._id, self._every_s = room, "", look_every_s
        self._open, self._number = Counter[str](), 0
        self._changed, self.looked = asyncio.Event(), asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None

    async def watch(self, session: WebSession) -> AsyncGenerator[str]:
        """Yield events until the reader leaves: one for each new guard run, and a comment where there is none for long."""
        if self.is_full(session.name):  # as the reader asked, others may not have been open yet
            yield "retry: 60000\n\n"
            return
        self._open[session.name] += 1
        self._number += 1
        number = self._number
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._look())
        try:
            yield "retry: 10000\n\n"
            while await self._room.run(self._room.desk.is_open, session):
                changed = self._changed
                try:
                    await asyncio.wait_for(changed.wait(), BEAT_EVERY_S)
                    await asyncio.sleep(number % self._open.total() / TOLD_A_SECOND)  # each in its turn
                    yield f"event: run\ndata: {self._id}\n\n"
                except TimeoutError:
                    yield ": beat\n\n"
        finally:
            self._open[session.name] -= 1
            self._open += Counter()  # without those who have none
            if not self._open and self._watcher is not None:
                self._watcher.cancel()
                self._watcher = None

    @property
    def is_watching(self) -> bool:
        """Return whether somebody looks for a new run."""
        return self._watcher is not None

    def is_full(self, person: str) -> bool:
        """Return whether no further page of `person` may listen."""
        return self._open.total() >= STREAMS_MAX or self._open[person] >= STREAMS_A_PERSON

    async def _look(self) -> None:
        while True:
            with suppress(CostguardError):
                run = await self._room.run(self._room.services.read_run_id)
                if run != self._id and await self._is_built(run):
                    had_run, self._id = bool(self._id), run
                    if had_run:
                        changed, self._changed = self._changed, asyncio.Event()
                        changed.set()
            self.looked.set()
            await asyncio.sleep(self._every_s)

    async def _is_built(self, run: str) -> bool:
        """Return whether pages would show `run`: it is built once, before anybody is told, or each page would wait for it."""
        return not self._id or (await self._room.load_fleet()).run_id == run


def build_router(room: PageRoom) -> APIRouter:
    """Return the routes."""
    routes, runs = APIRouter(), LiveRuns(room)

    @routes.get("/live")
    @room.open_to()
    async def live(_: Request, reader: PageReader) -> Response:
        if runs.is_full(reader.name):
            return Response(status_code=503, headers={"retry-after": "60"})
        return StreamingResponse(runs.watch(reader.session), media_type="text/event-stream", headers=HEADERS)

    return routes
