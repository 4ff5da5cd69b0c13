"""No waiting between tries: the paces are tried by themselves in `test_api.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stamina

from costguard.providers.transport import Deadline, TokenBucket
from costguard.providers.transport.channel import CircuitBreakers
from tests.providers.vast.rig import VastRig


@pytest.fixture(autouse=True)
def without_pauses(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Buckets have enough and circuits stay closed, unless a test is marked to have the real ones."""
    if "real_paces" not in request.fixturenames:

        def take(self: TokenBucket, deadline: Deadline, *, act: bool = False) -> bool:  # noqa: ARG001 - the real one's signature
            return self._closed_until - self._monotonic() <= deadline.compute_left()

        monkeypatch.setattr(TokenBucket, "acquire", take)
        monkeypatch.setattr(CircuitBreakers, "reserve_probe", lambda _self, _scope: 0.0)
    with stamina.set_testing(True, attempts=3, cap=True):
        yield


@pytest.fixture
def real_paces() -> None:
    """Ask for the real buckets."""


@pytest.fixture
def rig() -> VastRig:
    return VastRig()


@pytest.fixture
def source(rig: VastRig, tmp_path: Path) -> Iterator[Any]:
    with rig.opened(tmp_path) as found:
        yield found
