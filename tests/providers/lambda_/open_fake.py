"""A rig that is open: its fake over loopback, and the account that asks it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from costguard_lambda.account import LambdaAccount

from costguard.metering.inventory import Failed, Poll
from costguard.metering.observation import Observation
from costguard.values.resource import ResourceKey
from tests.fakes.lambda_ import wire_id
from tests.providers.lambda_.rig import LambdaRig


@contextmanager
def account(rig: LambdaRig, home: Path, **more: Any) -> Iterator[LambdaAccount]:  # noqa: ANN401 - further settings
    with rig.opened(home, **more) as source:
        assert isinstance(source, LambdaAccount)
        yield source


def polled(source: LambdaAccount) -> Poll:
    return source.poll(source.list_scopes()[0])


def items(poll: Poll) -> dict[str, Observation]:
    """Id -> what is listed."""
    assert not isinstance(poll.inventory, Failed), poll.inventory
    return {item.key.id: item for item in poll.inventory.items}


def key(id_: str, region: str = "us-west-1") -> ResourceKey:
    return ResourceKey("lambda", "default", region, wire_id(id_))
