"""Polling real adapters over loopback: CPU against bare boto3, calls, wall time of many scopes, decoding, memory.

    python -m bench.poll [PART ...]        parts: ec2 metrics scopes decode

EC2 is replayed from moto's own bytes (`bench.ec2_replay`), so that moto is not what is measured. Each client is a process
of its own, several in turn; times are CPU, user and system, and ratios are of one run. Nothing asserts them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from bench import poll_scopes
from bench.measured import Measured, median, table

INSTANCES = 5000
ROUNDS = 5
MB_OF_MIB = 1.048576


def main() -> int:
    """0 where every target is met."""
    asked = sys.argv[1:] or list(PARTS)
    if unknown := [word for word in asked if word not in PARTS]:
        sys.exit(f"there is no part {unknown[0]}: name any of {' '.join(PARTS)}")
    return int(sum(table(PARTS[name]()) for name in asked) > 0)


def ec2() -> Iterator[Measured]:
    """5,000 instances with as many disks, listed, priced, metered and written, against a bare describe of the instances."""
    with replayed() as environ, TemporaryDirectory() as folder:
        kept = {**environ, "POLL_LEDGER": f"{folder}/ledger.db"}
        measured("poll", kept)
        runs = [[measured(mode, where) for mode, where in _turn(environ, kept)] for _ in range(ROUNDS)]
    bare, lists, known, new = zip(*runs, strict=True)
    steady = median(k / b for (k, _), (b, _) in zip(known, bare, strict=True))
    first = median(n / b for (n, _), (b, _) in zip(new, bare, strict=True))
    peak, listed, theirs = (max(mib for _, mib in found) for found in ((*known, *new), lists, bare))
    yield Measured(what="bare boto3 describe of 5,000 instances, whole process", reached=f"{median(s for s, _ in bare):.2f} s")
    what = "costguard: instances, disks, addresses, prices, metering, ledger / bare describe of the instances"
    yield Measured(what=what, target="<= 1.15", reached=f"{steady:.2f}", met=steady <= 1.15)
    yield Measured(what="the same, all new, into a ledger made for it / bare describe", reached=f"{first:.2f}")
    what = f"peak memory of a process that lists instances and disks (bare boto3, instances: {theirs * MB_OF_MIB:.0f} MB)"
    yield Measured(what=what, target="< 120 MB", reached=f"{listed * MB_OF_MIB:.0f} MB", met=listed * MB_OF_MIB < 120)
    yield Measured(what="the same, with the ledger that they are written to", reached=f"{peak * MB_OF_MIB:.0f} MB")


def _turn(environ: dict[str, str], kept: dict[str, str]) -> tuple[tuple[str, dict[str, str]], ...]:
    """One run of each client. In `kept` a ledger is named that knows the instances; without it one is made."""
    return (("bare", environ), ("list", environ), ("poll", kept), ("poll", environ))


def metrics() -> Iterator[Measured]:
    """Calls to CloudWatch for 5,000 running instances."""
    with replayed() as environ:
        before = calls(environ)
        measured("poll+metrics", environ)
        after = calls(environ)
    asked = sum(after.get(name, 0) - before.get(name, 0) for name in ("GetMetricData", "ListMetrics"))
    data = after.get("GetMetricData", 0) - before.get("GetMetricData", 0)
    what = "CloudWatch calls for the utilisation of 5,000 running EC2 instances (500 series a call)"
    yield Measured(what=what, target="<= 13", reached=f"{asked}, of which {data} GetMetricData", met=asked <= 13)


@contextmanager
def replayed() -> Iterator[dict[str, str]]:
    """The environment in which AWS is `bench.ec2_replay`."""
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.ec2_replay", str(INSTANCES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None  # noqa: S101 - a pipe was asked for
    try:
        port = server.stdout.readline().strip()
        keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_DEFAULT_REGION": "us-east-1"}
        yield {**os.environ, **keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_EC2_METADATA_DISABLED": "true"}
    finally:
        server.terminate()
        server.communicate()


def calls(environ: dict[str, str]) -> dict[str, int]:
    """What the replay was asked so far."""
    with urllib.request.urlopen(f"{environ['AWS_ENDPOINT_URL']}/calls") as reply:  # noqa: S310 - our own server on loopback
        counted: dict[str, int] = json.loads(reply.read())
    return counted


def measured(mode: str, environ: dict[str, str]) -> tuple[float, float]:
    """CPU seconds and peak MiB of one client."""
    child = subprocess.Popen([sys.executable, "-m", "bench.poll_client", mode], stdout=subprocess.PIPE, env=environ, text=True)
    assert child.stdout is not None  # noqa: S101 - a pipe was asked for
    said = child.stdout.read()
    child.stdout.close()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode or (not mode.startswith("bare") and "complete" not in said):
        sys.exit(f"bench.poll_client {mode} ended with {child.returncode}: {said.strip()}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


PARTS: dict[str, Callable[[], Iterable[Measured]]] = {
    "ec2": ec2,
    "metrics": metrics,
    "scopes": poll_scopes.scopes,
    "decode": poll_scopes.decode,
}

if __name__ == "__main__":
    sys.exit(main())
