"""AWS on loopback, and the account over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from costguard_aws.account import AwsAccount

from tests.providers.aws.rig import AwsRig


@pytest.fixture
def rig() -> AwsRig:
    return AwsRig()


@pytest.fixture
def source(rig: AwsRig, tmp_path: Path) -> Iterator[AwsAccount]:
    with rig.opened(tmp_path) as opened:
        assert isinstance(opened, AwsAccount)
        yield opened
