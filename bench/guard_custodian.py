"""`costguard watch --once` against Cloud Custodian and fifteen lines of boto3: the same question. Part of `bench.guard`.

Which running machines does their GPU leave idle for 45 minutes? Custodian asks CloudWatch for each machine's mean over them,
the script (`bench.bare_boto3`) for 500 series a call, and so does costguard, which prices and meters what it sees and judges
out of its ledger, which was prepared before: a poll, and HISTORY of samples. All must name the same machines, or nothing is
believed. None acts. CPU is user and system.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.guard_replay import BUCKET_S, BUSY, GPU, METRIC, NAMESPACE, QUIET, idle
from bench.interleaved import compiled, costguard
from bench.measured import Measured, median
from costguard.data import ShippedFacts
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.values.resource import INSTANCE, RUNNING
from costguard.values.sample import GPU_UTIL, Sample

C7N = "c7n==0.9.53"
HISTORY = timedelta(hours=1)
"""Of samples in the ledger before the measured run: more than the rule waits."""
DAYS = timedelta(hours=47)
"""As long as a ledger in use keeps them."""
LARGE, SMALL, LATENCY_MS = 5000, 1000, 50
ROUNDS = 3
OF_CUSTODIAN, OF_BARE = 0.65, 1.6

_ID = re.compile(r"\bi-[0-9a-f]{17}\b")

POLICY = {
    "policies": [
        {
            "name": "gpu-idle",
            "resource": "aws.ec2",
            "filters": [
                {"State.Name": "running"},
                {
                    "type": "metrics",
                    "namespace": NAMESPACE,
                    "name": METRIC,
                    "dimensions": GPU,
                    "days": 45 / 1440,
                    "period": 2700,
                    "op": "lt",
                    "value": 5,
                },
            ],
        }
    ]
}
"""A policy file may be JSON, which is YAML."""

SETTINGS = """
[ledger]
url = "sqlite:///{ledger}"

[watch]
interval = "5m"

[providers.aws]
regions = ["us-east-1"]
signals = ["gpu_util"]

[[policy]]
name = "gpu-idle"
match = {{ gpu = true }}
when = 'state == "idle"'
for = "45m"
then = [{{ do = "notify" }}]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One process: what it took, what it asked for and the machines that it named."""

    cpu_s: float
    wall_s: float
    peak_mib: float
    calls: int
    found: frozenset[str]


def custodian(*, large: int = LARGE, small: int = SMALL, rounds: int = ROUNDS) -> Iterator[Measured]:
    """CPU and calls of a large fleet, wall time of a small one that is far away."""
    program, why = installed()
    if program is None:
        yield Measured(what="Cloud Custodian", reached=f"skipped: {why}")
    compiled()
    each = f"{large:,} instances, a GPU metric of each"
    ours, bare, theirs = _rounds(program, large, 0, rounds)
    for name, others, most in (("custodian run", theirs, OF_CUSTODIAN), ("bare boto3", bare, OF_BARE)):
        if others:
            ratio = median(a.cpu_s / b.cpu_s for a, b in zip(ours, others, strict=True))
            seconds = f"{median(one.cpu_s for one in ours):.2f} s / {median(one.cpu_s for one in others):.2f} s"
            yield Measured(
                what=f"{each}: costguard watch --once / {name}, CPU ({seconds})",
                target=f"<= {most}",
                reached=f"{ratio:.2f}",
                met=ratio <= most,
            )
            yield Measured(what="the same: calls", reached=f"{ours[-1].calls} / {others[-1].calls}")
            yield Measured(what="the same: peak memory, MiB", reached=f"{ours[-1].peak_mib:.0f} / {others[-1].peak_mib:.0f}")
    ours, bare, theirs = _rounds(program, small, LATENCY_MS, rounds)
    for name, others in (("custodian run", theirs), ("bare boto3", bare)):
        if others:
            seconds = f"{median(one.wall_s for one in ours):.2f} s / {median(one.wall_s for one in others):.2f} s"
            yield Measured(what=f"{small:,} instances, {LATENCY_MS} ms away: wall of costguard / {name}", reached=seconds)
    ours, _, _ = _rounds(None, large, 0, 1, DAYS)
    yield Measured(
        what=f"{large:,} instances, two days of samples in the ledger: CPU and peak memory",
        reached=f"{ours[0].cpu_s:.2f} s, {ours[0].peak_mib:.0f} MiB",
    )


def installed() -> tuple[Path | None, str]:
    """The `custodian` command, installed once into an environment of its own ($PEERS, else the cache); None, and why."""
    home = Path(
        os.environ.get("PEERS") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "costguard/peers"
    )
    program = home / "c7n/bin/custodian"
    if program.exists():
        return program, ""
    steps = (
        [sys.executable, "-m", "venv", str(home / "c7n")],
        [str(home / "c7n/bin/python"), "-m", "pip", "install", "--quiet", "--no-input", C7N],
        [str(home / "c7n/bin/python"), "-m", "compileall", "-q", str(home / "c7n/lib")],
    )
    for step in steps[:2]:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(home / "c7n", ignore_errors=True)
            said = (done.stderr.strip() or "nothing").splitlines()[-1]
            return None, f"{C7N} cannot be installed: {said}"
    subprocess.run(steps[2], capture_output=True, check=False)  # a package's own odd file is no reason to stop
    return program, ""


def _rounds(
    program: Path | None, count: int, latency_ms: int, rounds: int, history: timedelta = HISTORY
) -> tuple[list[Run], list[Run], list[Run]]:
    """All in turn, after a run of each that does not count: ours, the bare script's, and Custodian's if it is there."""
    with TemporaryDirectory() as name, served(count, latency_ms) as (aws, expected):
        folder, environ = Path(name), {**aws, "HOME": name}
        ledger = prepared(folder, environ, history)
        ours, bare, theirs = list[Run](), list[Run](), list[Run]()
        for number in range(rounds + 1):
            runs = [_ours(folder, ledger, environ), _bare(environ), *([_theirs(program, folder, environ)] if program else ())]
            if len({one.found for one in runs}) != 1 or len(runs[0].found) != expected:
                counts = ", ".join(str(len(one.found)) for one in runs)
                raise SystemExit(
                    f"{expected} machines idle; costguard, the script and Custodian named {counts}, not all the same"
                )
            for one, kept in zip(runs, (ours, bare, theirs), strict=False):
                if number:
                    kept.append(one)
        return ours, bare, theirs


@contextmanager
def served(count: int, latency_ms: float) -> Iterator[tuple[dict[str, str], int]]:
    """The environment in which AWS is `bench.guard_replay`, and how many of its machines idle."""
    command = [sys.executable, "-m", "bench.guard_replay", str(count), str(latency_ms)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None  # noqa: S101 - a pipe was asked for
    try:
        port, _, expected = server.stdout.readline().split()
        keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_DEFAULT_REGION": "us-east-1"}
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "XDG_CACHE_HOME")}
        more = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_EC2_METADATA_DISABLED": "true"}
        yield {**kept, **keys, **more}, int(expected)
    finally:
        server.terminate()
        server.communicate()


def prepared(folder: Path, environ: Mapping[str, str], history: timedelta) -> Path:
    """A ledger that knows the fleet and its past."""
    path = folder / "prepared.db"
    settings = folder / "prepare.toml"
    settings.write_text(SETTINGS.format(ledger=path), encoding="utf-8")
    _run([*costguard(), "--config", str(settings), "watch", "--once", "--dry-run"], environ)
    remember(f"sqlite:///{path}", history)
    return path


def remember(url: str, history: timedelta) -> None:
    """Give every machine of the ledger a past of samples: a point each five minutes, as CloudWatch keeps them."""
    rules, now = ShippedFacts().get_billing_rules(), datetime.now(UTC)
    with SpendingReader(url, rules=rules) as books:
        seen = [one.observation for one in books.load_live(now)]
    last = int(now.timestamp()) // BUCKET_S
    times = [datetime.fromtimestamp(n * BUCKET_S, UTC) for n in range(last - int(history.total_seconds()) // BUCKET_S, last)]
    running = [one.key for one in seen if one.kind == INSTANCE and one.state == RUNNING]
    with LedgerWriter(url, rules=rules, ceilings={}) as ledger:
        for at in times:
            ledger.record_samples(
                [Sample(key=key, signal=GPU_UTIL, at=at, value=QUIET if idle(key.id) else BUSY) for key in running]
            )


def _ours(folder: Path, prepared: Path, environ: Mapping[str, str]) -> Run:
    ledger, settings = folder / "ledger.db", folder / "costguard.toml"
    for old in folder.glob("ledger.db*"):
        old.unlink()
    shutil.copyfile(prepared, ledger)
    settings.write_text(SETTINGS.format(ledger=ledger), encoding="utf-8")
    run, said = _run([*costguard(), "--config", str(settings), "watch", "--once"], environ)
    return replace(run, found=frozenset(id_ for line in said.splitlines() if ", idle (" in line for id_ in _ID.findall(line)))


def _bare(environ: Mapping[str, str]) -> Run:
    run, said = _run([sys.executable, "-m", "bench.bare_boto3"], environ)
    return replace(run, found=frozenset(json.loads(said)))


def _theirs(program: Path, folder: Path, environ: Mapping[str, str]) -> Run:
    policy, output = folder / "policy.yml", folder / "custodian"
    policy.write_text(json.dumps(POLICY), encoding="utf-8")
    shutil.rmtree(output, ignore_errors=True)
    run, _ = _run([str(program), "run", "--cache-period", "0", "-m", "", "-s", str(output), str(policy)], environ)
    named = json.loads((output / "gpu-idle/resources.json").read_text(encoding="utf-8"))
    return replace(run, found=frozenset(one["InstanceId"] for one in named))


def _run(command: list[str], environ: Mapping[str, str]) -> tuple[Run, str]:
    """CPU, wall, peak and calls of one process, and what it printed."""
    before, began = _calls(environ), time.monotonic()
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(environ)
    )
    assert child.stdout is not None and child.stderr is not None  # noqa: S101, PT018 - pipes were asked for
    said = child.stdout.read().decode()
    complained = child.stderr.read().decode()
    _, status, usage = os.wait4(child.pid, 0)
    wall_s, child.returncode = time.monotonic() - began, os.waitstatus_to_exitcode(status)
    child.stdout.close()
    child.stderr.close()
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {child.returncode}: {complained[-1000:]}")
    calls = _calls(environ) - before
    return Run(
        cpu_s=usage.ru_utime + usage.ru_stime, wall_s=wall_s, peak_mib=usage.ru_maxrss / 1024, calls=calls, found=frozenset()
    ), said


def _calls(environ: Mapping[str, str]) -> int:
    with urllib.request.urlopen(f"{environ['AWS_ENDPOINT_URL']}/calls") as reply:  # noqa: S310 - our own server on loopback
        return sum(json.loads(reply.read()).values())
