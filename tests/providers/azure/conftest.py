"""A subscription that is watched: the rig, opened over loopback, without waiting between requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import stamina
from costguard_azure.account import AzureAccount

from costguard.providers.transport import TokenBucket
from tests.providers.azure.rig import AzureRig


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Buckets have enough, and tries follow each other at once."""
    monkeypatch.setattr(TokenBucket, "acquire", lambda _self, _deadline, *, act=False: True)  # noqa: ARG005 - the real one's signature
    with stamina.set_testing(True, attempts=2, cap=True):
        yield


@pytest.fixture
def rig() -> AzureRig:
    """Azure with nothing in it."""
    return AzureRig()


@pytest.fixture
def account(rig: AzureRig, tmp_path: Path) -> Iterator[AzureAccount]:
    """The account over it."""
    with rig.opened(tmp_path) as opened:
        assert isinstance(opened, AzureAccount)
        yield opened
