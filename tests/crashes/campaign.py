"""Many deaths in chunks, each chunk a line of a log: what befell it, where, and what went wrong.

    {"commit": "bef3695", "story": "acting", "seed": 1, "chunk": 0, "kills": 100, "windows": {...}, "counts": {}, "wrong": []}

A chunk whose line already exists, of the same commit, story, seed and size, is not played again, so that a campaign goes on
where it was cut off. Everything that a chunk does is drawn from its seed and number; moments between two points are the
machine's.
"""

from __future__ import annotations

import atexit
import json
import os
import platform
import sqlite3
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.crashes.places import cpu_s
from tests.simulation.campaign import commit_now, lines

Line = dict[str, Any]
MOST_PER_CHUNK = 100


@dataclass(frozen=True, slots=True)
class Story:
    """`module`: with `stage()`, what its chunks share, and `play(stage, seed, number, tries, ...)`.

    `chunk`: tries of one. `jobs`: at once. `controls`: what is broken on purpose, by its name for `play`.
    """

    module: str
    about: str
    chunk: int = MOST_PER_CHUNK
    jobs: int = 2
    controls: tuple[str, ...] = ()


STORIES = {
    "acting": Story("acting_kills", "acts, by SIGKILL", controls=("blind", "early", "forgetful")),
    "starving": Story("starving", "acts, out of memory", controls=("blind", "early", "forgetful")),
    "serving": Story(
        "serving", "acts over PostgreSQL, whose processes are killed", jobs=1, controls=("blind", "early", "unsynced")
    ),
    "freezing": Story("freezing", "acts, by SIGSTOP for 1 to 120 s", chunk=20, jobs=1, controls=("late",)),
    "watching": Story("watching", "the installed console script, ended", chunk=20, jobs=1, controls=("twice",)),
    "recording": Story("recording_kills", "polls, by SIGKILL", controls=("early", "torn", "forgetful")),
}

_STACK = ExitStack()
_STAGES: dict[str, Any] = {}


def play(story: str, seed: int, number: int, tries: int, *, task: str | None = None, keep: Path | None = None) -> Line:
    """One chunk, on a stage that this process keeps for the next one."""
    module = import_module(f"tests.crashes.{STORIES[story].module}")
    if story not in _STAGES:
        if not _STAGES:
            atexit.register(_STACK.close)
        opened: Callable[[], AbstractContextManager[Any]] = module.stage
        _STAGES[story] = _STACK.enter_context(opened())
    more, before_s = {} if task is None else {"task": task}, cpu_s()
    try:
        line: Line = module.play(_STAGES[story], seed, number, tries, keep=keep, **more)
    except Exception as error:  # noqa: BLE001 - a chunk that breaks is a finding, and the others go on
        said = [f"{type(error).__name__}: {error}", *traceback.format_exception(error)[-2:-1]]
        line = {"kills": 0, "windows": {}, "counts": {}, "wrong": said, "took_s": 0}
    return line | {"cpu_s": round(cpu_s() - before_s, 2)}


def campaign(story: str, seed: int, tries: int, log: Path | None, *, jobs: int | None = None, first: int = 0) -> Iterator[Line]:
    """Play so many tries of `story` in chunks from number `first` on, and yield each chunk's line once it is in `log`."""
    commit, size = commit_now(), STORIES[story].chunk
    chunks = [(number, min(size, tries - at)) for number, at in enumerate(range(0, tries, size), start=first)]
    kept = lines(log) if log and not commit.endswith("+") else []  # of files that differ from a commit nobody knows which
    done = {_name(one): one for one in kept if one.get("story") == story}
    left = []
    for number, count in chunks:
        if (commit, story, seed, number, count) in done:
            yield done[commit, story, seed, number, count]
        else:
            left.append((number, count))
    with ProcessPoolExecutor(jobs or STORIES[story].jobs, mp_context=get_context("spawn")) as pool:
        played = [pool.submit(play, story, seed, number, count) for number, count in left]
        for (number, count), one in zip(left, played, strict=True):
            whole = {
                "commit": commit,
                "on": time.strftime("%Y-%m-%d", time.gmtime()),
                "story": story,
                "seed": seed,
                "chunk": number,
                "tries": count,
                **one.result(),
            }
            if log:
                with log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(whole, sort_keys=True) + "\n")
            yield whole


def _name(line: Line) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("commit", "story", "seed", "chunk", "tries"))


def summed(found: list[Line]) -> Line:
    """All chunks as one line."""
    windows, counts = Counter[str](), Counter[str]()
    for line in found:
        windows.update(line["windows"])
        counts.update(line["counts"])
    wrong = {line["chunk"]: line["wrong"] for line in found if line["wrong"]}
    kills, used_s = sum(line["kills"] for line in found), sum(line["cpu_s"] for line in found)
    return {"kills": kills, "windows": windows, "counts": counts, "wrong": wrong, "cpu_s": used_s}


def caught(story: str, seed: int) -> dict[str, str]:
    """Each control, and what was found wrong with it; "" where nothing was, which must not be."""
    found = {}
    for task in STORIES[story].controls:
        wrong = next((line["wrong"][0] for n in range(5) if (line := play(story, seed, n, 20, task=task))["wrong"]), "")
        found[task] = wrong
    return found


def machine() -> str:
    """Where it was played."""
    said = f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return f"{time.strftime('%Y-%m-%d', time.gmtime())}, {said}"
