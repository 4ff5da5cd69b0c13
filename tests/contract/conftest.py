"""The suite's adapters, and what holds for each of its cases: no waiting between tries, and no secret in any output."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest
import stamina

from costguard.providers.transport import Deadline, TokenBucket
from costguard.providers.transport.channel import CircuitBreakers
from tests.contract.adapters import RIGS
from tests.contract.case import Case
from tests.contract.rig import Rig

WIRE_LOGS = ("httpx2", "httpcore2", "urllib3", "botocore", "boto3", "google", "stamina")


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.proof if name == "moto" else ()) for name in RIGS])
def rig(request: pytest.FixtureRequest) -> Rig:
    """A new rig of each adapter in turn."""
    module = RIGS[request.param]
    if find_spec(module) is None:
        pytest.skip(f"{module} does not exist yet")
    kinds = [one for one in vars(importlib.import_module(module)).values() if isinstance(one, type) and issubclass(one, Rig)]
    return next(kind for kind in kinds if kind is not Rig and not getattr(kind, "__abstractmethods__", ()))()


@pytest.fixture
def case(rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[Case]:
    """A try of the rig's adapter; at its end nothing that was said, logged or printed holds a secret."""
    caplog.set_level(logging.DEBUG)
    for name in WIRE_LOGS:
        caplog.set_level(logging.DEBUG, logger=name)
    with ExitStack() as stack:
        tried = Case(rig, tmp_path, stack)
        yield tried
    printed = capfd.readouterr()
    logged = [
        f"{record.getMessage()} {record.exc_text or ''}" for phase in ("setup", "call") for record in caplog.get_records(phase)
    ]
    for text in (*tried.heard, *logged, printed.out, printed.err):
        assert not tried.found_secrets(text), text


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tries follow each other at once, buckets have enough, circuits stay closed: tests/transport tries all three."""

    def take(self: TokenBucket, deadline: Deadline, *, act: bool = False) -> bool:  # noqa: ARG001 - the real one's signature
        return self._closed_until - self._monotonic() <= deadline.compute_left()

    monkeypatch.setattr(TokenBucket, "acquire", take)
    monkeypatch.setattr(CircuitBreakers, "reserve_probe", lambda _self, _scope: 0.0)
    with stamina.set_testing(True, attempts=3, cap=True):
        yield
