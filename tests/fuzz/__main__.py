"""`python -m tests.fuzz [TARGET ...] --seconds 30 --jobs 2`: try changed inputs, and keep those that pass a bound.

Each target runs in a process of its own, which the kernel ends where an input takes too much. What fails is written to
tests/fuzz/corpus/TARGET and is tried first from then on, by the tests too: mend the reader, and commit the file.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from time import monotonic

import hypothesis

from tests.fuzz.bounds import BoundError, Meter, shrink
from tests.fuzz.mutation import change_inputs
from tests.fuzz.targets import TARGETS, Target

CORPUS = Path(__file__).parent / "corpus"
EXAMPLES = 500
"""Inputs of one run of hypothesis: the target goes on with another seed."""
WORKER, CURRENT = "--worker", "current"


def main(words: Sequence[str]) -> int:
    """Run the targets; return 1 if an input passed a bound."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", default=secrets.token_hex(8), help="the same inputs in the same order; else others each time")
    parser.add_argument(WORKER, metavar="FOLDER", type=Path)
    asked = parser.parse_args(words)
    if asked.worker:
        return fuzz_target(TARGETS[asked.targets[0]], asked.worker, asked.seconds, asked.seed)
    names = asked.targets or list(TARGETS)
    with ThreadPoolExecutor(asked.jobs) as pool:
        return max(pool.map(lambda name: run_worker(name, asked.seconds, asked.seed), names))


def run_worker(name: str, seconds: float, seed: str) -> int:
    """Run a target in a process; return 1, with its input in the corpus, if it fails or the kernel ended it."""
    with tempfile.TemporaryDirectory(prefix="costguard-fuzz-") as folder:
        words = (sys.executable, "-m", "tests.fuzz", name, "--seconds", str(seconds), "--seed", seed, WORKER, folder)
        process = subprocess.run(words, capture_output=True, text=True, check=False)
        report = process.stdout.strip() or f"{name}: {process.stderr[-2000:]}"
        if process.returncode not in (0, 1):
            path = keep(name, (Path(folder) / CURRENT).read_bytes())
            report = f"{name}: ended by {-process.returncode or process.returncode}, see {path}\n{process.stderr[-2000:]}"
    sys.stdout.write(f"{report}\n")
    sys.stdout.flush()
    return min(1, abs(process.returncode))


def fuzz_target(target: Target, folder: Path, seconds: float, seed: str) -> int:
    """Try inputs for some seconds, the corpus first. `seed`: chooses them."""
    logging.disable()
    with target.open_reader(folder / "") as read:
        meter = Meter(read, target.refusals, folder / CURRENT)
        seeds = [*target.seeds(), *read_corpus(target.name)]
        for one in target.seeds():  # what it loads once counts for none
            meter.take(one, limited=False)
        ends, times = monotonic() + seconds, 0
        while not times or monotonic() < ends:
            failing = try_inputs(target, meter, seeds, ends, f"{seed}/{times}")
            if failing is not None:
                return report_failure(target, meter, *failing)
            times += 1
    figures = f"at most {meter.cpu_s:.2f} s of CPU and {meter.memory_bytes / 1e6:.0f} MB"
    sys.stdout.write(f"{target.name}: {meter.count} inputs in {seconds:g} s, {figures}\n")
    return 0


def try_inputs(target: Target, meter: Meter, seeds: Sequence[bytes], ends: float, seed: str) -> tuple[bytes, BoundError] | None:
    """Return an input that passes a bound, and which; None: there is none among EXAMPLES, or the time is over.

    The corpus comes first.
    """
    failing: list[tuple[bytes, BoundError]] = []

    @hypothesis.seed(int.from_bytes(sha256(seed.encode()).digest()[:8]))
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(change_inputs(seeds, target.bytes_max))
    def try_one(data: bytes) -> None:
        if not failing and monotonic() < ends:
            take(data)

    def take(data: bytes) -> None:
        try:
            meter.take(data)
        except BoundError as error:
            failing.append((data, error))

    for data in read_corpus(target.name):
        take(data)
    if not failing:
        try_one()
    return failing[0] if failing else None


def report_failure(target: Target, meter: Meter, data: bytes, error: BoundError) -> int:
    """Write the input to the corpus, made smaller, and say which bound it passes."""
    kind = str(error)[:30]

    def fails(smaller: bytes) -> bool:
        try:
            meter.take(smaller)
        except BoundError as other:
            return str(other)[:30] == kind
        return False

    if "CPU" not in kind and "MB" not in kind:
        data = shrink(data, fails)
    cause = error.__cause__
    while cause is not None and cause.__traceback__ is not None and cause.__traceback__.tb_next is not None:
        cause.__traceback__ = cause.__traceback__.tb_next
    where = (
        f"{cause.__traceback__.tb_frame.f_code.co_filename}:{cause.__traceback__.tb_lineno}"
        if cause and cause.__traceback__
        else ""
    )
    sys.stdout.write(f"{target.name}: {error} ({where}), see {keep(target.name, data)}: {data[:200]!r}\n")
    return 1


def read_corpus(name: str) -> list[bytes]:
    """The inputs that once passed a bound of a target."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]


def keep(name: str, data: bytes) -> Path:
    """Write an input to the corpus of a target."""
    path = CORPUS / name / sha256(data).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
