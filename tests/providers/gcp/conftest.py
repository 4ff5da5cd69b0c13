"""A project that is watched: the rig, opened over loopback, without waiting between requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import stamina
from costguard_gcp.account import GcpAccount

from costguard.providers.transport import TokenBucket
from tests.providers.gcp.rig import GcpRig


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Buckets have enough, and tries follow each other at once."""
    monkeypatch.setattr(TokenBucket, "acquire", lambda _self, _deadline, *, act=False: True)  # noqa: ARG005 - the real one's signature
    with stamina.set_testing(True, attempts=2, cap=True):
        yield


@pytest.fixture
def rig() -> GcpRig:
    """Google Cloud with nothing in it."""
    return GcpRig()


@pytest.fixture
def account(rig: GcpRig, tmp_path: Path) -> Iterator[GcpAccount]:
    """The account over it."""
    with rig.opened(tmp_path) as opened:
        assert isinstance(opened, GcpAccount)
        yield opened
