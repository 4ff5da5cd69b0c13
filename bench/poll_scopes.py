"""Two parts of `bench.poll` that need no moto: 200 scopes behind a slow network, and decoding 10,000 RunPod pods."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.measured import Measured, cpu, median

SCOPES, LATENCY_S, PODS, ROUNDS = 200, 0.2, 10_000, 9


def scopes() -> Iterator[Measured]:
    """200 RunPod accounts, each answer 200 ms away: pods, then network volumes, of every one, into a ledger."""
    from costguard_runpod import provider

    from costguard.data import ShippedFacts
    from costguard.ledger.spans.writer import LedgerWriter
    from costguard.providers.transport import ProviderContext, Transport
    from costguard.services.poll.poll import poll_sources
    from tests.contract.rig import BILLS, NAMES, NoCache
    from tests.fakes.runpod import KEY
    from tests.fakes.server import Hands

    clock, transport = Hands(), Transport()
    keys = {f"K{i}": KEY for i in range(SCOPES)}
    around = ProviderContext(
        transport=transport, clock=clock, gpus=NAMES, bills=BILLS, cache=NoCache(), environ=keys, home=Path("/nonexistent")
    )
    with _far_away() as base, TemporaryDirectory() as folder:
        sources = [
            provider.open({"base_url": base, "account": f"a{i}", "key_env": f"K{i}", "requests_per_minute": 60_000}, around)[0]
            for i in range(SCOPES)
        ]
        with LedgerWriter(f"sqlite:///{folder}/ledger.db", rules=ShippedFacts().get_billing_rules(), ceilings={}) as ledger:
            took = []
            for _ in range(3):
                began = time.monotonic()
                polled = poll_sources(sources, ledger, clock)
                took.append(time.monotonic() - began)
                clock.at += timedelta(minutes=1)
        whole = sum(one.outcome == "complete" for one in polled.accrued)
    transport.close()
    what = f"{SCOPES} scopes of two requests each, 200 ms away ({whole} seen completely)"
    yield Measured(what=what, target="< 2 s wall", reached=f"{median(took):.2f} s", met=median(took) < 2)


@contextmanager
def _far_away() -> Iterator[str]:
    """A RunPod in a process of its own, all of whose answers take a while; who an account is it does not tell."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.terminate()
        process.join()


def _serve(there: Connection) -> None:
    from tests.fakes.runpod import FakeRunpod
    from tests.fakes.server import serving

    fake = FakeRunpod()
    fake.fault("graphql", "status", status=410)
    fake.fault("", "delay", seconds=LATENCY_S)
    with serving(fake) as base:
        there.send(base)
        while True:
            time.sleep(1)


def decode() -> Iterator[Measured]:
    """10,000 pods: decoded and checked, against msgspec into the same typed structs and nothing more."""
    import msgspec
    from costguard_runpod.pagination import decode_pods
    from costguard_runpod.wire import Pods

    body = json.dumps(
        {"pods": [_pod(i) for i in range(PODS)], "pagination": {"nextCursor": None, "hasNextPage": False}}
    ).encode()
    bare = msgspec.json.Decoder(Pods)
    pairs = [(cpu(lambda: decode_pods(body))[0], cpu(lambda: bare.decode(body))[0]) for _ in range(ROUNDS)]
    ratio = median(ours / theirs for ours, theirs in pairs)
    size, bare_ms = len(body) / 2**20, median(theirs for _, theirs in pairs) * 1e3
    what = f"{PODS:,} RunPod pods ({size:.1f} MiB) decoded and checked / msgspec typed ({bare_ms:.0f} ms)"
    yield Measured(what=what, target="<= 1.5", reached=f"{ratio:.2f}", met=ratio <= 1.5)


def _pod(number: int) -> dict[str, Any]:
    gpus = [{"util": number % 101, "memoryUtil": 40}, {"util": 3, "memoryUtil": 1}]
    return {
        "id": f"k3v9x2m{number:07d}",
        "name": f"train-{number}",
        "status": "RUNNING",
        "actions": ["stop", "restart", "terminate"],
        "image": "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404",
        "disk": 50,
        "mounts": {"persistent": {"size": 20, "path": "/workspace"}},
        "gpu": {"id": "NVIDIA GeForce RTX 4090", "count": 2},
        "cloud": "SECURE",
        "dataCenterId": "EU-RO-1",
        "ports": ["8888/http", "22/tcp"],
        "env": {"COSTGUARD_OWNER": "alice"},
        "cost": 1.38,
        "locked": False,
        "runtime": {"uptime": 3600, "gpus": gpus, "cpu": {"util": 45}, "memory": {"util": 61}},
        "createdAt": "2026-10-01T12:00:00Z",
        "startedAt": "2026-10-01T12:02:00Z",
    }
