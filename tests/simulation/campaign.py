"""Many worlds in chunks, each chunk a line of a log: what was played, what went wrong in it, and what must not have been.

    {"commit": "bef3695", "first": 0, "worlds": 50, "ticks": 3912, "machine_hours": 801.3, "faults": {...}, "violations": {}}

A chunk whose line already exists, of the same commit, is not played again, so that a campaign goes on where it was cut off.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.simulation.drawing import plan_of
from tests.simulation.playing import Played, played
from tests.simulation.sometimes import OF_KIND, SOMETIMES

CHUNK = 25
ROOT = Path(__file__).parents[2]
Line = dict[str, Any]


def campaign(worlds: int, first: int, jobs: int, log: Path, *, chunk: int = CHUNK, kind: str = "") -> Iterator[Line]:
    """Play the worlds of seeds from `first` on, of one kind or as drawn; yield each chunk's line once it is in `log`."""
    commit = commit_now()
    mine = [line for line in lines(log) if line.get("kind", "") == kind]
    done = {(line["commit"], line["first"], line["worlds"]): line for line in mine}
    chunks = [(at, min(chunk, first + worlds - at)) for at in range(first, first + worlds, chunk)]
    for at, count in chunks:
        if (commit, at, count) in done:
            yield done[commit, at, count]
    left = [(at, count) for at, count in chunks if (commit, at, count) not in done]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for line in pool.map(played_chunk, [at for at, _ in left], [count for _, count in left], [kind] * len(left)):
            whole = {"commit": commit, "on": time.strftime("%Y-%m-%d", time.gmtime()), **line}
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(whole, sort_keys=True) + "\n")
            yield whole


def played_chunk(first: int, worlds: int, kind: str = "") -> Line:
    """The worlds of so many seeds, as a line."""
    began, hashed = time.process_time(), hashlib.sha256()
    faults, met, violations = Counter[str](), Counter(dict.fromkeys(SOMETIMES, 0)), dict[str, list[str]]()
    ticks = acts = requests = 0
    hours = 0.0
    for seed in range(first, first + worlds):
        try:
            one: Played = played(plan_of(seed, kind))
        except Exception as error:  # noqa: BLE001 - a world that breaks is a finding, and the others go on
            violations[named(seed, kind)] = [f"{type(error).__name__}: {error}"]
            continue
        hashed.update(one.hash.encode())
        faults.update(one.effects)
        met.update(one.sometimes)
        ticks, hours, acts, requests = ticks + one.ticks, hours + one.hours, acts + one.asked, requests + one.requests
        if one.wrong:
            violations[named(seed, kind)] = list(one.wrong[:5])
    return {
        "first": first,
        "worlds": worlds,
        "ticks": ticks,
        "machine_hours": round(hours, 2),
        "acts": acts,
        **({"kind": kind, "requests": requests} if kind else {}),
        "faults": dict(sorted(faults.items())),
        "faults_total": faults.total(),
        "sometimes": dict(met),
        "violations": violations,
        "hash": hashed.hexdigest(),
        "cpu_s": round(time.process_time() - began, 1),
    }


def named(seed: int, kind: str) -> str:
    """How the command line calls the world."""
    return f"{kind}:{seed}" if kind else str(seed)


def due_of(worlds: int) -> int:
    """How often each of SOMETIMES must be met in so many worlds: a hundred times in a thousand of them and more."""
    return min(100, worlds // 10)


def summed(found: list[Line]) -> Line:
    """All chunks as one line, and which rare moments of their kinds were met less often than is due."""
    met, faults = Counter(dict.fromkeys(SOMETIMES, 0)), Counter[str]()
    for line in found:
        met.update(line["sometimes"])
        faults.update(line["faults"])
    total: Line = {name: sum(line[name] for line in found) for name in ("worlds", "ticks", "acts", "faults_total", "cpu_s")}
    total["requests"] = sum(line.get("requests", 0) for line in found)
    total["machine_hours"] = round(sum(line["machine_hours"] for line in found), 1)
    total |= {"faults": dict(sorted(faults.items())), "sometimes": dict(met)}
    due = {what for line in found for what in OF_KIND[line.get("kind", "")]}
    total["rare"] = {what: count for what, count in met.items() if what in due and count < due_of(total["worlds"])}
    total["violations"] = {seed: wrong for line in found for seed, wrong in line["violations"].items()}
    return total


def lines(log: Path) -> list[Line]:
    """What is in `log`; a last line that was cut off is none."""
    found = list[Line]()
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def commit_now() -> str:
    """The commit that is played, with a plus where files differ from it; "" where there is no git."""
    try:
        told = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--dirty=+"]
        return subprocess.run(told, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
