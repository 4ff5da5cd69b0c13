"""A whole cycle over a fleet on one machine: poll, samples, snapshot, verdicts and plan. Part of `bench.guard`.

The fleet is `bench.fleet`'s, in ten scopes, with a sample of two signals each five minutes for an hour, as CloudWatch keeps
them. The ledger is filled by one process, and the cycle is another one, so that its memory is its own. What a provider would
answer is made, not asked: requests and their answers are in `bench.poll`.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import fleet
from bench.guard_judge import checked, judged, ruled, seen, told
from bench.measured import Measured
from costguard.ledger.spans.writer import LedgerWriter
from costguard.values.sample import CPU_UTIL, GPU_UTIL, Sample

SCOPES, EVERY, MINUTES = 10, 5, 60
SIGNALS = (GPU_UTIL, CPU_UTIL)
MOST_S, MOST_MB = 30.0, 1000.0


def cycle(*, instances: int = 10_000) -> Iterator[Measured]:
    """Seconds of CPU of each stage, and the most memory, of a process that runs one cycle."""
    with TemporaryDirectory() as folder:
        for stage in ("fill", "run"):
            command = [sys.executable, "-m", "bench.guard_cycle", stage, folder, str(instances)]
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    took = json.loads(answer.stdout)
    most_mb, whole_s = took.pop("mb"), sum(took.values())
    each = f"{instances:,} instances, SQLite, a cycle"
    parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in took.items())
    yield Measured(what=f"{each}: CPU s ({parts})", target=f"< {MOST_S:g}", reached=f"{whole_s:.1f}", met=whole_s < MOST_S)
    yield Measured(what=f"{each}: most memory, MB", target=f"< {MOST_MB:g}", reached=f"{most_mb:.0f}", met=most_mb < MOST_MB)


def fill(url: str, instances: int) -> None:
    """A ledger of the fleet, with samples up to the last five minutes."""
    with LedgerWriter(url, rules=fleet.rules(), ceilings=fleet.CEILINGS) as ledger:
        for scope in fleet.scopes(SCOPES):
            machines = fleet.machines(scope, instances // SCOPES)
            for minute in (0, MINUTES - EVERY):
                ledger.record_polls([fleet.polled(scope, minute, (one.seen() for one in machines))])
            for minute in range(EVERY, MINUTES, EVERY):
                ledger.record_samples(_measure(machines, minute))


def run(url: str, folder: Path, instances: int) -> dict[str, float]:
    """One cycle at the end of the hour: CPU seconds by stage, and `mb`, the most memory that the process held."""
    rules, now, took = ruled(folder), fleet.START + timedelta(minutes=MINUTES), dict[str, float]()
    began = time.process_time()
    with LedgerWriter(url, rules=fleet.rules(), ceilings=fleet.CEILINGS) as ledger:
        for scope in fleet.scopes(SCOPES):
            machines = fleet.machines(scope, instances // SCOPES)
            ledger.record_polls([fleet.polled(scope, MINUTES, (one.seen() for one in machines))])
            ledger.record_samples(_measure(machines, MINUTES))
    took["poll"], began = time.process_time() - began, time.process_time()
    sight = seen(url, now)
    took["read"], began = time.process_time() - began, time.process_time()
    found = judged(rules, sight)
    took["judge and plan"] = time.process_time() - began
    checked(found, instances)
    return {**took, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}


def _measure(machines: list[fleet.Machine], minute: int) -> list[Sample]:
    at = fleet.START + timedelta(minutes=minute)
    return [Sample(key=one.key, signal=signal, at=at, value=told(one.number)[signal]) for one in machines for signal in SIGNALS]


def main() -> None:
    """`fill FOLDER COUNT` or `run FOLDER COUNT`."""
    stage, folder, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    url = f"sqlite:///{folder}/ledger.db"
    if stage == "fill":
        fill(url, count)
    else:
        print(json.dumps(run(url, folder, count)))


if __name__ == "__main__":
    main()
