"""What is computed apart: it ends with its request and at its limits, one at a time for each person, and its refusals stay."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fastapi import Request

from costguard.errors import InputError, LedgerError, NoAnswerError
from costguard.services.serving.web_pages import PageServices
from costguard.system.child.limited import LimitedChild
from costguard.web.pages import computation
from costguard.web.pages.computation import PageComputer


def tell(services: PageServices, word: str) -> str:
    return f"{word} {services.config}"


def compute_for_ever(_: PageServices, note: Path) -> None:
    note.write_text(str(os.getpid()))
    while True:
        pass


def hold_turn(_: PageServices, path: Path) -> bool:
    """Return whether no other process has it at the same time."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        time.sleep(0.3)  # another process would come meanwhile
        return True


def refuse(_: PageServices, kind: type[InputError | LedgerError]) -> None:
    raise kind("is wrong", field="the question", hint="ask another one")


def ask(leaves: Callable[[], Awaitable[object]]) -> Request:
    """A request without a body, of somebody who waits until `leaves` returns."""
    first = True

    async def receive() -> dict[str, object]:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": b"", "more_body": False}
        await leaves()
        return {"type": "http.disconnect"}

    return Request({"type": "http", "method": "GET", "path": "/", "headers": []}, receive)


async def stay() -> None:
    await asyncio.Event().wait()


@pytest.fixture
def computer(tmp_path: Path) -> PageComputer:
    config = tmp_path / "costguard.toml"
    config.write_text(f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\n')
    return PageComputer(PageServices(config=str(config)))


def test_the_child_has_the_services_of_the_same_settings(computer: PageComputer, tmp_path: Path) -> None:
    assert asyncio.run(computer.compute(ask(stay), "ada", tell, "hello")) == f"hello {tmp_path}/costguard.toml"


def test_it_ends_with_its_request(computer: PageComputer, tmp_path: Path) -> None:
    note = tmp_path / "pid"

    async def leave() -> None:
        while not note.exists() or not note.read_text():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)

    with pytest.raises(NoAnswerError):
        asyncio.run(computer.compute(ask(leave), "ada", compute_for_ever, note))
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_a_child_that_is_ended_before_it_started_does_not_start(tmp_path: Path) -> None:
    child = LimitedChild(partial(compute_for_ever, PageServices(config=None), tmp_path / "pid"), computation.LIMITS)
    child.end()
    assert child.run() is None
    assert not (tmp_path / "pid").exists()


def test_at_its_limit_of_processor_time_it_ends_and_the_page_says_so(
    computer: PageComputer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computation, "LIMITS", replace(computation.LIMITS, cpu_s=1))
    with pytest.raises(NoAnswerError, match="takes more than 1 s of the processor or 1024 MiB"):
        asyncio.run(computer.compute(ask(stay), "ada", compute_for_ever, tmp_path / "pid"))


def test_one_person_has_one_at_a_time(computer: PageComputer, tmp_path: Path) -> None:
    async def compute_three(*people: str) -> list[bool]:
        return await asyncio.gather(*(computer.compute(ask(stay), who, hold_turn, tmp_path / "turn") for who in people))

    assert asyncio.run(compute_three("ada", "ada", "ada")) == [True, True, True]


@pytest.mark.parametrize("kind", [InputError, LedgerError])
def test_a_refusal_stays_what_it_was(computer: PageComputer, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="the question: is wrong\nhint: ask another one"):
        asyncio.run(computer.compute(ask(stay), "ada", refuse, kind))
