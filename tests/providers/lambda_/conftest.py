"""Lambda with nothing in it."""

from __future__ import annotations

import pytest

from tests.providers.lambda_.rig import LambdaRig


@pytest.fixture
def rig() -> LambdaRig:
    return LambdaRig()
