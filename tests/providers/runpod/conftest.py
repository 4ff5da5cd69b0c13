"""An account of the real plug-in over the fake, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import stamina
from costguard_runpod.account import RunpodAccount

from tests.providers.runpod.rig import RunpodRig


@pytest.fixture
def rig() -> RunpodRig:
    return RunpodRig()


@pytest.fixture
def account(rig: RunpodRig, tmp_path: Path) -> Iterator[RunpodAccount]:
    with stamina.set_testing(True, attempts=3, cap=True), rig.opened(tmp_path) as opened:
        assert isinstance(opened, RunpodAccount)
        yield opened
