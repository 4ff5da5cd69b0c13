"""Reports and back-tests: each runs in a child process with limits, which ends with its request; one at a time for each person.

Their cost grows with the ledger: a report of a year over 40 machines took 4 s of processor time, a back-test of 90 days 50 s
(2026-11). In the process that answers agents and all other readers they would be threads that share one interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from fastapi import Request

from costguard.errors import CostguardError, InputError, LedgerError, NoAnswerError
from costguard.ledger.db.connection import refuse_writes
from costguard.services.serving.web_pages import PageServices
from costguard.system.child.limited import ChildLimits, LimitedChild

LIMITS = ChildLimits(cpu_s=50, wall_s=55.0, memory_bytes=2**30, nice=5)
"""Within the 60 s of a request (`middleware`)."""
CHILDREN_MOST = 2
"""At once; others wait for their turn, and their time runs."""
_Built = TypeVar("_Built")


class PageComputer:
    """Computes with `services` in child processes."""

    def __init__(self, services: PageServices) -> None:
        self._services, self._children = services, asyncio.Semaphore(CHILDREN_MOST)
        self._turns = WeakValueDictionary[str, asyncio.Lock]()

    async def compute(self, request: Request, person: str, build: Callable[..., _Built], *args: object) -> _Built:
        """Return `build(services, *args)`; `build`: a function of a module. Raises what it raises, as text.

        Raises NoAnswerError at a limit, and if whoever asked has left.
        """
        work = asyncio.create_task(
            self._wait_for_turn(person, partial(build_apart, self._services.config, self._services.clock(), build, *args))
        )
        disconnect = asyncio.create_task(_wait_until_gone(request))
        try:
            await asyncio.wait((work, disconnect), timeout=LIMITS.wall_s, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise NoAnswerError(
                    f"was not done within {LIMITS.wall_s:.0f} s",
                    field="this page",
                    hint="choose a shorter time, or try again later",
                )
        finally:
            disconnect.cancel()
            work.cancel()
        built = work.result()
        if isinstance(built, CostguardError):
            raise built
        return built

    async def _wait_for_turn(self, person: str, build: Callable[[], _Built]) -> _Built:
        turn = self._turns.setdefault(person, asyncio.Lock())
        async with turn, self._children:
            child = LimitedChild(build, LIMITS, is_fresh=True)
            try:
                built = await asyncio.to_thread(child.run)
            finally:
                child.end()
        if built is None:
            memory = f"{LIMITS.memory_bytes // 2**20} MiB"
            what = f"takes more than {LIMITS.cpu_s} s of the processor or {memory}"
            raise NoAnswerError(what, field="this page", hint="choose a shorter time")
        return built


def build_apart(config: str | None, now: datetime, build: Callable[..., _Built], *args: Any) -> _Built | CostguardError:  # noqa: ANN401 - of any `build`
    """Return `build` of the services of the settings file at `config`, in a child; a refusal as one that can be pickled."""
    refuse_writes()
    try:
        return build(PageServices(config=config, clock=lambda: now), *args)
    except CostguardError as error:
        kind = LedgerError if isinstance(error, LedgerError) else InputError
        return kind(error.what, field=error.field, hint=error.hint)


async def _wait_until_gone(request: Request) -> None:
    """Wait until whoever asked closes the connection."""
    await request.body()
    while (await request.receive())["type"] != "http.disconnect":
        pass
