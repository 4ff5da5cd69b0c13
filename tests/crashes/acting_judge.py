"""What must hold of acts whoever died over them, read off the cloud's own log, what the dead were told, and the ledger.

    python -m tests.crashes.acting_judge FOLDER       of a ledger in a file; exit 1 where anything is wrong

It knows nothing of costguard, and reads with plain SQL. All of it is only ever added to, so that nothing that was wrong at some
moment can have become right since:

- each request to stop that arrived has, in the same life and before it, a committed row of its own that let it go, for that
  very run of that machine, and has not expired;
- no request met a machine that somebody keeps;
- no intent was planned while another one of the same act on the same life was in doubt (what is lost in doubt runs for ever:
  `Chunk.ends` of tests/crashes/acting_kills.py);
- everything that a life was told to be committed is there, at its instant;
- the chain of the audit is whole.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crashes.judge import as_left

START_US = 1_793_966_400_000_000
"""2026-11-06 12:00 UTC, when the stories begin."""
BEGAN_US = START_US - 9 * 3600 * 10**6
LIFE_US, EXPIRES_US = 45 * 10**6, 30 * 10**6
"""Of the story's time: from one life to the next, and from a row that lets go to its end."""
LAST = 100_000
"""The number of the first life that is left in peace until nothing is left to do, while its time goes on by minutes."""
FIRST = "0" * 64

Ask = Callable[[str], Sequence[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A whole request to stop run `run` of `name`, and what it met. `at_us`: by the clock of the story, if it has one."""

    life: int
    at_us: int | None
    name: str
    run: int
    state: str
    kept: bool


@dataclass(slots=True)
class Found:
    """What is wrong, a sentence each; and how much there was to be wrong."""

    faults: list[str]
    calls: int = 0
    cut_short: int = 0
    uncalled: int = 0
    acknowledged: int = 0
    lost: int = 0
    without_intent: int = 0
    later_lives: int = 0
    late: int = 0


def judged(folder: Path, ask: Ask, origin_s: float | None = None) -> Found:
    """All of a folder's story. `origin_s`: the machine's clock when the story's began, where it goes on by that clock."""
    arrivals, cut_short = read_log(folder / "cloud.jsonl", origin_s)
    found = Found([], calls=len(arrivals), cut_short=cut_short)
    _calls(found, arrivals, ask)
    _acknowledged(found, folder / "acked", ask)
    found.faults += [f"run {one.run} of {one.name} was stopped, and somebody kept it" for one in arrivals if _kept(one)]
    found.faults += [*chain(ask), *doubles(ask)]
    return found


def read_log(path: Path, origin_s: float | None) -> tuple[list[Arrival], int]:
    """What arrived, in order, and how many requests were cut short."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    arrivals = [
        Arrival(
            life=one["life"],
            at_us=None if origin_s is None else START_US + round((one["at_s"] - origin_s) * 10**6),
            name=one["name"],
            run=one["run"],
            state=one["state"],
            kept=one["kept"],
        )
        for one in lines
        if one["what"] == "stop"
    ]
    return arrivals, sum(one["what"] == "cut short" for one in lines)


def _kept(one: Arrival) -> bool:
    return one.kept and one.state == "running"


def _calls(found: Found, arrivals: Sequence[Arrival], ask: Ask) -> None:
    """Each of them beside the row that let it go."""
    let_go: dict[tuple[str, int], list[int]] = {}
    for name, life, at_us in ask(_LET_GO):
        let_go.setdefault((name, (int(life.split("/")[0]) - BEGAN_US) // 1000), []).append(at_us)
    named = {name for name, _ in let_go}
    used: Counter[tuple[str, int, int]] = Counter()
    for one in arrivals:
        mine = let_go.get((one.name, one.run), [])
        here = [at for at in mine if _lets(at, one)]
        fresh = [at for at in here if not used[one.name, one.run, at]]
        if fresh:
            used[one.name, one.run, fresh[0]] += 1
            continue
        what = f"run {one.run} of {one.name} was asked to stop in life {one.life}"
        if any(one.at_us is not None and at <= one.at_us for at in mine) and not here:
            found.late += 1
            found.faults.append(f"{what}, after what let it go had expired")
            continue
        later = one.name in named and not mine
        found.later_lives += later
        found.without_intent += 1
        found.faults.append(f"{what}, and {'only another run of it' if later else 'nothing (more)'} was let go")
    found.uncalled = sum(map(len, let_go.values())) - used.total()
    for name, sends, times in ask(_SENDS):
        if sends != times:
            found.faults.append(f"intent {name} says {sends} sends, and was let go {times} times")


def _lets(at_us: int, one: Arrival) -> bool:
    """Whether what was let go at `at_us` lets this one go: in its life, or by the clock."""
    if one.at_us is None:
        number = (at_us - START_US) // LIFE_US
        return number == one.life or number > one.life >= LAST
    return at_us <= one.at_us < at_us + EXPIRES_US


def _acknowledged(found: Found, path: Path, ask: Ask) -> None:
    there = {(name, state, at_us) for name, state, at_us in ask("SELECT intent_id, moved_to, at_us FROM intent_event")}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        name, state, at_us = line.rsplit(maxsplit=2)
        found.acknowledged += 1
        if (name, state, int(at_us)) not in there:
            found.lost += 1
            found.faults.append(f"that {name} became {state} was acknowledged, and is lost")


def chain(ask: Ask) -> Iterator[str]:
    """Where the audit's rows do not follow each other: the hash of each is over the one before and what it says."""
    previous = FIRST
    for number, (seq, at_us, kind, body, named, hashed) in enumerate(ask(_AUDIT), start=1):
        text = json.dumps([named, seq, at_us, kind, body], separators=(",", ":"))
        if (seq, named) != (number, previous) or hashlib.sha256(text.encode()).hexdigest() != hashed:
            yield f"row {seq} of the audit does not follow the one before it"
            return
        previous = hashed


def doubles(ask: Ask) -> Iterator[str]:
    """Second intents: planned for an act on a life of which an earlier one was in doubt at that moment."""
    doubtful: dict[tuple[str, str, str], str] = {}
    for intent, name, life, act, came_from, state in ask(_MOVES):
        key = (name, life, act)
        if not came_from and key in doubtful:
            yield f"intent {intent} was planned, and {doubtful[key]} of the same act was in doubt"
        if state in ("executing", "verifying", "unconfirmed"):
            doubtful[key] = intent
        elif doubtful.get(key) == intent:
            del doubtful[key]


def in_file(ledger: Path, folder: Path, origin_s: float | None = None) -> Found:
    """Of a ledger in a file, as the last one left it, log and all."""
    with as_left(ledger) as file:
        found = judged(folder, lambda sql: file.execute(sql).fetchall(), origin_s)
        found.faults += [f"the file is damaged: {said}" for (said,) in file.execute("PRAGMA integrity_check") if said != "ok"]
    return found


_LET_GO = """
SELECT i.external_id, i.life, e.at_us FROM intent_event AS e JOIN intent AS i ON i.id = e.intent_id
WHERE e.moved_to = 'executing' ORDER BY e.id
"""
_MOVES = """
SELECT i.id, i.external_id, i.life, i.act, e.moved_from, e.moved_to
FROM intent_event AS e JOIN intent AS i ON i.id = e.intent_id ORDER BY e.id
"""
_SENDS = """
SELECT i.id, i.sends, (SELECT count(*) FROM intent_event AS e WHERE e.intent_id = i.id AND e.moved_to = 'executing'
    AND coalesce((SELECT n.run FROM intent_event AS n WHERE n.intent_id = i.id AND n.id > e.id ORDER BY n.id LIMIT 1), '') = '')
FROM intent AS i
"""
_AUDIT = "SELECT seq, at_us, kind, body, previous, hash FROM audit ORDER BY seq"


def main() -> int:
    """Judge one folder."""
    folder = Path(sys.argv[1])
    found = in_file(folder / "ledger.db", folder)
    for one in found.faults:
        sys.stdout.write(f"{one}\n")
    sys.stdout.write(f"{found.calls} calls, {found.acknowledged} acknowledged, {len(found.faults)} wrong\n")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
